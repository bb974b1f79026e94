"""Checkpoints, failures and restarts of a real training, in lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from oracle.executor.checkpointing.summary import Recovery
from oracle.spec.units import show

PARTS = {"gather": "gathered", "write": "written", "flush": "flushed", "commit": "named"}


def recovery(found: Recovery | None, predicted: Mapping[str, Any]) -> Iterator[str]:
    """Lines under the plan's."""
    if found is None:
        return
    yield _checkpoints(found.checkpoints, predicted)
    for one in found.failures:
        yield _failure(one)
    if found.goodput:
        yield _whole(found.goodput, predicted)


def _checkpoints(kept: Mapping[str, Any], predicted: Mapping[str, Any]) -> str:
    how = f"{kept['way']}, after every {kept['every']} steps"
    if not kept["count"]:
        return f"  checkpoints  none ({how})"
    took = kept["seconds"]
    parts = ", ".join(f"{show(took[part], 's')} {word}" for part, word in PARTS.items()
                      if took[part] > 0)  # fmt: skip
    if kept["way"] == "async":
        parts = f"copied; safe after {show(took['safe_after'], 's')}: {parts}"
    text = f"{kept['count']} of {show(kept['bytes'], 'B')}, {how}: {show(took['blocking'], 's')}"
    foreseen = show(predicted["bytes"], "B") if predicted else ""
    seconds = predicted.get("seconds")
    known = f"{show(seconds, 's')}" if seconds is not None else "seconds unknown: no --system"
    if kept["way"] == "async" and seconds is not None:
        known += f", safe after {show(predicted['safe_after'], 's')}"
    assumed = predicted.get("assumed")
    known += f" (assumed: {', '.join(assumed)})" if assumed else ""
    return f"  checkpoints  {text} ({parts}); predicted {foreseen}, {known}"


def _failure(one: Mapping[str, Any]) -> str:
    where = "the checkpoint after step" if one["at"] == "checkpoint" else "step"
    hangs = " hangs" * (one["at"] == "hang")
    seen = show(one["detection"], "s")
    text = f"rank {one['rank']}{hangs} in {where} {one['step']}: seen after {seen}"
    if "restart" not in one:
        return f"  failure      {text}"
    parts = ", ".join(f"{show(spent, 's')} {name}" for name, spent in one["parts"].items())
    again = one["again"]
    passed = "".join(f"; {why}" for why in one["passed"])
    return (
        f"  failure      {text}, going on after {show(one['restart'], 's')} more ({parts}) "
        f"from step {one['from']}, {show(again['seconds'], 's')} of work lost{passed}"
    )


def _whole(goodput: Mapping[str, float], predicted: Mapping[str, Any]) -> str:
    names = ("progress", "checkpoints", "lost", "detection", "restart", "other")
    parts = ", ".join(f"{goodput[name] / goodput['seconds']:.1%} {name}" for name in names
                      if abs(goodput[name]) > 5e-4 * goodput["seconds"])  # fmt: skip
    whole = predicted.get("goodput")
    foreseen = f"; predicted {show(whole['seconds'], 's')} of these" if whole else ""
    return f"  goodput      {show(goodput['seconds'], 's')}: {parts}{foreseen}"
