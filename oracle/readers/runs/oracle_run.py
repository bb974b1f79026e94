"""Measurements of one plan by `oracle run … -o FILE`: its step, totals and messages.

A message's seconds are those that the passes wait for it; overlap is not measured. The seconds
that a step waits for samples are left out.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from oracle.readers.logs import InputError, usable
from oracle.readers.runs import RunLog, Timing
from oracle.readers.runs.steady import median_of
from oracle.spec.files import json_of

TITLE = "a measurement of `oracle run`"
PRECEDENCE = 1


def recognises(text: str) -> bool:
    return text.lstrip()[:1] == "{" and '"measured": true' in text[:400]


def parse(text: str, path: str) -> RunLog:
    content = json_of(text, path)
    try:
        (entry,) = content["plans"]
        measured = entry["measured"]
        step_seconds = [_seconds(value) for value in measured["each"]]
        iteration = _seconds(entry["seconds"]["iteration"])
        if read := entry.get("reading"):  # waiting for samples is no work
            waits = [_seconds(value) for value in read["each"]]
            step_seconds = [
                max(took - wait, 0.0) for took, wait in zip(step_seconds, waits, strict=True)
            ]
            iteration = max(iteration - _seconds(read["seconds"]), 0.0)
        step = median_of(step_seconds) or Timing(iteration)
        totals = {name: Timing(_seconds(entry["compute"][name]), step.spread, step.count)
                  for name in ("forward", "backward", "update")}  # fmt: skip
        sent: dict[str, float] = defaultdict(float)
        for message in entry["exchange"]:
            sent[str(message["op"])] += _seconds(message["seconds"])
        settings = {name: float(measured[name]) for name in ("batch", "devices")}
        messages = {op: Timing(took, step.spread, step.count) for op, took in sent.items()}
        return RunLog(path, TITLE, step, totals, messages=messages, settings=settings,
                      plan=str(entry["plan"])[:400])  # fmt: skip
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
        complaint = f"this is no measurement of one plan: {str(error)[:80]}"
        raise InputError(path, 0, complaint, "`oracle run … --plan PLAN -o FILE`") from None


def _seconds(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not usable(max(value, 1e-9))
    ):
        raise ValueError(f"{value!r:.40} is no time")
    return float(value)
