"""Estimates and rankings as text: the first line answers, the rest says why.

A figure carries a mark of where it comes from: `m` measured, `f` fitted to measurements,
`d` datasheet, `a` assumed, `c` counted from shapes; `!` where it lies beyond what was measured.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.kernels.provenance import MEASURED
from oracle.predict.columns import PARTS
from oracle.predict.estimate import Estimate
from oracle.predict.limits import FULL
from oracle.predict.memory import ASSUMED
from oracle.show.partitions import rooms, table
from oracle.show.placing import otherwise, placed
from oracle.show.rates import epoch, rate, sure
from oracle.show.reading import reads
from oracle.show.terminal import fit, width, wrapped
from oracle.show.training import ends, failures, tried
from oracle.spec.units import several, show

if TYPE_CHECKING:
    from oracle.ask.batches import Tried
    from oracle.ask.ranking import Ranking
    from oracle.run.target import Training

SCREEN = 24  # lines of the first one
SUPERLATIVES = {
    "time": "fastest", "cost": "cheapest", "memory": "leanest", "money": "cheapest",
    "energy": "of\u00a0least\u00a0energy", "carbon": "of\u00a0least\u00a0carbon",
}  # fmt: skip
FEW = 5  # plans of which some may be left out for it
CLOSE = 0.01  # of each other, plans of which the simplest comes first
WORDS = ("measured", "fitted", "datasheet", "assumed", "counted")


def ranking_text(
    ranking: Ranking, asked: Any = None, whole: Training | None = None,
    batches: Sequence[Tried] = (), also: Sequence[str] = (),
) -> str:  # fmt: skip
    """The first screen: what is best, does it fit, how sure, why not the others, what next."""
    shown = ranking.estimate
    head = _head(shown if len(shown) else ranking.misses, ranking)
    if not len(shown):
        said = [*map(fit, otherwise(ranking.misses))]
        return "\n".join([head, *said, "", *_nothing_fits(ranking, asked)])
    likely = ranking.likely_best()
    table_head, table = ranking_table(shown, likely)
    answer = fit(f"{shown.plans[0]} is\u00a0{_superlative(ranking, whole)}: "
                  f"{_interval(shown, 0)} an iteration{epoch(shown, 0)}")  # fmt: skip
    fitting = f"{ranking.fitting} of {ranking.tried} products of strategies fit"
    lines = [
        head,
        *map(fit, otherwise(shown)),
        "",
        answer,
        f"  memory    {_memory(shown, 0)}",
        f"  bound by  {_bounds(shown, 0)}",
        *_reads(shown),
        fit(f"  rate      {rate(shown, 0)}"),
        *_training(whole, brief=True),
        *([fit(f"  batches   {tried(batches)}")] if batches else []),
        *map(fit, placed(shown)),
        *map(fit, also),
        fit(f"  sure?     {_sure(ranking, likely)}"),
        *_faster(ranking),
        "",
        table_head,
        *(line for lines in table for line in lines),
        *_legend(shown),
        fit(f"{fitting}, {_others(ranking)}."),
    ]
    if asked is not None and getattr(asked, "everything", False):
        lines += ["", "These do not:", *_misses(ranking.misses)]
    if asked is not None:
        lines += _next(ranking, asked)
    found, read = _on_a_screen(lines), _reads(shown)
    if found.count("\n") >= SCREEN and read:
        short = _reads(shown, lines=1)[0]
        found = _on_a_screen(found.replace(read[0], short).split("\n"))
    return found if len(shown) > FEW else _fewer(found, table)


def _fewer(found: str, table: list[list[str]]) -> str:
    """The text with as many of a few plans as there is room for, two at least."""
    lines = found.split("\n")
    while len(lines) > SCREEN and len(table) > 2:
        last = table.pop()
        at = next(i for i in range(len(lines)) if lines[i : i + len(last)] == last)
        del lines[at : at + len(last)]
    return "\n".join(lines)


def _training(whole: Training | None, brief: bool = False) -> list[str]:
    """How long a whole training takes, and what failures take of that."""
    if whole is None:
        return []
    name, said = failures(whole.goodput, brief)
    lines = [fit(f"  training  {ends(whole)}")]
    return [*lines, fit(f"  {name:<8}  {said}")] if said else lines


def _reads(shown: Estimate, row: int = 0, lines: int = 2) -> list[str]:
    """How samples are got, in so many lines at most; nothing under ideal assumptions."""
    if shown.options.ideal:
        return []
    head = "  reads     "
    return [fit(head + reads(shown, row, lines * (width() - 6) - len(head)))]


def _on_a_screen(lines: list[str]) -> str:
    """The lines, without blank ones where they would not fit."""
    found = "\n".join(lines).split("\n")
    while len(found) > SCREEN and "" in found:
        del found[len(found) - 1 - found[::-1].index("")]
    return "\n".join(found)


def _faster(ranking: Ranking) -> list[str]:
    """A line on a plan that is faster and may run out of memory."""
    risky = ranking.riskier
    if not len(risky):
        return []
    sure = float(risky.fits[0])
    line = f"  riskier   {show(risky.seconds[0], 's')}, but fits with {sure:.0%} only: "
    if len(line + risky.plans[0]) <= width():
        return [line + risky.plans[0]]
    return [fit(f"{line}--risk {min(1 - sure + 0.005, 0.99):.2f} puts it first")]


def _superlative(ranking: Ranking, whole: Training | None = None) -> str:
    seconds = ranking.estimate.seconds
    late = seconds[0] > (1 + CLOSE) * seconds.min()
    if ranking.objective == "time" and whole is not None and whole.goodput.known and late:
        return "first to end"
    return SUPERLATIVES[ranking.objective]


def _head(shown: Estimate, ranking: Ranking) -> str:
    model, system, options = shown.model, shown.system, shown.options
    data = f" of {model.dataset.name}" if model.dataset else ""
    ideal = ", ideal assumptions" if options.ideal else ""
    return fit(f"{model.title or model.name} on {system.title or system.name}: "
                f"{several(ranking.devices, 'device')}, "
                f"{several(ranking.batch, 'sample')}{data} an iteration, "
                f"{options.precision}, {options.optimizer_text}{ideal}"
                f"{_software(shown)}")  # fmt: skip


def _software(shown: Estimate) -> str:
    """What runs it, and whether plans are listed that it cannot be told."""
    options = shown.options
    if options.ideal:
        return ""
    return f", {options.software.label}{', launchable or not' if options.any_plan else ''}"


def _interval(shown: Estimate, row: int) -> str:
    low, mid, high = (
        show(v[row], "s") for v in (shown.seconds_low, shown.seconds, shown.seconds_high)
    )
    return mid if low == high else f"{mid} ({low} to {high})"


def _memory(shown: Estimate, row: int) -> str:
    every, sides = shown.capacity, shown.work[row].sides
    capacity, free = every[row], every - shown.memory
    kinds = sorted(((v[row], k) for k, v in shown.memory_kinds.items()), reverse=True)
    text = rooms(sides) if len(sides) > 1 else (
        f"{show(shown.memory[row], 'B')} of {show(capacity, 'B')} a device, "
        f"{show(free[row], 'B')} free")  # fmt: skip
    if FULL * capacity < shown.memory[row] <= capacity:  # an allocator that fragments may fail
        room = np.flatnonzero(shown.memory <= FULL * every)[:1].tolist()
        more = [": tight", *(f", {other + 1} has {show(free[other], 'B')}" for other in room)]
        if not shown.options.ideal:
            more.append(f", fits with {sure(float(shown.fits[row]))}")
    else:
        more = [f"{s} {kind} {show(v, 'B')}" for s, (v, kind) in zip(";,", kinds, strict=False)]
    for words in more:  # as far as they fit
        text += words if len(text + words) <= width() - 12 else ""
    return text


def parts(shown: Estimate, row: int) -> dict[str, float]:
    """What an iteration's seconds are made of; exchanges by what nothing hides."""
    found = {
        "forward and backward": float(
            shown.compute["forward"][row] + shown.compute["backward"][row]
        )
    }
    for part in ("recompute", "bubble", "update"):
        found[part] = float(shown.compute[part][row])
    for message in shown.exchange[row]:
        found[message["what"]] = found.get(message["what"], 0.0) + message["exposed"]
    if (read := shown.reading[row]) is not None:
        found["reading"] = read["exposed"]
    return found


