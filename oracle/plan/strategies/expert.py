"""Expert parallelism: the experts of a mixture are dealt to devices of the data axis."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from oracle.models import masks
from oracle.models.model import Flags, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Rule, Strategy


@dataclass(frozen=True)
class Expert(Strategy):
    """Hold E/p experts each; send every token to the devices of the experts it visits.

        T_comp = as data parallelism; E/p larger kernels instead of E small ones
        T_comm = 4 D/B (p - 1) Σ_mixtures (α + B s k h/p² δβ)
        M      = as data parallelism, |w_experts|/p

    The 4: tokens go out and come back, in either pass. The axis reuses devices of `data`,
    so it multiplies nothing; expert weights are replicated p times less often.
    """

    source = "fedus2021, §2.2, §5.3"
    nearness = 8
    bound = "experts of a mixture, and the data axis"
    limited_by = ("layer-wise exchange: all-to-all", "workload balance")
    multiplies = False
    runs = None  # mixtures of experts are priced, not run

    def limit(self, model: Model, batch: Array) -> Array | float:
        return min([row.experts for row in model.rows if row.experts], default=1)

    def rules(self, model: Model, batch: Array, beside: Mapping[str, Any]) -> Iterator[Rule]:
        """The axis reuses the devices of `data`, so it divides them."""
        if not self.wide:
            return
        yield from super().rules(model, batch, beside)
        around = beside["data"].degree
        yield Rule.most("experts", self.degree, around, "devices of the data axis")
        what = "experts can be dealt to a divisor of the data axis only"
        yield Rule.never(around % self.degree != 0, what)

    def clashes(self, beside: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        around = beside["data"].degree if "data" in beside else 1
        if self.degree > 1 and around % self.degree:
            what = f"experts over {self.degree} devices do not divide the data axis"
            yield what, "a divisor of data's degree"

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Its degree is a knob: it takes no devices of its own."""
        experts = max((row.experts for row in model.rows), default=0)
        divisors = [p for p in range(2, experts + 1) if experts % p == 0]
        return {"degree": (1.0, *map(float, divisors))}

    def split(self, shard: Shard) -> Shard:
        if not self.wide:
            return shard
        p, mine = self.degree, masks.experts(shard.model)
        return shard.but(
            w=shard.where(mine, shard.w / p, shard.w),
            visits=shard.visits * p,
            expert=shard.expert * p,
        )

    def talk(self, shard: Shard) -> list[Message]:
        """`dispatch` makes the copies that go out; what it makes comes back at `combine`."""
        sends, returns = borders(shard.model)
        rows, copies = sends | returns, sends * shard.y + returns * shard.x
        tokens = shard.micro * shard.delta * copies
        return [
            Message("tokens to experts", "alltoall", tokens, ("expert",), rows * 1.0,
                    when="forward"),
            Message("gradients to experts", "alltoall", tokens, ("expert",), rows * 1.0,
                    when="backward"),
        ]  # fmt: skip


@lru_cache(masks.MODELS)
def borders(model: Model) -> tuple[Flags, Flags]:
    """Rows that send tokens to experts, and rows that get them back."""
    ends = (".dispatch", ".combine")
    sends, returns = (model.mask(lambda row, end=end: row.name.endswith(end)) for end in ends)
    return sends, returns
