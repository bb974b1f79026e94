"""A whole training in a line: how long, until what, at what cost; and batches beside it."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.ask.batches import Tried
from oracle.ask.optimizers import Rival
from oracle.run.costs import Costs
from oracle.run.limits import words
from oracle.run.target import Training
from oracle.spec.units import show

SHOWN = 5  # batches beside the best


def ends(one: Training) -> str:
    """`45 min (38 min to 58 min) to 75.9 % top-1: 54.6 epochs (fitted), 385 device-hours`."""
    length = one.length
    given = length.origin == "given"
    epochs = "" if length.epochs is None or given else f": {length.epochs:.3g} epochs"
    text = (
        f"{show(one.seconds, 's')} ({show(one.low, 's')} to {show(one.high, 's')}) "
        f"{'for' if given else 'to'} {length.words}{epochs}"
        f"{'' if given else f' ({length.origin})'}, {one.device_hours:,.4g} device-hours"
    )
    text += "" if not one.evaluation else f", {show(one.evaluation, 's')} of it evaluation"
    text += "".join(f", {each}" for each in paid(one.costs))
    if length.critical_batch:
        text += f"; critical\u00a0batch\u00a0{length.critical_batch:,.0f}"
    if length.beyond:
        text += f"; no run met it with a batch above {length.beyond:,.0f}"
    return text


def rivals(found: Sequence[Rival]) -> str:
    """Other optimizers that met the target: what each would take, and where it is done first."""
    each = []
    for one in found:
        from_ = one.ahead_from
        where = (f"done first on no number of devices up to {one.most:,}" if from_ is None
                 else f"done first from {from_:,} devices on")  # fmt: skip
        took = show(one.best.training.seconds, "s")
        each.append(f"{one.best.optimizer} takes {took} at {one.best.batch:,}, {where}")
    return "; ".join(each)


def paid(found: Costs) -> list[str]:
    """What is known of `1,200 USD`, `5,000 kWh`, `0.3 t CO₂`; `≤` where nobody measured idling."""
    most = "≤ " if "device.power.idle" in found.unknown else ""
    return [
        *([] if found.money is None else [words("money", found.money)]),
        *([] if found.energy is None else [most + words("energy", found.energy)]),
        *([] if found.carbon is None else [most + words("carbon", found.carbon)]),
    ]


def tried(found: Sequence[Tried]) -> str:
    """What other batches would take, from the smallest to the largest."""
    best = found[0].batch
    some = sorted(found[: SHOWN + 1], key=lambda one: one.batch)
    each = [
        f"{one.batch:,}: {show(one.training.seconds, 's')}" for one in some if one.batch != best
    ]
    return f"{best:,} is the fastest of {len(found)}; {', '.join(each)}" if each else f"{best:,}"
