"""Topologies against their definitions, typed in here a second time, link by link."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import replace
from itertools import combinations, pairwise, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle.network import topology
from oracle.network.topology import KINDS, Topology
from oracle.network.topology.rings import relay, rings
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.system import Level

B = 12.5e9


def crossed(graph, source, target):
    """(from, to) of every link on the route, in no order."""
    route = graph.route(np.array([source]), np.array([target]))[:, 0]
    return Counter(graph.ends[link] for link in route if link < graph.links)


def walk(graph, source, target):
    """Whether the links of a route, put in order, lead from source to target."""
    left, vertex = crossed(graph, source, target), f"device {source}"
    while left:
        steps = [link for link in left if link[0].split(".")[0] == vertex.split(".")[0]]
        exact = [link for link in steps if link[0] == vertex] or steps
        if not exact:
            return False
        left[exact[0]] -= 1
        left += Counter()
        vertex = exact[0][1]
    return vertex == f"device {target}"


@pytest.mark.parametrize("graph", [
    topology.crossbar(6, B), topology.fat_tree((4, 4), (1, 2), B),
    topology.fat_tree((4, 4, 4), (1, 4, 2), B), topology.torus((4, 3, 2), B),
    topology.torus((4, 3), B, kind="grid"), topology.dragonfly(5, 4, 3, B),
    topology.dragonfly(4, 4, 2, B, routing="valiant"), topology.loop(16, 2, B),
    topology.loop(32, 1, B, longest=4), topology.nodes(8, 4, 2, 150e9, B, 4, 4),
], ids=lambda graph: f"{graph.levels[-1].kind}-{graph.devices}")  # fmt: skip
def test_routes_lead_from_source_to_target(graph):
    for source, target in product(range(graph.devices), repeat=2):
        if graph.levels[-1].routing == "valiant" and source // 8 != target // 8:
            continue  # may pass a router twice, so the order is not unique
        assert walk(graph, source, target), (source, target)
    assert (graph.route(np.arange(3), np.arange(3)) == graph.links).all()
    assert (graph.alpha(np.arange(3), np.arange(3)) == 0).all()


def loads(routes):
    return Counter(link for route in routes for link in route)


def all_loads(graph, pairs):
    source, target = np.array(pairs).T
    route = graph.route(source, target)
    count = np.bincount(route.ravel(), minlength=graph.links + 1)[:-1]
    return Counter({graph.ends[k]: int(c) for k, c in enumerate(count) if c})


@pytest.mark.parametrize("extents", [(4, 4), (5, 3), (4, 3, 2), (8,)])
def test_torus_goes_by_dimensions_the_shorter_way(extents):
    n = int(np.prod(extents))
    graph = topology.torus(extents, B)
    pace = np.cumprod([1, *extents[:-1]]).tolist()
    every = []
    pairs = [(s, d) for s in range(n) for d in range(n) if s != d]
    for source, target in pairs:
        unit = source
        for extent, step in zip(extents, pace, strict=True):
            way = 1 if (target // step - unit // step) % extent <= extent // 2 else -1
            while unit // step % extent != target // step % extent:
                place = unit // step % extent
                neighbour = unit + ((place + way) % extent - place) * step
                every.append((f"device {unit}", f"device {neighbour}"))
                unit = neighbour
        assert unit == target
    want = Counter(every)
    have = all_loads(graph, pairs)
    if 2 in extents:  # both ways lead to the same neighbour there
        assert sum(have.values()) == sum(want.values())
    else:
        assert have == want


@pytest.mark.parametrize(("groups", "routers", "hosts"), [(4, 4, 4), (5, 4, 3), (9, 4, 2)])
def test_dragonfly_takes_the_one_link_between_groups(groups, routers, hosts):
    graph = topology.dragonfly(groups, routers, hosts, B)
    n = groups * routers * hosts

    def gateway(group, other_group):
        return (other_group - 1 if other_group > group else other_group) % routers

    def name(group, router):
        return f"dragonfly 0.{group * routers + router}"

    every, pairs = [], [(s, d) for s in range(n) for d in range(n) if s != d]
    for source, target in pairs:
        (gs, rs), (gd, rd) = divmod(source // hosts, routers), divmod(target // hosts, routers)
        path = [(gs, rs)]
        if gs != gd:
            path += [(gs, gateway(gs, gd)), (gd, gateway(gd, gs))]
        path.append((gd, rd))
        routers_passed = dict.fromkeys(name(*stop) for stop in path)
        stops = [f"device {source}", *routers_passed, f"device {target}"]
        every += list(pairwise(stops))
    assert all_loads(graph, pairs) == Counter(every)


@pytest.mark.parametrize(("q", "hosts", "longest"), [(4, 1, None), (4, 4, None), (5, 2, 4)])
def test_loop_goes_the_shortest_way(q, hosts, longest):
    ring = 1 << q
    graph = topology.loop(ring, hosts, B, longest=longest)
    lengths = [1 << k for k in range(q) if longest is None or 1 << k <= longest]
    distance, queue = {0: 0}, deque([0])
    while queue:
        switch = queue.popleft()
        for length, way in product(lengths, (1, -1)):
            to = (switch + way * length) % ring
            if to not in distance:
                distance[to] = distance[switch] + 1
                queue.append(to)
    for source, target in product(range(ring * hosts), repeat=2):
        if source != target:
            hops = crossed(graph, source, target).total() - 2
            assert hops == distance[(target // hosts - source // hosts) % ring]


def test_fat_tree_spine_is_the_target_modulo_the_uplinks():
    leaves, hosts, spines = 4, 6, 3
    graph = topology.fat_tree((hosts, leaves), (1, spines), B)
    for source, target in product(range(24), repeat=2):
        if source // hosts != target // hosts:
            links = crossed(graph, source, target)
            assert (f"leaf {source // hosts}", f"spine 0.{target % spines}") in links
            assert (f"spine 0.{target % spines}", f"leaf {target // hosts}") in links


def test_node_ports_belong_to_their_devices():
    graph = topology.nodes(4, 4, 2, 150e9, B, 4, 4)
    capacity = graph.capacity[graph.route(np.array([0]), np.array([4]))]
    assert capacity.min() == B
    up = [graph.route(np.array([s]), np.array([5]))[2, 0] for s in range(4)]
    assert up[0] == up[1] != up[2] == up[3]


def test_shifts_never_collide_in_a_full_fat_tree():
    graph = topology.fat_tree((8, 8), (1, 8), B)
    ranks = np.arange(64)
    for by in range(1, 64):
        route = graph.route(ranks, (ranks + by) % 64)
        assert np.bincount(route.ravel(), minlength=graph.links + 1)[:-1].max() == 1


def test_half_duplex_is_one_link_for_both_ways():
    full, half = (topology.loop(8, 1, B, duplex=duplex) for duplex in ("full", "half"))
    source, target = np.array([0, 1]), np.array([1, 0])
    assert np.bincount(full.route(source, target).ravel())[:-1].max() == 1
    assert np.bincount(half.route(source, target).ravel(), minlength=half.links + 1)[:-1].max() == 2


def level(name, devices, **more):
    return Level(name, devices, B, 1e-6, source="made up", **more)


def test_fat_tree_of_several_arities_is_as_many_levels():
    stages = level("net", 64, kind="fat-tree", shape=(4, 4, 4), oversubscription=2)
    one_level = Topology([stages], 64)
    three_levels = topology.fat_tree((4, 4, 4), (1, 2, 2), B)
    assert [stage.devices for stage in one_level.levels] == [4, 16, 64]
    source, target = np.arange(64), (np.arange(64) * 7 + 3) % 64
    assert (one_level.route(source, target) == three_levels.route(source, target)).all()


def test_adaptive_dragonfly_fills_its_links_evenly():
    shape = (4, 4, 4)
    plain, spread = (
        Topology([level("net", 64, kind="dragonfly", shape=shape, routing=routing)], 64)
        for routing in (None, "adaptive")
    )
    ranks = np.arange(64)
    worst = [
        (np.bincount(g.route(ranks, (ranks + 16) % 64).ravel(), minlength=g.links + 1)
         * g.seconds_per_byte).max()
        for g in (plain, spread)
    ]  # fmt: skip
    assert worst[0] == pytest.approx(16 / B)  # one link between two groups
    assert worst[1] == pytest.approx(16 / 3 / B)  # all three links out of the group


def test_valiant_takes_a_third_group_and_spreads():
    graph = topology.dragonfly(6, 4, 4, B, routing="valiant")
    ranks = np.arange(96)
    used = graph.route(ranks, (ranks + 16) % 96)
    labels = np.array([*graph.labels, ""])[used]
    assert ((labels == "dragonfly global links").sum(axis=0) == 2).all()
    direct = topology.dragonfly(6, 4, 4, B)
    worst = [np.bincount(g.route(ranks, (ranks + 16) % 96).ravel(), minlength=g.links + 1)[:-1]
             .max() for g in (graph, direct)]  # fmt: skip
    assert worst[0] < worst[1] == 16


def test_ecmp_is_a_fixed_hash_that_uses_every_lane():
    tree = [level("leaf", 16), level("spine", 128, kind="fat-tree", ports=4, routing="ecmp")]
    graph = Topology(tree, 128)
    source, target = (a.ravel() for a in np.meshgrid(np.arange(16), np.arange(16, 128)))
    route = graph.route(source, target)
    assert (route == graph.route(source, target)).all()
    labels = np.array([*graph.labels, ""])
    ups = route[np.isin(labels[route], ["leaf uplinks"])]
    share = np.unique(ups, return_counts=True)[1] / len(source)
    assert len(share) == 4
    assert share.min() > 0.2


def test_rails_meet_at_the_spine_only():
    levels = [
        level("node", 4, ports=8),
        level("pod", 64, kind="rail", ports=4, oversubscription=2),
    ]
    graph = Topology(levels, 64)
    same_rail, other_rail = (graph.route(np.array([1]), np.array([d]))[:, 0] for d in (5, 6))
    labels = np.array([*graph.labels, ""])
    assert not any("spine" in label for label in labels[same_rail])
    assert sum("spine" in label for label in labels[other_rail]) == 2
    full = Topology([levels[0], level("pod", 64, kind="rail", ports=4)], 64)
    assert full.tree  # at full bisection nothing fills up behind the ports
    assert not graph.tree


def test_circuits_serve_neighbours_once_they_are_set():
    levels = [level("optical", 8, kind="optical", shape=(4, 20))]
    dark, lit = (Topology(levels, 8, circuits=circuits) for circuits in (False, True))
    labels = np.array([*lit.labels, ""])
    ranks = np.arange(8)
    for by, serves in ((1, True), (-1, True), (2, False)):
        on = labels[lit.route(ranks, (ranks + by) % 8)] == "optical circuits"
        assert on.any() == serves
    assert not (labels[dark.route(ranks, (ranks + 1) % 8)] == "optical circuits").any()
    assert lit.fabrics[0].setting == pytest.approx(20e-6)
    assert lit.capacity[lit.route(ranks, (ranks + 1) % 8)].min() == 4 * B


def test_sockets_share_one_way_up():
    graph = topology.network_of(catalogue.system("gpu-server"), 8)
    route = graph.route(np.arange(4), np.arange(4, 8))
    assert np.bincount(route.ravel(), minlength=graph.links + 1)[:-1].max() == 4


@pytest.mark.parametrize("name", sorted(catalogue.shipped("systems")))
def test_every_shipped_system_has_a_network(name):
    system = catalogue.system(name)
    devices = min(system.devices, 4 * max(2, system.node))
    graph = topology.network_of(system, devices)
    ranks = np.arange(devices)
    if devices > 1:
        route = graph.route(ranks, (ranks + 1) % devices)
        assert ((route < graph.links).sum(axis=0) >= 1).all()
        assert (graph.alpha(ranks, (ranks + 1) % devices) > 0).all()
    assert topology.network_of(system, devices) is graph


def test_graph_to_look_at_is_connected():
    import networkx as nx

    for graph in (topology.network_of(catalogue.system("abci"), 272), topology.loop(16, 2, B),
                  topology.nodes(8, 4, 2, 150e9, B, 4, 4)):  # fmt: skip
        vertices = graph.graph()
        devices = [v for v in vertices if v.startswith("device ")]
        assert len(devices) >= graph.devices
        component = nx.node_connected_component(vertices.to_undirected(), "device 0")
        assert {f"device {d}" for d in range(graph.devices)} <= component


def test_faults_are_named():
    with pytest.raises(ValueError, match=r"no kind is called 'tours'.*torus"):
        Topology([level("net", 8, kind="tours")], 8)
    with pytest.raises(ValueError, match="does not hold 8 units"):
        Topology([level("net", 8, kind="torus", shape=(3, 3))], 8)
    with pytest.raises(ValueError, match="joins 8 devices, not 9"):
        Topology([level("net", 8)], 9)
    with pytest.raises(ValueError, match="a dragonfly of 8 units needs shape"):
        Topology([level("net", 8, kind="dragonfly", shape=(3, 3, 3))], 8)


def test_a_network_of_too_many_links_is_refused_before_it_is_built():
    levels = [Level("node", 8, B, 1e-6, "made up"),
              Level("system", 2**20, B, 1e-6, "made up", ports=4096)]  # fmt: skip
    with pytest.raises(SpecError, match="1,075,838,976 links below 1,048,576 devices"):
        Topology(levels, 2**20)
    assert Topology(levels, 64).links == 2 * 64 + 2 * 8 * 4096


def test_what_a_link_is_by_number_and_in_a_list():
    graph = topology.nodes(4, 4, 2, B, B, leaf=2, spines=2)
    assert [graph.label(link) for link in range(graph.links)] == graph.labels
    assert Counter(graph.labels) == {
        "device uplinks": 16, "device downlinks": 16, "node uplinks": 8, "node downlinks": 8,
        "leaf uplinks": 4, "leaf downlinks": 4,
    }  # fmt: skip


def test_all_kinds_are_found():
    assert set(KINDS) >= {"switch", "mesh", "ring", "torus", "grid", "pcie", "fat-tree",
                          "dragonfly", "loop", "rail", "optical"}  # fmt: skip


@settings(deadline=None, max_examples=30)
@given(st.data())
def test_folding_the_way_down_keeps_what_a_period_holds(data):
    """One period of a shift over a tree holds as much on its fullest link as all of it."""
    hosts = data.draw(st.sampled_from([2, 3, 4, 8]))
    leaves = data.draw(st.integers(2, 6))
    n = hosts * leaves
    spines = data.draw(st.sampled_from([k for k in range(1, 9) if n % k == 0]))
    graph = topology.fat_tree((hosts, leaves), (1, spines), B)
    by = data.draw(st.integers(1, n - 1))
    ranks, part = np.arange(n), np.arange(hosts)
    load = np.bincount(graph.route(ranks, (ranks + by) % n).ravel(), minlength=graph.links + 1)
    target = (part + by) % n
    folded = np.bincount(graph.route_and_level(part, target, target % hosts)[0].ravel(),
                         minlength=graph.links + 1)  # fmt: skip
    assert load[:-1].max() == folded[:-1].max()


# meshes whose pairs are not all joined alike, and the rings that they have room for

CUBE_MESH = catalogue.system("dgx-1-v100").levels[0]


def among(level, count):
    """Links between each two of a level's first devices."""
    links = np.zeros((level.devices, level.devices), int)
    for a, b in (map(int, wire.split("-")) for wire in level.wires):
        links[a, b] += 1
        links[b, a] += 1
    return tuple(tuple(row) for row in links[:count, :count].tolist())


