"""A choice of machines as text: the answer, the frontier, what would change it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oracle.ask.choose import Choice
from oracle.ask.setups import USUAL_TOKENS, Setup
from oracle.ask.turning import MOST, Change, label
from oracle.predict.rates import tokens as tokens_of
from oracle.run.costs import price_of, price_source
from oracle.run.limits import Limits, amount, words
from oracle.run.target import Training
from oracle.show.layout import command, fact, on_a_screen, several, several_of
from oracle.show.plan_words import software_in_words
from oracle.show.rates import sure
from oracle.show.terminal import fit, wrapped
from oracle.show.training import failures, paid
from oracle.spec.system import System
from oracle.spec.units import number, show

SUPERLATIVE = {"time": "fastest", "money": "cheapest", "energy": "least energy",
               "carbon": "least carbon", "cost": "fewest device-hours"}  # fmt: skip
# objective -> a column's head, and the limit by whose amount it is counted
SPENT = {"cost": ("dev-hours", "device_hours"), "energy": ("kWh", "energy"),
         "carbon": ("kg CO₂", "carbon"), "money": ("USD", "money")}  # fmt: skip
SCREEN = 24  # lines of the first one
MISSING = {
    "pue": "what cooling takes (--pue 1.2)", "grid": "CO₂ of its electricity (--grid 57g/kWh)",
    "device.price": "the price of a device (--price '2.5 USD/h')",
    "device.power": "what a device draws (device.power of its file)",
    "device.power.idle": "what an idle device draws", "node_power": "what else a node draws",
}  # fmt: skip
TURNED = {"network": "network is {:.3g} times as fast", "kernels": "kernels are {:.3g} times "
          "as fast", "memory": "memory is {:.3g} times as large"}  # fmt: skip
UNPRICED = {"money": "price (`--systems A,price=2 USD/h`)", "carbon": "grid (`grid=400 g/kWh`)",
            "energy": "power (`device.power.busy=700 W`)"}  # fmt: skip
ROWS, MISSES, CHANGES, PRICES = 6, 2, 3, 3  # of each that a first screen has room for
SPARED = ("failures", "unknown")  # facts that are left out where there is no room, in this order
TABLE = 2  # lines of a table beside its rows


def choice_text(choice: Choice, request: Any = None) -> str:
    """The first screen: the answer, the frontier, what is over the limits, what would change it."""
    head = [fit(_answer(choice)), fit(_question(choice))]
    if not len(choice):
        misses = [fit(f"  {missing(setup)}: {setup.plan}", 4) for setup in choice.misses[:5]]
        nearest = [] if request is None else [_next(setup, request) for setup in choice.misses[:1]]
        return "\n".join([*head, *misses, *_left_out(choice), *nearest])
    head += _facts(choice)
    tail = [*_over(choice), *_left_out(choice), fact("changes", _changes(choice.changes))]
    if request is not None:
        tail.append(_next(choice.best, request))
    room = SCREEN - TABLE - "\n".join([*head, *tail]).count("\n") - 1
    table = _table(_rows(choice, max(1, min(ROWS, room))), choice)
    rest = "\n".join([*table, *tail]).count("\n") + 1
    return "\n".join([*on_a_screen(head, SPARED, rest, SCREEN), *table, *tail])


def _answer(choice: Choice) -> str:
    """Return what to take, how long the training takes there, and what it costs."""
    objective = choice.asked.objective
    if not len(choice):
        if not choice.misses:
            return "Nothing can be chosen."
        nearest = choice.misses[0]
        return (f"Nothing keeps to the limits; the nearest: {show(nearest.training.seconds, 's')} "
                f"on {label(nearest)}")  # fmt: skip
    best = choice.best
    spent = ""
    if objective != "time":
        limit = SPENT[objective][1]
        value = amount(best.training, limit)
        spent = "" if value is None else f"{words(limit, value)} in "
    return (
        f"{SUPERLATIVE[objective].capitalize()}: {spent}{show(best.training.seconds, 's')} on "
        f"{several(best.devices, 'device')} of {best.system.title or best.system.name}"
    )


def _question(choice: Choice) -> str:
    """Return what was asked: the training, the limits, among how many setups."""
    request = choice.asked
    setups = [*choice.setups, *choice.misses, *choice.unknown]
    ends = f", {setups[0].training.length.words}" if setups else ""
    limits = limits_text(request.limits)
    return (f"{request.model.title or request.model.name}{ends}{f', {limits}' if limits else ''}; "
            f"{several(len(setups), 'setup')} compared")  # fmt: skip


def limits_text(limits: Limits) -> str:
    """`within 30 days, 1,000,000 USD`."""
    texts = [words(name, value) for name in limits.__slots__
             if (value := getattr(limits, name)) is not None]  # fmt: skip
    return f"within {', '.join(texts)}" if texts else ""


def _facts(choice: Choice) -> list[str]:
    """Return the plan, its time, what it takes, and what of that nobody knows."""
    request, best, training = choice.asked, choice.best, choice.best.training
    batch = f"batch {best.batch:,}"
    if (
        request.batch is None
        and request.batch_per_device is None
        and not request.ends.get("target")
        and tokens_of(request.model)
    ):
        batch += f" (assumed: {USUAL_TOKENS / 1e6:.1f} M tokens)"
    kept = f", within the limits with {sure(best.sure)}" if request.limits else ""
    origin, runs = training.length.origin, software_in_words(best.shown.options.software)
    length = "" if origin == "given" else f"; steps to the target are {origin}"
    lines = [
        fact("plan", f"{best.plan}, {batch}, {runs}, "
             f"{show(float(best.shown.seconds[0]), 's')} a step"),
        fact("time", f"{show(training.low, 's')} to {show(training.high, 's')} (90\u00a0%){kept}"),
        fact("costs", ", ".join([f"{number(training.device_hours)} device-hours",
                                 *paid(training.costs)]) + length),
    ]  # fmt: skip
    if prices := _prices(choice):
        lines.append(fact("prices", several_of(prices, PRICES)))
    if unknown := training.costs.unknown:
        lines.append(fact("unknown", ", ".join(MISSING.get(name, name) for name in unknown)))
    return [*lines, *_failures(choice)]


def _prices(choice: Choice) -> list[str]:
    """Return what an hour of a device costs on each machine, by whose list; the answer's first."""
    systems = {setup.system.name: setup.system for setup in (choice.best, *choice.setups)}
    return [f"{name} {3600 * price:.3g} USD/h ({_list(system)})"
            for name, system in systems.items() if (price := price_of(system))]  # fmt: skip


