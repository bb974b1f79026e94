"""What simultaneous flows see: counted in short equals counted in full; fair shares; φ; prices."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from growth import assert_grows_gently
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.ask.explain.factors import anatomy
from oracle.network import contention, topology
from oracle.network.collectives import ALGORITHMS, menu, named
from oracle.network.collectives.schedule import pairs
from oracle.network.contention import (
    Contention,
    RankGroups,
    alone,
    fair_rates,
    interference,
    lines,
    loads,
    schedule_cost,
    sentence,
)
from oracle.network.contention.counting import flows as flows_module
from oracle.network.contention.counting import steps as steps_module
from oracle.network.contention.counting.critical_path import critical_path
from oracle.network.topology import Topology, network_of
from oracle.spec import catalogue
from oracle.spec.device import Device
from oracle.spec.system import Calibrated, Level, System

B = 12.5e9
DEVICE = Device("toy", 16e9, 900e9, {"fp32": 15e12}, "made up")


def level(name, devices, bandwidth=B, latency=1e-6, **more):
    return Level(name, devices, bandwidth, latency, source="made up", **more)


def system(*levels, **more):
    return System("toy", DEVICE, levels, "made up", **more)


def costs_agree(graph, groups, schedule):
    short, full = (
        schedule_cost(graph, groups, schedule, reduce=reduce) for reduce in (True, False)
    )
    assert short.per_byte == pytest.approx(full.per_byte, rel=1e-12)
    assert short.start == pytest.approx(full.start, rel=1e-12)
    assert short.phi == pytest.approx(full.phi, rel=1e-12)


def test_groups_on_a_cube_mesh_count_in_short_as_in_full():
    mesh, *outer = catalogue.system("dgx-1-v100").levels  # the first two get two links
    wires = tuple(wire.translate(str.maketrans("13", "31")) for wire in mesh.wires)
    graph = Topology((replace(mesh, wires=wires), *outer), 32)
    for pair in ((2, 1), (4, 1), (8, 1), (2, 4), (4, 2), (4, 8), (32, 1)):
        groups = RankGroups.of((pair,), 32)
        for by in (named("allreduce", "ring"), named("alltoall", "pairwise")):
            costs_agree(graph, groups, by.schedule(groups.p, groups.inner(8)))


@st.composite
def trees(draw):
    """A tower of levels of any sizes, ports and spreads, and a job on part of it."""
    tower, span = [], 1
    for depth in range(draw(st.integers(1, 4))):
        width = draw(st.sampled_from([2, 3, 4, 5, 8]))
        span *= width
        kind = draw(st.sampled_from(["switch", "fat-tree", "mesh", "rail", "pcie"]))
        ports = draw(st.sampled_from([None, 1, 2, 3, 4, 8])) if depth else None
        routing = draw(st.sampled_from([None, "affinity", "d-mod-k", "striped", "adaptive"]))
        link = draw(st.sampled_from(["", "network"]))
        slim = draw(st.sampled_from([1.0, 2.0, 3.0])) if kind != "rail" else 1.0
        tower.append(level(f"l{depth}", span, kind=kind, ports=ports, routing=routing, link=link,
                           bandwidth=draw(st.sampled_from([B, 2 * B, 10 * B])),
                           latency=draw(st.sampled_from([1e-6, 5e-6])),
                           oversubscription=slim))  # fmt: skip
        if span > 150:
            break
    sizes = [2, 3, 4, 8]
    devices, pattern, stride = 1, [], 1
    inner = draw(st.sampled_from([1, 2, 3, 4, *(stage.devices for stage in tower[:-1])]))
    if inner <= span:
        devices = stride = inner
    while devices * 2 <= span and len(pattern) < 3:
        size = draw(st.sampled_from(sizes))
        if devices * size > span:
            break
        if draw(st.booleans()) or not pattern:
            pattern.insert(0, (size, stride))
        devices *= size
        stride = devices
    return tower, tuple(pattern), devices


@settings(deadline=None, max_examples=150)
@given(trees(), st.data())
def test_counting_one_period_equals_counting_everything(case, data):
    tower, pattern, devices = case
    if not pattern:
        return
    graph = Topology(tower, devices)
    groups = RankGroups(pattern, devices)
    op = data.draw(st.sampled_from(["allreduce", "alltoall", "allgather", "sendrecv", "halo"]))
    inner = groups.inner(tower[0].devices)
    offer = [by for by in ALGORITHMS[op].values() if by.fits(groups.p, inner)]
    by = data.draw(st.sampled_from(offer))
    costs_agree(graph, groups, by.schedule(groups.p, inner))


@pytest.mark.parametrize("op", ["allreduce", "alltoall", "allgather", "halo"])
@pytest.mark.parametrize("pattern", [((64, 1),), ((16, 4),), ((8, 2),), ((4, 16), (2, 2))])
@pytest.mark.parametrize("graph", [
    topology.torus((8, 8), B), topology.fat_tree((8, 8), (1, 3), B, hop=1e-7),
    topology.nodes(16, 4, 2, 10 * B, B, 4, 2),
], ids=["torus", "hops", "nodes"])  # fmt: skip
def test_a_step_counted_in_parts_costs_the_same(graph, pattern, op, monkeypatch):
    groups = RankGroups(pattern, 64)
    inner = groups.inner(4)
    schedules = [by.schedule(groups.p, inner) for by in ALGORITHMS[op].values()
                 if by.fits(groups.p, inner)]  # fmt: skip
    costs = [schedule_cost(graph, groups, schedule, reduce=False) for schedule in schedules]
    monkeypatch.setattr(steps_module, "PART", 7)
    monkeypatch.setattr(steps_module, "BLOCK", 1)  # no two steps at once
    monkeypatch.setattr(flows_module, "BLOCK", 1)
    for schedule, cost in zip(schedules, costs, strict=True):
        in_parts = schedule_cost(graph, groups, schedule, reduce=False)
        for field in ("start", "per_byte", "phi"):
            assert getattr(in_parts, field) == pytest.approx(getattr(cost, field), rel=1e-12)
        assert in_parts.full == cost.full


@pytest.mark.parametrize("graph", [
    topology.torus((8, 8), B), topology.dragonfly(4, 4, 4, B), topology.loop(16, 4, B),
    topology.fat_tree((8, 8), (1, 3), B, duplex="half"),
], ids=["torus", "dragonfly", "loop", "half"])  # fmt: skip
@pytest.mark.parametrize("pattern", [((64, 1),), ((16, 4),), ((8, 1),), ((4, 16), (2, 2))])
@pytest.mark.parametrize(("op", "name"), [
    ("allreduce", "ring"), ("allreduce", "halving_doubling"), ("alltoall", "pairwise"),
    ("alltoall", "scattered"),
])  # fmt: skip
def test_other_networks_are_counted_in_full(graph, pattern, op, name):
    groups = RankGroups(pattern, 64)
    costs_agree(graph, groups, named(op, name).schedule(groups.p))


def test_load_of_every_link_by_hand():
    """Four rings of four across four nodes of four devices and two ports: two rings a port."""
    graph = topology.nodes(4, 4, 2, 150e9, B, 4, 4)
    cost = schedule_cost(graph, RankGroups(((4, 4),), 16), named("allreduce", "ring").schedule(4))
    assert cost.phi == pytest.approx(2)
    assert cost.per_byte == pytest.approx(2 * 2 * 3 / 4 / B)
    assert cost.full[0] == "node uplinks"


def test_the_slowest_link_sets_the_pace_not_the_one_with_most_bytes():
    """One ring over two nodes of four: all links of its way carry an eighth in each of 14 steps."""
    graph = topology.nodes(2, 4, 2, 150e9, B, 2, 2)
    cost = schedule_cost(graph, RankGroups(((8, 1),), 8), named("allreduce", "ring").schedule(8))
    assert cost.per_byte == pytest.approx(14 / 8 / B)
    assert cost.phi == pytest.approx(1)
    assert cost.full == ("node uplinks",)


@pytest.mark.parametrize(("flows", "want"), [
    # a crossbar; the textbook's rates, by hand
    ([(0, 1)], [1.0]),
    ([(0, 1), (0, 2)], [2.0, 2.0]),
    ([(0, 1), (0, 2), (0, 3)], [3.0, 3.0, 3.0]),
    ([(1, 0), (2, 0)], [2.0, 2.0]),
    ([(0, 1), (1, 0)], [1.0, 1.0]),
    ([(0, 1), (0, 2), (3, 2), (4, 2)], [1.5, 3.0, 3.0, 3.0]),
    ([(a, b) for a in range(3) for b in range(3, 6)], [3.0] * 9),
])  # fmt: skip
def test_fair_shares_by_hand(flows, want):
    source, target = np.array(flows).T
    graph = topology.crossbar(6, B)
    contention = Contention(graph, source, target, np.full(len(flows), 1e6))
    assert contention.phi == pytest.approx(want)


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_fair_shares_fill_links_and_are_fair(data):
    links, flows = data.draw(st.integers(2, 8)), data.draw(st.integers(1, 12))
    capacity = np.array([*data.draw(st.lists(st.sampled_from([1.0, 2.0, 5.0]), min_size=links,
                                             max_size=links)), np.inf])  # fmt: skip
    route = np.array(
        data.draw(st.lists(st.lists(st.integers(0, links - 1), min_size=3, max_size=3, unique=True)
                           if links >= 3 else st.just([0, 1, links]), min_size=flows,
                           max_size=flows))
    ).T  # fmt: skip
    rate = fair_rates(capacity, route)
    used = np.bincount(route.ravel(), np.broadcast_to(rate, route.shape).ravel(), links + 1)[:-1]
    assert (used <= capacity[:-1] * (1 + 1e-9)).all()
    for flow in range(flows):  # a full link on the way, on which nobody gets more
        limiting = [
            link for link in route[:, flow] if link < links
            and used[link] >= capacity[link] * (1 - 1e-9)
            and rate[flow] >= rate[(route == link).any(axis=0)].max() * (1 - 1e-9)
        ]  # fmt: skip
        assert limiting


def test_fullest_link_paces_a_step_as_fair_shares_do():
    """With equal sizes that start together the last flow is done when the fullest link is."""
    rng = np.random.default_rng(5)
    for graph in (topology.torus((4, 4), B), topology.fat_tree((4, 4), (1, 2), B)):
        for _ in range(10):
            target = rng.permutation(16)
            source = np.flatnonzero(target != np.arange(16))
            step = Contention(graph, source, target[source], np.full(len(source), 1e6))
            load = 1e6 * np.bincount(step.route.ravel(), minlength=graph.links + 1)
            bound = 1e-6 + float((load * graph.seconds_per_byte).max())
            assert step.seconds() == pytest.approx(bound, rel=1e-9)


def test_contention_graph_has_an_edge_where_two_flows_share_a_link():
    graph = topology.nodes(2, 4, 2, 150e9, B, 2, 1)
    contended = Contention(graph, np.arange(4), np.arange(4) + 4, np.full(4, 1.0)).graph()
    assert sorted(contended.edges) == [(0, 1), (2, 3)]
    assert contended.edges[0, 1]["links"] == {"node uplinks", "node downlinks"}
    assert contended.nodes[0]["phi"] == pytest.approx(2)


def test_phi_on_abci_is_derived():
    abci = catalogue.system("abci")
    pair = topology.network_of(abci, 8)
    pairs = Contention(pair, np.arange(4), np.arange(4) + 4, np.full(4, 4e6))
    assert pairs.phi == pytest.approx(np.full(4, 2.0))  # osu_mbw_mr, measured: 2.00
    line = lines(abci, "allreduce", ((16, 4),), 64, "ring")[-1]
    assert line.phi == pytest.approx(2)
    words = sentence(abci, "gradients", ((16, 4),), 64, line)
    assert words == "gradients: 4 groups leave each node over 2 ports: φ = 2"
    racks = lines(abci, "allreduce", ((32, 136),), 4352, "ring")[-1]
    assert racks.phi > 5
    assert racks.full[0] == "rack uplinks"
    leaders = np.arange(0, 64, 4)
    lead = Contention(topology.network_of(abci, 64), leaders, np.roll(leaders, -1), np.ones(16))
    assert lead.phi == pytest.approx(np.ones(16))


@pytest.mark.parametrize(("name", "devices", "op", "pattern", "algorithm", "want"), [
    # a packed ring has every uplink for itself and fills it: shared by nobody's harm
    ("abci", 64, "allreduce", ((64, 1),), "ring",
     "x: no flow slows another; the node uplinks set the pace (φ = 1)"),
    ("abci", 64, "alltoall", ((64, 1),), "nccl",
     "x: 4 members of one group leave each node over 2 ports: φ = 1.9"),
    ("abci", 256, "alltoall", ((64, 4),), "nccl",
     "x: 4 groups leave each rack over 24 ports: φ = 3.24"),
    ("abci", 4352, "alltoall", ((1088, 4),), "nccl",
     "x: 4 groups enter each rack over 24 ports: φ = 5.82"),
    ("gpu-server", 8, "allreduce", ((2, 4),), "ring",
     "x: 4 groups leave each socket over 1 port: φ = 4"),
    ("frontera", 96, "alltoall", ((96, 1),), "bruck",
     "x: the device uplinks and leaf uplinks are full: φ = 1.11"),
])  # fmt: skip
def test_a_sentence_says_who_meets_where(name, devices, op, pattern, algorithm, want):
    machine = catalogue.system(name)
    line = lines(machine, op, pattern, devices, algorithm)[0]
    assert sentence(machine, "x", pattern, devices, line) == want


def test_a_sentence_never_counts_one_group_as_many_nor_denies_what_it_says():
    two = system(level("node", 4, 50e9, 2e-6), level("all", 64, B, 5e-6, ports=2))
    for pattern in (((16, 1),), ((16, 4),), ((4, 16),), ((2, 1),), ((1, 1),)):
        for op in ("allreduce", "alltoall", "sendrecv"):
            for line in (*lines(two, op, pattern, 64), *alone(two, op, pattern, 64)):
                words = sentence(two, op, pattern, 64, line)
                assert " 1 groups" not in words
                assert ("no flow slows another" in words) == (line.phi < 1.005 and line.full != ())
                assert (f"φ = {line.phi:.3g}" in words) == (line.full != ()), words


def test_placement_moves_contention():
    graph = topology.nodes(4, 4, 2, 150e9, B, 4, 4)
    steps = named("allreduce", "ring").schedule(4)
    dealt = np.arange(16).reshape(-1, 4).T.ravel()  # consecutive ranks on consecutive nodes
    places = (dealt, np.arange(16), None)
    spread, inside, unplaced = (
        schedule_cost(graph, RankGroups(((4, 1),), 16, place), steps) for place in places
    )
    assert spread.phi == pytest.approx(2)
    assert inside.per_byte < spread.per_byte / 10
    assert inside.per_byte == pytest.approx(unplaced.per_byte)
    # a mesh data 4 × filter 4, dealt so that data is innermost
    data = schedule_cost(graph, RankGroups(((4, 4),), 16, dealt), steps)
    assert data.per_byte == pytest.approx(inside.per_byte)


def test_ideal_is_the_published_table():
    """ParaDL's ring with the α and β of the lowest level that spans the group."""
    two = system(level("node", 4, 50e9, 2e-6), level("all", 64, B, 5e-6, ports=1))
    (inside,) = alone(two, "allreduce", ((4, 1),), 64)
    assert (inside.start, inside.per_byte) == pytest.approx((2 * 3 * 2e-6, 2 * 3 / 4 / 50e9))
    (across,) = alone(two, "allgather", ((16, 4),), 64)
    assert (across.start, across.per_byte) == pytest.approx((15 * 5e-6, 15 / 16 / B))
    (hop,) = alone(two, "sendrecv", ((16, 4),), 64)
    assert (hop.start, hop.per_byte, hop.phi) == pytest.approx((5e-6, 1 / B, 1))
    assert alone(two, "allreduce", ((1, 1),), 64)[0].per_byte == 0


