"""How a plan gets its samples, in a line: is it bound by reading, by what, what else there is."""

from __future__ import annotations

from typing import Any

from oracle.predict.estimate import Estimate
from oracle.spec.units import show

SEEN = 0.001  # of a step, from where waiting for samples is worth a word


def reads(shown: Estimate, row: int, room: int) -> str:
    """`262 ms a step of 184 ms compute: I/O-bound (metadata …); staged: 0 ms, once 41 s`.

    As much of it as there is room for.
    """
    one = shown.reading[row]
    if one is None:
        asked = shown.options.reading == "none"
        return "not counted, as asked" if asked else f"not counted: {shown.unread}"
    took, step = show(one["seconds"], "s"), float(shown.seconds[row])
    work = show(step - one["exposed"], "s")
    if one["exposed"] > SEEN * step and one["bound_by"] in ("network", "scatter"):
        text = f"{one['mode']}: {took} a step of {work} compute, +{show(one['exposed'], 's')}"
        more = [f" ({one['cause']})"]
    elif one["exposed"] > SEEN * step:
        text = f"{one['mode']}: {took} a step of {work} compute: I/O-bound"
        more = [f" ({one['cause']})", f" ({one['cause'].partition(':')[0]})"]
    else:
        text, more = f"{one['mode']}: {took} a step, ahead of its use", [_once(one)]
    text += next((words for words in more if len(text + words) <= room), "")
    other = _other(one, step)
    return f"{text}; {other}" if other and len(text + other) + 2 <= room else text


def _once(one: dict[str, Any]) -> str:
    """What is done before the first step, where it takes longer than a blink."""
    if one["staging"] is None:
        return ", staging not counted" if one["mode"] in ("staged", "striped") else ""
    said = [f"{name} {show(one[name], 's')}" for name in ("staging", "listing") if one[name] > 1]
    pays = one["pays_after"]
    after = f", pays after {pays['epochs']:.2g} epochs" if pays and one["staging"] > 1 else ""
    return f", once {' and '.join(said)}{after}" if said else ""


def _other(one: dict[str, Any], step: float) -> str:
    """The way to read that is next: of what waits the fastest other, else the plain one."""
    others = [each for each in one["alternatives"] if each["possible"]]
    if one["exposed"] > SEEN * step:
        best = min(others, key=lambda each: (each["step"], each["once"]), default=None)
        if best is None or best["step"] > (1 - SEEN) * step:
            return ""
        return f"{best['mode']}: {show(best['exposed'], 's')}, once {show(best['once'], 's')}"
    plain = next((each for each in others if each["mode"] == "shared"), None)
    if plain is None or plain["exposed"] <= SEEN * step:
        return ""
    return f"shared: +{show(plain['exposed'], 's')} a step"
