"""Busy time of kernels and messages in the steps of a trace.

Kernels that run at once all count; the time of messages while no kernel runs is `exposed`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oracle.readers.runs import RunLog, Timing
from oracle.readers.runs.kernel_names import group_of, operation_of
from oracle.readers.runs.steady import ENOUGH, NEAR, median_of

Span = tuple[float, float]  # begin and end, seconds


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel on the device."""

    name: str
    begin: float
    end: float


def spans_of(steps: Iterable[Span]) -> list[Span]:
    """Return steps in order, each up to the next, without a first one that takes much longer."""
    ordered = sorted(set(steps))
    joined = [(begin, after) for (begin, _), (after, _) in pairwise(ordered)]
    last = ordered[-1] if ordered else (0.0, 0.0)
    if not joined or last[1] - last[0] > (joined[-1][1] - joined[-1][0]) / NEAR:
        joined += ordered[-1:]  # not a step that began when the profiler stopped
    if len(joined) < ENOUGH:
        return joined
    later = sorted(end - begin for begin, end in joined[1:])[len(joined) // 2 - 1]
    return joined[1:] if joined[0][1] - joined[0][0] > NEAR * later else joined


def measured(
    path: str, title: str, events: Sequence[Event], steps: Sequence[Span],
    settings: Mapping[str, float] | None = None, notes: Sequence[str] = (),
) -> RunLog:  # fmt: skip
    """Return the log of a run from the kernels of one device and the steps that it marked.

    The host runs ahead of the device, so a step's kernels begin between the first of its own and
    the first of the next step's, on average: the steps share the busy time of all kernels.
    """
    step_spans = spans_of(steps)
    groups: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(step_spans))
    sent: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(step_spans))
    work: list[list[Span]] = [[] for _ in step_spans]
    talk: list[list[Span]] = [[] for _ in step_spans]
    ordered = sorted(events, key=lambda event: event.begin)
    step = 0
    for event in ordered:
        while step < len(step_spans) and event.begin >= step_spans[step][1]:
            step += 1
        if step == len(step_spans):
            break
        if event.begin < step_spans[step][0]:
            continue
        operation = operation_of(event.name)
        if operation is None:
            groups[group_of(event.name)][step] += event.end - event.begin
            work[step].append((event.begin, event.end))
        else:
            sent[operation][step] += event.end - event.begin
            talk[step].append((event.begin, event.end))
    overlapped = [length(t) + length(w) - length([*t, *w]) for t, w in zip(talk, work, strict=True)]
    alone = [length(t) - hidden for t, hidden in zip(talk, overlapped, strict=True)]

    def mean(values: Sequence[float]) -> Timing:
        """Share time evenly, since the device lags behind its host; keep the steps' spread."""
        spread = median_of(values)
        return Timing(sum(values) / len(values), spread.spread if spread else 0.0, len(values))

    unknown = sum(sent.pop("", [0.0]))
    if unknown > 0:
        notes = (*notes, "messages that do not say which operation they are")
    return RunLog(
        path, title, step=median_of([end - begin for begin, end in step_spans]),
        kernels={name: mean(values) for name, values in sorted(groups.items())},
        messages={name: mean(values) for name, values in sorted(sent.items())},
        exposed=mean(alone) if any(map(bool, talk)) else None, settings=settings or {},
        notes=tuple(notes),
    )  # fmt: skip


def length(spans: Sequence[Span]) -> float:
    """Return the seconds that intervals cover together.

    >>> length([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total
