"""Traces of the PyTorch profiler (Kineto), in Chrome's format: `{"traceEvents": […]}`.

Kernels have the category `kernel`, `gpu_memcpy` or `gpu_memset`; steps are the host's annotations
`ProfilerStep#n`. Times are microseconds.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.logs import InputError
from oracle.readers.runs import RunLog
from oracle.readers.runs.timeline import Event, Span, measured
from oracle.spec.strict_json import Unfit, elements

TITLE = "a PyTorch profiler trace"
PRECEDENCE = 1
ON_DEVICE = ("kernel", "gpu_memcpy", "gpu_memset")
MARK = "ProfilerStep#"
_WORLD = re.compile(r'"world_size"\s*:\s*(\d{1,7})')


def recognises(text: str) -> bool:
    return text.lstrip()[:1] in "{[" and '"traceEvents"' in text


def parse(text: str, path: str) -> RunLog:
    events: list[Event] = []
    steps: list[Span] = []
    devices: set[Any] = set()
    begin = text.index('"traceEvents"')
    try:
        for event in elements(text, begin):
            span = _span(event)
            if span is None:
                continue
            name, category = str(event.get("name", "")), event.get("cat")
            if category in ON_DEVICE:
                more = event.get("args")
                devices.add(more.get("device") if isinstance(more, dict) else None)
                events.append(Event(name, *span))
            elif name.startswith(MARK) and category == "user_annotation":
                steps.append(span)
    except Unfit as error:
        raise InputError(path, 0, f"not a trace that can be trusted: {error}") from None
    if not steps:
        raise InputError(path, 0, "no step is marked in this trace",
                         "call `profiler.step()` after each iteration")  # fmt: skip
    if not events:
        raise InputError(path, 0, "no kernel of a device is in this trace",
                         "profile with ProfilerActivity.CUDA")  # fmt: skip
    if len(devices) > 1:
        raise InputError(path, 0, f"kernels of {len(devices)} devices in one trace",
                         "one trace of one rank")  # fmt: skip
    head = text[:begin][: 2**20] + text[-(2**16) :]
    settings = {}
    if world_size := _WORLD.search(head):
        settings["devices"] = float(world_size[1])
    return measured(path, "a PyTorch profiler trace", events, steps, settings)


def _span(event: Any) -> Span | None:
    """Return begin and end in seconds of a complete event, or None."""
    if not isinstance(event, dict) or event.get("ph") != "X":
        return None
    begin, last = event.get("ts"), event.get("dur")
    if not isinstance(begin, int | float) or not isinstance(last, int | float):
        return None
    if not (0 <= begin < 1e18 and 0 <= last < 1e15):
        return None
    return begin * 1e-6, (begin + last) * 1e-6
