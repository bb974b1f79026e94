"""Where ranks sit, in words, and what else was done otherwise than asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oracle.plan.laid import taken
from oracle.predict.estimate import Estimate
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.ask.placing import Placing

LEAST = 1e-3  # of an iteration: less is not worth a word


def otherwise(shown: Estimate) -> list[str]:
    """What was not done as it was asked: a precision, an algorithm, a profile of this device."""
    return [f"  {one['field']}: {one['what']}" for one in shown.warnings
            if one["field"] in ("precision", "algorithm", "profile")]  # fmt: skip


def placed(shown: Estimate, row: int = 0) -> list[str]:
    """How one plan's ranks were placed, where somebody asked; and devices that stay idle for it."""
    found = lines(shown.placed[row]) if shown.placed else []
    return [f"  {words}" for words in (*found, *idle(shown, row))]


def idle(shown: Estimate, row: int) -> list[str]:
    """Units of which a plan's groups take a part, and which devices have no rank."""
    return [f"uses {unit.used} of {unit.devices} devices of each of {unit.units} units "
            f"(`{unit.level}`): {unit.idle} stay idle"
            for unit in taken(shown.system, shown.work[row].plan)]  # fmt: skip


def lines(found: Placing) -> list[str]:
    """A placement as it was asked for: where ranks sit, what that saves, what scattering costs."""
    seats: Any = found.seats
    said = [f"placed {seats.how if seats else 'block'}: {found.words}"]
    if abs(found.saved) > LEAST * found.block:
        word = "saves" if found.saved > 0 else "costs"
        said.append(
            f"{word} {show(abs(found.saved), 's')} of {show(found.block, 's')} with ranks "
            f"in order ({found.seconds / found.block - 1:+.1%}); {found.tried} ways tried"
        )
    elif found.tried > 1:
        said.append(f"no other of {found.tried} ways is faster than ranks in order")
    if found.neighbours is not None:
        said.append(scattered(found))
    return said


def scattered(found: Placing) -> str:
    """What the nodes that were given cost over neighbouring ones."""
    names = found.nodes
    if found.scattered <= LEAST * found.block:
        return f"{names}: as fast as neighbouring nodes"
    return (f"{names}: {show(found.scattered, 's')} ({found.scattered / found.block:.1%}) more "
            "than on neighbouring nodes")  # fmt: skip


def better(found: Placing) -> list[str]:
    """What a better placement of an explained plan saves; nothing where none is better."""
    said = [] if found.neighbours is None else [f"nodes {scattered(found)}"]
    if found.saved > LEAST * found.block:
        said.append(
            f"with ranks placed {found.words}: {show(found.seconds, 's')}, "
            f"{found.saved / found.block:.1%} less than in order ({show(found.block, 's')}); "
            "--place best, and `oracle export rankfile`"
        )
    elif found.tried > 1:
        said.append(f"ranks in order are as fast as any of {found.tried} placements")
    return said
