"""Explanations of a plan as text: where its time goes, what bounds it, what would change that."""

from __future__ import annotations

from typing import Any

from oracle.ask.explain.explanation import Explanation
from oracle.kernels.provenance import MEASURED
from oracle.predict.estimate import Estimate
from oracle.show.circuits import lines as circuit_lines
from oracle.show.partitions import table
from oracle.show.placing import better
from oracle.show.terminal import fit
from oracle.show.text import estimate_text, origins
from oracle.spec.units import show


def explanation_text(found: Explanation) -> str:
    """A plan explained: where its time goes, its bottleneck, its links, its place."""
    own, shown = found.own, found.own.shown
    total = float(shown.seconds[0])
    lines = estimate_text(shown).split("\n\n")[0].split("\n")
    lines += ["", "where the time goes"]
    for f in own.factors:
        if f.seconds > 0.001 * total:
            lines.append(fit(f"{show(f.seconds, 's'):>9} {f.seconds / total:4.0%}  "
                              f"{f.name:<22}  {f.words}", 40))  # fmt: skip
    lines += ["", fit(f"bottleneck  {_bottleneck(found)}", 12)]
    if own.evened is not None:
        lines += [fit(f"partitions  {own.evened.words}", 12), *table(own.shown.work[0].sides)]
    for note in own.notes:
        lines.append(fit(f"  {note.name:<18}  {note.words}", 22))
    shared = [t.sentence for t in own.talks if float(t.exchange.phi[0]) > 1.005]
    if own.talks:
        lines += ["", "links"]
        lines += [fit(f"  {said}", 4) for said in dict.fromkeys(shared)]
        rest = len(own.talks) - len(shared)
        if rest:
            lines.append(fit(f"  {rest} of {len(own.talks)} kinds of exchange are slowed by "
                              "no other flow (φ = 1)", 4))  # fmt: skip
    if found.placing is not None and (said := better(found.placing)):
        lines += ["", "placement", *(fit(f"  {words}", 4) for words in said)]
    if found.circuits is not None:
        said = circuit_lines(found.circuits)
        lines += ["", "circuits", *(fit(f"  {words}", 4) for words in said)]
    for w in own.whole:
        kinds = ", ".join(f"{n} {k}" for k, n in sorted(w["kinds"].items(), key=_most)[:4])
        lines += ["", fit(f"{w['strategy']} leaves {w['rows']} of {w['of']} rows whole "
                           f"({kinds}; {w['weights']:.2g} of the weights): {w['why']}"
                           .replace("0 of the weights", "no weights"), 2)]  # fmt: skip
    guessed = [
        fit(f"  {one.family} kernels, {one.share:.0%} of the passes: to settle it, time "
             f"{one.settled_by}", 4)
        for one in found.own.unmeasured
    ]  # fmt: skip
    if guessed:
        guessed = ["", "what nobody measured on this device", *guessed]
    return "\n".join([*lines, *_sources(shown), *guessed, *_ranking(found)])


def _sources(shown: Estimate) -> list[str]:
    """Where each part's seconds come from, and what no measurement covers."""
    if shown.options.ideal:
        return []
    said = {name: told(shown.origin[0][name]) for name in ("forward", "backward", "update")}
    said |= {m["what"]: told(m) for m in shown.exchange[0]}
    alike: dict[str, list[str]] = {}
    for name, words in said.items():
        alike.setdefault(words, []).append(name)
    rows = [fit(f"  {words}: {', '.join(names)}", 4) for words, names in alike.items()]
    return ["", "where the numbers come from", *rows]


def _bottleneck(found: Explanation) -> str:
    total = float(found.own.shown.seconds[0])
    useful = next(f.seconds for f in found.own.factors if f.name == "useful computation")
    worst = next(f for f in found.own.factors if f.name == found.bottleneck)
    if useful > 0.9 * total:
        return f"none to speak of: {useful / total:.0%} is useful computation"
    return f"{worst.name} ({worst.seconds / total:.0%}): {worst.words}"


def _ranking(found: Explanation) -> list[str]:
    against = found.against
    if against is None or not against.rivals:
        return []
    name, mine = found.own.shown.plans[0], float(found.own.shown.seconds[0])
    rival, theirs = against.rivals[0], against.seconds[0]
    if not found.own.shown.feasible[0]:
        lead = f"{rival} is the best that fits ({show(theirs, 's')})"
    elif against.place == 1:
        lead = f"{name} leads; {rival} is next, {theirs / mine - 1:.1%} slower"
    else:
        lead = f"{name} is number {against.place}; {rival} leads, {1 - theirs / mine:.1%} faster"
    lines = ["", fit(f"ranking     {lead}", 12)]
    if against.better:
        lines.append(fit(f"            better knobs: {against.better}", 14))
    for order, flip in zip(("first", "second", "third"), against.flips, strict=False):
        lines.append(fit(f"  flips {order:<6}  {flip.words}", 16))
    if not against.flips and found.own.shown.feasible[0]:
        lines.append("  flips         " + (
            "nothing from 16 × slower to 16 × faster takes its lead" if against.place == 1
            else "nothing from 16 × slower to 16 × faster makes it first"))  # fmt: skip
    if found.measure:
        what, share = found.measure
        known = origins(found.own.shown)
        said = f"measure {what}: {share:.0%} of what is open between the two ({known})"
        lines.append(fit(f"  to be sure    {said}", 16))
    return lines


def told(found: dict[str, Any]) -> str:
    """An origin in words: `fitted 93 %, assumed 7 %, beyond what was measured`."""
    shares = found.get("shares", {})
    parts = [f"{kind} {share:.0%}" for kind, share in shares.items() if share >= 0.01]
    words = ", ".join(parts) if len(parts) > 1 else str(found["origin"])
    beyond = found["outside"] and found["origin"] in MEASURED
    return words + ", beyond what was measured" * beyond


def _most(item: tuple[str, int]) -> int:
    return -item[1]
