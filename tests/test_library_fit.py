"""A library's constants corrected by logs: what is planted comes back, and is told further."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.calibration.calibrate import calibrate
from oracle.calibration.library import NAMES, Place, typical
from oracle.calibration.library_fit import LibraryFit, library_fits, trusted
from oracle.network.contention import lines
from oracle.readers.logs import Reading, Sample
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.system import FACTORS, System

SYSTEM = """name: toy
device:
  name: toy
  memory: 16 GiB
  memory_bandwidth: 900 GB/s
  peak: {fp32: 15 TFLOP/s}
  processors: 80
  library: nccl
  source: made up
levels:
  - {name: node, devices: 4, bandwidth: 100 GB/s, latency: 2 us, source: made up}
  - {name: room, devices: 128, ports: 4, bandwidth: 12 GB/s, latency: 4 us, source: made up}
source: made up
"""
SIZES = 2.0 ** np.arange(10, 29, 2)
OPERATIONS = ("allreduce", "allgather", "reduce_scatter", "alltoall")
PLANTED = np.log([1.3, 1.1, 1.8, 1.7, 1.4, 1.2, 0.8, 1.0, 0.8, 0.9, 0.7, 0.75, 1.0, 0.4,
                  0.12, 0.3])  # fmt: skip


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> System:
    path = tmp_path_factory.mktemp("specs") / "toy.yaml"
    path.write_text(SYSTEM)
    return catalogue.system(str(path))


def samples(
    system: System, counts: tuple[tuple[int, int], ...], operations: tuple[str, ...] = OPERATIONS,
    noise: float = 0.0, logs: np.ndarray = PLANTED,
) -> list[Sample]:  # fmt: skip
    """Timings of a library whose constants are off by planted factors; (ranks, nodes) each."""
    dice, found = np.random.default_rng(1), list[Sample]()
    for ranks, nodes in counts:
        blank = [
            Sample(op, float(m), 1.0, ranks, nodes, ranks // nodes, library="nccl",
                   memory="device", where=f"job-{nodes}x{ranks // nodes}.log:{k}")
            for op in operations for k, m in enumerate(SIZES)
        ]  # fmt: skip
        seconds = Place.from_samples(system, nodes > 1, blank).predicted(logs)
        seconds = seconds * np.exp(dice.normal(0, noise, len(seconds)))
        found += [one._replace(seconds=t) for one, t in zip(blank, seconds.tolist(), strict=True)]
    return found


def within(error: np.ndarray) -> float:
    return float(np.median(np.abs(error)))


def test_planted_factors_are_told_to_other_counts_sizes_and_operations(toy: System) -> None:
    slow = PLANTED + 0.5 * (np.arange(len(NAMES)) < len(FACTORS))  # to call
    every = Place.from_samples(toy, False, samples(toy, ((2, 1), (3, 1), (4, 1)), logs=slow))
    logs = every.fitted()
    assert within(every.error(logs)) < 0.01
    for by in (every.ranks, every.nbytes):
        assert within(every.left_out(by)) < 0.03
    sums = np.array([one.operation == "allreduce" for one in every.samples])
    assert within(every.part(~sums).error(every.part(sums).fitted())) < 0.12
    assert within(every.part(~sums).error(typical(False).mean)) > 0.15  # it was told something


def test_few_nodes_predict_many(toy: System) -> None:
    counts = ((8, 2), (16, 4), (32, 8), (128, 32))
    every = Place.from_samples(toy, True, samples(toy, counts, ("allreduce",), noise=0.03))
    few = every.ranks <= 16
    assert within(every.part(~few).error(every.part(few).fitted())) < 0.06
    assert within(every.part(~few).error(typical(True).mean)) > 0.15


def test_where_nothing_is_said_factors_stay(toy: System) -> None:
    """Allreduce inside a node says nothing of trees, or of pairs beyond what machines share."""
    place = Place.from_samples(toy, False, samples(toy, ((2, 1), (4, 1)), ("allreduce",)))
    logs, prior = place.fitted(), typical(False)
    assert logs[NAMES.index(("tree", ""))] == pytest.approx(0.0, abs=1e-6)
    base = slice(0, len(FACTORS))
    moved = logs[base] - prior.mean[base]
    # a machine slow to call by one protocol is so by all: its neighbours are drawn along, by less
    assert abs(moved[3]) <= np.abs(moved[:3]).max() + 1e-9


@given(
    st.lists(st.floats(-1, 1), min_size=len(NAMES), max_size=len(NAMES)),
    st.sampled_from([(2, 1), (4, 1), (8, 2), (64, 16)]),
    st.sampled_from(OPERATIONS),
)
@settings(max_examples=25, deadline=None)
def test_larger_messages_take_longer_whatever_the_factors(
    logs: list[float], group: tuple[int, int], op: str
) -> None:
    place = _place(*group, op)
    seconds = place.predicted(np.array(logs))
    assert (np.diff(seconds) > 0).all()
    assert (seconds > 0).all()


def _place(ranks: int, nodes: int, op: str) -> Place:
    system = catalogue.system("dgx-b200")
    return Place.from_samples(system, nodes > 1, [
        Sample(op, float(m), 1.0, ranks, nodes, ranks // nodes, library="nccl") for m in SIZES
    ])  # fmt: skip


@pytest.mark.parametrize(("ranks", "nodes"), [(2, 1), (4, 1), (8, 2), (32, 8)])
def test_what_is_fitted_is_what_is_priced(toy: System, ranks: int, nodes: int) -> None:
    """The entry of a spec gives the seconds of the fit, but for three digits of each factor."""
    found = library_fits(
        [("allreduce", "node", samples(toy, ((2, 1), (4, 1)), ("allreduce",))),
         ("allreduce", "room", samples(toy, ((8, 2), (32, 8)), ("allreduce",)))], toy, [],
    )  # fmt: skip
    system = replace(toy, library=tuple(fit.entry for fit in found))
    fit = found[nodes > 1]
    mine = np.array([one.ranks == ranks for one in fit.place.samples])
    place = fit.place.part(mine)
    on = lines(system, "allreduce", ((ranks, 1),), ranks)
    priced = np.min([line.start + line.per_byte * place.nbytes for line in on], axis=0)
    assert np.allclose(priced, place.predicted(fit.logs), rtol=0.02)
    assert {line.origin for line in on} == {"fitted"}
    assert not any(line.outside for line in on)
    far = lines(system, "allreduce", ((128, 1),), 128)
    assert all(line.outside for line in far)
    assert far[0].uncertainty > lines(system, "allreduce", ((32, 1),), 32)[0].uncertainty


def test_a_congested_run_is_named_and_left_out(toy: System) -> None:
    clean = samples(toy, ((8, 2), (16, 4), (32, 8), (64, 16)), ("allreduce",), noise=0.03)
    assert trusted(Place.from_samples(toy, True, clean))[1] == ()
    slow = [one._replace(seconds=2.5 * one.seconds) if one.ranks == 32 else one for one in clean]
    place, dropped = trusted(Place.from_samples(toy, True, slow))
    (words,) = dropped
    assert words.startswith("job-8x4.log, 32 ranks: 2.")
    assert 32 not in place.ranks
    assert within(Place.from_samples(toy, True, clean).error(place.fitted())) < 0.06


def test_what_the_library_cannot_serve_is_passed_over(
    toy: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    some = samples(toy, ((2, 1), (4, 1)), ("allreduce", "alltoall"))
    monkeypatch.setattr("oracle.network.nccl.SUPPORTED", frozenset(("ring", "rings")))
    place = Place.from_samples(toy, False, some)
    assert {one.operation for one in place.samples} == {"allreduce"}
    assert len(place.seconds) == place.base.shape[1] == len(some) / 2
    pairs = [one for one in some if one.operation == "alltoall"]
    assert library_fits([("alltoall", "node", pairs)], toy, []) == []


def test_intervals_hold_what_was_left_out(toy: System) -> None:
    """Nine of ten, of counts that the fit did not see, and wider the farther they are."""
    every = Place.from_samples(
        toy, True, samples(toy, ((8, 2), (16, 4), (32, 8), (128, 32)), noise=0.1)
    )
    few = every.ranks <= 32
    fit = LibraryFit(every.part(few), "room", every.part(few).fitted(), (), "")
    rest = every.part(~few)
    width = fit.half_width(rest)
    assert (np.abs(np.log1p(rest.error(fit.logs))) < np.log1p(width)).mean() >= 0.85
    assert width[0] > fit.half_width(every.part(few))[0]


@pytest.mark.slow
def test_a_short_spec_says_it_all(toy: System, tmp_path: Path) -> None:
    path = tmp_path / "toy.yaml"
    path.write_text(SYSTEM)
    counts = ((2, 1), (4, 1), (8, 2), (32, 8))
    some = samples(toy, counts, ("allreduce", "alltoall"), noise=0.02)
    log = Reading("job.log", "nccl-tests text", tuple(some), {"tool": "nccl-tests 2.19"})
    found = calibrate([log], str(path))
    lead = found.text().splitlines()[0]
    assert lead.startswith("inside a node: large messages get ")
    assert "of what the datasheet's links would give" in lead
    assert not found.entries, "the library's model is enough here"
    assert found.spec().count("\n") - SYSTEM.count("\n") < 30
    found.write(tmp_path / "new.yaml")
    again = catalogue.system(str(tmp_path / "new.yaml"))
    assert [each.level for each in again.library] == ["node", "room"]
    assert again.library == tuple(fit.entry for fit in found.libraries)
    said = found.to_dict()["library"]
    assert [each["operations"] for each in said] == [("allreduce", "alltoall")] * 2


@pytest.mark.parametrize(("line", "words"), [
    ("base: {LL129: 1.2}", "no protocol is called `LL129`"),
    ("level: nowhere", "no level is called `nowhere`"),
])  # fmt: skip
def test_a_wrong_word_is_refused(tmp_path: Path, line: str, words: str) -> None:
    level = "" if line.startswith("level") else "level: node, "
    path = tmp_path / "toy.yaml"
    path.write_text(f"{SYSTEM}library:\n  - {{{level}{line}, source: made up}}\n")
    with pytest.raises(SpecError, match=words):
        catalogue.system(str(path))


def test_lines_of_its_own_serve_the_counts_that_they_were_measured_at() -> None:
    """Beside factors, α and β of an operation speak within their ranks, the library beyond."""
    abci = catalogue.system("abci")
    names = {entry.level for entry in abci.library}
    assert names == {"node", "leaf group"}
    near = lines(abci, "allreduce", ((128, 1),), 128)
    far = lines(abci, "allreduce", ((1024, 1),), 1024)
    assert not any("/" in line.algorithm for line in near)
    assert all("/" in line.algorithm for line in far)
