"""Busy time of kernels and messages in the steps of a trace.

Kernels that run beside each other count each; of messages, what no kernel runs beside is `shown`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from oracle.readers.runs import RunLog, Timing
from oracle.readers.runs.kernel_names import group_of, operation_of
from oracle.readers.runs.steady import FEW, NEAR, of

Span = tuple[float, float]  # begin and end, seconds


@dataclass(frozen=True, slots=True)
class Event:
    """One kernel on the device."""

    name: str
    begin: float
    end: float


def spans_of(steps: Iterable[Span]) -> list[Span]:
    """Steps in order, each up to the next; without the first where it takes much longer."""
    found = sorted(set(steps))
    joined = [(begin, after) for (begin, _), (after, _) in pairwise(found)]
    last = found[-1] if found else (0.0, 0.0)
    if not joined or last[1] - last[0] > (joined[-1][1] - joined[-1][0]) / NEAR:
        joined += found[-1:]  # and not what began when the profiler stopped
    if len(joined) < FEW:
        return joined
    later = sorted(end - begin for begin, end in joined[1:])[len(joined) // 2 - 1]
    return joined[1:] if joined[0][1] - joined[0][0] > NEAR * later else joined


def measured(
    path: str, title: str, events: Sequence[Event], steps: Sequence[Span],
    said: Mapping[str, float] | None = None, notes: Sequence[str] = (),
) -> RunLog:  # fmt: skip
    """A run by the kernels of one device and the steps that its program marked.

    The host runs ahead of the device, so that a step's kernels are those that begin between the
    first of its and the first of the next step's, seen over all of them: busy time is that of the
    whole, shared by its steps.
    """
    kept = spans_of(steps)
    groups: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(kept))
    sent: dict[str, list[float]] = defaultdict(lambda: [0.0] * len(kept))
    work: list[list[Span]] = [[] for _ in kept]
    talk: list[list[Span]] = [[] for _ in kept]
    ordered = sorted(events, key=lambda event: event.begin)
    at = 0
    for event in ordered:
        while at < len(kept) and event.begin >= kept[at][1]:
            at += 1
        if at == len(kept):
            break
        if event.begin < kept[at][0]:
            continue
        operation = operation_of(event.name)
        if operation is None:
            groups[group_of(event.name)][at] += event.end - event.begin
            work[at].append((event.begin, event.end))
        else:
            sent[operation][at] += event.end - event.begin
            talk[at].append((event.begin, event.end))
    shown = [length(t) + length(w) - length([*t, *w]) for t, w in zip(talk, work, strict=True)]
    alone = [length(t) - beside for t, beside in zip(talk, shown, strict=True)]

    def mean(values: Sequence[float]) -> Timing:
        """Shared evenly, since the device lags behind its host; with the spread of the steps."""
        spread = of(values)
        return Timing(sum(values) / len(values), spread.spread if spread else 0.0, len(values))

    unknown = sum(sent.pop("", [0.0]))
    if unknown > 0:
        notes = (*notes, "messages that do not say which operation they are")
    return RunLog(
        path, title, step=of([end - begin for begin, end in kept]),
        kernels={name: mean(values) for name, values in sorted(groups.items())},
        messages={name: mean(values) for name, values in sorted(sent.items())},
        shown=mean(alone) if any(map(bool, talk)) else None, said=said or {}, notes=tuple(notes),
    )  # fmt: skip


def length(spans: Sequence[Span]) -> float:
    """Seconds that intervals cover together.

    >>> length([(0.0, 2.0), (1.0, 3.0), (5.0, 6.0)])
    4.0
    """
    total, until = 0.0, float("-inf")
    for begin, end in sorted(spans):
        if end > until:
            total += end - max(begin, until)
            until = end
    return total