def test_contended_is_never_faster_than_the_same_alone():
    two = system(level("node", 4, 50e9, 2e-6), level("all", 64, B, 5e-6, ports=2))
    for pattern in (((16, 4),), ((8, 8),), ((4, 1),), ((64, 1),)):
        (ideal,) = alone(two, "allreduce", pattern, 64)
        (ring,) = lines(two, "allreduce", pattern, 64, "ring")
        assert ring.per_byte >= ideal.per_byte * (1 - 1e-9)
        assert ring.phi >= 1


def test_prices_come_from_the_datasheet_unless_a_library_is_known():
    two = system(level("node", 4), level("all", 64, ports=2))
    offer = lines(two, "allreduce", ((16, 1),), 64)
    assert {line.origin for line in offer} == {"datasheet"}
    assert {line.algorithm for line in offer} == {by.name for by in menu("allreduce", 16, 4)}
    with_nccl = replace(two, device=replace(DEVICE, library="nccl"))
    served = lines(with_nccl, "allreduce", ((16, 1),), 64)
    assert {line.origin for line in served} == {"assumed"}
    assert {line.algorithm for line in served} == {
        f"{name}/{p}" for name in ("rings", "double_tree") for p in ("LL", "LL128", "Simple")
    }
    assert lines(with_nccl, "allreduce", ((16, 1),), 64) is served


