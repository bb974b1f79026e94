"""Expert parallelism: experts of a mixture are dealt to devices of context and data axes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.model import Flags, Floats, Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Rule, Strategy, words

AXES = ("expert", "expert/context", "expert/tensor")
ONCE = ("deepep", "hybridep")  # libraries that send a token once to each place


@dataclass(frozen=True)
class Expert(Strategy):
    """Hold E/p experts each; send every token to the devices of the experts it visits.

        T_comp = as data parallelism; E/p larger kernels instead of E small ones
        T_comm = 4 D/B (p - 1) Σ_mixtures (α + B s k h/p² δβ)
        M      = as data parallelism, |w_experts|/p

    The 4: tokens go out and come back, in either pass. The axis reuses devices of `context`, then
    of `data`, so it multiplies nothing; expert weights are replicated p times less often, and what
    ZeRO shares out of them goes to as many fewer. Experts that all tokens share are no part of it.

    `tensor` cuts an expert as any MLP. With `cut=whole` it doesn't (Megatron's expert tensor
    parallelism of 1): the devices of the tensor axis, which have cut the tokens, are dealt experts
    first, those of the other axes after.

    `dispatch=once` sends a token once to each node that holds some of its experts (to each
    device, inside one node), however many; so do DeepEP and its hybrid kernels, where the software
    has them (`experts.dispatcher`). An `allgather` of all tokens brings back partial sums. The
    `skew` of a mixture makes the work, the activations and the exchange of the fullest device as
    much more; balanced if not said.
    """

    dispatch: Array = words("plain", "once")
    cut: Array = words("tensor", "whole")

    letters = "EP"
    source = "fedus2021, §2.2, §5.3"
    nearness = 8
    bound = "experts of a mixture, and the axes of context and data"
    limited_by = ("layer-wise exchange: all-to-all", "workload balance")
    multiplies = False
    runs = ("cut",)

    def limit(self, model: Model, batch: Array) -> Array | float:
        return min([row.experts for row in model.rows if row.experts], default=1)

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        """The axis reuses the devices of `context` and `data`, so it divides them."""
        if not self.wide:
            return
        yield from super().rules(model, batch, axes)
        tensor, data, context = (axes[name] for name in ("tensor", "data", "context"))
        inside = np.where(self.uncut, tensor.degree, 1)
        around = data.degree * context.degree
        yield Rule.most("experts", self.degree, around * inside, "devices of the data axis")
        complaint = "experts can be dealt to a divisor of the data axis only"
        yield Rule.never(data.degree % self.within(inside, context.degree)[-1] != 0, complaint)
        if self.uncut.any():
            complaint = (
                "whole experts want the tokens that tensor parallelism has cut (sequence=on)"
            )
            uncut = tensor.says("sequence", "off") & (tensor.degree > 1)
            yield Rule.never(self.uncut & uncut, complaint)

    @property
    def uncut(self) -> Array:
        """Where experts are dealt uncut."""
        return self.says("cut", "whole") & (np.asarray(self.degree) > 1)

    def within(self, tensor: Array | float, context: Array | float) -> tuple[Array, Array, Array]:
        """How many devices the experts are dealt along: of tensor, of context, those left."""
        p, t, c = (np.asarray(degree).astype(int) for degree in (self.degree, tensor, context))
        tensor_part = np.gcd(p, t)
        context_part = np.gcd(p // tensor_part, c)
        return tensor_part, context_part, p // tensor_part // context_part

    def clashes(self, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        around, inside, context = (
            axes[name].degree if name in axes else 1 for name in ("data", "tensor", "context")
        )
        if around % self.within(inside if self.uncut else 1, context)[-1]:
            complaint = f"experts over {self.degree:g} devices do not divide the data axis"
            yield complaint, "a divisor of data's degree"

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Its degree is a knob: it takes no devices of its own."""
        experts = max((row.experts for row in model.rows), default=0)
        divisors = [p for p in range(2, experts + 1) if experts % p == 0]
        return {"degree": (1.0, *map(float, divisors))}

    def split(self, shard: Shard) -> Shard:
        p, cut_shard = self.degree, masks.experts(shard.model)
        if not self.wide or not cut_shard.any():
            return shard
        uncut = self.uncut
        fewer = p / np.where(uncut, shard.expert_cut, 1)  # replicas, than of what is not dealt
        # they share the state of an expert, as far as those of `data` do
        state = {
            name: shard.where(cut_shard, share * np.where(shard.zero >= stage, fewer, 1), share)
            for stage, name in enumerate(("stated", "graded", "stored"), 1)
            if np.any(shard.zero >= stage)
            for share in [getattr(shard, name)]
        }
        if uncut.any():
            shard = _uncut(shard, uncut)
        return self._crowded(shard).but(
            w=shard.where(cut_shard, shard.w / fewer, shard.w), visits=shard.visits * p, **state
        )

    def _crowded(self, shard: Shard) -> Shard:
        """With the tokens that the fullest device is sent."""
        skew = np.where(np.asarray(self.degree) > 1, skews(shard.model), 1.0)
        if not (skew > 1).any():
            return shard
        inside = masks.experts(shard.model) & ~np.logical_or(*borders(shard.model))
        experts_here = np.where(inside, skew, 1.0)
        # what goes in is kept by the row that makes it, what comes out by those who sent it
        visited = np.where(inputs(shard.model), skew, 1.0)
        return shard.but(
            given=(shard.given[0] * experts_here, *shard.given[1:]),
            made=(shard.made[0] * experts_here, *shard.made[1:]),
            x=shard.x * experts_here,
            y=shard.y * experts_here,
            work=shard.work * experts_here,
            kept=shard.kept * visited,
        )

    def talk(self, shard: Shard) -> list[Message]:
        """`dispatch` makes the copies that go out; what it makes comes back at `combine`."""
        model, spec = shard.model, shard.software.experts
        sends, returns = borders(model)
        copies, out, back = sends * shard.y + returns * shard.x, shard.dispatched, shard.combined
        # forward what is dispatched goes out, backward the gradients of what came back do
        forth = shard.micro * copies * (sends * out + returns * back)
        home = shard.micro * copies * (sends * back + returns * out)
        library = spec.dispatcher if spec.dispatcher in ONCE else ""
        once = self.says("dispatch", "once") | bool(library)
        said: list[Message] = []
        for name, when, nbytes, goes, comes in (
            ("tokens", "forward", forth, sends, returns),
            ("gradients", "backward", home, returns, sends),
        ):
            how: dict[str, Any] = {"axes": AXES, "when": when, "processors": spec.processors}
            hidden = _hidden(shard, when)
            ways = [("to", "alltoall", "_dispatch", goes), ("from", "alltoall", "_combine", comes)]
            if spec.dispatcher == "allgather":  # all tokens everywhere; partial sums come back
                nbytes = nbytes / choices(model)[0]
                ways = [("to", "allgather", "", goes), ("from", "reduce_scatter", "", comes)]
                how["sized"] = _all_ranks
            else:
                nbytes = nbytes * skews(model)
                how["thinned"] = partial(_thinned, model, once) if once.any() else None
            if spec.dispatcher == "alltoall":
                ways = [("to", "alltoall", "", sends | returns)]
            said += [Message(f"{name} {way} experts", op, nbytes * rows, calls=1.0 * rows,
                             by=library and library + part, **how,
                             **hidden(way == "to", way == "from" or len(ways) == 1))
                     for way, op, part, rows in ways]  # fmt: skip
        return said


