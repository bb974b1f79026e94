"""Rows of a plan: their times add up to what its devices take, waiting for each other."""

import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.executor.measure.lockstep import Stretch, in_step
from oracle.executor.measure.profile import _scaled, measure_compute

seconds = st.floats(0, 10, allow_nan=False)
works = st.integers(1, 4).flatmap(
    lambda ranks: st.lists(
        st.lists(seconds, min_size=ranks, max_size=ranks), min_size=1, max_size=6
    )
)


def all_meeting(steps: list[list[float]]) -> dict[int, list[Stretch]]:
    """Ranks that all meet after each of these times, but for the last."""
    ranks = range(len(steps[0]))
    return {r: [*(Stretch(one[r], tuple(ranks)) for one in steps[:-1]), Stretch(steps[-1][r], ())]
            for r in ranks}  # fmt: skip


@given(works)
def test_where_all_meet_each_stretch_takes_as_long_as_its_slowest(steps):
    clock = in_step(all_meeting(steps))
    before = sum(map(max, steps[:-1]))
    assert clock == pytest.approx({r: before + own for r, own in enumerate(steps[-1])})


@given(works)
def test_nobody_is_through_before_its_own_work_or_after_all_of_everybodys(steps):
    ranks = all_meeting(steps)
    for rank, through in in_step(ranks).items():
        own, every = (
            sum(s for s, _ in ranks[rank]),
            sum(s for one in ranks.values() for s, _ in one),
        )
        assert own - 1e-9 <= through <= every + 1e-9


def test_neighbours_of_a_line_wait_for_their_neighbours_alone():
    """Of three in a row the first is 5 s late to a halo: the last feels it at the second."""
    halos = [(0, 1), (0, 1, 2), (1, 2)]
    line = {
        r: [Stretch(5.0 if r == 0 else 1.0, halos[r]), Stretch(1.0, halos[r])] for r in range(3)
    }
    assert in_step(line) == {0: 6.0, 1: 6.0, 2: 6.0}
    once = {r: [stretches[0], Stretch(1.0, ())] for r, stretches in line.items()}
    assert in_step(once) == {0: 6.0, 1: 6.0, 2: 2.0}


def test_ranks_elsewhere_are_not_waited_for_and_a_message_of_one_side_is_told():
    assert in_step({0: [Stretch(1, (0, 7)), Stretch(1, ())]}) == {0: 2.0}
    with pytest.raises(ValueError, match="ranks 0 wait for messages nobody else has"):
        in_step({0: [Stretch(1, (0, 1))], 1: [Stretch(1, ())]})


def test_rows_are_scaled_to_the_step_of_ranks_in_turn_late():
    """Each rank is late once: rows of 1 and 2 s take 4 s a step together, not 3."""
    both = (0, 1)
    ranks = [
        {"rank": 0, "rows": {"a": [(1, 0)], "b": [(2, 0)]}, "times": {"a": (1, 0), "b": (1, 0)},
         "stretches": [[(2.0, both), (1.0, ())]]},
        {"rank": 1, "rows": {"a": [(1, 0)], "b": [(2, 0)]}, "times": {"a": (1, 0), "b": (1, 0)},
         "stretches": [[(1.0, both), (2.0, ())]]},
    ]  # fmt: skip
    found = _scaled(ranks)
    assert {row: pair[0] for row, pair in found.items()} == pytest.approx({"a": 4 / 3, "b": 8 / 3})


@pytest.mark.parametrize(
    ("plan", "forwards"),
    [("data:1 filter:2", 1), *(pytest.param(*case, marks=pytest.mark.slow) for case in (
        ("serial", 1), ("data:1 spatial:2", 1), ("data:2 recompute:full", 2),
        ("data:1 pipeline:2,segments=2", 2)))],
)  # fmt: skip
def test_a_step_s_passes_are_dealt_out_to_rows_without_a_rest(tmp_path, plan, forwards):
    """Times of rows, as often as they ran, are all the work between messages."""
    pytest.importorskip("torch")
    from equality_cases import VGG

    from oracle.executor.plan_run import PlanRun
    from oracle.executor.ranks import records

    out = tmp_path / "rows.jsonl"
    job = PlanRun(VGG, plan, 4, steps=2, warm_up=1)
    assert measure_compute(job, out, ranks=2, backend="ordered").complete
    seen = 0
    for path in sorted((tmp_path / "rows.jsonl.parts").glob("rank-*.jsonl")):
        for line in records.lines(path):
            if not line.get("rows"):
                continue
            seen += 1
            steps = len(line["stretches"])
            for step, stretches in enumerate(line["stretches"]):
                dealt = 0.0
                for row, pairs in line["rows"].items():
                    alike = len(pairs) // steps  # rows of one shape
                    for one in pairs[step * alike : (step + 1) * alike]:
                        dealt += (
                            sum(s * n for s, n in zip(one, line["times"][row], strict=True)) / alike
                        )
                assert dealt == pytest.approx(sum(s for s, _ in stretches), rel=1e-6)
            again = {forward for forward, _ in line["times"].values()}
            assert max(again) >= forwards
            assert all(backward <= forward for forward, backward in line["times"].values())
    assert seen == (1 if plan == "serial" else 2)


def test_what_a_mock_wire_brings_is_noise_and_takes_no_time_of_a_row():
    torch = pytest.importorskip("torch")
    from oracle.executor.messages.mesh import Group
    from oracle.executor.messages.mock import MockWire

    mesh = SimpleNamespace(rank=0, group=lambda axes: Group((0, 1), 0, None))
    wire, met = MockWire(mesh, rate=1e6), []
    wire.before_message = met.append
    part = torch.ones(1000)
    began = time.perf_counter()
    whole = wire.allgather(part, ("filter",), "activations")
    own = wire.reduce_scatter(torch.ones(2, 1000), ("filter",), "gradients")
    border = torch.zeros(500)
    wire.swap({1: border}, {1: border}, ("spatial",), "border")
    ids = wire.alltoall(torch.ones(4, dtype=torch.int64), ("expert",), "numbers")
    passed = time.perf_counter() - began
    assert met == [(0, 1)] * 4
    for came in (whole, own, border):
        assert 0.7 < came.std() < 1.3
        assert came.unique().numel() > 400
    assert not ids.any()
    # 4,000 bytes each of the first two, 2,000 and 16 at 1 MB/s: asleep, and so not at work
    assert 0.010 <= wire.slept <= passed
    weights = torch.empty(2000)
    wire.allgather(part, ("data",), "weights", weights)
    assert weights.eq(1).all()
