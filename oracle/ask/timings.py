"""Seconds of many plans on one network, where the rest is worked out of the few that are shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.models.model import Model
from oracle.plan.plan import even, parse, table
from oracle.predict import evaluate
from oracle.predict.block import Block, Work
from oracle.spec.options import Options
from oracle.spec.system import System


@dataclass(frozen=True, eq=False)
class Timing:
    """Seconds of a plan on one network, and whether it fits there."""

    system: System
    plan: str
    options: Options
    part: Block
    row: int  # of the block

    @property
    def seconds(self) -> float:
        return float(self.part.seconds[self.row])

    @property
    def fits(self) -> bool:
        return bool(self.part.feasible[self.row])

    @property
    def sums(self) -> bool:
        """Whether it has an allreduce, of which there are several algorithms."""
        return any(sent.op == "allreduce" for _, sent in Work(self.part, self.row).messages)


def timings(
    model: Model, system: System, pool: Sequence[str], batch: int, options: Options
) -> list[Timing]:
    """Of each plan of a pool, priced in as few tables as their axes allow."""
    found: dict[int, Timing] = {}
    plans = [even(parse(text, float(batch))) for text in pool]
    for plan, rows in table(plans, batch):
        for at, part in evaluate.blocks(model, system, plan, options):
            for row, number in enumerate(at.tolist()):
                found[rows[number]] = Timing(system, pool[rows[number]], options, part, row)
    return [found[number] for number in range(len(pool))]
