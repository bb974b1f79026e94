"""Ways to use the devices of a point: the best plan, the best of a family, or a plan as written."""

from __future__ import annotations

from typing import Any

from oracle.plan.plan import parse
from oracle.plan.strategies import strategies
from oracle.spec.document import refusal, suggest

BEST = "best"  # the way that takes the fastest plan of all


def family(text: str) -> tuple[str, ...]:
    """`data+filter` as strategy names; a SpecError for one that nobody knows."""
    found = tuple(text.replace("+", " ").split())
    for name in found:
        if name not in strategies():
            hint = suggest(name, strategies(), "strategies")
            raise refusal("sweep", f"no strategy is called `{name}`", hint)
    if not found:
        raise refusal(
            "sweep", "a family without a strategy", "e.g. `--each data,filter,data+filter`"
        )
    return found


def template(text: str, model: Any, devices: int) -> str | None:
    """A plan whose `*` stands for the devices that are left; nothing if they do not divide."""
    if text.count("*") > 1:
        raise refusal("sweep", f"`{text}` leaves more than one degree open", "one `*` at most")
    fixed = parse(text.replace("*", "1"), 1.0)
    inner = int(fixed.devices[0, 0])
    if "*" not in text:
        return text if inner == devices or model is None else None
    return None if devices % inner else text.replace("*", str(devices // inner))