@pytest.mark.parametrize("name", ["abci", "summit", "gpu-server", "ethernet-pair", "dgx-a100"])
@pytest.mark.parametrize(("field", "factors"), [
    ("latency", (0.01, 0.3, 0.5, 0.9, 1.0, 1.1, 1.4, 2, 8)),
    ("bandwidth", (50, 2, 1.1, 1.0, 0.9, 0.5, 0.01)),
])  # fmt: skip
def test_a_slower_link_is_the_same_kind_of_link_and_never_faster(name, field, factors):
    """The kind is declared: halving a latency never turns a bus into an NVLink."""
    machine = catalogue.system(name)
    pattern, devices = ((min(machine.devices, 16), 1),), min(machine.devices, 16)
    for depth in range(len(machine.levels)):
        before = None
        for factor in factors:
            levels = list(machine.levels)
            value = getattr(levels[depth], field) * factor
            levels[depth] = replace(levels[depth], **{field: value})
            changed = replace(machine, levels=tuple(levels))
            assert [a.link for a in changed.levels] == [a.link for a in machine.levels]
            for op in ("allreduce", "alltoall", "sendrecv"):
                now = lines(changed, op, pattern, devices, "nccl")
                seconds = np.array([line.start + line.per_byte * m for line in now
                                    for m in (8, 1e4, 1e8)])  # fmt: skip
                if before is not None and op in before:
                    assert (seconds >= before[op] * (1 - 1e-12)).all(), (depth, factor, op)
                before = {**(before or {}), op: seconds}


