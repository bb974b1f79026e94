"""A workflow as text: how many trials at once, how large each, until when; and the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from oracle.ask.combined import Combined, Row
from oracle.ask.workflow import Campaign, Part
from oracle.show.layout import command, fact, grouped, percent, several
from oracle.show.plan_words import software_in_words
from oracle.show.terminal import fit, laid_out, wrapped
from oracle.show.text import options_of
from oracle.show.training import paid
from oracle.spec.units import number, show

STAGES, OTHERS = 6, 5  # lines of each, at most
# what would tell what is unknown, where it is no key of a spec
TOLD = {
    "spread": "spread of trials' times (--spread 0.1): taken to be none",
    "device.power.idle": "what an idle device draws", "node_power": "what else a node draws",
    "pue": "what cooling takes (--pue 1.2)", "grid": "CO₂ of its electricity (--grid 57g/kWh)",
}  # fmt: skip
OWN = ("--nodes", "--plan", "--batch")  # options that mean something else to another command
KINDS = {"ensemble": "an ensemble", "transfer": "transfer to children"}


def campaign_text(campaign: Campaign, request: Any = None) -> str:
    """The answer first; then what is run where, how full the nodes are, what else was tried."""
    if not campaign.parts:
        return "\n".join([f"Nothing fits on {several(campaign.nodes, 'node')}",
                          fit(_question(campaign)), *_misses(campaign)])  # fmt: skip
    main = campaign.main
    lines = [fit(_answer(campaign)), fit(_question(campaign)), fact("trial", _trial(main))]
    if len(campaign.parts) == 1 and (main.waves > 1 or main.stage.times > 1):
        lines.append(fact("waves", _waves(main)))
    lines.append(fact("costs", _costs(campaign)))
    if campaign.unknown:
        unknown = ", ".join(TOLD.get(name, name) for name in campaign.unknown)
        lines.append(fact("unknown", unknown))
    lines += _stages(campaign.parts) if len(campaign.parts) > 1 else _others(campaign)
    return "\n".join([*lines, *([] if request is None else [_next(campaign, request)])])


def _answer(campaign: Campaign) -> str:
    """`47 h (38 h to 58 h): 16 trials at once on 8 nodes each, 124 times as fast as one node`."""
    first, last = campaign.parts[0], campaign.parts[-1]
    same = first.trial.devices == last.trial.devices
    text = _many(campaign, campaign.widest if same else first)
    text += "" if same else f", in the end {_many(campaign, last)}"
    faster = (f"{campaign.speedup:.3g} times as fast as one node" if campaign.speedup
              else "where one node is too small")  # fmt: skip
    interval = f"{show(campaign.low, 's')} to {show(campaign.high, 's')}"
    return f"{show(campaign.seconds, 's')} ({interval}): {text}, {faster}"


def _many(campaign: Campaign, part: Part) -> str:
    """`16 trials at once on 8 nodes each`, `one trial on 64 nodes`."""
    size = _size(campaign, part.trial.devices)
    if part.at_once == 1:
        return f"one trial on {size}"
    return f"{part.at_once:,} trials at once on {size} each"


def _size(campaign: Campaign, devices: int) -> str:
    """`8 nodes`, `1 device`."""
    node = campaign.trials.system.node
    return several(devices, "device") if devices < node else several(-(-devices // node), "node")


def _question(campaign: Campaign) -> str:
    """Return what was asked: the model, the machine, the search, how it is trained and by what."""
    workflow, model, system = campaign.asked, campaign.trials.model, campaign.trials.system
    search, options = workflow.search.search, campaign.trials.options
    trials = f" of {workflow.trials:,} {type(search).noun.split()[0]}" if workflow.trials else ""
    kind = KINDS.get(search.kind(), f"{search.kind()} search")
    return (f"{model.title or model.name} on {system.title or system.name}: {kind}{trials}, "
            f"{several(campaign.nodes, 'node')} of {several(system.node, 'device')}, "
            f"{options.precision}, {options.optimizer}, "
            f"{software_in_words(options.software)}")  # fmt: skip


def _trial(main: Part) -> str:
    """Return the plan of a trial, its batch, and how long it takes until its end."""
    trial, length = main.trial, main.trial.training.length
    until = f"{'for' if length.origin == 'given' else 'to'} {length.words}"
    if length.origin != "given" and length.epochs:
        until += f", {length.epochs:.3g} epochs ({length.origin})"
    text = f"{trial.plan}, batch {trial.batch:,}: {show(trial.training.seconds, 's')} {until}"
    if length.beyond:
        text += f"; no run met it with a batch above {length.beyond:,.0f}"
    return text


def _waves(part: Part) -> str:
    """`272 trials in 17 waves of 16`, `24 generations of 11 trials, each in one wave`."""
    stage = part.stage
    last = stage.trials - (part.waves - 1) * part.at_once
    waves = f"{part.waves:,} waves of {part.at_once:,}" if part.waves > 1 else "one wave"
    waves += "" if last == part.at_once else f", the last of {last:,}"
    if stage.times > 1:
        return f"{stage.times:,} {stage.name}s of {several(stage.trials, 'trial')}, each in {waves}"
    return f"{stage.trials:,} {stage.name} in {waves}"


def _stages(parts: Sequence[Part]) -> list[str]:
    """Return a line for each stage of a search, the last one among them."""
    shown = parts if len(parts) <= STAGES else [*parts[: STAGES - 1], parts[-1]]
    rows = [("stage", "trials", "at once", "devices each", "a trial", "waves", "in all")]
    for part in shown:
        stage = part.stage
        rows.append((stage.name, f"{stage.trials:,}", f"{part.at_once:,}",
                     f"{part.trial.devices:,}",
                     show(stage.share * part.trial.training.seconds, "s"), f"{part.waves:,}",
                     show(part.seconds, "s")))  # fmt: skip
    lines = laid_out(rows, "<>>>>>>", " ")
    if len(parts) > len(shown):
        lines.insert(-1, f"  … {len(parts) - len(shown)} more: --format csv has all")
    return lines


def _costs(campaign: Campaign) -> str:
    """Return what the nodes take, how full they are, and what that costs."""
    idle = f", {several(round(campaign.idle), 'node')} idle" if campaign.idle >= 1 else ""
    hours = f"{number(campaign.device_hours)} device-hours"
    return ", ".join([f"{hours}, {percent(campaign.busy)} with a trial{idle}",
                      *paid(campaign.costs)])  # fmt: skip


def _others(campaign: Campaign) -> list[str]:
    """Return a line for each other size of trial, where all stages share one."""
    if campaign.asked.search.search.resized or len(campaign.tried) < 2:
        return []
    fastest = sorted(campaign.tried, key=lambda size: size[2])[: OTHERS + 1]
    rows = [("at once", "each on", "in all", "as long")]
    for devices, count, seconds in fastest:
        slower = seconds / campaign.seconds
        rows.append((f"{count:,}", _size(campaign, devices), show(seconds, "s"),
                     "" if slower < 1.005 else f"{slower:.2f} times"))  # fmt: skip
    return laid_out(rows, ">>>>", " ")


def _next(campaign: Campaign, request: Any) -> str:
    """Return the command that explains the plan of a trial."""
    trial = campaign.main.trial
    words = [("oracle explain",), (campaign.asked.model,), (request.system,),
             ("--plan", trial.plan), ("--batch", str(trial.batch))]  # fmt: skip
    options = grouped(options_of(request, "explain"))
    return command([*words, *(option for option in options if option[0] not in OWN)])


def _misses(campaign: Campaign) -> list[str]:
    """Return of each number of devices the plan that lacks least, the widest first."""
    missed = campaign.trials.misses
    lines = [fit(f"  {several(devices, 'device')}, {missed[devices][0]}: {missed[devices][1]}", 4)
             for devices in sorted(missed, reverse=True)[:OTHERS]]  # fmt: skip
    return lines or ["  no strategy is as wide as the devices there are"]


def combined_text(combined: Combined, request: Any = None) -> str:
    """The table: each factor alone, their product, and the honest speed-up."""
    fitting = [row for row in combined.lines if row.honest]
    campaign = combined.lines[-1].campaign
    worst = max((row for row in fitting if row.overstated), default=None,
                key=lambda row: row.overstated or 0.0)  # fmt: skip
    lines = []
    if fitting:
        last = fitting[-1]
        text = (f"{show(last.campaign.seconds, 's')} on {several(last.campaign.nodes, 'node')}, "
                f"{last.honest:.3g} times as fast as one node")  # fmt: skip
        if worst is not None and (worst.overstated or 0.0) > 1.02:
            text += (
                f"; the product of the factors says up to {worst.overstated:.3g} times too "
                f"much (on {worst.campaign.nodes:,}: {worst.cause or 'each a little'})"
            )
        lines.append(fit(text))
    else:
        lines.append(f"Nothing fits on {several(campaign.nodes, 'node')}")
    lines += [fit(_question(campaign)),
              f"{'nodes':>6} {'at once':>7} {'data×model':>10} {'batch':>6} {'search':>6} "
              f"{'data':>6} {'model':>5} {'product':>7} {'honest':>6}  too much"]  # fmt: skip
    lines += [line for row in combined.lines for line in wrapped(_line(row), 8)]
    lines.append(fit("   times as fast as one node: by trials at once, by splitting samples, by "
                     "splitting layers, their product, and as it is", 3))  # fmt: skip
    if not fitting:
        lines += _misses(campaign)
    elif request is not None:
        lines.append(_next(fitting[-1].campaign, request))
    return "\n".join(lines)


def _line(row: Row) -> str:
    """Return a line of the table of speed-ups."""
    nodes = f"{row.campaign.nodes:>6,} "
    if not row.campaign.parts:
        return f"{nodes}nothing fits"
    trial, (data, model) = row.campaign.main.trial, row.degrees
    search, by_data, by_model = (
        _times(row.factors.get(name)) for name in ("search", "data", "model")
    )
    over = "" if row.overstated is None else f"{row.overstated:.2f} {row.cause}".rstrip()
    product, honest = _times(row.product), _times(row.honest)
    return (
        f"{nodes}{row.campaign.widest.at_once:>7,} {f'{data:,} × {model:,}':>10} "
        f"{trial.batch:>6,} {search:>6} {by_data:>6} {by_model:>5} {product:>7} {honest:>6}  {over}"
    )


def _times(value: float | None) -> str:
    return "—" if value is None else f"{value:.3g}" if value < 1000 else f"{value:,.0f}"
