"""What `oracle run … -o FILE` measured of one plan: its step, totals and messages.

A message's seconds are those that the passes wait for it: nothing is said of overlap.
What a step waited for samples is left out.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from oracle.readers.logs import InputError, usable
from oracle.readers.runs import RunLog, Timing
from oracle.readers.runs.steady import of
from oracle.spec.files import json_of

TITLE = "a measurement of `oracle run`"
PRECEDENCE = 1


def recognises(text: str) -> bool:
    return text.lstrip()[:1] == "{" and '"measured": true' in text[:400]


def parse(text: str, path: str) -> RunLog:
    found = json_of(text, path)
    try:
        (entry,) = found["plans"]
        own = entry["measured"]
        each = [_seconds(value) for value in own["each"]]
        whole = _seconds(entry["seconds"]["iteration"])
        if read := entry.get("reading"):  # what it waited for samples is no work
            waits = [_seconds(value) for value in read["each"]]
            each = [max(took - wait, 0.0) for took, wait in zip(each, waits, strict=True)]
            whole = max(whole - _seconds(read["seconds"]), 0.0)
        step = of(each) or Timing(whole)
        totals = {name: Timing(_seconds(entry["compute"][name]), step.spread, step.count)
                  for name in ("forward", "backward", "update")}  # fmt: skip
        sent: dict[str, float] = defaultdict(float)
        for one in entry["exchange"]:
            sent[str(one["op"])] += _seconds(one["seconds"])
        said = {name: float(own[name]) for name in ("batch", "devices")}
        messages = {op: Timing(took, step.spread, step.count) for op, took in sent.items()}
        return RunLog(path, TITLE, step, totals, messages=messages, said=said,
                      plan=str(entry["plan"])[:400])  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        what = f"this is no measurement of one plan: {str(error)[:80]}"
        raise InputError(path, 0, what, "`oracle run … --plan PLAN -o FILE`") from None


def _seconds(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not usable(max(value, 1e-9))
    ):
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)
