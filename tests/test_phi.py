"""φ, by how much groups that talk at once slow one another: never below 1, and 1 where none can."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.network.collectives import ALGORITHMS, named
from oracle.network.collectives.schedule import flows
from oracle.network.contention import RankGroups, schedule_cost
from oracle.network.contention.groups import closest_devices
from oracle.network.topology import Topology, network_of
from oracle.spec import catalogue
from oracle.spec.system import Level

SYSTEMS = {name: oracle.system(name) for name in catalogue.shipped("systems")}
LARGE = sorted(name for name, system in SYSTEMS.items() if system.devices >= 256)
SOUND = 1 - 1e-9


@st.composite
def regular_groups(draw: st.DrawFn, most: int) -> RankGroups:
    """All groups of one size and stride, so many blocks of them, aligned to nothing."""
    p = draw(st.integers(2, min(24, most)))
    stride = draw(st.integers(1, max(1, min(12, most // p))))
    blocks = draw(st.integers(1, max(1, min(4, most // p // stride))))
    return RankGroups(((p, stride),), p * stride * blocks)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_company_never_makes_anything_faster(data: st.DataObject) -> None:
    """Every algorithm of every operation, on the shipped systems."""
    system = SYSTEMS[data.draw(st.sampled_from(sorted(SYSTEMS)))]
    if system.devices < 2:
        return
    groups = data.draw(regular_groups(min(system.devices, 300)))
    inner = groups.inner(closest_devices(system))
    graph = network_of(system, groups.devices)
    for offer in ALGORITHMS.values():
        for by in offer.values():
            if by.fits(groups.p, inner):
                cost = schedule_cost(graph, groups, by.schedule(groups.p, inner))
                assert cost.phi >= SOUND, (system.name, by.op, by.name)


def test_ranks_that_sit_out_are_ahead_alone_as_in_company() -> None:
    """Halving and doubling of 9 ranks: folding 9 to 8 leaves ranks out, in company and alone."""
    levels = [Level("node", 4, 50e9, 3e-6, "made up", ports=2),
              Level("rack", 72, 12e9, 7e-6, "made up", ports=2, link="network")]  # fmt: skip
    schedule = named("allreduce", "halving_doubling").schedule(9)
    for stride in (1, 2, 4, 8):
        groups = RankGroups(((9, stride),), 72)
        assert schedule_cost(Topology(levels, 72), groups, schedule).phi >= SOUND


# --- full bisection --------------------------------------------------------------------------
#
# A tree of switches has full bisection where each has as much capacity up as the units below it
# together. Where switches balance their load, one thing follows: a step in which no port of a
# node sends or receives more than one flow goes at the speed of the ports, since no more flows
# leave (or enter) a switch than it has ports below. It doesn't matter which groups those flows
# belong to, nor how they lie to the switches. It isn't so with static routes, nor with flows
# that share a port.


@st.composite
def full_trees(draw: st.DrawFn) -> tuple[list[Level], int]:
    """Leaves, and one to three stages above them, all with as many links up as down."""
    span, levels = draw(st.integers(2, 9)), []
    levels.append(Level("leaf", span, 1e9, 1e-6, "made up", link="network"))
    for stage in range(draw(st.integers(1, 3))):
        span *= draw(st.integers(2, 5))
        levels.append(Level(f"stage {stage}", span, 1e9, 1e-6, "made up", "fat-tree", "network"))
    return levels, span


def crossing(levels: list[Level], pairs: list[tuple[int, int]]) -> float:
    """The fullest link up or down in flows a link, each counted by hand at each switch."""
    fullest = 1.0 if pairs else 0.0
    for level in levels[:-1]:
        out, into = Counter[int](), Counter[int]()
        for source, target in pairs:
            if source // level.devices != target // level.devices:
                out[source // level.devices] += 1
                into[target // level.devices] += 1
        for count in (*out.values(), *into.values()):
            fullest = max(fullest, count / level.devices)
    return fullest


@settings(max_examples=150, deadline=None)
@given(full_trees(), st.data())
def test_full_bisection_slows_nobody_whatever_the_alignment(
    tree: tuple[list[Level], int], data: st.DataObject
) -> None:
    levels, span = tree
    groups = data.draw(regular_groups(span))
    if data.draw(st.booleans()):  # and on any devices
        order = np.random.default_rng(data.draw(st.integers(0, 99))).permutation(groups.devices)
        groups = RankGroups(groups.pattern, groups.devices, order)
    if groups.devices <= levels[0].devices:
        return
    offer = [by for op in ("allreduce", "allgather", "sendrecv", "halo", "alltoall")
             for by in ALGORITHMS[op].values() if by.fits(groups.p, 1)]  # fmt: skip
    by = data.draw(st.sampled_from(offer))
    steps = by.schedule(groups.p, 1)
    device = groups.devices_of(np.arange(groups.devices))
    for source, target, _, _ in flows(steps, groups.p):
        pairs = [
            (int(device[base + groups.offsets[a]]), int(device[base + groups.offsets[b]]))
            for base in groups.bases()
            for a, b in zip(source, target, strict=True)
        ]
        if len({a for a, _ in pairs}) < len(pairs) or len({b for _, b in pairs}) < len(pairs):
            return  # a port serves two flows: nothing is promised
        assert crossing(levels, pairs) <= 1
    cost = schedule_cost(Topology(levels, groups.devices), groups, steps)
    assert cost.phi == pytest.approx(1, rel=1e-9), by.name


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-a100-40gb", "dgx-b200", "dgx-h100", "summit"])
@pytest.mark.parametrize("size", [96, 112, 336, 484])
def test_rings_across_the_units_of_full_bisection_systems(name: str, size: int) -> None:
    """Groups that begin in the middle of a unit of 160 or 256 devices, and end in another's."""
    system = SYSTEMS[name]
    for many in (1, 2, 3):
        devices = size * many
        groups = RankGroups(((size, 1),), devices)
        if devices > system.devices or (name == "summit" and size % 6):
            continue  # rings that share a node share its ports
        for algorithm in ("ring", "rings"):
            by, inner = named("allreduce", algorithm), groups.inner(closest_devices(system))
            if by.fits(size, inner):
                cost = schedule_cost(network_of(system, devices), groups, by.schedule(size, inner))
                assert cost.phi == pytest.approx(1), (many, algorithm)


def test_static_routes_of_a_full_tree_can_meet() -> None:
    """Said of a level, `d-mod-k` sends two rings that leave one switch over one of its links."""
    levels = [Level("leaf", 8, 1e9, 1e-6, "made up", link="network")]
    above = {"devices": 64, "bandwidth": 1e9, "latency": 1e-6, "source": "made up",
             "kind": "fat-tree"}  # fmt: skip
    groups, steps = RankGroups(((12, 1),), 24), named("allreduce", "ring").schedule(12)
    found = {
        routing: schedule_cost(
            Topology([*levels, Level("all", **above, routing=routing)], 24), groups, steps
        ).phi
        for routing in (None, "adaptive", "d-mod-k")
    }
    assert found == {None: 1.0, "adaptive": 1.0, "d-mod-k": 2.0}
