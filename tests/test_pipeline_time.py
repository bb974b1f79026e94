"""A pipeline's seconds against a run of its schedule, turn by turn.

A transfer begins when sender and receiver are both there, so who waits for it waits for all of
it; both ways of a border are free of each other, and sending holds nobody up. The closed form of
GPipe is exact; that of 1F1B is exact for equal stages and up to a fifth too long for uneven ones.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.network.collectives import Message
from oracle.plan.mesh import Slice
from oracle.plan.plan import parse
from oracle.plan.player import play
from oracle.plan.schedule import Turn
from oracle.predict.block import Work
from oracle.predict.defaults import options_for
from oracle.predict.evaluate import blocks
from oracle.predict.exchange import Priced
from oracle.predict.stage_work import StageWork
from oracle.predict.step import Step, step
from oracle.spec.options import Options


def played(
    forward: list[float], backward: list[float], border: list[float], segments: int, schedule: str
) -> list[float]:
    """When each stage has done its last turn; half of a backward pass is of the weights."""
    p, ahead, back = len(forward), [0.0, *border], [*border, 0.0]

    def seconds(stage: int, turn: Turn) -> float:
        if turn.kind == "forward":
            return forward[stage] + ahead[stage]
        part = 1.0 if turn.kind == "backward" else 0.5
        return part * backward[stage] + (turn.kind != "weight") * back[stage]

    done = [0.0] * p
    for span in play(schedule, p, segments, 1, seconds):
        done[span.stage] = max(done[span.stage], span.end)
    return done


def priced(what: str, when: str, exposed: list[float], ahead: Any = 0.0) -> Priced:
    one, many = np.ones(1), np.array([exposed])
    one_each = np.ones_like(many)
    message = Message(what, "sendrecv", 1.0, ("pipeline",))
    return Priced(
        message=message, axis="pipeline", groups=Slice([((), 1)], np.zeros(1, int), one), menu=[()],
        when=when,
        group=2 * one, largest=lambda: one_each, calls=one_each, host=0 * many,
        seconds=many, exposed=many, later={},
        longer=many, phi=one, best=np.zeros(1, int), names=("direct",), full=((),),
        rough=0 * one, origins=("measured",), outside=np.zeros(1, bool), ahead=ahead,
    )  # fmt: skip


def unasked() -> Any:
    raise AssertionError("nobody wants to know where the numbers come from")


def predicted(
    forward: list[float], backward: list[float], border: list[float], segments: int,
    schedule: str, after: list[float],
) -> Step:  # fmt: skip
    p, nothing = len(forward), np.zeros((1, len(forward)))
    plan = parse(f"pipeline:{p},segments={segments},schedule={schedule}", 64.0)
    work = StageWork(
        forward=np.array([forward]), backward=np.array([backward]),
        weight=np.array([backward]) / 2, recomputed=dict.fromkeys(range(1, 6), nothing),
        update=nothing, host=(nothing, nothing), host_weight=nothing,
        host_recomputed=dict.fromkeys(range(1, 6), nothing), segments=np.full((1, 1), float(segments)),
    )  # fmt: skip
    ahead = np.array([[0.0, *border]])
    talk = [priced("borders", "border", (ahead[0] + np.array([*border, 0.0])).tolist(), ahead),
            priced("gradients", "step", after)]  # fmt: skip
    return step(plan, np.zeros(1, int), work, talk, Options(), unasked)


def found(*given: Any) -> float:
    return float(predicted(*given).seconds[0])


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[list[float], list[float], list[float], int]:
    p = draw(st.integers(2, 6))
    forward = draw(st.lists(st.floats(0.7, 1.3), min_size=p, max_size=p))
    backward = [2 * f for f in forward]
    border = [draw(st.sampled_from([0.0, 0.2, 1.0, 2.0]))] * (p - 1)
    return forward, backward, border, draw(st.sampled_from([2, 4, 8, 16]))


def done(given: Any, schedule: str, after: list[float]) -> float:
    """When the last stage has also exchanged its gradients."""
    return max(end + more for end, more in zip(played(*given, schedule), after, strict=True))


afters = st.lists(st.floats(0, 9), min_size=6, max_size=6)


@settings(max_examples=200, deadline=None)
@given(pipelines(), afters)
def test_gpipe_takes_as_long_as_it_takes(given: Any, after: list[float]) -> None:
    after = after[: len(given[0])]
    assert found(*given, "gpipe", after) == pytest.approx(done(given, "gpipe", after))


@settings(max_examples=200, deadline=None)
@given(pipelines(), afters)
def test_turns_take_no_longer_than_said_and_little_less(given: Any, after: list[float]) -> None:
    after = after[: len(given[0])]
    said, real = found(*given, "1f1b", after), done(given, "1f1b", after)
    assert real * (1 - 1e-9) <= said <= 1.2 * real


@settings(max_examples=100, deadline=None)
@given(pipelines(), afters)
def test_a_schedule_without_a_closed_form_is_played(given: Any, after: list[float]) -> None:
    after = after[: len(given[0])]
    said, real = found(*given, "zb-h1", after), done(given, "zb-h1", after)
    assert real * (1 - 1e-9) <= said <= 1.02 * real
    if given[3] <= 4 * len(given[0]):
        assert said == pytest.approx(real)


def test_a_schedule_in_a_v_is_played_and_its_turn_is_free() -> None:
    """Two stages of two chunks: chunks 1 and 2 of four lie on one device, so one border is free."""
    plans = [f"pipeline:2,segments=8,interleave=2,schedule={how}" for how in ("zb-v", "1f1b")]
    sent = [next(one for one in each if one["what"] == "pipeline: stage borders")
            for each in oracle.estimate("gpt2", "dgx-a100", plans, 16).exchange]  # fmt: skip
    # each stage receives twice a segment: chunks 0-1 and 2-3; round by round one of them thrice
    assert (sent[0]["calls"], sent[1]["calls"]) == (8 * 2, 8 * 3)


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v,interleave=2", "dualpipe-v,interleave=2"])
def test_zero_bubble_schedules_wait_less_than_1f1b(schedule: str) -> None:
    plans = [f"pipeline:4,segments=16,schedule={how} tensor:2,sequence=on"
             for how in (schedule, "1f1b")]  # fmt: skip
    fast, plain = np.split(oracle.estimate("gpt3-175b", "dgx-a100", plans, 16).compute["bubble"], 2)
    assert 0 < fast[0] < 0.7 * plain[0]


@pytest.mark.parametrize(("plan", "why"), [
    ("pipeline:4,segments=8,schedule=zb-v", "schedule=zb-v needs interleave=2"),
    ("pipeline:4,segments=8,schedule=zb-h1,interleave=2", "schedule=zb-h1 needs interleave=1"),
    ("pipeline:4,segments=4,schedule=dualpipe-v,interleave=2",
     "schedule=dualpipe-v needs at least 2 segments a stage"),
])  # fmt: skip
def test_schedules_say_what_they_need(plan: str, why: str) -> None:
    shown = oracle.estimate("gpt2", "dgx-a100", plan, 64)
    assert shown.broken[0] == (why,)
    assert np.isfinite(shown.seconds).all()
    fits = "pipeline:4,segments=9,schedule=zb-v,interleave=2"
    assert not oracle.estimate("gpt2", "dgx-a100", fits, 63).broken[0]


@pytest.mark.parametrize("segments", [1, 2, 4, 16])
@pytest.mark.parametrize("border", [0.0, 0.5, 3.0])
def test_two_equal_stages_wait_for_one_transfer_each_a_segment(segments, border):
    given = [1.0, 1.0], [2.0, 2.0], [border], segments
    by_hand = (segments + 1) * (1 + 2 + border)
    assert found(*given, "1f1b", [0.0, 0.0]) == pytest.approx(by_hand)
    assert max(played(*given, "1f1b")) == pytest.approx(by_hand)


def test_a_stage_exchanges_its_gradients_while_those_before_it_drain():
    given, after = ([1.0] * 3, [2.0] * 3, [0.5] * 2, 4), [0.1, 0.2, 7.0]
    taken = predicted(*given, "gpipe", after)
    assert taken.seconds[0] == pytest.approx(done(given, "gpipe", after))
    drain = 2 * (2.0 + 0.5) + 3 * 0.5  # two passes back; three times the last stage is ahead
    gradients = next(one for one in taken.exchange if "gradients" in one.what)
    assert gradients.exposed[0] == pytest.approx(7.0 - drain)


@settings(max_examples=100, deadline=None)
@given(pipelines(), st.floats(0, 8))
def test_parts_add_up_to_the_iteration(given: Any, after: float) -> None:
    taken = predicted(*given, "1f1b", [after] * len(given[0]))
    exposed = sum(float(one.exposed[0]) for one in taken.exchange)
    whole = sum(float(part[0]) for part in taken.compute.values()) + exposed
    assert whole == pytest.approx(taken.seconds[0])


def test_borders_are_sent_in_parts_or_whole() -> None:
    """Each of four tensor ranks sends a quarter of what they all hold, or four times as much."""
    sent = [
        oracle.estimate("gpt2", "dgx-a100", f"pipeline:2,segments=4,borders={how} tensor:4", 16)
        for how in ("parts", "whole")
    ]
    parts, whole = (
        next(one for one in each.exchange[0] if one["what"] == "pipeline: stage borders")["bytes"]
        for each in sent
    )
    assert whole == 4 * parts
    # under sequence=on each rank holds its own tokens only: nothing is sent twice
    along = [
        oracle.estimate(
            "gpt2", "dgx-a100", f"pipeline:2,segments=4,borders={how} tensor:4,sequence=on", 16
        ).seconds[0]
        for how in ("parts", "whole")
    ]
    assert along[0] == along[1]


@pytest.mark.parametrize(("name", "text"), [
    ("resnet50", "pipeline:4,segments=4,cuts=balanced data:2"),
    ("resnet50", "pipeline:3,segments=6,interleave=2,cuts=balanced data:2"),
    ("deepcam", "pipeline:4,segments=4,cuts=balanced data:2,zero=3"),
    ("alexnet", "pipeline:3,segments=4,cuts=balanced data:8"),
])  # fmt: skip
@pytest.mark.parametrize("ideal", [False, True])
def test_bytes_and_seconds_of_a_message_belong_to_one_stage(
    name: str, text: str, ideal: bool
) -> None:
    """Its largest call takes no longer than all, and all no longer than if each were as large."""
    model, system = oracle.model(name), oracle.system("dgx-a100")
    options = options_for(model, system, None, None, ideal)
    ((_, block),) = blocks(model, system, parse(text, 256.0), options)
    for priced, whole in Work(block, 0).messages:
        offer = priced.menu[int(priced.groups.row[0])]
        size, seconds = float(whole.nbytes[0]), float(whole.seconds[0])
        one = min(line.start + line.per_byte * size for line in offer)
        assert size > 0, priced.what
        assert one * (1 - 1e-9) <= seconds <= one * float(whole.calls[0]) * (1 + 1e-9), priced.what
