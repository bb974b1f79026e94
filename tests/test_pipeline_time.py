"""A pipeline's seconds against a run of its schedule, event by event.

Each stage takes its turns in order. A transfer begins when sender and receiver are both there, so
who waits for it waits for all of it; both ways of a border are free of each other, and sending
holds nobody up.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.network.collectives import Message
from oracle.plan.mesh import Slice
from oracle.plan.plan import parse
from oracle.predict.exchange import Priced
from oracle.predict.step import StageWork, Step, step
from oracle.spec.options import Options

SYSTEM = oracle.system("abci")


def played(
    forward: list[float], backward: list[float], border: list[float], segments: int, schedule: str
) -> list[float]:
    """When each stage has done its last turn."""
    p = len(forward)
    orders = [_order(p, i, segments, schedule == "gpipe") for i in range(p)]
    clock, done = [0.0] * p, {}
    while any(orders):
        for i, order in enumerate(orders):
            while order:
                ahead, k = order[0]
                source, cost = (i - 1, border[i - 1]) if ahead else (i + 1, border[i % (p - 1)])
                if 0 <= source < p:
                    if (ahead, source, k) not in done:
                        break
                    clock[i] = max(clock[i], done[ahead, source, k]) + cost
                clock[i] += forward[i] if ahead else backward[i]
                done[ahead, i, k] = clock[i]
                order.pop(0)
    return clock


def _order(p: int, i: int, segments: int, eager: bool) -> list[tuple[bool, int]]:
    most = segments if eager else min(segments, p - i)
    forward, backward = 0, 0
    found = []
    while backward < segments:
        if forward < segments and forward - backward < most:
            found.append((True, forward))
            forward += 1
        else:
            found.append((False, backward))
            backward += 1
    return found


def priced(what: str, when: str, exposed: list[float], ahead: Any = 0.0) -> Priced:
    one, many = np.ones(1), np.array([exposed])
    message = Message(what, "sendrecv", 1.0, ("pipeline",))
    return Priced(
        message=message, axis="pipeline", groups=Slice([((), 1)], np.zeros(1, int), one), menu=[()],
        when=when,
        group=2 * one, nbytes=one, calls=np.ones_like(many), seconds=many, exposed=many, phi=one,
        best=np.zeros(1, int), names=("direct",), full=((),), rough=0 * one, origins=("measured",),
        outside=np.zeros(1, bool), ahead=ahead,
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
        forward=np.array([forward]), backward=np.array([backward]), recomputed=(nothing,) * 3,
        update=nothing, host=(nothing, nothing), host_recomputed=(nothing,) * 3,
        segments=np.full((1, 1), float(segments)),
    )  # fmt: skip
    ahead = np.array([[0.0, *border]])
    talk = [priced("borders", "border", (ahead[0] + np.array([*border, 0.0])).tolist(), ahead),
            priced("gradients", "step", after)]  # fmt: skip
    stages: Any = SimpleNamespace(p=p, v=1)
    return step(plan, np.zeros(1, int), stages, work, talk, SYSTEM, Options(), unasked)


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