def laid(links):
    """Links that a set of rings takes of each pair, one way; a relay where two have none."""
    used = np.zeros((len(links), len(links)))
    for order, weight in rings(links):
        assert sorted(order) == list(range(len(links)))
        for way in (order, order[::-1]):
            for a, b in pairwise((*way, way[0])):
                stops = (a, b) if links[a][b] else (a, relay(links, a, b), b)
                for device, neighbour in pairwise(stops):
                    used[device, neighbour] += weight / 2
    return used


def test_as_many_rings_close_among_devices_of_a_cube_mesh_as_nccl_finds():
    """Bus bandwidth that NCCL reaches there over 22.5 GB/s, which two devices get of one link."""
    for count, ring_count in zip(range(2, 9), (1, 2, 4, 2, 2, 4, 6), strict=True):
        links = among(CUBE_MESH, count)
        assert sum(weight for _, weight in rings(links)) == ring_count
        assert (laid(links) <= np.array(links)).all()


@pytest.mark.parametrize("width", [3, 4, 5, 6, 8])
@pytest.mark.parametrize("links_each", [1, 2, 4])
def test_rings_of_an_even_mesh_take_every_link(width, links_each):
    links = tuple(tuple(links_each * (a != b) for b in range(width)) for a in range(width))
    assert np.allclose(laid(links), np.array(links))


