"""The order of a pipeline: its turns, when they are played, and what a stage keeps meanwhile."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.executor.supported import unsupported
from oracle.plan import plan as grammar
from oracle.plan.in_flight import most_in_flight, most_unfinished
from oracle.plan.player import Span, finish, play
from oracle.plan.schedule import (
    KINDS,
    NAMES,
    ROUNDS,
    SCHEDULES,
    Turn,
    schedule,
)
from oracle.plan.strategies.pipeline import Pipeline
from oracle.predict.trace import trace


def one_and_two(stage: int, turn: Turn) -> float:
    """A backward pass takes twice as long as a forward pass."""
    return 1.0 if turn.kind != "backward" else 2.0


def played(name: str, p: int, pieces: int, v: int = 1) -> list[Span]:
    """With one second a forward pass of a stage, two a backward pass, dealt to its chunks."""
    return play(name, p, pieces, v, lambda stage, turn: one_and_two(stage, turn) / v)


def parts(forward: float, back: float, weight: float, v: int) -> Any:
    """Seconds of a turn by the parts of a stage's work on a micro-batch."""
    found = {"forward": forward, "input": back, "weight": weight, "backward": back + weight}
    return lambda stage, turn: found[turn.kind] / v


def idle(spans: list[Span], stage: int) -> float:
    """How long a stage waits between its first turn and its last."""
    mine = [span for span in spans if span.stage == stage]
    worked = sum(span.end - span.start for span in mine)
    return max(s.end for s in mine) - min(s.start for s in mine) - worked


CHUNKS = {name: one.chunks or 1 for name, one in SCHEDULES.items()}
SPLIT = [name for name in SCHEDULES if name not in ("gpipe", "1f1b")]


@given(p=st.integers(1, 6), rounds=st.integers(1, 4), more=st.integers(0, 5), v=st.integers(1, 3),
       name=st.sampled_from(sorted(SCHEDULES)), seed=st.integers(0, 99))  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_every_stage_does_every_pass_once_and_in_order(
    p: int, rounds: int, more: int, v: int, name: str, seed: int
):
    chosen, pieces = SCHEDULES[name], p * rounds
    v = chosen.chunks or (v if p > 1 else 1)
    if chosen.fits(p, pieces + more, v):
        pieces += more
    drawn = np.random.default_rng(seed).uniform(0.2, 2.0, (p, 4))
    spans = play(name, p, pieces, v, lambda i, turn: float(drawn[i, KINDS.index(turn.kind)]))
    assert len({(s.stage, s.turn) for s in spans}) == len(spans)
    ends = {(chosen.place(s.turn.chunk, s.stage, p), s.turn.micro, kind): s
            for s in spans for kind in s.turn.makes}  # fmt: skip
    assert len(ends) == 3 * p * v * pieces == sum(len(s.turn.makes) for s in spans)
    for (place, micro, kind), span in ends.items():
        before = [(place - 1, micro, "forward")]
        if kind == "input":
            before = [(place, micro, "forward"), (place + 1, micro, "input")]
        elif kind == "weight" and span.turn.kind == "weight":
            before = [(place, micro, "input")]
        for one in before:
            assert one not in ends or ends[one].end <= span.start + 1e-9
    for stage in range(p):
        mine = sorted((s for s in spans if s.stage == stage), key=lambda s: s.start)
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(mine))
    works = [sum(s.end - s.start for s in spans if s.stage == stage) for stage in range(p)]
    assert max(s.end for s in spans) >= max(works) * (1 - 1e-9)


@given(name=st.sampled_from(SPLIT), p=st.integers(2, 5), pieces=st.integers(1, 60),
       spread=st.floats(0.0, 0.4), seed=st.integers(0, 99))  # fmt: skip
@settings(max_examples=60, deadline=None)
def test_many_plans_are_played_at_once(
    name: str, p: int, pieces: int, spread: float, seed: int
) -> None:
    """As one by one while micro-batches are few; beyond, to a percent and never less."""
    v, draw = CHUNKS[name], np.random.default_rng(seed).uniform
    found = {kind: draw(1 - spread, 1 + spread, (3, p)) for kind in ("forward", "input", "weight")}
    found["backward"] = found["input"] + found["weight"]
    ends = finish(name, pieces, v, found)
    for row in range(3):
        spans = play(name, p, pieces, v, lambda i, turn, row=row: found[turn.kind][row, i] / v)
        last = [max(s.end for s in spans if s.stage == i) for i in range(p)]
        if pieces <= ROUNDS * p:
            assert ends[row] == pytest.approx(last)
        assert max(last) * (1 - 1e-9) <= ends[row].max() <= 1.01 * max(last)


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize(("f", "b", "w"), [(1, 1, 1), (2, 3, 1), (4, 6, 2)])
def test_zero_bubble_h1_waits_less_by_two_weight_passes(p: int, f: int, b: int, w: int) -> None:
    """(p - 1)(F + B - W) where 1F1B has (p - 1)(F + B + W) [qi2024, Table 2]."""
    for pieces in (2 * p, 5 * p):
        whole = pieces * (f + b + w)
        spans = play("zb-h1", p, pieces, 1, parts(f, b, w, 1))
        assert max(s.end for s in spans) - whole == pytest.approx((p - 1) * (f + b - w))
        spans = play("1f1b", p, pieces, 1, parts(f, b, w, 1))
        assert max(s.end for s in spans) - whole == pytest.approx((p - 1) * (f + b + w))


