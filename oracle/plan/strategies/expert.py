"""Expert parallelism: the experts of a mixture are dealt to devices of the data axis."""

from dataclasses import dataclass

from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Strategy


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

    def limit(self, model: Model, batch: Array) -> Array:
        return min([row.experts for row in model.rows if row.experts], default=1)

    def split(self, shard: Shard) -> Shard:
        p, mine = self.degree, shard.model.mask(lambda row: row.role == "expert")
        return shard.but(
            w=shard.where(mine, shard.w / p, shard.w),
            visits=shard.visits * p,
            expert=shard.expert * p,
        )

    def talk(self, shard: Shard) -> list[Message]:
        """`dispatch` makes the copies that go out; what it makes comes back at `combine`."""
        rows = shard.model.mask(lambda row: row.name.endswith((".dispatch", ".combine")))
        sends = shard.model.mask(lambda row: row.name.endswith(".dispatch"))
        copies = sends * shard.y + (rows & ~sends) * shard.x
        tokens = shard.micro * shard.delta * copies
        return [
            Message("tokens to experts", "alltoall", tokens, ("expert",), rows * 1.0,
                    when="forward"),
            Message("gradients to experts", "alltoall", tokens, ("expert",), rows * 1.0,
                    when="backward"),
        ]  # fmt: skip