def _bounds(shown: Estimate, row: int) -> str:
    total = shown.seconds[row]
    ranked = sorted(parts(shown, row).items(), key=lambda item: -item[1])
    shares = [f"{name} {100 * s / total:.0f} %" for name, s in ranked[:3] if s > 0.005 * total]
    while len(", ".join(shares)) > width() - 12 and len(shares) > 1:
        shares.pop()
    return ", ".join(shares)


def source(shown: Estimate, row: int, part: str) -> dict[str, Any]:
    """Where a part of a plan comes from: `kernels`, `network` (most of what is sent) or `memory`.

    Empty where there is no such part.
    """
    if part == "memory":
        return shown.origin[row]["memory"]
    if part == "kernels":
        return shown.origin[row]["backward"]
    sent: dict[tuple[str, bool], float] = {}
    for message in shown.exchange[row]:
        key = message["origin"], message["outside"]
        sent[key] = sent.get(key, 0.0) + message["exposed"] + 1e-6 * message["seconds"]
    kind, outside = max(sent, key=lambda key: sent[key], default=("", False))
    return {"origin": kind, "outside": outside} if kind else {}


def mark(found: dict[str, Any]) -> str:
    """One letter, and `!` where it lies beyond what was measured."""
    if not found:
        return "-"
    beyond = found["outside"] and found["origin"] in MEASURED
    return str(found["origin"][0]) + "!" * beyond