def test_links_follow_the_kind_where_the_file_is_silent():
    def links(*levels):
        return [level.link for level in system(*levels).levels]

    assert links(level("node", 4), level("all", 64)) == ["nvlink", "network"]
    assert links(level("node", 4, kind="mesh"), level("box", 8, kind="pcie"),
                 level("all", 64, kind="rail")) == ["nvlink", "pcie", "network"]  # fmt: skip
    assert links(level("all", 64, kind="torus")) == ["network"]
    assert links(level("leaf", 8, link="network"), level("all", 64, kind="mesh")) == ["network"] * 2
    two = system(level("socket", 3), level("node", 6, link="pcie"), level("all", 24))
    assert (two.inside, two.node) == (2, 6)
    assert two.levels[1].link == "pcie"


def test_a_name_is_for_a_whole_plan():
    two = system(level("node", 4), level("all", 64, ports=2))
    offer = lines(two, "allreduce", ((16, 1),), 64)
    for alias, name in (("tree", "double_tree"), ("hd", "halving_doubling"), ("ring", "ring")):
        (line,) = lines(two, "allreduce", ((16, 1),), 64, alias)
        assert line.algorithm == name
        assert line in offer or line.algorithm == name
    assert lines(two, "allreduce", ((16, 1),), 64, "best") == offer
    # an operation without it, and ranks it does not fit, take what is on offer
    assert lines(two, "sendrecv", ((16, 1),), 64, "hd") == lines(two, "sendrecv", ((16, 1),), 64)
    six = lines(two, "allgather", ((6, 1),), 6, "recursive_doubling")
    assert {line.algorithm for line in six} == {by.name for by in menu("allgather", 6, 2)}
    with pytest.raises(ValueError, match=r"no algorithm is called 'rign'; known: best, nccl"):
        lines(two, "allreduce", ((16, 1),), 64, "rign")
    with_nccl = replace(two, device=replace(DEVICE, library="nccl"), collectives=(entry(),))
    assert {x.origin for x in lines(with_nccl, "allreduce", ((16, 1),), 64)} == {"fitted"}
    assert {x.origin for x in lines(with_nccl, "allreduce", ((16, 1),), 64, "nccl")} == {"assumed"}