@settings(deadline=None, max_examples=40, derandomize=True)
@given(st.integers(3, 6), st.randoms(use_true_random=False))
def test_no_link_carries_more_rings_than_it_is_wide(width, random):
    links = np.zeros((width, width), int)
    for a, b in combinations(range(width), 2):
        links[a, b] = links[b, a] = random.choice((0, 1, 1, 2))
    if ((links @ links + links)[~np.eye(width, dtype=bool)] == 0).any():
        return
    links = tuple(map(tuple, links.tolist()))
    assert (laid(links) <= np.array(links)).all()
    assert sum(weight for _, weight in rings(links)) <= min(map(sum, links))


def test_messages_of_a_cube_mesh_go_by_wires():
    graph = Topology((CUBE_MESH,), 8)
    for source, target in product(range(8), repeat=2):
        used = crossed(graph, source, target)
        assert walk(graph, source, target)
        assert len(used) <= 2
    links = among(CUBE_MESH, 8)
    for (a, b), count in np.ndenumerate(np.array(links)):
        if count:
            (link,) = graph.route(np.array([a]), np.array([b]))[:, 0][:1]
            assert graph.capacity[link] == count * CUBE_MESH.bandwidth


@pytest.mark.parametrize(("wires", "complaint"), [
    (["0-1"], "do not join"), (["0-1", "0-2", "0-4"], "`0-4` is no pair"),
    (["0-1", "1-2", "2-3"], "more than one unit apart"), (["0-1", "0-2", "0-2", "0-3"], "ports"),
    (["0-1", "0-2", "up"], "`up` is no pair"), (["0-1", "0-2", "9" * 5000 + "-1"], "is no pair"),
], ids=["few", "beyond", "apart", "ports", "word", "digits"])  # fmt: skip
def test_wires_that_do_not_join_a_level_are_refused(wires, complaint):
    level = Level("node", 4, B, 1e-6, "made up", kind="mesh", ports=3, wires=tuple(wires))
    assert complaint in level.loose(1).what
    assert "pair by pair" in replace(level, devices=2**40, wires=("0-1",) * 10**6).loose(1).what
