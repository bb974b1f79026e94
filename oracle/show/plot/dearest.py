"""Where the dearest exchange of a plan runs: the network, each link with its load."""

from __future__ import annotations

from typing import TYPE_CHECKING

from oracle.show.plot.network import contention
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from oracle.predict.estimate import Estimate

LARGEST = 4096  # devices of a network that is drawn


def dearest(shown: Estimate, row: int = 0, title: str = "") -> Figure:
    """The links under the exchange of a plan that takes the most seconds."""
    work = shown.work[row]
    meshed = [pair for pair in work.messages if pair[0].meshed]
    if shown.options.ideal:
        raise refusal("plot", "the published table's assumptions know no links", "without --ideal")
    if not meshed:
        raise refusal("plot", f"`{shown.plans[row]}` sends nothing between devices")
    if shown.devices[row] > LARGEST:
        raise refusal("plot", f"networks of more than {LARGEST:,} devices are not drawn")
    what, whole = max(meshed, key=lambda pair: float(pair[1].seconds[work.row]))
    pattern, devices = what.pattern(work.at)
    try:
        return contention(shown.system, pattern, devices, what.op, shown.options.algorithm,
                          float(whole.nbytes[work.row]),
                          f"{what.what}, {title}" if title else what.what)  # fmt: skip
    except (ValueError, NotImplementedError) as error:  # an operation without a schedule to draw
        raise refusal("plot", f"{what.what} cannot be drawn: {error}") from None