def entry(**more):
    fields = {"op": "allreduce", "level": "all", "algorithm": "ring", "bandwidth": 20e9,
              "source": "made up", "base": 10e-6, "latency": 4e-6, "ranks": (8, 64),
              "uncertainty": {"bandwidth": 0.04}}  # fmt: skip
    return Calibrated(**(fields | more))


def test_what_was_measured_is_given_back_and_contention_comes_on_top():
    two = system(level("node", 4, 50e9), level("all", 64, ports=2), collectives=(entry(),))
    (packed,) = lines(two, "allreduce", ((16, 1),), 16)
    assert packed.origin == "fitted"
    assert packed.start == pytest.approx(10e-6 + 2 * 15 * 4e-6)
    assert packed.per_byte == pytest.approx(2 * 15 / 16 / 20e9)
    assert packed.uncertainty == pytest.approx(0.04)
    # 16 rings leave the four ports of … each node holds four rings on its two ports, where the
    # packed ring, dealt over both ports, was measured with half a ring's bytes on each
    (strided,) = lines(two, "allreduce", ((16, 4),), 64)
    assert strided.phi == pytest.approx(2)
    assert strided.per_byte == pytest.approx(4 * packed.per_byte)
    # nothing measured inside a node: the datasheet speaks there
    assert {line.origin for line in lines(two, "allreduce", ((4, 1),), 64)} == {"datasheet"}