def _list(system: System) -> str:
    """Return whose price list a system's price is from."""
    return price_source(system).partition(": ")[0].partition(", ")[0]


def _failures(choice: Choice) -> list[str]:
    """Return what failures make of the answer, and on which machines nobody knows it."""
    goodput = choice.best.training.goodput
    known = {setup.system.name: setup.training.goodput.known for setup in choice.setups}
    others = [name for name, counted in known.items() if not counted]
    if not any(known.values()) or goodput.saving is None:
        return [fact("failures", failures(goodput)[1])] if goodput.saving else []
    sentences = []
    if goodput.known:
        machine = goodput.reliability.of if goodput.reliability else ""
        counted_as = f" as on {machine}" if machine else ""
        sentences.append(f"counted{counted_as}, goodput {100 * goodput.progress:.1f}\u00a0%")
    if others:
        sentences.append(f"not counted on {', '.join(others)}")
    return [fact("failures", "; ".join(sentences))]


def _rows(choice: Choice, most: int) -> list[Setup]:
    """Return the answer and the frontier, as many as there is room for, the fastest first."""
    front = list(choice.front)
    if choice.best not in front:
        front.append(choice.best)
    best_of: dict[str, Setup] = {}
    for setup in choice.setups:
        best_of.setdefault(setup.system.name, setup)
    for name, setup in best_of.items():
        if name not in {row.system.name for row in front}:
            front.append(setup)
    must = [choice.best, *(setup for setup in best_of.values() if setup is not choice.best)]
    while len(front) > most:
        spare = [setup for setup in front if setup not in must]
        spare = spare or [setup for setup in front if setup is not choice.best]
        front.remove(spare[len(spare) // 2])
    return sorted(front, key=lambda setup: setup.training.seconds)


def _table(rows: Sequence[Setup], choice: Choice) -> list[str]:
    """Return one line a setup; the batch where it is not the same for all."""
    front = set(map(id, choice.front))
    name = max(7, *(len(setup.system.name) for setup in rows))
    batches = len({setup.batch for setup in rows}) > 1
    batch = f" {'batch':>6}" * batches
    objective = choice.asked.objective
    unit, spent = SPENT[objective if objective in ("energy", "carbon") else "cost"]
    head = f"   {'machine':<{name}} {'devices':>7}{batch} {'time':>9} {unit:>9} {'USD':>9}"
    lines = [f"{head}  plan"]
    for setup in rows:
        money = setup.training.costs.money
        mark = ">" if setup is choice.best else "*" if id(setup) in front else " "
        batch = f" {setup.batch:>6,}" * batches
        line = (
            f" {mark} {setup.system.name:<{name}} {setup.devices:>7,}{batch} "
            f"{show(setup.training.seconds, 's'):>9} "
            f"{_short(amount(setup.training, spent)):>9} {_short(money):>9}  {setup.plan}"
        )
        lines += wrapped(line, 6)
    lines.append("   > the answer; * no other is better both in time and in what it takes")
    return lines


def _short(value: float | None) -> str:
    return "-" if value is None else number(value)


def missing(setup: Setup) -> str:
    """`64 of dgx-h100: 31.2 days, 1.04 times the time`."""
    return f"{label(setup)}: {show(setup.training.seconds, 's')}, {over_text(setup.over)}"


def over_text(over: Mapping[str, float | None]) -> str:
    """`1.04 times the time and the money not known`."""
    return " and ".join(
        f"{_limit(name)} not known" if ratio is None else f"{ratio:.3g} times {_limit(name)}"
        for name, ratio in over.items()
    )


def kept_text(training: Training, limits: Limits) -> str:
    """Return whether the best plan's training keeps to its limits."""
    if over := limits.over(training):
        return f"over: {over_text(over)}; `oracle choose` looks at other devices"
    return f"kept with a probability of {sure(limits.probability(training))}"


def front_text(choice: Choice) -> str:
    """`8 (batch 4,096): 4.4 h, 35 device-hours; 16 …`: what fewer devices take."""
    setups = [f"{setup.devices:,} (batch {setup.batch:,}): {show(setup.training.seconds, 's')}, "
              f"{_short(setup.training.device_hours)} device-hours"
              for setup in reversed(choice.front)]  # fmt: skip
    if len(setups) > 4:
        setups = [setups[0], setups[len(setups) // 2], setups[-1]]
    return "; ".join(setups) or "no other number keeps to the limits"


def _limit(name: str) -> str:
    return "the time" if name == "within" else f"the {name.replace('_', '-')}"


def _over(choice: Choice) -> list[str]:
    """Return which setups are over the limits, the nearest first."""
    if not choice.misses:
        return []
    return [fact("over", several_of([missing(setup) for setup in choice.misses], MISSES))]


def _left_out(choice: Choice) -> list[str]:
    """Return how machines are compared, and which cannot be chosen, and why."""
    lines = [fact("compared", note) for note in choice.notes]
    if choice.unknown:
        systems = ", ".join(dict.fromkeys(setup.system.name for setup in choice.unknown))
        objective = choice.asked.objective
        lines.append(fact("left out", f"{systems}: nobody says its "
                          f"{UNPRICED.get(objective, objective)}"))  # fmt: skip
    counts: dict[tuple[str, str], list[str]] = {}
    for skipped in choice.skipped:
        counts.setdefault((skipped.system, skipped.why), []).append(f"{skipped.devices:,}")
    if counts:
        reasons = [f"{', '.join(devices)} of {system}: {why}"
                   for (system, why), devices in counts.items()]  # fmt: skip
        lines.append(fact("skipped", several_of(reasons, MISSES)))
    return lines


def _changes(changes: Sequence[Change]) -> str:
    if not changes:
        return f"nothing within a factor of {MOST:g}: price, network, kernels, memory"
    return "; ".join(_by_winner(changes[:CHANGES]))


def _by_winner(changes: Iterable[Change]) -> list[str]:
    """Return what would be chosen instead, each with all that would make it so."""
    causes: dict[str, list[str]] = {}
    for change in changes:
        causes.setdefault(change.winner, []).append(_cause(change))
    return [f"{winner} if {', or '.join(texts)}" for winner, texts in causes.items()]


def change_text(change: Change) -> str:
    """`256 of dgx-a100 if dgx-a100 costs 1.67 USD/h`."""
    return f"{change.winner} if {_cause(change)}"


def _cause(change: Change) -> str:
    if change.value is not None:
        return f"{change.system} costs {change.value:.3g} USD/h"
    return f"{change.system}'s {TURNED[change.cause].format(change.factor)}"


def _next(setup: Setup, request: Any) -> str:
    """Return the command that recommends plans on the machine of a setup."""
    system = getattr(request, "called", {}).get(setup.system.name, setup.system.name)
    options = [[f"--{name}", value] for name in ("precision", "optimizer")
               if (value := getattr(request, name, None))]  # fmt: skip
    return command([
        ("oracle recommend",), (request.model,), (system,), ("--devices", str(setup.devices)),
        ("--batch", str(setup.batch)), ("--software", setup.software), *options,
    ])  # fmt: skip