@pytest.mark.parametrize("p", [1, 2, 4, 8])
def test_zero_bubble_v_never_waits_where_its_parts_are_equal(p: int) -> None:
    for pieces in (2 * p, 2 * p + 1, 6 * p):
        spans = play("zb-v", p, pieces, 2, parts(2, 2, 2, 2))
        assert [idle(spans, stage) for stage in range(p)] == pytest.approx([0.0] * p)
        assert max(s.end for s in spans) == pytest.approx(6 * pieces + p - 1)  # and the fill


@pytest.mark.parametrize("p", [2, 4, 8])
@pytest.mark.parametrize(("f", "b", "w"), [(1, 1, 1), (2, 3, 1), (4, 6, 2)])
def test_dual_pipe_v_waits_what_its_authors_say(p: int, f: int, b: int, w: int) -> None:
    """(PP/2 - 1)(F&B + B - 3W) with PP = 2p, B whole and F&B = F + B: pairs do not overlap."""
    for pieces in (2 * p, 5 * p):
        spans = play("dualpipe-v", p, pieces, 2, parts(2 * f, 2 * b, 2 * w, 2))
        waits = (p - 1) * ((f + b + w) + (b + w) - 3 * w)
        assert max(s.end for s in spans) - 2 * pieces * (f + b + w) == pytest.approx(waits)


@pytest.mark.parametrize(("p", "pieces"), [(2, 4), (4, 8), (8, 32)])
def test_a_uniform_pipeline_takes_what_the_formula_says(p: int, pieces: int):
    """(S + p - 1)(f + b), interleaved (S + (p - 1)/v)(f + b) [narayanan2021]."""
    for name in ("gpipe", "1f1b"):
        assert max(s.end for s in played(name, p, pieces)) == pytest.approx(3 * (pieces + p - 1))
    spans = played("1f1b", p, pieces, 2)
    assert max(s.end for s in spans) == pytest.approx(3 * (pieces + (p - 1) / 2))


def test_turns_that_wait_for_each_other_in_a_circle_are_refused():
    with pytest.raises(ValueError, match="3 micro-batches are not a multiple of 2 stages"):
        played("1f1b", 2, 3, 2)


@pytest.mark.parametrize(
    ("name", "p", "pieces", "v", "kept"),
    [("1f1b", 4, 16, 1, [4, 3, 2, 1]), ("1f1b", 4, 2, 1, [2, 2, 2, 1]),
     ("gpipe", 4, 16, 1, [16] * 4), ("1f1b", 2, 8, 2, [2.5, 1.5]), ("1f1b", 1, 8, 1, [1]),
     ("gpipe", 4, 1000, 1, [1000] * 4), ("1f1b", 4, 1000, 1, [4, 3, 2, 1]),
     ("gpipe", 2, 100, 3, [100] * 2), ("1f1b", 2, 1000, 2, [2.5, 1.5]),
     ("zb-h1", 4, 16, 1, [4] * 4), ("zb-h1", 4, 2, 1, [2] * 4), ("zb-h1", 4, 1000, 1, [4] * 4),
     ("zb-v", 4, 16, 2, [4] * 4), ("zb-v", 2, 1000, 2, [2] * 2), ("zb-v", 1, 8, 2, [1]),
     ("dualpipe-v", 4, 16, 2, [4.5] * 4), ("dualpipe-v", 4, 1000, 2, [4.5] * 4)],
)  # fmt: skip
def test_micro_batches_in_flight(name: str, p: int, pieces: int, v: int, kept: list[float]):
    """By hand: 1F1B keeps min(S, p - i); two chunks on two stages (p - 1 - i) 2 + p + 1 halves.

    ZB-H1 keeps p everywhere, ZB-V 2p chunks, DualPipe-V one more.
    """
    assert [most_in_flight(name, stage, p, pieces, v) for stage in range(p)] == kept


@pytest.mark.parametrize(
    ("name", "v", "left"),
    [("1f1b", 1, [0] * 4), ("zb-h1", 1, [1, 2, 3, 4]), ("zb-v", 2, [0.5, 1.5, 2.5, 3.5])],
)
def test_micro_batches_between_the_two_parts_of_their_backward_pass(
    name: str, v: int, left: list[float]
) -> None:
    """By hand: ZB-H1 has i gradients late and one at work; ZB-V at last 2i + 1 chunks."""
    assert [most_unfinished(name, stage, 4, 16, v) for stage in range(4)] == left