def test_two_ranks_measured_between_nodes_were_not_on_one_node():
    sent = entry(op="sendrecv", algorithm="direct", bandwidth=11e9, ranks=(2, 2), base=0.0)
    levels = level("node", 4, 50e9), level("all", 64, 12.5e9, ports=2)
    (line,) = lines(system(*levels, collectives=(sent,)), "sendrecv", ((2, 4),), 8)
    assert line.phi == pytest.approx(2)  # four senders to two ports
    assert line.per_byte == pytest.approx(2 / 11e9)


def test_a_latency_that_was_measured_as_none_stays_none():
    free = entry(op="sendrecv", algorithm="direct", bandwidth=11e9, ranks=(2, 2), base=1e-6,
                 latency=0.0)  # fmt: skip
    levels = level("node", 4, 50e9, latency=0.0), level("all", 64, 12.5e9, ports=2, latency=0.0)
    (line,) = lines(system(*levels, collectives=(free,)), "sendrecv", ((2, 4),), 8)
    assert line.start == pytest.approx(1e-6)


@pytest.mark.parametrize("change", [
    {"bandwidth": 2}, {"ports": 2}, {"latency": 0.5},
])  # fmt: skip
@pytest.mark.parametrize("depth", [0, 1])
def test_calibrated_lines_of_a_better_machine_are_never_slower(change, depth):
    """What was measured goes with the links: never slower, and by as much as they all are."""
    sent = entry(op="sendrecv", algorithm="direct", bandwidth=11e9, ranks=(2, 2), base=0.0)
    was = system(level("node", 4, 50e9, ports=3), level("all", 64, 12.5e9, ports=2),
                 collectives=(sent, entry()))  # fmt: skip

    def better(depths):
        return tuple(
            replace(old, **{name: getattr(old, name) * by for name, by in change.items()})
            if k in depths
            else old
            for k, old in enumerate(was.levels)
        )

    one_better, all_better = (replace(was, levels=better(depths)) for depths in ({depth}, {0, 1}))
    cases = [("sendrecv", ((2, 4),), 8), ("sendrecv", ((16, 1),), 16),
             ("allreduce", ((16, 4),), 64), ("allreduce", ((8, 2),), 16)]  # fmt: skip
    for op, pattern, devices in cases:
        machines = (was, one_better, all_better)
        (old,), (new,), (all_,) = (lines(machine, op, pattern, devices) for machine in machines)
        assert new.start <= old.start * (1 + 1e-12)
        assert new.per_byte <= old.per_byte * (1 + 1e-12)
        if "bandwidth" in change:
            assert all_.per_byte == pytest.approx(old.per_byte / 2)
        if "latency" in change:
            assert all_.start == pytest.approx(old.start / 2)


def test_entries_serve_their_range_first_and_outside_it_with_more_doubt():
    near = entry(ranks=(8, 16), bandwidth=20e9)
    far = entry(ranks=(17, 64), bandwidth=10e9)
    two = system(level("node", 4, 50e9), level("all", 1024, ports=2), collectives=(near, far))
    small, large, beyond = (lines(two, "allreduce", ((p, 1),), p)[0] for p in (16, 32, 512))
    assert small.per_byte == pytest.approx(2 * 15 / 16 / 20e9)
    assert large.per_byte == pytest.approx(2 * 31 / 32 / 10e9)
    assert beyond.uncertainty > large.uncertainty
    gathered = lines(two, "allgather", ((16, 1),), 16)[0]  # a ring goes round the same way
    assert gathered.origin == "fitted"
    assert gathered.per_byte == pytest.approx(small.per_byte / 2)
    assert gathered.uncertainty > small.uncertainty
    assert {x.origin for x in lines(two, "alltoall", ((16, 1),), 16)} == {"datasheet"}


