"""A workflow as text: how many trials at once, how large each, until when; and the table."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.ask.combined import Combined, Row
from oracle.ask.workflow import Campaign, Part
from oracle.show.plan_words import software_in_words
from oracle.show.terminal import fit, laid_out, wrapped
from oracle.show.training import paid
from oracle.spec.units import number, show

STAGES, OTHERS = 6, 5  # lines of each, at most
# what would tell what is unknown, where it is no key of a spec
TOLD = {"spread": "spread of trials' times (--spread 0.1): taken to be none"}


def campaign_text(found: Campaign) -> str:
    """The answer first; then what is run where, how full the nodes are, what else was tried."""
    if not found.parts:
        return "\n".join([f"nothing fits on {_count(found.nodes, 'node')}", fit(_head(found)), "",
                          *_misses(found)])  # fmt: skip
    main = found.main
    lines = [fit(_answer(found)), fit(_head(found)), "", *_trial(main)]
    if len(found.parts) > 1:
        lines += ["", *_stages(found.parts)]
    elif main.waves > 1 or main.stage.times > 1:
        lines.append(f"  waves     {_waves(main)}")
    lines += [fit(f"  costs     {_costs(found)}")]
    if found.unknown:
        unknown = ", ".join(TOLD.get(name, name) for name in found.unknown)
        lines.append(fit(f"  unknown   {unknown}"))
    others = _others(found)
    if others:
        lines += ["", *others]
    return "\n".join(lines)


def _answer(found: Campaign) -> str:
    """`16 at once on 8 nodes each: 47 h (38 h to 58 h), 124 times as fast as one node`."""
    first, last = found.parts[0], found.parts[-1]
    same = first.trial.devices == last.trial.devices
    text = _many(found, found.widest) if same else _many(found, first)
    text += "" if same else f", in the end {_many(found, last)}"
    faster = (f"{found.speedup:.3g} times as fast as one node" if found.speedup
              else "where one node is too small")  # fmt: skip
    interval = f"{show(found.low, 's')} to {show(found.high, 's')}"
    return f"{text}: {show(found.seconds, 's')} ({interval}), {faster}"


def _many(found: Campaign, part: Part) -> str:
    """`16 at once on 8 nodes each`, `1 on 64 nodes`."""
    size = _size(found, part.trial.devices)
    return f"{part.at_once:,} at once on {size} each" if part.at_once > 1 else f"one on {size}"


def _size(found: Campaign, devices: int) -> str:
    """`8 nodes`, `1 device`."""
    node = found.trials.system.node
    return _count(devices, "device") if devices < node else _count(-(-devices // node), "node")


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _head(found: Campaign) -> str:
    asked, model, system = found.asked, found.trials.model, found.trials.system
    search = asked.search.search
    many = f" of {asked.trials:,} {type(search).noun.split()[0]}" if asked.trials else ""
    kind = {"ensemble": "an ensemble", "transfer": "transfer to children"}.get(
        search.kind(), f"{search.kind()} search"
    )
    options = found.trials.options
    runs = software_in_words(options.software)
    return (f"{model.title or model.name} on {system.title or system.name}: {kind}{many}, "
            f"{_count(found.nodes, 'node')} of {_count(system.node, 'device')}, "
            f"{options.precision}, {options.optimizer}, {runs}")  # fmt: skip


def _trial(main: Part) -> list[str]:
    one, length = main.trial, main.trial.training.length
    until = f"{'for' if length.origin == 'given' else 'to'} {length.words}"
    if length.origin != "given" and length.epochs:
        until += f", {length.epochs:.3g} epochs ({length.origin})"
    text = f"  trial     {one.plan}, batch {one.batch:,}: {show(one.training.seconds, 's')} {until}"
    if length.beyond:
        text += f"; no run met it with a batch above {length.beyond:,.0f}"
    return [fit(text)]


def _waves(part: Part) -> str:
    """`272 trials in 17 waves of 16`, `24 generations of 11 trials, each in one wave`."""
    one = part.stage
    last = one.trials - (part.waves - 1) * part.at_once
    waves = f"{part.waves:,} waves of {part.at_once:,}" if part.waves > 1 else "one wave"
    waves += "" if last == part.at_once else f", the last of {last:,}"
    if one.times > 1:
        return f"{one.times:,} {one.name}s of {_count(one.trials, 'trial')}, each in {waves}"
    return f"{one.trials:,} {one.name} in {waves}"


def _stages(parts: Sequence[Part]) -> list[str]:
    shown = parts if len(parts) <= STAGES else [*parts[: STAGES - 1], parts[-1]]
    rows = [("stage", "trials", "at once", "devices each", "long", "waves", "in all")]
    for part in shown:
        one = part.stage
        rows.append((one.name, f"{one.trials:,}", f"{part.at_once:,}", f"{part.trial.devices:,}",
                     show(one.share * part.trial.training.seconds, "s"), f"{part.waves:,}",
                     show(part.seconds, "s")))  # fmt: skip
    lines = laid_out(rows, "<>>>>>>")
    if len(parts) > len(shown):
        lines.insert(-1, f"  … {len(parts) - len(shown)} more: --format csv has all")
    return lines


def _costs(found: Campaign) -> str:
    idle = f", {found.idle:,.4g} nodes idle" if found.idle >= 1 else ""
    text = f"{number(found.device_hours)} device-hours, {found.busy:.0%} with a trial{idle}"
    return ", ".join([text, *paid(found.costs)])


def _others(found: Campaign) -> list[str]:
    """What other sizes of trial take, where all stages share one."""
    if found.asked.search.search.resized or len(found.tried) < 2:
        return []
    best = sorted(found.tried, key=lambda one: one[2])[1 : OTHERS + 1]
    each = [f"{count:,} on {_size(found, devices)}: {show(seconds, 's')}"
            for devices, count, seconds in sorted(best)]  # fmt: skip
    return [fit(f"others: {', '.join(each)}")]


def _misses(found: Campaign) -> list[str]:
    """Of each number of devices the plan that lacks least, the widest first."""
    missed = found.trials.misses
    lines = [fit(f"  {_count(devices, 'device')}, {missed[devices][0]}: {missed[devices][1]}")
             for devices in sorted(missed, reverse=True)[:OTHERS]]  # fmt: skip
    return lines or ["  no strategy is as wide as the devices there are"]


def combined_text(found: Combined) -> str:
    """The table: each factor alone, their product, and the honest speed-up."""
    good = [one for one in found.lines if one.honest]
    first = found.lines[-1].campaign
    worst = max((one for one in good if one.overstated), default=None,
                key=lambda one: one.overstated or 0.0)  # fmt: skip
    lines = []
    if good:
        last = good[-1]
        text = (f"{last.honest:.4g} times as fast as one node on {last.campaign.nodes:,}: "
                f"{show(last.campaign.seconds, 's')}")  # fmt: skip
        if worst is not None and (worst.overstated or 0.0) > 1.02:
            text += (
                f"; the product of the factors says up to {worst.overstated:.3g} times too "
                f"much (on {worst.campaign.nodes:,}: {worst.cause or 'each a little'})"
            )
        lines.append(fit(text))
    else:
        lines.append(f"nothing fits on {_count(first.nodes, 'node')}")
    lines += [fit(_head(first)), "",
              f"{'nodes':>6} {'at once':>7} {'data×model':>10} {'batch':>6} {'search':>6} "
              f"{'data':>6} {'model':>5} {'product':>7} {'honest':>6}  too much"]  # fmt: skip
    lines += [line for one in found.lines for line in wrapped(_line(one), 8)]
    if not good:
        lines += ["", *_misses(first)]
    return "\n".join(lines)


def _line(one: Row) -> str:
    head = f"{one.campaign.nodes:>6,} "
    if not one.campaign.parts:
        return f"{head}nothing fits"
    trial, (data, model) = one.campaign.main.trial, one.degrees
    search, alone, other = (_times(one.factors.get(name)) for name in ("search", "data", "model"))
    over = "" if one.overstated is None else f"{one.overstated:.2f} {one.cause}".rstrip()
    product, honest = _times(one.product), _times(one.honest)
    return (
        f"{head}{one.campaign.widest.at_once:>7,} {f'{data:,} × {model:,}':>10} "
        f"{trial.batch:>6,} {search:>6} {alone:>6} {other:>5} {product:>7} {honest:>6}  {over}"
    )


def _times(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
