"""The lab is a believable cluster: rates hold, contention shares, nothing stays behind."""

import subprocess
import time

import pytest

from oracle.executor.measure.collectives import measure_collectives
from oracle.executor.messages.calls import GroupShape
from oracle.executor.ranks.launch import FAILED
from oracle.executor.ranks.records import lines
from tests.lab.network import Lab, Wiring, missing

pytest.importorskip("torch")
pytestmark = pytest.mark.skipif(bool(missing()), reason="; ".join(missing()))


def seconds(out):
    """(operation, bytes, group) -> median seconds."""
    return {
        (s["operation"], s["bytes"], s["note"].removeprefix("groups ")): sorted(s["seconds"])[
            len(s["seconds"]) // 2
        ]
        for s in lines(out)
        if "seconds" in s
    }


def namespaces():
    return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True).stdout


def test_star_gives_each_host_its_rate_and_leaves_nothing(tmp_path):
    out = tmp_path / "out.jsonl"
    with Lab(Wiring(4, 200e6)) as lab:
        outcome = measure_collectives(
            out, ranks=4, operations=["allreduce"], sizes=[2**22], repeats=5, host=lab.placed()
        )
        mark = lab.mark
    assert outcome.code == 0, outcome.message
    assert mark not in namespaces()
    ring = 2 * 3 * 2**22 / 4 * 8 / 200e6
    assert seconds(out)["allreduce", 2**22, "4x1"] == pytest.approx(ring, rel=0.15)


def test_two_groups_over_one_uplink_take_twice_as_long(tmp_path):
    out, pair, pairs = tmp_path / "out.jsonl", GroupShape(2, 2, 1), GroupShape(2, 2, 2)
    with Lab(Wiring(4, 200e6, uplink=200e6)) as lab:
        outcome = measure_collectives(
            out,
            ranks=4,
            operations=["allreduce"],
            sizes=[2**22],
            shapes=[pair, pairs],
            repeats=5,
            host=lab.placed(),
        )
    assert outcome.code == 0, outcome.message
    found = seconds(out)
    phi = found["allreduce", 2**22, str(pairs)] / found["allreduce", 2**22, str(pair)]
    assert phi == pytest.approx(2, rel=0.15)


def test_link_that_dies_is_an_error_with_a_name(tmp_path):
    out = tmp_path / "out.jsonl"
    with Lab(Wiring(3, 200e6)) as lab:
        heard = []

        def cut(text):
            heard.append(time.monotonic())
            if len(heard) == 2:
                lab.cut(1)

        outcome = measure_collectives(
            out,
            ranks=3,
            operations=["allreduce"],
            sizes=[2**20, 2**21, 2**22, 2**23],
            shapes=[GroupShape(3)],
            timeout=6,
            say=cut,
            host=lab.placed(),
        )
        assert outcome.code == FAILED
        assert time.monotonic() - heard[1] < 60
        assert "allreduce" in outcome.message
    assert list(lines(out))[-1]["end"] == "incomplete"
