"""Explanations of a plan as text: where its time goes, what bounds it, what would change that.

The first screen has a bar for each cause and three sentences; `--full` has the rest in sections.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from oracle.ask.candidates import CLEARLY
from oracle.ask.explain.explanation import Explanation
from oracle.ask.largest import cut_to_fit
from oracle.kernels.provenance import MEASURED
from oracle.plan.names import short_names
from oracle.predict.estimate import Estimate
from oracle.run.costs import price_of, price_source
from oracle.show.circuits import lines as circuit_lines
from oracle.show.partitions import table
from oracle.show.placing import better, otherwise
from oracle.show.plan_words import plan_in_words, software_in_words
from oracle.show.terminal import fit, width
from oracle.show.text import cut_text, estimate_text, interval, origins
from oracle.spec.units import show

SCREEN = 25  # lines of the first one
BAR = 24  # columns of a cause that takes the whole step
SEEN = 0.005  # of a step, from where a cause has a line on the first screen
# notes of the table of causes, under headings that say what they are about
HEADINGS = {
    "memory redundancy": "What is held more than once", "I/O": "Reading and writing",
    "failures": "Failures", "workload balance": "Stages",
    "number of devices": "How far each strategy goes",
}  # fmt: skip
LONGEST_CUT = 60  # characters of a list of cuts that are shown


def explanation_text(found: Explanation, full: bool = False, next_line: str = "") -> str:
    """Return a plan explained on one screen, or in full."""
    if full:
        head = estimate_text(found.own.shown).split("\n\n")[0]
        return "\n".join([head, *_causes(found, worded=True), *_sections(found)])
    lines = [*_plan(found), *_causes(found, worded=False), *_judgement(found, most=3)]
    lines = "\n".join([*lines, *([next_line] if next_line else [])]).split("\n")
    while len(lines) > SCREEN and "" in lines:
        lines.remove("")
    return "\n".join(lines)


def _plan(found: Explanation) -> list[str]:
    """Return the plan in words and in its text, its time, and what it trains on what."""
    shown = found.own.shown
    model, system, options = shown.model, shown.system, shown.options
    runs = "ideal assumptions" if options.ideal else software_in_words(options.software)
    text = f"{interval(shown, 0)} a step with "
    cut = None if shown.feasible[0] else cut_to_fit(shown, 0)
    return [
        fit(text + plan_in_words(shown.plans[0], width() - len(text))),
        fit(f"  plan      {shown.plans[0]}", 12),
        fit(f"  of        {model.title or model.name} on {shown.devices[0]:,.0f} devices of "
            f"{system.title or system.name}, batch {shown.batch[0]:,.0f}, {options.precision}, "
            f"{options.optimizer_text}, {runs}", 12),
        *(fit(line, 4) for line in otherwise(shown)),
        *(["  this plan cannot run:"] if shown.broken[0] else []),
        *(fit(f"    {why}", 6) for why in shown.broken[0][:2]),
        *([] if cut is None else [cut_text(cut)]),
    ]  # fmt: skip


def _causes(found: Explanation, worded: bool) -> list[str]:
    """Return a bar for each cause of the step's time, with its words where they are wanted."""
    total = float(found.own.shown.seconds[0])
    lines = ["", "Where the time goes"]
    for factor in found.own.factors:
        share = factor.seconds / total
        if share <= (0.001 if worded else SEEN):
            continue
        bar = "█" * max(1, round(BAR * share))
        head = f"{show(factor.seconds, 's'):>9} {100 * share:3.0f} %"
        lines.append(fit(f"{head}  {factor.name:<22}  {factor.words}", 41) if worded else
                     f"{head}  {factor.name:<22}  {bar}")  # fmt: skip
    return lines


def _judgement(found: Explanation, most: int = 99) -> Iterator[str]:
    """Yield what bounds the plan, what would change the choice, and what to measure."""
    yield from ("", "What bounds it", fit(f"  {bottleneck(found, most)}"))
    against = found.against
    if against is not None and against.rivals:
        names = _names(found)
        yield from ("", "What would change the choice", fit(f"  {_place(found, names)}"))
        if against.better:
            yield fit(f"  better knobs: {against.better}", 4)
        yield from (fit(f"  {words}", 4) for words in _flips(found, names))
    if found.measure or found.own.unmeasured:
        yield from ("", "What to measure")
    if found.measure:
        what, share = found.measure
        yield fit(f"  {what}: {100 * share:.0f} % of what is open between the first two", 4)
    for guess in found.own.unmeasured:
        yield fit(f"  {guess.family} kernels, {100 * guess.share:.0f} % of the passes, which "
                  f"nobody measured: time {guess.settled_by}", 4)  # fmt: skip


def _names(found: Explanation) -> dict[str, str]:
    """Return short names of the plan and of those that it is held against."""
    against = found.against
    assert against is not None
    plans = [found.own.shown.plans[0], *against.rivals]
    plans += [plan for flip in against.flips for plan in (flip.winner, flip.loser)]
    return dict(zip(plans, short_names(plans), strict=True))


def _place(found: Explanation, names: dict[str, str]) -> str:
    """Return where the plan stands among those that fit."""
    against = found.against
    assert against is not None
    name, own = names[found.own.shown.plans[0]], float(found.own.shown.seconds[0])
    rival, rival_seconds = names[against.rivals[0]], against.seconds[0]
    if not found.own.shown.feasible[0]:
        return f"{rival} is the best that fits ({show(rival_seconds, 's')})"
    if against.place == 1:
        return f"{name} leads; {rival} is next, {100 * (rival_seconds / own - 1):.1f} % slower"
    faster = 100 * (1 - rival_seconds / own)
    close = ", too little to be sure of" * (faster < 100 * CLEARLY)
    return f"{name} is number {against.place}; {rival} leads, {faster:.1f} % faster{close}"