def _hidden(shard: Shard, when: str) -> Callable[[bool, bool], dict[str, Any]]:
    """What hides messages of a pass that go out or come back, as the software has it.

    By the batch, tokens go out while the experts of another micro-batch run back and come back
    while its other rows do; gradients go out while the other rows of another one run forward, and
    come back while its experts do, or gradients of weights that were left for later
    [NVIDIA/Megatron-LM, megatron/core/models/common/model_chunk_schedule_plan.py@d98e8a64dd, run].
    Else shared experts may hide them, and gradients of experts' weights that are left for later.
    """
    model, spec = shard.model, shard.software.experts
    experts, shared = masks.experts(model), masks.shared_experts(model)
    later = [("weight", experts)] * (spec.weight_gradients == "delayed" and when == "backward")
    forward, backward = ("forward",), ("data", "weight")
    if spec.overlap == "pass":
        return lambda out, back: {"hides": when}
    if spec.overlap == "batch":
        products = backward if when == "forward" else forward
        served = experts | shared
        ends = masks.embeddings(model) | masks.losses(model)
        others = ~(served | ends | model.mask(lambda row: row.role == "vocab"))
        inner = [(product, served) for product in products] + later
        outer = [(product, others) for product in products]
        out_first = when == "forward"

        def paired(out: bool, back: bool) -> dict[str, Any]:
            beside = inner * (out if out_first else back) + outer * (back if out_first else out)
            other = "backward" if when == "forward" else "forward"
            return {"hides": other, "paired": True, "under": tuple(beside)}

        return paired
    products = forward if when == "forward" else backward
    beside = spec.shared_experts == "beside" and shared.any()
    under = (*((product, shared) for product in products if beside), *later)
    return lambda out, back: {"hides": when, "under": under} if under else {}


