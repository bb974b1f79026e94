"""A choice of machines as text: the answer, the frontier, what would change it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from oracle.ask.choose import Choice
from oracle.ask.setups import USUAL_TOKENS, Setup
from oracle.ask.turning import MOST, Change
from oracle.predict.rates import tokens as tokens_of
from oracle.run.costs import price_source
from oracle.run.limits import Limits, amount, words
from oracle.run.target import Training
from oracle.show.terminal import fit, wrapped
from oracle.show.training import failures, paid
from oracle.spec.units import number, several, show

SUPERLATIVE = {"time": "fastest", "money": "cheapest", "energy": "least energy",
               "carbon": "least carbon", "cost": "fewest device-hours"}  # fmt: skip
SPENT = {"cost": ("dev-hours", "device_hours"), "energy": ("kWh", "energy"),
         "carbon": ("kg CO₂", "carbon")}  # fmt: skip
SCREEN = 24  # lines of the first one
MISSING = {
    "pue": "what cooling takes (--pue 1.2)", "grid": "CO₂ of its electricity (--grid 57g/kWh)",
    "device.price": "the price of a device (--price '2.5 USD/h')",
    "device.power": "what a device draws (device.power of its file)",
}  # fmt: skip
ROWS, MISSES, CHANGES = 6, 2, 3  # of each that a first screen has room for
TABLE = 2  # lines of a table beside its rows


def choice_text(choice: Choice, asked: Any = None) -> str:
    """The first screen: the answer, the frontier, what is over the limits, what would change it."""
    head = [fit(_head(choice)), ""]
    if not len(choice):
        return "\n".join([*head, *_nothing(choice)])
    head += [*_answer(choice), ""]
    tail = [*_over(choice), *_left_out(choice), fit(f"changes   {_changes(choice.changes)}")]
    if asked is not None:
        tail.append(_next(choice, asked))
    room = SCREEN - TABLE - "\n".join([*head, *tail]).count("\n") - 1
    rows = _rows(choice, max(1, min(ROWS, room)))
    return "\n".join([*head, *_table(rows, choice), *tail])


def _head(choice: Choice) -> str:
    asked = choice.asked
    some = [*choice.setups, *choice.misses, *choice.unknown]
    ends = f", {some[0].training.length.words}" if some else ""
    kept = limits_text(asked.limits)
    return (f"{asked.model.title or asked.model.name}{ends}: {SUPERLATIVE[asked.objective]} of "
            f"{len(some)} setups{f' {kept}' if kept else ''}")  # fmt: skip


def limits_text(limits: Limits) -> str:
    """`within 30 days, 1,000,000 USD`."""
    said = [words(name, value) for name in limits.__slots__
            if (value := getattr(limits, name)) is not None]  # fmt: skip
    return f"within {', '.join(said)}" if said else ""


def _answer(choice: Choice) -> list[str]:
    one = choice.best
    whole, length = one.training, one.training.length
    batch = f"batch {one.batch:,}"
    each = tokens_of(choice.asked.model)
    if (
        choice.asked.batch is None
        and choice.asked.batch_per_device is None
        and (not choice.asked.ends.get("target"))
    ):
        batch += f" (assumed: {USUAL_TOKENS / 1e6:.1f} M tokens)" if each else ""
    takes = [f"{number(whole.device_hours)} device-hours", *paid(whole.costs)]
    epochs = "" if length.origin == "given" else f"; its length is {length.origin}"
    lines = [
        fit(f"{several(one.devices, 'device')} of {one.system.title or one.system.name}: "
            f"{show(whole.seconds, 's')} ({show(whole.low, 's')} to {show(whole.high, 's')})"),
        fit(f"  plan      {one.plan}, {batch}, {one.software}, "
            f"{show(float(one.shown.seconds[0]), 's')} a step", 12),
        fit(f"  takes     {', '.join(takes)}{epochs}", 12),
    ]  # fmt: skip
    if choice.asked.limits:
        sure = "more than 99 %" if one.sure > 0.99 else f"{one.sure:.0%}"
        lines.append(f"  keeps to  the limits with a probability of {sure}")
    if whole.costs.money is not None:
        said = price_source(one.system).partition(": ")[0]
        lines.append(fit(f"  price     {whole.costs.money / whole.device_hours:.3g} USD/h: {said}"))
    if whole.costs.unknown:
        unknown = ", ".join(MISSING.get(name, name) for name in whole.costs.unknown)
        lines.append(fit(f"  unknown   {unknown}", 12))
    return [*lines, *_failures(choice)]


def _failures(choice: Choice) -> list[str]:
    """What failures make of the answer, and on which other machines nobody knows it."""
    best = choice.best.training.goodput
    known = {one.system.name: one.training.goodput.known for one in choice.setups}
    others = [which for which, counted in known.items() if not counted]
    if not any(known.values()) or best.saving is None:
        return [fit(f"  failures  {failures(best)[1]}")] if best.saving else []
    said = ""
    if best.known:
        of = best.reliability.of if best.reliability else ""
        said = f"counted{f' as on {of}' if of else ''}, goodput {best.progress:.1%}"
    left_out = f"not counted on {', '.join(others)}" if others else ""
    return [fit(f"  failures  {'; '.join(word for word in (said, left_out) if word)}")]


def _rows(choice: Choice, most: int) -> list[Setup]:
    """The answer and the frontier, as many as there is room for, the fastest first."""
    front = list(choice.front)
    if choice.best not in front:
        front.append(choice.best)
    others: dict[str, Setup] = {}
    for one in choice.setups:  # the best of each machine that has none on it
        others.setdefault(one.system.name, one)
    for name, one in others.items():
        if name not in {row.system.name for row in front}:
            front.append(one)
    must = [choice.best, *(one for name, one in others.items() if one is not choice.best)]
    while len(front) > most:
        spare = [one for one in front if one not in must]
        spare = spare or [one for one in front if one is not choice.best]
        front.remove(spare[len(spare) // 2])
    return sorted(front, key=lambda one: one.training.seconds)


def _table(rows: Sequence[Setup], choice: Choice) -> list[str]:
    """One line a setup; the batch where it is not the same for all."""
    front = set(map(id, choice.front))
    name = max(7, *(len(one.system.name) for one in rows))
    batches = len({one.batch for one in rows}) > 1
    batch = f" {'batch':>6}" * batches
    what, spent = SPENT.get(choice.asked.objective, SPENT["cost"])
    head = f"   {'machine':<{name}} {'devices':>7}{batch} {'time':>9} {what:>9} {'USD':>9}"
    lines = [f"{head}  plan"]
    for one in rows:
        money = one.training.costs.money
        mark = ">" if one is choice.best else "*" if id(one) in front else " "
        batch = f" {one.batch:>6}" * batches
        line = (f" {mark} {one.system.name:<{name}} {one.devices:>7}{batch} "
                f"{show(one.training.seconds, 's'):>9} {_short(amount(one.training, spent)):>9} "
                f"{_short(money):>9}  {one.plan}")  # fmt: skip
        lines += wrapped(line, 6)
    lines.append("   > the answer; * nothing is better both in time and in what it takes")
    return lines


def _short(value: float | None) -> str:
    return "-" if value is None else number(value)


def missing(one: Setup) -> str:
    """`64 of dgx-h100: 31.2 days, 1.04 times the time`."""
    place = f"{one.devices} of {one.system.name}"
    return f"{place}: {show(one.training.seconds, 's')}, {over_text(one.over)}"


def over_text(over: Mapping[str, float | None]) -> str:
    """`1.04 times the time and the money not known`."""
    return " and ".join(
        f"{_limit(name)} not known" if ratio is None else f"{ratio:.3g} times {_limit(name)}"
        for name, ratio in over.items()
    )


def kept_text(one: Training, limits: Limits) -> str:
    """Whether the best plan's training keeps to its limits, in a line of a ranking."""
    over = limits.over(one)
    if over:
        return f"  limits    over: {over_text(over)}; `oracle choose` looks at other devices"
    return f"  limits    kept with a probability of {limits.probability(one):.0%}"