def marks(shown: Estimate, row: int) -> str:
    """The marks of a plan's kernels, network and memory."""
    found = [mark(source(shown, row, part)) for part in ("kernels", "network", "memory")]
    return "".join(found)


def legend(used: str) -> str:
    """What the marks mean, those that are used."""
    said = [f"{word[0]} {word}" for word in WORDS if word[0] in used]
    beyond = ["! beyond what was measured"] * ("!" in used)
    return ", ".join([*said, *beyond])


def origins(shown: Estimate, row: int = 0) -> str:
    """Where the figures of a prediction come from, in words."""
    if shown.options.ideal:
        return "ideal assumptions, no interval"
    network = source(shown, row, "network")
    talk = f", network {network['origin']}" if network else ""
    return f"kernels {source(shown, row, 'kernels')['origin']}{talk}"


def _behind(ranking: Ranking) -> str:
    """How little the first plan, the simplest, is behind the fastest; nothing where it is none."""
    shown, least = ranking.estimate, ranking.fastest.seconds
    if ranking.objective != "time" or not shown.seconds[0] > least[0] * (1 + 1e-9):
        return ""
    return f"simplest within {max(shown.seconds[0] / least[0] - 1, 0.001):.1%} of the fastest"


def _sure(ranking: Ranking, likely: Any) -> str:
    if ranking.tied:  # the table's marks say where the figures come from
        text = f"cannot tell 1 and {ranking.estimate.plans.index(ranking.tied[1]) + 1} apart"
        if _behind(ranking):
            return f"{_behind(ranking)}; {text}"
        return text + (f": measure {ranking.measure[0]}" if ranking.measure else "")
    text = _behind(ranking) or origins(ranking.estimate)
    word = "best" if ranking.objective == "time" else "fastest"
    return f"{text}; {word} of all with {likely[0]:.0%}" if len(likely) > 1 else text


def ranking_table(shown: Estimate, likely: Any) -> tuple[str, list[list[str]]]:
    """The head, and the lines of each plan: the plan above where it is too long to stand beside."""
    first = parts(shown, 0)
    longest = max(len(plan) for plan in shown.plans)
    above = longest > width() - 50
    column = 4 if above else longest
    head = f"  #  {'plan':<{column}}  {'iteration':>9}  {'memory':>8}  from  {'best?':>5}  why not"
    table = []
    for row, plan in enumerate(shown.plans):
        why = "" if row == 0 else why_not(first, parts(shown, row))
        name = f" {row + 1:>2}  {plan}"
        line = (f"{show(shown.seconds[row], 's'):>9}  {show(shown.memory[row], 'B'):>8}  "
                f"{marks(shown, row):<4}  {likely[row]:>5.0%}  {why}")  # fmt: skip
        lines = wrapped(name, 5) if above else []
        lines += wrapped(f"{' ' * (5 + column) if above else name.ljust(5 + column)}  {line}", 8)
        table.append(lines)
    return head, table


def _legend(shown: Estimate) -> list[str]:
    """One line in place of a blank one: which marks stand for what."""
    if shown.options.ideal:
        return [""]
    used = "".join(marks(shown, row) for row in range(len(shown)))
    return [fit(f"     from: kernels, network, memory; {legend(used)}")]


def why_not(best: dict[str, float], other: dict[str, float]) -> str:
    """The part in which a plan loses most against the best."""
    gaps = {name: s - best.get(name, 0.0) for name, s in other.items()}
    if not gaps:
        return ""
    name = max(gaps, key=lambda key: gaps[key])
    return f"+{show(gaps[name], 's')} {short(name)}" if gaps[name] > 0 else "as fast"


def short(name: str) -> str:
    """A part's name in two words, for a table."""
    axis, _, what = name.partition(": ")
    return f"{axis} {what.split()[0]}" if what else name.replace("forward and backward", "kernels")


