"""One plan explained: its parts, what bounds it, what would change its place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from oracle.ask.circuits import Circuits, circuits
from oracle.ask.explain.factors import Anatomy, anatomy
from oracle.ask.explain.flips import Contest, contest
from oracle.ask.placing import Placing, placed
from oracle.ask.ties import doubts, settling
from oracle.models.model import Model
from oracle.predict.estimate import estimate as predict
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.tabular import Tabular


@dataclass(frozen=True, eq=False, repr=False)
class Explanation(Tabular):
    """One plan explained: its parts, what bounds it, what would change its place."""

    brief = ("factor", "seconds", "share", "words")

    own: Anatomy
    against: Contest | None
    measure: tuple[str, float] | None
    placing: Placing | None = None  # where its ranks had best sit
    circuits: Circuits | None = None  # how optical circuits are best dealt, where there are any

    @property
    def bottleneck(self) -> str:
        """The largest cause that is not useful work, in the words of the table."""
        return next((f for f in self.own.factors if f.name != "useful computation"),
                    self.own.factors[0]).name  # fmt: skip

    def says(self) -> str:
        """The plan and what bounds it."""
        return f"{self.own.shown.says()}; bound by {self.bottleneck}"

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
            "unmeasured": [{"family": one.family, "share": one.share, "settled_by": one.settled_by}
                           for one in own.unmeasured],
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
            "placement": None if self.placing is None else self.placing.to_dict(),
            **({} if self.circuits is None else {"circuits": self.circuits.to_dict()}),
            **({} if own.evened is None else {"evened": own.evened.to_dict()}),
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


def explain(
    model: Model, system: System, text: str, batch: int, options: Options, how: str = "block"
) -> Explanation:
    """Explain one plan, its ranks placed as asked; and where they had best sit."""
    best = None
    if not options.ideal and not system.partitions:
        best = placed(model, system, [text], batch, options, "best").placed[0]
    where = system
    if how != "block":
        where = system.seated(placed(model, system, [text], batch, options, how).placed[0].seats)
    own = anatomy(model, where, text, batch, options)
    against = contest(model, system, own, batch, options)
    measure = None
    if against and against.rivals and not options.ideal:
        rival = predict(model, system, [against.rivals[0]], batch, options)
        measure = settling(doubts(own.shown, 0), doubts(rival, 0))
    dealt = None if system.partitions else circuits(own.shown)
    return Explanation(own, against, measure, best, dealt)
