"""Exchanges that a plan sends, drawn on the network that they cross."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oracle.plan.laid import as_used
from oracle.plan.names import short_names
from oracle.show.plot import style
from oracle.show.plot.network import contention
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

LARGEST = 4096  # devices of a network that is drawn


def exchanges(shown: Estimate, row: int = 0) -> list[str]:
    """The exchanges of a plan that cross a network and can be drawn, the dearest first."""
    spent: dict[str, float] = {}
    for message in shown.exchange[row]:
        spent[message["what"]] = spent.get(message["what"], 0.0) + message["seconds"]
    meshed = {message.what for message, _ in shown.work[row].messages if message.meshed}
    ranked = sorted(meshed & spent.keys(), key=lambda name: (-spent[name], name))
    return [name for name in ranked if spent[name] > 0]


def exchange(
    shown: Estimate, what: str, row: int = 0, title: str = "", width: float = style.WIDE
) -> Figure:  # fmt: skip
    """How full each link gets in one exchange that a plan sends."""
    work = shown.work[row]
    mine = [pair for pair in work.messages if pair[0].what == what]
    message, whole = max(mine, key=lambda pair: float(pair[1].seconds[work.row]))
    pattern, devices = message.pattern(work.at)
    name = short_names([shown.plans[row]])[0]
    system = as_used(shown.system, work.plan)
    return contention(system, pattern, devices, message.op, shown.options.algorithm,
                      float(whole.nbytes[work.row]), title or f"{what} of {name}", width,
                      shown.plans[row : row + 1] if title else ())  # fmt: skip


def dearest(
    shown: Estimate, row: int = 0, title: str = "", width: float = style.WIDE
) -> Figure:  # fmt: skip
    """The links under the exchange of a plan that takes the most seconds."""
    if shown.options.ideal:
        raise refusal("plot", "the published table's assumptions know no links", "without --ideal")
    if shown.devices[row] > LARGEST:
        raise refusal("plot", f"networks of more than {LARGEST:,} devices are not drawn")
    names = exchanges(shown, row)
    if not names:
        raise refusal("plot", f"`{shown.plans[row]}` sends nothing between devices")
    try:
        return exchange(shown, names[0], row, f"{names[0]}, {title}" if title else "", width)
    except (ValueError, NotImplementedError) as error:  # an operation without a schedule to draw
        raise refusal("plot", f"{names[0]} cannot be drawn: {error}") from None