def test_circuits_win_for_big_messages_only():
    ring = system(level("fabric", 16, 1e9, 1e-6, kind="optical", shape=(10, 50)))
    offer = lines(ring, "allreduce", ((16, 1),), 16, "ring")
    dark, lit = offer
    assert lit.algorithm == "ring on circuits"
    assert lit.start == pytest.approx(dark.start + 50e-6)
    assert lit.per_byte == pytest.approx(dark.per_byte / 10)


def test_a_share_of_the_datasheet_is_all_that_messages_get():
    """What collectives were measured to get; Jean Zay's 4 GB over 4 nodes took 1.53 s."""
    calm = system(level("node", 4), level("all", 64, ports=2))
    slow = replace(calm, levels=(calm.levels[0], replace(calm.levels[1], share=0.25)))
    for op in ("allreduce", "alltoall", "sendrecv"):
        full, part = (lines(machine, op, ((16, 4),), 64)[0].per_byte for machine in (calm, slow))
        assert part == pytest.approx(4 * full)
        inner, same = (lines(machine, op, ((4, 1),), 64)[0].per_byte for machine in (calm, slow))
        assert inner == same
    zay = catalogue.system("jean-zay")
    seconds = min(x.start + x.per_byte * 4e9 for x in lines(zay, "allreduce", ((32, 1),), 32))
    assert seconds == pytest.approx(1.5312, rel=0.05)


def test_other_jobs_widen_and_never_shift():
    calm = system(level("node", 4), level("all", 64, ports=2))
    busy = replace(calm, levels=(calm.levels[0], replace(calm.levels[1], interference=(1.1, 2.5))))
    assert interference(calm, ((16, 4),), 64) == (1, 1)
    assert interference(busy, ((16, 4),), 64) == (1.1, 2.5)
    assert interference(busy, ((4, 1),), 64) == (1, 1)
    for calm_line, slow_line in zip(lines(calm, "allreduce", ((16, 4),), 64),
                          lines(busy, "allreduce", ((16, 4),), 64), strict=True):  # fmt: skip
        assert calm_line == slow_line


def test_loads_fill_the_links_that_the_line_names():
    two = system(level("node", 4, 50e9), level("all", 64, ports=2))
    for op in ("allreduce", "alltoall", "sendrecv", "allgather", "halo"):
        for pattern in (((16, 4),), ((64, 1),), ((4, 1),)):
            link_loads = loads(two, op, pattern, 64)
            assert len(link_loads.seconds) == link_loads.topology.links
            assert 0 < link_loads.seconds.max() <= link_loads.line.per_byte * (1 + 1e-9)
            assert link_loads.use.max() <= 1 + 1e-9
            assert link_loads.line.full[0] in link_loads.by_label()
    ring = loads(two, "allreduce", ((16, 4),), 64, "ring")
    mean, highest = ring.by_label()["node uplinks"]
    assert (mean, highest) == pytest.approx((1, 1))