def _flips(found: Explanation, names: dict[str, str]) -> Iterator[str]:
    """Yield the changes of the machine at which another plan leads."""
    against = found.against
    assert against is not None
    for flip in against.flips[:3]:
        factor = max(flip.factor, 1 / flip.factor)
        way = "faster" if flip.factor > 1 else "slower"
        over = "" if flip.loser == found.own.shown.plans[0] else f" over {names[flip.loser]}"
        yield f"{flip.cause} {factor:.2g} times {way}: {names[flip.winner]} leads{over}"
    if not against.flips and found.own.shown.feasible[0]:
        what = "takes its lead" if against.place == 1 else "makes it first"
        yield f"nothing from 16 times slower to 16 times faster {what}"


def _sections(found: Explanation) -> Iterator[str]:
    """Yield everything else that is known, under headings."""
    own, shown = found.own, found.own.shown
    if own.evened is not None:
        yield from ("", "Partitions", fit(f"  {own.evened.words}"))
        yield from table(shown.work[0].sides)
    notes: dict[str, list[str]] = {}
    for note in own.notes:
        notes.setdefault(HEADINGS.get(note.name, note.name.capitalize()), []).append(note.words)
    for heading, sentences in notes.items():
        yield from _section(heading, map(_short, sentences))
    yield from _section("Links", _links(found))
    if found.placing is not None:
        yield from _section("Placement", better(found.placing))
    if found.circuits is not None:
        yield from _section("Circuits", circuit_lines(found.circuits))
    yield from _section("What is not split", _left_whole(found))
    if not shown.options.ideal:
        yield from _section("Where the numbers come from", _origins(shown))
    yield from _judgement(found)


def _section(heading: str, sentences: Iterable[str]) -> list[str]:
    lines = [fit(f"  {sentence}", 4) for sentence in sentences]
    return ["", heading, *lines] if lines else []


def _short(sentence: str) -> str:
    """Return a sentence with long lists of cuts left out: `cuts=2/3/4/…/96`."""

    def shorter(cuts: re.Match[str]) -> str:
        parts = cuts[0].split("/")
        return "/".join([*parts[:3], "…", parts[-1]])

    return re.sub(rf"cuts=[\d/]{{{LONGEST_CUT},}}", shorter, sentence)


def _links(found: Explanation) -> list[str]:
    """Return which exchanges are slowed by other flows, and how many are not."""
    talks = found.own.talks
    shared = [talk.sentence for talk in talks if float(talk.exchange.phi[0]) > 1.005]
    free = len(talks) - len(shared)
    rest = f"{free} of {len(talks)} kinds of exchange are slowed by no other flow (φ = 1)"
    return [*dict.fromkeys(shared), *([rest] if free else [])]


def _left_whole(found: Explanation) -> list[str]:
    """Return the rows that a strategy leaves whole, and why."""
    sentences = []
    for left in found.own.whole:
        kinds = ", ".join(f"{n} {k}" for k, n in sorted(left["kinds"].items(), key=_most)[:4])
        sentences.append(f"{left['strategy']} leaves {left['rows']} of {left['of']} rows whole "
                         f"({kinds}; {left['weights']:.2g} of the weights): {left['why']}"
                         .replace("0 of the weights", "no weights"))  # fmt: skip
    return sentences


def _origins(shown: Estimate) -> list[str]:
    """Return where each part's seconds come from, and what a price is from."""
    parts = {name: told(shown.origin[0][name]) for name in ("forward", "backward", "update")}
    parts |= {m["what"]: told(m) for m in shown.exchange[0]}
    alike: dict[str, list[str]] = {}
    for name, words in parts.items():
        alike.setdefault(words, []).append(name)
    lines = [f"{words}: {', '.join(names)}" for words, names in alike.items()]
    if price := price_of(shown.system):
        lines.append(f"{3600 * price:.2f} USD an hour and device: {price_source(shown.system)}")
    return [*lines, origins(shown)]


def bottleneck(found: Explanation, most: int) -> str:
    """Return the largest cause that is no useful work, and what makes it, so many at most."""
    total = float(found.own.shown.seconds[0])
    useful = next(f.seconds for f in found.own.factors if f.name == "useful computation")
    worst = next(f for f in found.own.factors if f.name == found.bottleneck)
    if useful > 0.9 * total:
        return f"none to speak of: {100 * useful / total:.0f} % is useful computation"
    *kept, rest = [*worst.words.split(", ")[:most], worst.words.split(", ")[most:]]
    words = ", ".join(kept) + f" and {len(rest)} more" * bool(rest)
    return f"{worst.name} ({100 * worst.seconds / total:.0f} %): {words}"


def told(found: dict[str, Any]) -> str:
    """An origin in words: `fitted 93 %, assumed 7 %, beyond what was measured`."""
    shares = found.get("shares", {})
    parts = [f"{kind} {100 * share:.0f} %" for kind, share in shares.items() if share >= 0.01]
    words = ", ".join(parts) if len(parts) > 1 else str(found["origin"])
    beyond = found["outside"] and found["origin"] in MEASURED
    return words + ", beyond what was measured" * beyond


def _most(item: tuple[str, int]) -> int:
    return -item[1]