def front_text(choice: Choice) -> str:
    """What fewer devices take, in a line of a ranking: `8: 4.4 h, 35 device-hours; 16: …`."""
    each = [f"{one.devices} (batch {one.batch:,}): {show(one.training.seconds, 's')}, "
            f"{_short(one.training.device_hours)} device-hours"
            for one in reversed(choice.front)]  # fmt: skip
    most = 4
    some = each if len(each) <= most else [each[0], each[len(each) // 2], each[-1]]
    return f"  fewer     {'; '.join(some) or 'no other number keeps to the limits'}"


def _limit(name: str) -> str:
    return "the time" if name == "within" else f"the {name.replace('_', '-')}"


def _over(choice: Choice) -> list[str]:
    if not choice.misses:
        return []
    some = "; ".join(missing(one) for one in choice.misses[:MISSES])
    more = len(choice.misses) - MISSES
    return [fit(f"over      {some}{f'; {more} more' if more > 0 else ''}")]


def _left_out(choice: Choice) -> list[str]:
    lines = [fit(f"compared  {note}") for note in choice.notes]
    if choice.unknown:
        systems = ", ".join(dict.fromkeys(one.system.name for one in choice.unknown))
        what = {"money": "price (`--systems A,price=2 USD/h`)", "carbon": "grid (`grid=400 g/kWh`)",
                "energy": "power (`device.power.busy=700 W`)"}  # fmt: skip
        lines.append(
            fit(
                f"left out  {systems}: nobody says its "
                f"{what.get(choice.asked.objective, choice.asked.objective)}"
            )
        )
    alike: dict[tuple[str, str], list[str]] = {}
    for one in choice.skipped:
        alike.setdefault((one.system, one.why), []).append(str(one.devices))
    if alike:
        found = [f"{', '.join(counts)} of {system}: {why}"
                 for (system, why), counts in alike.items()]  # fmt: skip
        more = f"; {len(found) - 2} more" if len(found) > 2 else ""
        lines.append(fit(f"skipped   {'; '.join(found[:2])}{more}"))
    return lines


def _changes(found: Sequence[Change]) -> str:
    if not found:
        return f"nothing within a factor of {MOST:g}: price, network, kernels, memory"
    return "; ".join(change_text(one) for one in found[:CHANGES])


def change_text(one: Change) -> str:
    """`dgx-a100 at 1.67 USD/h: 256 of dgx-a100`."""
    if one.value is not None:
        said = f"{one.system} at {one.value:.3g} USD/h"
    else:
        said = f"{one.system}, {one.cause} × {one.factor:.3g}"
    return f"{said}: {one.winner}"


def _nothing(choice: Choice) -> list[str]:
    lines = []
    if choice.misses:
        lines += ["Nothing keeps to the limits. Nearest misses:",
                  *(fit(f"  {missing(one)}: {one.plan}") for one in choice.misses[:5])]  # fmt: skip
    else:
        lines.append("Nothing can be chosen.")
    return [*lines, *_left_out(choice)]


def _next(choice: Choice, asked: Any) -> str:
    one = choice.best
    system = getattr(asked, "called", {}).get(one.system.name, one.system.name)
    said = ["oracle", "recommend", asked.model, system, "--devices", str(one.devices),
            "--batch", str(one.batch), "--software", one.software]  # fmt: skip
    for name in ("precision", "optimizer"):
        if value := getattr(asked, name, None):
            said += [f"--{name}", value]
    return "next: " + " ".join(shlex.quote(word) for word in said)
