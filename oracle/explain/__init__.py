"""Explanations: of a strategy, of an error code, of one plan on one machine.

oracle.explain.words      equations, limit, knobs and source of a strategy; error codes
oracle.explain.factors    what a plan's seconds are spent on, in the words of the source
oracle.explain.flips      what would change its place in the ranking
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass
from typing import Any

from oracle import prediction
from oracle.compute.known import MEASURED
from oracle.doubt import doubts, settling
from oracle.explain.factors import Anatomy, anatomy
from oracle.explain.flips import Contest, contest
from oracle.models import Model
from oracle.options import Options
from oracle.report import estimate_text, origins
from oracle.specs import System
from oracle.table import Tabular
from oracle.terminal import width
from oracle.units import show


@dataclass(frozen=True, eq=False)
class Explanation(Tabular):
    """One plan explained: its parts, what bounds it, what would change its place."""

    own: Anatomy
    against: Contest | None
    measure: tuple[str, float] | None

    @property
    def bottleneck(self) -> str:
        """The largest cause that is not useful work, in the words of the table."""
        return next((f for f in self.own.factors if f.name != "useful computation"),
                    self.own.factors[0]).name  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The same as data."""
        own, total = self.own, float(self.own.shown.seconds[0])
        against = self.against
        return {
            **own.shown.to_dict(),
            "factors": [{"factor": f.name, "seconds": f.seconds, "share": f.seconds / total,
                         "words": f.words} for f in own.factors],
            "bottleneck": self.bottleneck,
            "limits": [{"factor": n.name, "words": n.words} for n in own.notes],
            "contention": [t.sentence for t in own.talks],
            "whole": [dict(w) for w in own.whole],
            "place": None if against is None else against.place,
            "better_knobs": None if against is None else against.better,
            "rivals": [] if against is None else [
                {"plan": plan, "seconds": seconds}
                for plan, seconds in zip(against.rivals, against.seconds, strict=True)
            ],
            "flips": [] if against is None else [
                {"cause": f.cause, "factor": f.factor, "winner": f.winner, "loser": f.loser}
                for f in against.flips
            ],
            "measure": None if self.measure is None else {
                "what": self.measure[0], "share": self.measure[1]},
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each thing that the time goes to."""
        total = float(self.own.shown.seconds[0])
        return [
            {"plan": self.own.shown.plans[0], "factor": f.name, "seconds": float(f.seconds),
             "share": float(f.seconds) / total, "words": f.words}
            for f in self.own.factors
        ]  # fmt: skip

    def text(self) -> str:
        """The same for people."""
        own, shown = self.own, self.own.shown
        total = float(shown.seconds[0])
        lines = estimate_text(shown).split("\n\n")[0].split("\n")
        lines += ["", "where the time goes"]
        for f in own.factors:
            if f.seconds > 0.001 * total:
                lines.append(_row(f"{show(f.seconds, 's'):>9} {f.seconds / total:4.0%}  "
                                  f"{f.name:<22}  {f.words}", 40))  # fmt: skip
        lines += ["", _row(f"bottleneck  {self._bottleneck()}", 12)]
        for note in own.notes:
            lines.append(_row(f"  {note.name:<18}  {note.words}", 22))
        shared = [t.sentence for t in own.talks if float(t.exchange.phi[0]) > 1.005]
        if own.talks:
            lines += ["", "links"]
            lines += [_row(f"  {said}", 4) for said in dict.fromkeys(shared)]
            rest = len(own.talks) - len(shared)
            if rest:
                lines.append(_row(f"  {rest} of {len(own.talks)} kinds of exchange are slowed by "
                                  "no other flow (φ = 1)", 4))  # fmt: skip
        for w in own.whole:
            kinds = ", ".join(f"{n} {k}" for k, n in sorted(w["kinds"].items(), key=_most)[:4])
            lines += ["", _row(f"{w['strategy']} leaves {w['rows']} of {w['of']} rows whole "
                               f"({kinds}; {w['weights']:.2g} of the weights): {w['why']}"
                               .replace("0 of the weights", "no weights"), 2)]  # fmt: skip
        return "\n".join([*lines, *self._sources(), *self._ranking()])

    def _sources(self) -> list[str]:
        """Where each part's seconds come from, and what no measurement covers."""
        shown = self.own.shown
        if shown.options.ideal:
            return []
        said = {name: told(shown.origin[0][name]) for name in ("forward", "backward", "update")}
        said |= {m["what"]: told(m) for m in shown.exchange[0]}
        alike: dict[str, list[str]] = {}
        for name, words in said.items():
            alike.setdefault(words, []).append(name)
        rows = [_row(f"  {words}: {', '.join(names)}", 4) for words, names in alike.items()]
        return ["", "where the numbers come from", *rows]

    def _bottleneck(self) -> str:
        total = float(self.own.shown.seconds[0])
        useful = next(f.seconds for f in self.own.factors if f.name == "useful computation")
        worst = next(f for f in self.own.factors if f.name == self.bottleneck)
        if useful > 0.9 * total:
            return f"none to speak of: {useful / total:.0%} is useful computation"
        return f"{worst.name} ({worst.seconds / total:.0%}): {worst.words}"

    def _ranking(self) -> list[str]:
        against = self.against
        if against is None or not against.rivals:
            return []
        name, mine = self.own.shown.plans[0], float(self.own.shown.seconds[0])
        rival, theirs = against.rivals[0], against.seconds[0]
        if not self.own.shown.feasible[0]:
            lead = f"{rival} is the best that fits ({show(theirs, 's')})"
        elif against.place == 1:
            lead = f"{name} leads; {rival} is next, {theirs / mine - 1:.1%} slower"
        else:
            lead = (
                f"{name} is number {against.place}; {rival} leads, {1 - theirs / mine:.1%} faster"
            )
        lines = ["", _row(f"ranking     {lead}", 12)]
        if against.better:
            lines.append(_row(f"            better knobs: {against.better}", 14))
        for order, flip in zip(("first", "second", "third"), against.flips, strict=False):
            lines.append(_row(f"  flips {order:<6}  {flip.words}", 16))
        if not against.flips and self.own.shown.feasible[0]:
            lines.append("  flips         " + (
                "nothing from 16 × slower to 16 × faster takes its lead" if against.place == 1
                else "nothing from 16 × slower to 16 × faster makes it first"))  # fmt: skip
        if self.measure:
            what, share = self.measure
            known = origins(self.own.shown)
            said = f"measure {what}: {share:.0%} of what is open between the two ({known})"
            lines.append(_row(f"  to be sure    {said}", 16))
        return lines


def plan(model: Model, system: System, text: str, batch: int, options: Options) -> Explanation:
    """Explain one plan."""
    own = anatomy(model, system, text, batch, options)
    against = contest(model, system, own, batch, options)
    measure = None
    if against and against.rivals and not options.ideal:
        rival = prediction.estimate(model, system, [against.rivals[0]], batch, options)
        measure = settling(doubts(own.shown, 0), doubts(rival, 0))
    return Explanation(own, against, measure)


def told(found: dict[str, Any]) -> str:
    """An origin in words: `fitted 93 %, assumed 7 %, beyond what was measured`."""
    shares = found.get("shares", {})
    parts = [f"{kind} {share:.0%}" for kind, share in shares.items() if share >= 0.01]
    words = ", ".join(parts) if len(parts) > 1 else str(found["origin"])
    beyond = found["outside"] and found["origin"] in MEASURED
    return words + ", beyond what was measured" * beyond


def _most(item: tuple[str, int]) -> int:
    return -item[1]


def _row(text: str, indent: int) -> str:
    return textwrap.fill(text, width(), subsequent_indent=" " * indent, break_on_hyphens=False)


__all__ = ["Anatomy", "Contest", "Explanation", "plan"]