@pytest.mark.parametrize("name", ["abci", "dgx-h100", "perlmutter", "frontera", "tpu-v3-pod"])
def test_every_operation_has_a_finite_price_everywhere(name):
    machine = catalogue.system(name)
    devices = min(machine.devices, 64)
    for op in ("allreduce", "reduce_scatter", "allgather", "broadcast", "reduce", "alltoall",
               "sendrecv", "halo"):  # fmt: skip
        for pattern in (((2, 1),), ((devices, 1),), ((devices // 4, 4),), ((4, 16), (2, 2))):
            for line in lines(machine, op, pattern, devices):
                assert 0 < line.start < 1
                assert 0 < line.per_byte < 1e-6
                assert line.phi > 0
                assert 0 <= line.uncertainty <= 1


def test_patterns_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="does not divide"):
        RankGroups(((3, 4),), 16)


@pytest.mark.parametrize(("op", "name"), [
    ("allreduce", "ring"), ("allreduce", "halving_doubling"), ("alltoall", "pairwise"),
])  # fmt: skip
def test_a_query_of_a_thousand_ranks_is_quick(op, name):
    graph = topology.fat_tree((32, 32), (1, 16), B)

    def work_of_ranks(ranks):
        groups = RankGroups(((ranks // 4, 4),), ranks)
        return lambda: schedule_cost(graph, groups, named(op, name).schedule(ranks // 4))

    assert_grows_gently(work_of_ranks, 1024)


def test_flows_wait_for_partners_alone_not_for_links_they_do_not_cross():
    """In node 0: 1 of 4 B, then of 1 B. Node 1 meanwhile: 3 B, then 1.5 B. Worked by hand."""
    network = Topology([level("node", 4, 1.0), level("system", 8, 1.0)], 8)
    groups = RankGroups.of(((8, 1),), 8)
    steps = [pairs([0], [1], 4.0), pairs([1, 4], [2, 5], [1.0, 3.0]), pairs([5], [6], 1.5)]
    assert critical_path(network, groups, steps) == pytest.approx((5.0, 5.0), rel=1e-12)
    slower = [*steps, pairs([6], [7], 2.0)]  # the chain of node 1 is now the longer one
    assert critical_path(network, groups, slower) == pytest.approx((6.5, 6.5), rel=1e-12)
    # two at once into one device: the earlier waits for nobody, the later for what is there
    meet = [pairs([0], [1], 1.0), pairs([1, 2], [3, 3], [2.0, 2.0])]
    assert critical_path(network, groups, meet) == pytest.approx((4.0, 3.0), rel=1e-12)


def test_a_network_of_many_devices_takes_little_memory():
    """Thrice as much where every link had a name of its own; networks of all sizes stayed."""
    abci, devices = catalogue.system("abci"), 100_003
    tracemalloc.start()
    link_loads = loads(abci.of_size(devices, grow=True), "allreduce", ((devices, 1),), devices)
    assert tracemalloc.get_traced_memory()[1] < 320 * devices
    tracemalloc.reset_peak()
    assert "node uplinks" in link_loads.by_label()
    assert 0 < link_loads.use.max() <= 1
    assert tracemalloc.get_traced_memory()[1] < 200 * devices
    tracemalloc.stop()
    grown = abci.of_size(500_000, grow=True)
    first = [network_of(grown, devices) for devices in range(400_000, 400_600, 68)]
    assert network_of(grown, 400_000) is not first[0]
    assert network_of(grown, 400_000) is network_of(grown, 400_000)


def test_public_names():
    assert set(contention.__all__) == {
        "Contention", "Cost", "CostLine", "Loads", "Offer", "Pattern", "RankGroups", "alone",
        "among_others", "fair_rates", "full", "interference", "lacking", "lines", "loads",
        "schedule_cost", "schedule_costs", "sentence", "slowest", "slows",
    }  # fmt: skip


def test_other_jobs_slow_what_crosses_their_level_alone():
    calm = catalogue.system("abci")
    slowed = replace(calm.levels[-1], interference=(1.3, 4.0))
    busy = replace(calm, levels=(*calm.levels[:-1], slowed))
    inside = calm.levels[-2].devices
    plans = ["serial", f"data:{min(4, inside)}", f"data:{2 * inside}"]
    before, after = (oracle.estimate("resnet50", machine, plans, 256) for machine in (calm, busy))
    assert list(after.seconds) == list(before.seconds)
    assert list(after.seconds_low) == list(before.seconds_low)
    assert list(after.seconds_high[:2]) == list(before.seconds_high[:2])
    factor = 1.3 * (4 / 1.3) ** (1.6449 / 2.3263)
    sent = sum(m["seconds"] for m in after.exchange[2])
    wider = float(after.crowded[2] - after.seconds[2])
    assert 0 < wider <= (factor - 1) * sent * (1 + 1e-9)
    assert after.seconds_high[2] > before.seconds_high[2]
    explained = anatomy(oracle.model("resnet50"), busy, plans[2], 256, after.options)
    (words,) = (note.words for note in explained.notes if note.name == "congestion")
    assert "1.3 × as long at the median, 4 × at the 99th percentile" in words
    lighter = replace(calm, levels=(*calm.levels[:-1], replace(slowed, interference=(1.0, 4.0))))
    assert oracle.estimate("resnet50", lighter, plans, 256).seconds_high[2] < after.seconds_high[2]
