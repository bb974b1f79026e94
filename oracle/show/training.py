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
    from oracle.run.target import Length, Training

LEAST = 5e-5  # of the time, that is shown
WORDS = {"waiting": "waiting for spares", "away": "replicas away"}
SHOWN = 5  # batches beside the best
NEAREST = 2  # batches beside the best on a first screen
ROUGH = " (assumed, to a factor of 2)"


def until(training: Training) -> str:
    """`88.1 min (61.8 min to 2.17 h) for 90 epochs of imagenet`."""
    length = training.length
    return (f"{show(training.seconds, 's')} ({show(training.low, 's')} to "
            f"{show(training.high, 's')}) {'for' if length.origin == 'given' else 'to'} "
            f"{length.words}")  # fmt: skip


def ends(training: Training) -> str:
    """`45 min (38 min to 58 min) to 75.9 % top-1: 54.6 epochs (fitted), 385 device-hours`."""
    length = training.length
    epochs = "" if length.epochs is None or length.origin == "given" else (
        f": {length.epochs:.3g} epochs")  # fmt: skip
    origin = "" if length.origin == "given" else f" ({length.origin})"
    text = f"{until(training)}{epochs}{origin}, {spent(training)}"
    if critical := critical_batch(length):
        text += f"; {critical}"
    if length.worth:
        text += f", above which they do as much as {show(length.worth, '', 3)} of a small one"
    return text + _unmet(length)


def takes(training: Training) -> list[str]:
    """Return `38.2 epochs (fitted)`, `40.8 device-hours`, `32.2 USD`, what matters most first."""
    length = training.length
    epochs = [] if length.epochs is None or length.origin == "given" else [
        f"{length.epochs:.3g} epochs ({length.origin})"]  # fmt: skip
    hours, evaluation, *costs = [*_hours(training), *paid(training.costs)]
    unmet = [_unmet(length).removeprefix("; ")] if length.beyond else []
    return [*epochs, hours, *unmet, *costs, *([evaluation] if evaluation else [])]


def _unmet(length: Length) -> str:
    """Return that no run met the target with so large a batch, where that is so."""
    return f"; no run met it with a batch above {length.beyond:,.0f}" if length.beyond else ""


def spent(training: Training) -> str:
    """`40.8 device-hours, 7.03 s of it evaluation, 32.2 USD, ≤ 12.2 kWh`."""
    return ", ".join(filter(None, [*_hours(training), *paid(training.costs)]))


def _hours(training: Training) -> tuple[str, str]:
    """Return the device-hours, and what of the time is evaluation."""
    evaluation = ""
    if training.evaluation:
        evaluation = f"{show(training.evaluation, 's')} of it evaluation"
    elif training.evaluation is None and training.length.epochs is not None:
        evaluation = "evaluation unknown"
    return f"{number(training.device_hours)} device-hours", evaluation


def critical_batch(length: Length) -> str:
    """`critical batch 3,400 (assumed, to a factor of 2)`, or nothing where nobody knows it."""
    if not length.critical_batch:
        return ""
    assumed = length.origin == "given"
    batch = float(f"{length.critical_batch:.2g}") if assumed else length.critical_batch
    return f"critical\u00a0batch\u00a0{batch:,.0f}{ROUGH if assumed else ''}"


def rivals(others: Sequence[Rival]) -> str:
    """Return what each other optimizer that met the target takes, and where it is done first."""
    sentences = []
    for rival in others:
        first_at = rival.ahead_from
        where = (f"not done first on any number of devices up to {rival.most:,}"
                 if first_at is None else f"done first from {first_at:,} devices on")  # fmt: skip
        took = show(rival.best.training.seconds, "s")
        sentences.append(f"{rival.best.optimizer} takes {took} at {rival.best.batch:,}, {where}")
    return "; ".join(sentences)


def paid(costs: Costs) -> list[str]:
    """What is known of `1,200 USD`, `5,000 kWh`, `0.3 t CO₂`; `≤` where nobody measured idling."""
    most = "≤\u00a0" if "device.power.idle" in costs.unknown else ""
    return [
        *([] if costs.money is None else [words("money", costs.money)]),
        *([] if costs.energy is None else [most + words("energy", costs.energy)]),
        *([] if costs.carbon is None else [most + words("carbon", costs.carbon)]),
    ]


def failures(goodput: Goodput, brief: bool = False) -> tuple[str, str]:
    """Return a label and what is known of failures: the goodput, or why nobody knows it."""
    if goodput.saving is None:
        return "", ""
    if goodput.shares is None:
        why = goodput.impossible or f"{', '.join(goodput.unknown)} unknown"
        return "failures", f"not counted: {why}"
    return "goodput", (_brief if brief else _good)(goodput, goodput.shares, goodput.saving)


def _brief(goodput: Goodput, shares: Shares, save: Saving) -> str:
    """`91 %, async to host each 9 min; fails each 3.1 h, as Meta's H100`."""
    way, interval, reliability = save.way, show(float(shares.interval), "s"), goodput.reliability
    where = "" if way.to == "shared" else f" to {way.to}"
    text = f"{_share(goodput.progress)}, {way.how}{where} each {interval}"
    if goodput.rate and reliability is not None:
        machine = f", as {reliability.of}" if reliability.of else ""
        text += f"; fails each {show(1 / goodput.rate, 's')}{machine}"
    return text


def _often(goodput: Goodput) -> str:
    """`; a failure each 3.1 h, as on …`."""
    reliability = goodput.reliability
    if not goodput.rate or reliability is None:
        return ""
    machine = f" as on {reliability.of}" if reliability.of else ""
    return f"; a failure each {show(1 / goodput.rate, 's')}{machine}"


def _good(goodput: Goodput, shares: Shares, save: Saving) -> str:
    """`91 %: 2 % checkpoints (of 5.2 TiB in 12 s, each 9 min), 4 % lost, 3 % restarts; …`."""
    text = (
        f"{_share(goodput.progress)}: {_share(goodput.time['checkpoints'])} checkpoints "
        f"({save.way.how} to {save.way.to}, {show(save.state.whole, 'B')} in "
        f"{show(save.seconds, 's')}, each {show(float(shares.interval), 's')})"
    )
    for name in ("lost", "restarts", "waiting", "away"):
        if goodput.time[name] > LEAST:
            text += f", {_share(goodput.time[name])} {WORDS.get(name, name)}"
    late = f", restarts of {show(goodput.restart or 0.0, 's')}"
    return f"{text}{_often(goodput)}{late}{slowed(goodput)}"


def _share(part: float) -> str:
    """A share of the time in percent, two digits of what it lacks where it is almost all."""
    if part < 0.5:
        return f"{100 * part:.2g} %"
    return f"{100 * part:.{1 if part < 0.999 else 2}f} %"


def slowed(goodput: Goodput) -> str:
    """Return what slow devices cost, in words; nothing where there are none."""
    if goodput.slow <= 1:
        return ""
    return f"; steps {goodput.slow:.3g} times as long for slow devices"


def tried(batches: Sequence[Tried], most: int = SHOWN) -> str:
    """Return what other batches would take, those that take least, from the smallest on."""
    best = batches[0].batch
    others = sorted((batch for batch in batches[: most + 1] if batch.batch != best),
                    key=lambda batch: batch.batch)  # fmt: skip
    if not others:
        return f"{best:,}"
    times = (f"{batch.batch:,}: {show(batch.training.seconds, 's')}" for batch in others)
    return f"{best:,} is the fastest of {len(batches)}; {', '.join(times)}"
