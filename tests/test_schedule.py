"""The order of a pipeline: its turns, when they are played, and what a stage keeps meanwhile."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.plan.schedule import SCHEDULES, Span, Turn, most_in_flight, play
from oracle.predict.trace import trace


def one_and_two(stage: int, turn: Turn) -> float:
    """A backward pass takes twice as long as a forward pass."""
    return 1.0 if turn.kind == "forward" else 2.0


def played(name: str, p: int, pieces: int, v: int = 1) -> list[Span]:
    """With one second a forward pass of a stage, two a backward pass, dealt to its chunks."""
    return play(name, p, pieces, v, lambda stage, turn: one_and_two(stage, turn) / v)


@given(p=st.integers(1, 6), rounds=st.integers(1, 4), v=st.sampled_from([1, 2, 3]),
       name=st.sampled_from(sorted(SCHEDULES)))  # fmt: skip
@settings(max_examples=60)
def test_every_stage_does_every_pass_once_and_in_order(p: int, rounds: int, v: int, name: str):
    pieces, v = p * rounds, v if p > 1 else 1
    spans = played(name, p, pieces, v)
    assert len(spans) == 2 * p * v * pieces
    assert len({(s.stage, s.turn) for s in spans}) == len(spans)
    ends = {(s.turn.chunk * p + s.stage, s.turn.micro, s.turn.kind): s for s in spans}
    for (place, micro, kind), span in ends.items():
        before: Any = (place - 1, micro, "forward")
        if kind == "backward":
            last = place == p * v - 1
            before = (place, micro, "forward") if last else (place + 1, micro, "backward")
        if before in ends:
            assert ends[before].end <= span.start + 1e-9
    for stage in range(p):
        mine = sorted((s for s in spans if s.stage == stage), key=lambda s: s.start)
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(mine))


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
     ("gpipe", 4, 16, 1, [16] * 4), ("1f1b", 2, 8, 2, [2.5, 1.5]), ("1f1b", 1, 8, 1, [1])],
)  # fmt: skip
def test_micro_batches_in_flight(name: str, p: int, pieces: int, v: int, kept: list[float]):
    """By hand: 1F1B keeps min(S, p - i); two chunks on two stages (p - 1 - i) 2 + p + 1 halves."""
    assert [most_in_flight(name, stage, p, pieces, v) for stage in range(p)] == kept


@pytest.mark.parametrize(
    "plan", ["pipeline:4,segments=8 data:2", "data:8", "pipeline:2,segments=4 tensor:4,sequence=on",
             "data:4,accumulate=2 tensor:2", "pipeline:2,segments=8,interleave=2 data:4",
             "pipeline:4,segments=8,schedule=gpipe data:2 recompute:full"]
)  # fmt: skip
def test_a_trace_ends_when_the_estimate_says(plan: str):
    """To rounding where stages are equal but for the last, which has the vocabulary."""
    shown = oracle.estimate("gpt2", "dgx-a100", [plan], 64)
    end = trace(shown.work[0]).end
    assert end <= float(shown.seconds[0]) * (1 + 1e-9)
    assert end == pytest.approx(float(shown.seconds[0]), rel=0.03)
