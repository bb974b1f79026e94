"""Optical circuits in words: which pattern gets how many, and when they are set."""

from __future__ import annotations

from math import inf

from oracle.ask.circuits import Circuits, Flow
from oracle.spec.units import show


def lines(found: Circuits) -> list[str]:
    """What a step takes with circuits, one line for each kind of message, and when to set them."""
    if not found.flows:
        return [f"nothing leaves a unit of `{found.level}`"]
    saved = found.packets - found.seconds
    said = [f"{show(found.seconds, 's')} a step with circuits that stay set, "
            f"{show(found.packets, 's')} over packets alone"
            if not found.changes else
            f"{show(found.seconds, 's')} a step, set {found.changes} times in it; "
            f"{show(found.packets, 's')} over packets alone"]  # fmt: skip
    if saved <= 1e-3 * found.packets:
        said = [f"circuits save nothing of {show(found.packets, 's')}"]
    said += [_flow(found, one) for one in found.flows]
    if not found.changes and found.setting:
        said.append(f"setting them anew after the passes, and back, takes "
                    f"{show(2 * found.setting, 's')} and saves less")  # fmt: skip
    return said


def _flow(found: Circuits, one: Flow) -> str:
    given = found.of(one)
    if not given:
        return f"{one.what}: packets, {show(one.seconds[0], 's')} shows{_never(one)}"
    return (f"{one.what}: {given} of {found.circuits} circuits a side, "
            f"{show(found.shows(one), 's')} shows ({show(one.seconds[0], 's')} over packets); "
            f"worth setting for one call from {show(one.threshold, 'B')}")  # fmt: skip


def _never(one: Flow) -> str:
    return ", where circuits are no faster" if one.threshold == inf else ""