def test_gradients_of_weights_that_come_late_keep_what_was_made_again() -> None:
    """Stage 0 of ZB-H1 has one unfinished micro-batch under full recomputation, 1F1B none."""
    plans = [f"pipeline:4,segments=8,schedule={how} recompute:full" for how in ("1f1b", "zb-h1")]
    whole, split = oracle.estimate("gpt2", "dgx-a100", plans, 64).memory_kinds["activations"]
    assert split > 1.5 * whole


@pytest.fixture
def alternate() -> Iterator[str]:
    """A schedule of one's own: 1F1B whose weights come right after the gradient of the input."""

    @schedule("alternate", chunks=1)
    def order(stage: int, stages: int, micro_batches: int, chunks: int) -> list[Turn]:
        turns = SCHEDULES["1f1b"].order(stage, stages, micro_batches, chunks)
        kinds = {"forward": ("forward",), "backward": ("input", "weight")}
        return [Turn(kind, turn.micro, 0) for turn in turns for kind in kinds[turn.kind]]

    yield "alternate"
    SCHEDULES.pop("alternate")
    NAMES.remove("alternate")
    grammar._parse.cache_clear()


def test_a_new_schedule_is_one_function(alternate: str) -> None:
    """It is in the grammar, searched, priced, traced, and refused by the executor."""
    choices = Pipeline.tries(oracle.model("gpt2"))["schedule"]
    assert float(Pipeline.number("schedule", alternate)) in choices
    plan = f"pipeline:4,segments=8,schedule={alternate}"
    shown = oracle.estimate("gpt2", "dgx-a100", [plan, "pipeline:4,segments=8"], 64)
    assert shown.plans[0] == plan
    assert not shown.broken[0]
    assert 0.8 * shown.seconds[1] < shown.seconds[0] < shown.seconds[1]
    drawn = trace(shown.work[0])
    assert {span.turn.kind for span in drawn.spans} == {"forward", "input", "weight"}
    assert drawn.end == pytest.approx(shown.seconds[0], rel=0.03)
    why = unsupported(oracle.model("gpt2"), grammar.parse(plan, 64.0))
    assert why == [f"`pipeline` with schedule={alternate} is not run; "
                   "schedule=gpipe and schedule=1f1b are"]  # fmt: skip


@pytest.mark.parametrize(
    "plan", ["pipeline:4,segments=8 data:2", "data:8", "pipeline:2,segments=4 tensor:4,sequence=on",
             "data:4,accumulate=2 tensor:2", "pipeline:2,segments=8,interleave=2 data:4",
             "pipeline:4,segments=8,schedule=gpipe data:2 recompute:full",
             "pipeline:4,segments=8,schedule=zb-h1 data:2",
             "pipeline:2,segments=8,schedule=zb-v,interleave=2 tensor:4,sequence=on",
             "pipeline:2,segments=8,schedule=dualpipe-v,interleave=2 data:4 recompute:full"]
)  # fmt: skip
def test_a_trace_ends_when_the_estimate_says(plan: str):
    """To rounding where stages are equal but for the last, which has the vocabulary."""
    shown = oracle.estimate("gpt2", "dgx-a100", [plan], 64)
    end = trace(shown.work[0]).end
    assert end <= float(shown.seconds[0]) * (1 + 1e-9)
    assert end == pytest.approx(float(shown.seconds[0]), rel=0.03)


def test_a_trace_has_the_stages_of_its_plan_in_any_table():
    """A table has room for the longest of its pipelines."""
    plans = ["pipeline:2,segments=8 data:4", "pipeline:4,segments=8,interleave=2 data:2"]
    table = oracle.estimate("gpt2", "dgx-a100", plans, 64)
    for plan, work in zip(plans, table.work, strict=True):
        alone = trace(oracle.estimate("gpt2", "dgx-a100", plan, 64).work[0])
        drawn = trace(work)
        assert drawn.stages == alone.stages == int(work.plan.axis("pipeline").degree[0, 0])
        assert drawn.end == pytest.approx(alone.end, rel=1e-12)


def counted_in_turn(turns: list[Turn]) -> tuple[int, int]:
    """Chunks that a stage keeps, and of them those past `input` and before `weight`, at most."""
    kept = most = late = latest = 0
    for kind, *_ in turns:
        kept += {"forward": 1, "input": 0}.get(kind, -1)
        late += {"input": 1, "weight": -1}.get(kind, 0)
        most, latest = max(most, kept), max(latest, late)
    return most, latest


@pytest.mark.parametrize("name", [name for name, each in SCHEDULES.items() if each.ahead])
def test_formulas_of_what_is_kept_agree_with_the_turns(name: str):
    for p, v, rounds in itertools.product((1, 2, 3, 4), (1, 2, 3), (1, 2, 3, 5)):
        for stage in range(p):
            counted = counted_in_turn(SCHEDULES[name].order(stage, p, p * rounds, v))
            assert most_in_flight(name, stage, p, p * rounds, v) == counted[0] / v
            assert counted[1] == 0
