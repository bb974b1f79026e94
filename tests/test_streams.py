"""Tests between pairs of ranks: the share of the datasheet that streams get, and α."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from oracle.calibration.calibrate import calibrate
from oracle.calibration.streams import links
from oracle.readers.logs import Reading, Sample
from oracle.spec import catalogue
from oracle.spec.system import System

MIB = 2.0**20
FRONTERA = catalogue.system("frontera")


def pairs(groups: int, rate: float, nbytes: float = 4 * MIB, **more: object) -> Sample:
    """Streams of so many pairs between two nodes, `rate` bytes a second in all."""
    one = Sample("sendrecv", nbytes, groups * nbytes / rate, 2, 2, 1, groups=groups, window=64,
                 library="mpi", memory="host", where="job.log:1")  # fmt: skip
    return one._replace(**more)


def told(*samples: Sample, ports: float = 2.0, system: System = FRONTERA) -> tuple[object, object]:
    level = replace(system.levels[system.inside], bandwidth=12.5e9, ports=ports)
    found = links([Reading("job.log", "OSU", samples, {})], level, True, system)
    return found.share, found.latency


@pytest.mark.parametrize(("groups", "rate", "ports", "share"), [
    (1, 10e9, 2, 0.8),  # one pair goes by one port
    (1, 22e9, 2, 0.88),  # it is too fast for one: it goes by both
    (8, 45e9, 4, 0.9),  # more pairs than ports fill them all
    (2, 20e9, 4, 0.8),  # two pairs, two of the four
    (1, 13e9, 1, 1.0),  # rounding of the log: never more than there is
])  # fmt: skip
def test_the_share_of_the_datasheet(groups: int, rate: float, ports: int, share: float) -> None:
    assert told(pairs(groups, rate), ports=ports) == (share, None)


def test_most_pairs_speak_and_small_messages_do_not() -> None:
    one, many = pairs(1, 6e9), pairs(8, 24e9)
    assert told(one, many) == (0.96, None)
    assert told(one, pairs(1, 1e9, nbytes=1024.0)) == (0.48, None)


def test_what_goes_elsewhere_or_both_ways_says_nothing() -> None:
    for other in (pairs(1, 9e9, direction="both ways"), pairs(1, 9e9, nodes=None),
                  pairs(1, 9e9, nodes=1), pairs(1, 9e9)._replace(groups=None)):  # fmt: skip
        assert told(other) == (None, None)


def test_small_messages_are_start_up_but_not_of_a_library_with_hops_of_its_own() -> None:
    timed = ((1.0, 1.5e-6), (4.0, 1.7e-6), (8.0, 1.9e-6), (64.0, 9e-6))
    starts = [pairs(1, 1e9)._replace(nbytes=size, seconds=t, window=1) for size, t in timed]
    assert told(*starts) == (None, 1.7e-6)
    assert told(*starts, system=catalogue.system("dgx-a100")) == (None, None)


def test_a_calibrated_system_carries_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(Path(catalogue.shipped("systems")["frontera"]).read_text())
    log = Reading("bw.log", "OSU", (pairs(1, 6.1e9, nbytes=4 * MIB),), {})
    found = calibrate([log], str(path))
    level = FRONTERA.levels[FRONTERA.inside]
    share = 6.1e9 / level.bandwidth
    name = level.name
    assert found.text().startswith(f"{name}: streams get {share:.0%} of the datasheet's bandwidth")
    found.write(tmp_path / "new.yaml")
    again = catalogue.system(str(tmp_path / "new.yaml")).levels[FRONTERA.inside]
    assert again.share == pytest.approx(share, rel=1e-2)
    assert "measured: bw.log" in again.source