def _all_ranks(ranks: Array) -> Array:
    """An allgather's buffer is that of all ranks."""
    return ranks


def _uncut(shard: Shard, whole_rows: Array) -> Shard:
    """With whole experts for a part of the tokens, where there was a part of experts for all."""
    model = shard.model
    expert_rows = whole_rows & masks.experts(model) & ~np.logical_or(*borders(model))
    part = np.where(expert_rows, shard.expert_cut, 1.0)
    up, sends = model.mask(lambda row: row.role == "column"), borders(model)[0]
    return shard.but(
        filters=shard.where(expert_rows, model.filters, shard.filters),
        channels=shard.where(expert_rows, model.channels, shard.channels),
        given=(shard.deal(shard.given[0], part), *shard.given[1:]),
        made=(shard.deal(shard.made[0], part), *shard.made[1:]),
        x=shard.x / np.where(up, part, 1.0),
        kept=shard.kept / np.where(whole_rows & sends, shard.expert_cut, 1.0),
        expert_cut=np.where(whole_rows, 1.0, shard.expert_cut),
    )


def _thinned(model: Model, once: Array, places: Array) -> Array:
    """Share of a token's copies that is sent where those to one place are sent once."""
    sends, returns = borders(model)
    active, experts = (np.where(sends | returns, copies, 1.0) for copies in choices(model))
    hit = places_hit(places, active, experts)
    groups, reach = limited(model)
    # experts of one group lie on one place, or on as many as all groups have more
    all_places = np.where(
        groups > 0, reach * np.maximum(places / np.maximum(groups, 1), 1.0), np.inf
    )
    return np.where(once, np.minimum(hit, all_places) / active, 1.0)


def places_hit(places: Array, active: Array, experts: Array) -> Array:
    """How many places, that hold as many experts each, a token's choice is expected to hit.

        places (1 - C(E - E/places, k) / C(E, k)), any k of E experts as likely as others

    [deepseek2024, §3.2.2] sends a token to a node once, and from there on inside it.

    >>> places_hit(np.array([1, 2, 4, 8]), np.array(2), np.array(8)).round(3).tolist()
    [1.0, 1.571, 1.857, 2.0]
    """
    missed = np.ones(np.broadcast_shapes(np.shape(places), np.shape(active)))
    for before in range(int(np.max(active))):  # chosen, none of them at this place
        left = np.maximum(experts - before, 1.0)
        chance = np.clip(1 - experts / places / left, 0.0, 1.0)
        missed = missed * np.where(before < active, chance, 1.0)
    return np.asarray(places * (1 - missed))


@lru_cache(masks.MODELS)
def borders(model: Model) -> tuple[Flags, Flags]:
    """Rows that send tokens to experts, and rows that get them back."""
    return model.mask(lambda r: r.role == "dispatch"), model.mask(lambda r: r.role == "combine")


@lru_cache(masks.MODELS)
def inputs(model: Model) -> Flags:
    """Rows whose output experts read."""
    return masks.experts(model) & model.mask(lambda r: r.role in ("dispatch", "column", "heads"))


@lru_cache(masks.MODELS)
def choices(model: Model) -> tuple[Floats, Floats]:
    """Experts that a token visits, and those there are."""
    return model.column(lambda row: row.active), model.column(lambda row: row.experts)


@lru_cache(masks.MODELS)
def limited(model: Model) -> tuple[Floats, Floats]:
    """Groups that experts are routed by, and how many of them a token reaches at most."""
    reach = model.column(lambda row: row.reach)
    return model.column(lambda row: row.places) * (reach > 0), reach


@lru_cache(masks.MODELS)
def skews(model: Model) -> Floats:
    return model.column(lambda row: row.skew)
