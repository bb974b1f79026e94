"""A whole training in a line: how long, until what, at what cost; and batches beside it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from oracle.run.limits import words
from oracle.spec.units import number, show

if TYPE_CHECKING:
    from oracle.ask.batches import Tried
    from oracle.ask.optimizers import Rival
    from oracle.run.checkpoints import Saving
    from oracle.run.costs import Costs
    from oracle.run.failures import Goodput
    from oracle.run.goodput import Shares
    from oracle.run.target import Training

LEAST = 5e-5  # of the time, that is shown
WORDS = {"waiting": "waiting for spares", "away": "replicas away"}
SHOWN = 5  # batches beside the best
ROUGH = " (assumed, to a factor of 2)"


def ends(one: Training) -> str:
    """`45 min (38 min to 58 min) to 75.9 % top-1: 54.6 epochs (fitted), 385 device-hours`."""
    length = one.length
    given = length.origin == "given"
    epochs = "" if length.epochs is None or given else f": {length.epochs:.3g} epochs"
    text = (
        f"{show(one.seconds, 's')} ({show(one.low, 's')} to {show(one.high, 's')}) "
        f"{'for' if given else 'to'} {length.words}{epochs}"
        f"{'' if given else f' ({length.origin})'}, {number(one.device_hours)} device-hours"
    )
    if one.evaluation:
        text += f", {show(one.evaluation, 's')} of it evaluation"
    elif one.evaluation is None and length.epochs is not None:
        text += ", evaluation unknown"
    text += "".join(f", {each}" for each in paid(one.costs))
    if length.critical_batch:
        most = float(f"{length.critical_batch:.2g}") if given else length.critical_batch
        text += f"; critical\u00a0batch\u00a0{most:,.0f}{ROUGH if given else ''}"
    if length.worth:
        text += f", above which they do as much as {show(length.worth, '', 3)} of a small one"
    if length.beyond:
        text += f"; no run met it with a batch above {length.beyond:,.0f}"
    return text


def rivals(found: Sequence[Rival]) -> str:
    """Other optimizers that met the target: what each would take, and where it is done first."""
    each = []
    for one in found:
        from_ = one.ahead_from
        where = (f"not done first on any number of devices up to {one.most:,}" if from_ is None
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


def failures(found: Goodput, brief: bool = False) -> tuple[str, str]:
    """A word for what is said of failures, and what: goodput, or why nobody knows it."""
    if found.saving is None:
        return "", ""
    if found.shares is None:
        why = found.impossible or f"{', '.join(found.unknown)} unknown"
        return "failures", f"not counted: {why}"
    return "goodput", (_brief if brief else _good)(found, found.shares, found.saving)


def _brief(found: Goodput, shares: Shares, save: Saving) -> str:
    """`91 %, async to host each 9 min; fails each 3.1 h, as Meta's H100`."""
    way, each, said = save.way, show(float(shares.interval), "s"), found.reliability
    where = "" if way.to == "shared" else f" to {way.to}"
    text = f"{_share(found.progress)}, {way.how}{where} each {each}"
    if found.rate and said is not None:
        text += f"; fails each {show(1 / found.rate, 's')}{f', as {said.of}' if said.of else ''}"
    return text


def _often(found: Goodput) -> str:
    """`; a failure each 3.1 h, as on …`."""
    said = found.reliability
    if not found.rate or said is None:
        return ""
    return f"; a failure each {show(1 / found.rate, 's')}{f' as on {said.of}' if said.of else ''}"


def _good(found: Goodput, shares: Shares, save: Saving) -> str:
    """`91 %: 2 % checkpoints (of 5.2 TiB in 12 s, each 9 min), 4 % lost, 3 % restarts; …`."""
    text = (
        f"{_share(found.progress)}: {_share(found.time['checkpoints'])} checkpoints "
        f"({save.way.how} to {save.way.to}, {show(save.state.whole, 'B')} in "
        f"{show(save.seconds, 's')}, each {show(float(shares.interval), 's')})"
    )
    for name in ("lost", "restarts", "waiting", "away"):
        if found.time[name] > LEAST:
            text += f", {_share(found.time[name])} {WORDS.get(name, name)}"
    late = f", restarts of {show(found.restart or 0.0, 's')}"
    return f"{text}{_often(found)}{late}{slowed(found)}"


def _share(part: float) -> str:
    """A share of the time in percent, two digits of what it lacks where it is almost all."""
    if part < 0.5:
        return f"{100 * part:.2g} %"
    return f"{100 * part:.{1 if part < 0.999 else 2}f} %"


def slowed(found: Goodput) -> str:
    """What slow devices cost, in words; nothing where there are none."""
    if found.slow <= 1:
        return ""
    return f"; steps {found.slow:.3g} times as long for slow devices"


def tried(found: Sequence[Tried]) -> str:
    """What other batches would take, from the smallest to the largest."""
    best = found[0].batch
    some = sorted(found[: SHOWN + 1], key=lambda one: one.batch)
    each = [
        f"{one.batch:,}: {show(one.training.seconds, 's')}" for one in some if one.batch != best
    ]
    return f"{best:,} is the fastest of {len(found)}; {', '.join(each)}" if each else f"{best:,}"
