"""Which network to buy for some nodes: every one that its switches allow, priced by workloads.

1. Each kind of network says what can be built for so many nodes with switches of so many ports.
2. A search on the network with most cables across its middle, and on that with fewest, puts plans
   forward; every network takes the best of them for each workload (or all take those given).
3. A network is as slow as its slowest workload against the fastest network for it. The answer is
   the cheapest that is within a share of the fastest: by prices where they are said, else by
   switches and then cables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from typing import Any

import numpy as np

from oracle.ask import search
from oracle.ask.circuits import circuits
from oracle.ask.progress import counted
from oracle.ask.setups import USUAL_TOKENS
from oracle.ask.timings import Timing, timings
from oracle.models.model import Model
from oracle.models.model import model as load_model
from oracle.network.designs import Design, Needs, Refusal, designs
from oracle.network.topology import network_of
from oracle.plan.plan import parse
from oracle.predict.defaults import options_for
from oracle.predict.estimate import Estimate, estimate
from oracle.predict.rates import tokens as tokens_of
from oracle.spec.document import refusal
from oracle.spec.level import PORTLESS, Level
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.tabular import Tabular

PLANS = ("best", "same")
LIT = 3  # plans that circuits are dealt to, where there are some
POOL = 4  # plans that each of the two searches puts forward
PICTURES = 32  # of a device, where nobody says a batch: Goyal et al., arXiv 1706.02677
ALIKE = 1e-3  # of a time: networks that are nearer to each other are as fast


@dataclass(frozen=True, eq=False)
class Workload:
    """A model, its global batch, and the plan that every network is to run, if there is one."""

    model: Model
    batch: int
    options: Options
    plan: str | None = None
    assumed: str = ""  # of the batch, in words


@dataclass(frozen=True, eq=False)
class Candidate:
    """A network, and what each workload takes on it by its best plan."""

    design: Design
    shown: tuple[Estimate, ...]  # of one plan each
    cost: float | None  # USD, where prices were said
    slowdown: float  # of the worst workload, over the fastest network for it
    unbeaten: bool = False

    @property
    def seconds(self) -> tuple[float, ...]:
        """Of a step of each workload."""
        return tuple(map(taken, self.shown))

    @property
    def price(self) -> tuple[float, ...]:
        """What is compared: USD, or switches and then cables."""
        if self.cost is not None:
            return (self.cost,)
        return float(self.design.switches), float(self.design.cables)

    def to_dict(self) -> dict[str, Any]:
        """As data, SI."""
        design, wiring = self.design, self.design.wiring
        return {
            "name": design.name, "words": design.words, "switches": design.switches,
            "optical": design.optical, "cables": design.cables,
            "cables_by_length": dict(wiring.cables), "most_ports": int(wiring.ports.max()),
            "diameter": wiring.diameter, "mean_hops": wiring.mean, "bisection": design.bisection,
            "cost": self.cost, "slowdown": self.slowdown, "unbeaten": self.unbeaten,
            "workloads": [
                {"model": one.model.name, "plan": one.plans[0], "seconds": taken(one),
                 "low": float(one.seconds_low[0]), "high": float(one.seconds_high[0]),
                 "exposed": float(sum(sent["exposed"] for sent in one.plan_dict(0)["exchange"])),
                 "algorithm": one.options.algorithm,
                 "routing": one.system.levels[-1].routing}
                for one in self.shown
            ],
            "levels": [
                {"name": level.name, "kind": level.kind, "devices": level.devices,
                 "ports": level.ports, "bandwidth": level.bandwidth, "latency": level.latency,
                 "shape": list(level.shape), "oversubscription": level.oversubscription,
                 "routing": level.routing}
                for level in design.levels
            ],
        }  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class Designs(Tabular):
    """Every network that can be built, the answer first; and why others cannot."""

    base: System
    wanted: Needs
    workloads: tuple[Workload, ...]
    candidates: tuple[Candidate, ...]  # the answer, then the fastest first
    refused: tuple[Refusal, ...]
    within: float
    plans: str

    @property
    def best(self) -> Candidate:
        """The cheapest within the share of the fastest."""
        return self.candidates[0]

    @property
    def fastest(self) -> Candidate:
        """The one whose slowest workload is nearest to the fastest network for it."""
        return min(self.candidates, key=lambda one: (one.slowdown, one.price))

    def says(self) -> str:
        """The answer, of how many networks."""
        best = self.best
        return (f"{best.design.name} of {len(self.candidates)} networks: {best.design.switches} "
                f"switches, {best.design.cables} cables, {best.slowdown:.1%} slower than the "
                "fastest")  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The published JSON form."""
        wanted = self.wanted
        return {
            "system": self.base.name, "devices": wanted.nodes * wanted.devices,
            "nodes": wanted.nodes, "node_ports": wanted.nics, "switch_ports": wanted.ports,
            "link": wanted.bandwidth, "within": self.within, "plans": self.plans,
            "best": self.best.design.name, "fastest": self.fastest.design.name,
            "workloads": [
                {"model": one.model.name, "batch": one.batch, "assumed": one.assumed,
                 "plan": one.plan} for one in self.workloads
            ],
            "networks": [one.to_dict() for one in self.candidates],
            "refused": [{"name": one.name, "why": one.why} for one in self.refused],
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a network."""
        return [
            {
                "rank": rank, "network": one.design.name, "slowdown": one.slowdown,
                **{f"{work.model.name}_seconds": seconds
                   for work, seconds in zip(self.workloads, one.seconds, strict=True)},
                "switches": one.design.switches, "cables": one.design.cables,
                **{f"{length}_cables": count
                   for length, count in one.design.wiring.cables.items()},
                "cost": one.cost, "diameter": one.design.wiring.diameter,
                "bisection": one.design.bisection, "unbeaten": one.unbeaten,
                **{f"{work.model.name}_plan": shown.plans[0]
                   for work, shown in zip(self.workloads, one.shown, strict=True)},
                "words": one.design.words,
            }
            for rank, one in enumerate(self.candidates, 1)
        ]  # fmt: skip


def wanted(
    base: System, devices: int, ports: int, nics: int | None = None, link: float | None = None
) -> Needs:
    """What is to be joined: nodes as the system has them, their ports unless these are said."""
    base.need_alike("a network between nodes")
    nodes = -(-devices // base.node)
    network = base.levels[base.inside :]
    if not network and (nics is None or link is None):
        hint = "--nics 8 --link '25 GB/s', or a --system with one"
        raise refusal("design-network", f"{base.name} has no network between nodes", hint)
    bandwidth, latency, share, name = link or 0.0, 4e-6, None, "network"
    if network:
        first = network[0]
        room = min(2 * base.node, first.devices)
        fabric = next(one for one in network_of(base.bare, room).fabrics if one.unit >= base.node)
        own = 1.0 if first.kind in PORTLESS else fabric.ports
        nics = nics or max(1, round(own))
        bandwidth = link or first.bandwidth * own / max(1, round(own))
        latency, share, name = first.latency, first.share, first.name
    if nodes < 2:
        what = f"{devices} devices are one node of {base.name}, which needs no network"
        raise refusal("design-network", what, f"more than {base.node} --devices")
    assert nics is not None
    if nics > ports:
        what = f"a node has {nics} ports, more than the {ports} of a switch"
        raise refusal("design-network", what, "larger --ports, or fewer --nics")
    return Needs(nodes, base.node, nics, ports, bandwidth, latency, share, name)


def workload(
    base: System, need: Needs, what: Any, batch: int | None, plan: str | None,
    options: dict[str, Any],
) -> Workload:  # fmt: skip
    """A model, with its batch behind a colon where that is said, as a workload."""
    if isinstance(what, str):
        name, _, size = what.rpartition(":")
        if name and size.isdecimal() and size.isascii():
            what, batch = name, int(size)
    model, devices, assumed = load_model(what), need.nodes * need.devices, ""
    if batch is None:
        batch, assumed = batch_of(model, devices)
    if not 1 <= batch < 2**53:
        raise refusal("options", f"a batch of {batch} samples", "a whole number from 1 on")
    if plan is not None and (count := int(parse(plan, float(batch)).devices[0, 0])) != devices:
        what = f"`{plan}` has {count} devices, not {devices}"
        raise refusal("design-network", what, "a plan for all of them")
    return Workload(model, batch, options_for(model, base, **options), plan, assumed)


def prices(
    switch: float | None, cable: float | dict[str, float] | None
) -> Callable[[Design], float] | None:
    """What a design costs in USD; nothing where nobody says a price."""
    if switch is None and cable is None:
        return None
    each = cable if isinstance(cable, dict) else {}

    def cost(design: Design) -> float:
        usual = 0.0 if cable is None or isinstance(cable, dict) else cable
        cables = sum(each.get(length, usual) * count
                     for length, count in design.wiring.cables.items())  # fmt: skip
        return (switch or 0.0) * design.switches + cables

    return cost


def batch_of(model: Model, devices: int) -> tuple[int, str]:
    """A batch where nobody says one, and where it comes from."""
    if each := tokens_of(model):
        return max(1, round(USUAL_TOKENS / each)), f"{USUAL_TOKENS / 1e6:.1f} M tokens"
    return PICTURES * devices, f"{PICTURES} a device"


def designed(base: System, design: Design, levels: Sequence[Level] | None = None) -> System:
    """The system with another network between its nodes.

    What was measured of its lowest network level still holds of the first of the new ones; what a
    library is off by between nodes holds of any.
    """
    every = (*base.levels[: base.inside], *(levels or design.levels))
    names = {level.name for level in every}
    first = design.levels[0].name
    return replace(
        base, name=f"{base.name}, {design.name}", title="", levels=every, nodes="", seats=None,
        whole=None, calibrated_on=base.calibrated_on,
        collectives=tuple(one for one in base.collectives if one.level in names),
        library=tuple(one if one.level in names else replace(one, level=first)
                      for one in base.library),
    )  # fmt: skip


def design_network(
    base: System, need: Needs, workloads: Sequence[Workload], *, plans: str = "best",
    within: float = 0.05, price: Callable[[Design], float] | None = None,
) -> Designs:  # fmt: skip
    """Every network for the nodes, its workloads timed; the cheapest near the fastest first."""
    found = list(designs(need))
    built = [one for one in found if isinstance(one, Design)]
    refused = tuple(one for one in found if isinstance(one, Refusal))
    if not built:
        raise refusal("design-network", f"{refused[0].name}: {refused[0].why}", "more --ports")
    systems = [[designed(base, one, levels) for levels in one.ways] for one in built]
    every = [_timed(work, built, systems, plans) for work in counted(workloads)]
    seconds = np.array([[taken(one) for one in some] for some in every])
    slow = (seconds / seconds.min(axis=1, keepdims=True)).max(axis=0)
    candidates = [
        Candidate(design, tuple(some[at] for some in every), price(design) if price else None,
                  float(slow[at]))
        for at, design in enumerate(built)
    ]  # fmt: skip
    front = _unbeaten(candidates)
    candidates = [replace(one, unbeaten=yes) for one, yes in zip(candidates, front, strict=True)]
    least = min(one.slowdown for one in candidates)
    near = [one for one in candidates if one.slowdown <= least * (1 + within)]
    best = min(near, key=lambda one: (one.price, one.slowdown))
    rest = sorted((one for one in candidates if one is not best),
                  key=lambda one: (one.slowdown, one.price))  # fmt: skip
    return Designs(base, need, tuple(workloads), (best, *rest), refused, within, plans)


@lru_cache(256)
def taken(shown: Estimate) -> float:
    """Seconds of a step: with optical circuits dealt best, where the network has some."""
    found = circuits(shown)
    return float(shown.seconds[0]) if found is None else found.seconds


def _unbeaten(candidates: Sequence[Candidate]) -> list[bool]:
    """Which no other beats: as fast and no dearer, and better in one of the two."""

    def beats(one: Candidate, other: Candidate) -> bool:
        fast, cheap = one.slowdown / other.slowdown - 1, _dearer(one, other)
        return fast <= ALIKE and cheap <= 0 and (fast < -ALIKE or cheap < 0)

    return [not any(beats(other, one) for other in candidates) for one in candidates]


def _dearer(one: Candidate, other: Candidate) -> int:
    """−1 where it takes no more of anything and less of something, 0 where as much, else 1."""
    pairs = list(zip(one.price, other.price, strict=True))
    if all(mine == theirs for mine, theirs in pairs):
        return 0
    return -1 if all(mine <= theirs for mine, theirs in pairs) else 1


def _timed(
    work: Workload, built: Sequence[Design], systems: Sequence[Sequence[System]], plans: str
) -> list[Estimate]:
    """What one workload takes on each network by its best plan."""
    devices = systems[0][0].node * len(built[0].wiring.home)
    if work.plan is not None:
        pool = [work.plan]
    else:
        order = sorted(range(len(built)), key=lambda at: -built[at].bisection)
        ends = [order[0]] if plans == "same" else list(dict.fromkeys([order[0], order[-1]]))
        most = 1 if plans == "same" else POOL
        pool = _pool(work, [systems[at][0] for at in ends], devices, most)
    return [_fastest(work, design, some, pool)
            for design, some in counted(zip(built, systems, strict=True))]  # fmt: skip


def _pool(work: Workload, ends: Sequence[System], devices: int, most: int) -> list[str]:
    """Plans that are best on the widest network, and on the narrowest."""
    found: list[str] = []
    for number, system in enumerate(ends):
        ranking = search.recommend(work.model, system, devices, work.batch, work.options,
                                   top=most, brief=bool(number))  # fmt: skip
        if not len(ranking):
            hint = "more --devices, or another --for MODEL:BATCH"
            what = f"no plan of {work.model.name} at a batch of {work.batch:,} fits"
            raise refusal("design-network", what, hint)
        found += [*ranking.estimate.plans, *ranking.fastest.plans]
    return list(dict.fromkeys(found))[: 1 if most == 1 else None]


def _fastest(
    work: Workload, design: Design, systems: Sequence[System], pool: Sequence[str]
) -> Estimate:
    """The best plan of a pool on one network, by the routing and the algorithm that suit it."""
    every = [one for system in systems
             for one in timings(work.model, system, pool, work.batch, work.options)]  # fmt: skip
    sums = [one.plan for one in every[: len(pool)] if one.sums]
    if sums and work.options.algorithm is None:
        every += [one for name in design.algorithms
                  for one in timings(work.model, systems[0], sums, work.batch,
                                     replace(work.options, algorithm=name))]  # fmt: skip
    most = LIT if design.optical else 1
    order = sorted(every, key=lambda one: one.seconds)
    best = list(islice((one for one in order if one.fits), most))
    if not best:
        broken = "; ".join(every[0].part.broken(every[0].row))
        raise refusal("design-network", f"{pool[0]}: {broken}", "another --plan")
    return min((_priced(work, one) for one in best), key=taken)


def _priced(work: Workload, one: Timing) -> Estimate:
    """All that is said of a plan on its network."""
    return estimate(work.model, one.system, [one.plan], work.batch, one.options)