def _nothing_fits(ranking: Ranking, asked: Any) -> list[str]:
    lines = [f"None of {ranking.tried} products of strategies fits. Nearest misses:",
             *_misses(ranking.misses), ""]  # fmt: skip
    if ranking.wanted is not None:
        lines.append("No knob makes room: one sample's largest layer alone takes "
                     f"{ranking.wanted:.2g} times what a device has.")  # fmt: skip
    enough, elsewhere = (getattr(asked, name, None) for name in ("enough", "elsewhere"))
    if elsewhere is not None:
        lines.append(f"More can lie outside the devices under --software {elsewhere}: it fits so.")
    if enough is not None:
        lines.append(f"It fits on {enough} devices: --devices {enough}")
    elif elsewhere is None:
        lines.append("Try more devices, a smaller batch, or a narrower --precision.")
    return lines


def _others(ranking: Ranking) -> str:
    """What was left out, since its work alone takes longer than the rivals of the best."""
    return f"{ranking.slower:,} more are too slow" if ranking.slower else "each at its best"


def _misses(misses: Estimate) -> list[str]:
    lines = []
    for plan, broken in zip(misses.plans, misses.broken, strict=True):
        lines.append(f"  {plan}")
        lines += [fit(f"    {words}") for words in broken]
    return lines


def options_of(asked: Any, verb: str) -> list[str]:
    """What the next command must say as well, to be of the same question."""
    return list(getattr(asked, "repeated", lambda _: ())(verb))


def _next(ranking: Ranking, asked: Any) -> list[str]:
    words = ["oracle", "explain", "--plan", ranking.best.plan, asked.model, asked.system,
             "--batch", str(ranking.batch), *options_of(asked, "explain")]  # fmt: skip
    return [f"next: {shlex.join(words)}"]


def estimate_text(shown: Estimate, row: int = 0, whole: Training | None = None) -> str:
    """One plan: seconds, parts, every exchange, memory by kind."""
    model, system = shown.model, shown.system
    taken = f"{_interval(shown, row)} an iteration{epoch(shown, row)}"
    lines = [
        fit(f"{shown.plans[row]} on {several(shown.devices[row], 'device')} of "
             f"{system.title or system.name}: {taken}"),
        fit(f"  {model.title or model.name}, {several(shown.batch[row], 'sample')}, "
             f"{shown.options.precision}, {shown.options.optimizer_text}{_software(shown)}; "
             f"{origins(shown)}"),
        fit(f"  {rate(shown, row)}"),
    ]  # fmt: skip
    lines += [*_reads(shown, row), *_training(whole), *map(fit, otherwise(shown)),
              *map(fit, placed(shown, row))]  # fmt: skip
    if shown.broken[row]:
        lines += ["  this plan cannot run:", *(fit(f"    {why}", 6) for why in shown.broken[row])]
    lines += ["", "  compute"]
    known = {**shown.origin[row], "bubble": shown.origin[row]["backward"],
             "recompute": shown.origin[row]["forward"]}  # fmt: skip
    used = [mark(known[name]) for name in PARTS if shown.compute[name][row] > 0]
    lines += [f"    {name:<34} {show(float(shown.compute[name][row]), 's'):>10} {mark(known[name])}"
              for name in PARTS if shown.compute[name][row] > 0]  # fmt: skip
    lines += table(shown.work[row].sides)
    if shown.exchange[row]:
        lines += ["", f"  {'exchange':<36} {'exposed':>10} {'sent':>10}    how"]
    for m in sorted(shown.exchange[row], key=lambda m: -m["exposed"]):
        size, phi = show(m["bytes"], "B"), f", φ = {m['phi']:.3g}" if m["phi"] > 1.005 else ""
        how = f"{m['calls']:.0f} × {size} {m['op']}, {m['algorithm']} of {m['group']}{phi}"
        exposed, sent = show(m["exposed"], "s"), show(m["seconds"], "s")
        used.append(mark(m))
        lines += wrapped(f"    {m['what']:<34} {exposed:>10} {sent:>10} {used[-1]:<2} {how}", 8)
    lines += ["", f"  memory, stage {int(shown.stage[row])}: {_memory(shown, row)}"]
    held = {kind: "a" if kind in ASSUMED else "c" for kind in shown.memory_kinds}
    lines += [f"    {kind:<34} {show(float(v[row]), 'B'):>10} {held[kind]}"
              for kind, v in shown.memory_kinds.items() if v[row] > 0]  # fmt: skip
    if not shown.options.ideal:
        lines += ["", f"  {legend(''.join([*used, *held.values()]))}"]
    return "\n".join(lines)
