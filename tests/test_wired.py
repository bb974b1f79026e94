"""Networks wired in any way: laws of every kind, graphs from files, and an exact max-min solver."""

from __future__ import annotations

import random
from collections import Counter
from itertools import product
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import oracle
from benchmarks.fabrics.shapes import OPERATIONS, compared, irregular, platforms
from benchmarks.fluid import Sent, fair, simulate
from oracle.network.collectives import named
from oracle.network.contention import Contention, RankGroups, fair_rates, schedule_cost
from oracle.network.topology import KINDS, Topology, fat_tree
from oracle.network.topology.kinds.slim_fly import generators
from oracle.network.topology.wired import Wired
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.graphs import Graph
from oracle.spec.graphs.files import lines_of, readers
from oracle.spec.graphs.graph import Unread
from oracle.spec.level import KINDS as NAMES
from oracle.spec.level import PORTLESS, Level

B = 12.5e9
DATA = Path(__file__).parent / "data" / "graphs"


def level(kind, devices, name="net", **more):
    return Level(name, devices, B, 1e-6, "made up", kind, **more)


NODE = level("switch", 4, "node", ports=8)
STAR = Graph.of(["hosts n[0-15]", *(f"n{i} leaf{i // 4}" for i in range(16)),
                 *(f"leaf{i} spine{j} 25 GB/s" for i in range(4) for j in range(2))])  # fmt: skip
# kind -> (levels, longest way in links, capacity between the halves in links of B)
SMALL = {
    "switch": ([level("switch", 8)], 2, 4),
    "pcie": ([level("switch", 4, "socket"), level("pcie", 8, ports=1)], 4, 1),
    "fat-tree": ([level("switch", 4, "leaf", ports=1), level("fat-tree", 16, ports=2)], 4, 4),
    "rail": ([NODE, level("rail", 16, ports=4)], 4, 8),
    "rail-only": ([NODE, level("rail-only", 16, ports=4)], 5, 8),
    "multi-plane": ([NODE, level("multi-plane", 32, ports=2, shape=(2,), oversubscription=2)],
                    7, 4),
    "mesh": ([level("mesh", 6)], 1, 9),
    "torus": ([level("torus", 16, shape=(4, 4))], 4, 8),
    "ring": ([level("ring", 8)], 4, 2),
    "grid": ([level("grid", 16, shape=(4, 4))], 6, None),  # its closing links are never taken
    "twisted-torus": ([level("twisted-torus", 32, shape=(4, 8))], 4, 16),
    "loop": ([level("loop", 16, shape=(16, 1))], 4, None),
    "dragonfly": ([level("dragonfly", 32, shape=(4, 4, 2))], 5, 4),
    "dragonfly+": ([level("dragonfly+", 32, shape=(4, 4, 2))], 5, 16),
    "hyperx": ([level("hyperx", 32, shape=(4, 4, 2))], 4, 16),
    "slim-fly": ([level("slim-fly", 50, shape=(2, 5, 5, 1))], 4, 25),
    "graph": ([level("graph", 16, graph=STAR)], 4, 8),
    "optical": ([level("optical", 8)], 2, 6),
}  # fmt: skip


def test_every_kind_is_named_and_tried():
    assert set(SMALL) == set(KINDS) == set(NAMES)


def pairs(net):
    every = np.arange(net.devices)
    return (ends.ravel() for ends in np.meshgrid(every, every, indexing="ij"))


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_all_pairs_are_routed_as_far_either_way(kind):
    levels, longest, _ = SMALL[kind]
    net = Topology(levels, levels[-1].devices)
    source, target = pairs(net)
    route, _, part = net.spread_route(source, target)
    hops = ((route != net.links) * part[:, None]).sum(axis=0)
    assert hops.max() == pytest.approx(longest)
    distinct = source != target
    assert (hops[distinct] > 0).all()
    assert (hops[~distinct] == 0).all()
    matrix = hops.reshape(net.devices, -1)
    assert matrix == pytest.approx(matrix.T)
    assert (net.alpha(source, target)[distinct] > 0).all()


@pytest.mark.parametrize("kind", sorted(SMALL))
def test_halves_are_joined_by_as_much_as_the_textbook_says(kind):
    """The least cut between the lower half of the devices and the upper, by networkx."""
    levels, _, want = SMALL[kind]
    net = Topology(levels, levels[-1].devices)
    graph, half = net.graph(), net.devices // 2
    for _, _, edge in graph.edges(data=True):
        edge["capacity"] = edge.pop("bandwidth") / B
    for device in range(net.devices):
        ends = ("from", f"device {device}") if device < half else (f"device {device}", "to")
        graph.add_edge(*ends)
    cut = nx.minimum_cut_value(graph, "from", "to")
    if want is not None:
        assert cut == pytest.approx(want)
    # all to all: no link of the cut can carry its share sooner
    source, target = pairs(net)
    across = ((source < half) & (target >= half)).sum()
    route, _, part = net.spread_route(source, target)
    load = np.bincount(route.ravel(), np.tile(part[:, None], len(source)).ravel(), net.links + 1)
    busiest = (load * net.seconds_per_byte * B).max()
    assert busiest >= across / cut * (1 - 1e-9)


@pytest.mark.parametrize("routing", ["minimal", "d-mod-k", "ecmp", "adaptive"])
@pytest.mark.parametrize("kind", ["hyperx", "slim-fly", "dragonfly+", "twisted-torus", "graph"])
def test_ways_are_shortest_and_lead_from_end_to_end(kind, routing):
    ((net_level,), _, _) = SMALL[kind]
    fields = {f: getattr(net_level, f) for f in net_level.__slots__} | {"routing": routing}
    net = Topology([Level(**fields)], net_level.devices)
    fabric = net.fabrics[0]
    graph = nx.Graph((a, b) for a, b in net.ends if a != b)
    source, target = pairs(net)
    route = net.route(source, target)
    port, ways = 2 * bool(fabric.port_links), fabric.spread
    for flow, (a, b) in enumerate(zip(source.tolist(), target.tolist(), strict=True)):
        if a >= b or (a + b) % 3:
            continue
        columns = route[:, flow]
        for way in np.array_split(columns[port:], ways):
            links = [int(k) for k in (*columns[:port], *way) if k < net.links]
            ends = Counter(end for link in links for end in net.ends[link])
            odd = {end for end, count in ends.items() if count % 2}
            assert odd == {f"device {a}", f"device {b}"}
            assert len(links) == nx.shortest_path_length(graph, f"device {a}", f"device {b}")


@pytest.mark.parametrize("kind", ["hyperx", "slim-fly", "dragonfly+", "twisted-torus"])
def test_valiant_takes_a_detour_and_arrives(kind):
    ((net_level,), _, _) = SMALL[kind]
    fields = {f: getattr(net_level, f) for f in net_level.__slots__} | {"routing": "valiant"}
    net = Topology([Level(**fields)], net_level.devices)
    source, target = pairs(net)
    route = net.route(source, target)
    for flow in range(0, len(source), 7):
        links = [int(k) for k in route[:, flow] if k < net.links]
        visits = Counter(end for link in links for end in net.ends[link])
        odd = {end for end, count in visits.items() if count % 2}
        ends = {f"device {source[flow]}", f"device {target[flow]}"}
        assert odd == (ends if source[flow] != target[flow] else set())


def test_even_spreading_by_an_independent_count():
    """Each hop splits evenly among the neighbours that are nearer, by networkx alone."""
    net_level = level("graph", 16, graph=STAR, routing="adaptive")
    net = Topology([net_level], 16)
    source, target = pairs(net)
    route, _, part = net.spread_route(source, target)
    have = np.zeros(net.links + 1)
    np.add.at(have, route.ravel(), np.broadcast_to(part[:, None], route.shape).ravel())
    have = have[:-1]
    graph = nx.Graph()
    for a, b, _ in STAR.links:
        graph.add_edge((*STAR.hosts, *STAR.switches)[a], (*STAR.hosts, *STAR.switches)[b])
    want = Counter()
    for b in STAR.hosts:
        left = nx.single_source_shortest_path_length(graph, b)
        for a in STAR.hosts:
            flow = {a: 1.0}
            for hop in range(left[a], 0, -1):
                for vertex in [v for v in flow if left[v] == hop]:
                    onward = [v for v in graph[vertex] if left[v] == hop - 1]
                    for v in onward:
                        want[vertex, v] += flow[vertex] / len(onward)
                        flow[v] = flow.get(v, 0.0) + flow[vertex] / len(onward)
                    del flow[vertex]
    assert sorted(have[have > 0].tolist()) == pytest.approx(sorted(want.values()))


def test_a_graph_of_a_fat_tree_is_the_fat_tree():
    """Static routes by the target's number, link by link as heavy."""
    tree = fat_tree((4, 4), (1, 2), B)
    lines = ["hosts n[0-15]", *(f"n{i} leaf{i // 4}" for i in range(16)),
             *(f"leaf{i} spine{j}" for i in range(4) for j in range(2))]  # fmt: skip
    graph = Topology([level("graph", 16, graph=Graph.of(lines), routing="d-mod-k")], 16)
    for op, name in OPERATIONS[:3]:
        for pattern in (((16, 1),), ((4, 4),), ((8, 2),)):
            groups = RankGroups(pattern, 16)
            graph_cost, tree_cost = (schedule_cost(net, groups, named(op, name).schedule(groups.p))
                          for net in (tree, graph))  # fmt: skip
            assert graph_cost.per_byte == pytest.approx(tree_cost.per_byte)


@pytest.mark.parametrize("q", [3, 5, 7, 11])
def test_slim_fly_has_diameter_two_and_the_degree_of_its_paper(q):
    net_level = level("slim-fly", 2 * q * q, shape=(2, q, q, 1))
    fabric = Topology([net_level], 2 * q * q).fabrics[0]
    graph = nx.Graph((a, b) for a, b, _, _ in fabric.wiring.trunks)
    assert graph.number_of_nodes() == 2 * q * q
    delta = 1 if q % 4 == 1 else -1
    assert {degree for _, degree in graph.degree()} == {(3 * q - delta) // 2}
    assert nx.diameter(graph) == 2
    for steps in generators(q):
        assert {-step % q for step in steps} == steps


def test_a_twist_shortens_ways_and_widens_the_middle():
    """4 x 8 of [camara2010]: farthest 4 hops for 6, all alike in both dimensions."""
    plain, twisted = (Topology([level(kind, 32, shape=(4, 8))], 32)
                      for kind in ("torus", "twisted-torus"))  # fmt: skip
    graphs = [nx.Graph((a, b) for a, b in net.ends) for net in (plain, twisted)]
    assert [nx.diameter(graph) for graph in graphs] == [6, 4]
    lengths = nx.single_source_shortest_path_length(graphs[1], "device 0")
    assert Counter(lengths.values()) == {0: 1, 1: 4, 2: 8, 3: 12, 4: 7}


def test_rails_that_never_meet_change_over_inside():
    net = Topology([NODE, level("rail-only", 16, "rails", ports=4)], 16)
    labels = np.array([*net.labels, ""])
    same_rail, other_rail = (labels[net.route(np.array([1]), np.array([d]))[:, 0]] for d in (5, 6))
    assert "rails forwarding" not in same_rail
    assert "rails forwarding" in other_rail
    # all of a node to one device of another: one port carries it, and its rail
    route = net.route(np.arange(4), np.full(4, 6))
    assert np.bincount(route.ravel(), minlength=net.links + 1)[:-1].max() == 4


def test_planes_share_no_link():
    levels = [NODE, level("multi-plane", 64, "planes", ports=4, shape=(4,))]
    net = Topology(levels, 64)
    used = [set(net.route(np.arange(place, 64, 4)[:, None], np.arange(place, 64, 4)[None])
                .ravel().tolist()) - {net.links} for place in range(4)]  # fmt: skip
    for a, b in product(range(4), repeat=2):
        assert a == b or not used[a] & used[b]


# an exact max-min solver


def test_fair_rates_agree_with_a_solver_of_its_own():
    dice = np.random.default_rng(3)
    for _ in range(40):
        links, flows = int(dice.integers(2, 9)), int(dice.integers(1, 12))
        capacity = dice.choice([1.0, 2.0, 5.0], links)
        route = np.stack([dice.permutation(links)[:2] for _ in range(flows)], axis=1)
        uses = np.zeros((links, flows))
        uses[route, np.arange(flows)] = 1.0
        want = fair(capacity, uses)
        assert fair_rates(np.array([*capacity, np.inf]), route) == pytest.approx(want)
        half = np.array([0.5, 0.5])
        spread = fair(capacity, uses / 2)
        assert fair_rates(np.array([*capacity, np.inf]), route, half) == pytest.approx(spread)


def test_a_simulation_by_hand():
    """Two messages share a link of 1 B/s until one is through; then one waits its turn."""
    first, second = Sent(0, 1, 1.0, {0: 1.0}), Sent(2, 3, 3.0, {0: 1.0})
    assert simulate(np.array([1.0]), [[first, second]]) == pytest.approx(4.0)
    after = Sent(1, 4, 2.0, {1: 1.0})
    assert simulate(np.array([1.0, 1.0]), [[first, second], [after]]) == pytest.approx(4.0)
    assert simulate(np.array([1.0, 1.0]), [[first], [after]], alpha=0.5) == pytest.approx(4.0)


@pytest.mark.parametrize(("name", "levels"), [
    (name, levels) for name, levels in platforms() if name in (
        "rail only", "dragonfly+", "twisted torus 4 x 8")
], ids=lambda value: value if isinstance(value, str) else "")  # fmt: skip
def test_steps_agree_with_an_exact_simulation(name, levels):
    for operation, groups, error in compared(levels, quick=True):
        assert abs(error) < 0.01, (operation, groups)


def test_one_step_is_as_long_as_its_fullest_link_on_any_graph():
    dice = np.random.default_rng(5)
    for seed in range(3):
        for routing in (None, "adaptive"):
            net_level = level("graph", 24, graph=irregular(24, seed), routing=routing)
            net = Topology([net_level], 24)
            ranks = np.arange(24)
            contention = Contention(net, ranks, dice.permutation(24), np.full(24, 1e6))
            alpha = net.alpha(contention.source, contention.target).max(initial=0.0)
            real = contention.seconds() - float(alpha)
            route, _, part = net.spread_route(contention.source, contention.target)
            load = np.bincount(route.ravel(), np.repeat(part, 24), net.links + 1)
            assert real == pytest.approx((load * net.seconds_per_byte).max() * 1e6)


# graphs from files


WANT = {
    "cluster.edges": (8, 3, 3.125e9), "zoo.graphml": (4, 3, 1.25e9),
    "fabric.ibnetdiscover": (4, 2, 12.5e9), "topology.conf": (8, 3, B), "node.xml": (4, 8, None),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WANT))
def test_a_graph_from_a_file(name):
    text = (DATA / name).read_text()
    graph = Graph.of(lines_of(text, name))
    hosts, switches, smallest = WANT[name]
    assert (len(graph.hosts), len(graph.switches)) == (hosts, switches)
    net = Topology([level("graph", hosts, graph=graph)], hosts)
    if smallest is not None:
        assert net.capacity.min() == pytest.approx(smallest)
    source, target = pairs(net)
    assert ((net.route(source, target) < net.links).any(axis=0) == (source != target)).all()


def test_what_files_say_by_hand():
    ib = Graph.of(lines_of((DATA / "fabric.ibnetdiscover").read_text(), "x"))
    assert ib.hosts == ("node1", "node2", "node3", "node4")
    number = {name: k for k, name in enumerate((*ib.hosts, *ib.switches))}
    between = {(a, b): rate for a, b, rate in ib.links}
    a, b = sorted((number["S-0002c90300000001"], number["S-0002c90300000002"]))
    assert between.get((a, b), between.get((b, a))) == 2 * 12.5e9  # two EDR cables
    node = Graph.of(lines_of((DATA / "node.xml").read_text(), "x"))
    fast = {rate for a, b, rate in node.links if max(a, b) < 4}
    assert fast == {2 * 20e9}


def test_a_system_of_a_graph_names_its_nodes_and_prices_them(tmp_path):
    (tmp_path / "net.conf").write_text((DATA / "topology.conf").read_text())
    body = {
        "name": "mine", "source": "made up", "device": "v100-sxm2-16gb",
        "levels": [
            {"name": "node", "devices": 4, "bandwidth": "150 GB/s", "latency": "1 us",
             "source": "made up"},
            {"name": "fabric", "devices": 32, "kind": "graph", "graph": "net.conf",
             "bandwidth": "12.5 GB/s", "latency": "2 us", "source": "made up"},
        ],
    }  # fmt: skip
    import json

    path = tmp_path / "mine.json"
    path.write_text(json.dumps(body))
    system = catalogue.system(str(path))
    assert system.node_names[:2] == ("n0", "n1")
    near, far = (oracle.estimate("vgg16", str(path), "data:16", 64, nodes=nodes).seconds[0]
                 for nodes in ("n[0-3]", "n0,n4,n1,n5"))  # fmt: skip
    assert far > near
    (tmp_path / "net.conf").write_text("SwitchName=s0 Nodes=n[0-7]\n")
    assert catalogue.system(str(path)).levels[1].graph.switches == ("s0",)  # read anew
    (tmp_path / "net.conf").write_text("SwitchName=s0 Nodes=n[0-6]\n")
    with pytest.raises(SpecError, match="7 hosts for the 8 units"):
        catalogue.system(str(path))
    with pytest.raises(SpecError, match="a graph that says which"):
        system.of_size(64, grow=True)


@pytest.mark.parametrize(("text", "line", "why"), [
    ("n0 leaf0\nn1", 2, "no link"), ("a a", 1, "linked to itself"), ("a b 3 GB", 1, "GB"),
    ("a b -1 GB/s", 1, ""), ("a b x0", 1, "no times"), ("", 1, "without a link"),
    ("hosts a,b,c\na s\nb s", 3, "host `c` has no link"), ("a b\nc d", 2, "no way leads"),
    ("SwitchName=s Nodes=n[0-1]\nSwitchName=s Nodes=n2", 2, "defined twice"),
    ("SwitchName=s Nodes=n[1-", 1, "never closed"),
    ("SwitchName=s Nodes=n[0-1]\nNodeName=n0", 2, "no switch"),
    ('Switch 36 "S-1"\n[1] "H-2"[1] # x 4xEDR', 2, "does not have"),
    ('Switch 36 "S-1"\n[1] "H-2"[1] # x 4xABC\nCa 1 "H-2" # "n"', 2, "rates known"),
    ("<graphml><node id='a'/><edge source='a' target='b'/></graphml>", 1, "no node"),
    ("<graphml><node id='a'/><node id='b'/><edge source='a' target='b'>"
     "<data key='bandwidth'>10</data></edge></graphml>", 1, "nobody says what"),
    ("<graphml><!DOCTYPE x></graphml>", 1, "XML"), ("<system></system>", 1, "no <gpu>"),
    ("<other/>", 1, "no graph that anybody reads"),
])  # fmt: skip
def test_files_are_refused_with_place_and_cure(text, line, why):
    with pytest.raises(SpecError) as refused:
        lines_of(text, "file")
    (fault,) = refused.value.faults
    assert why in fault.what + fault.hint
    assert fault.place.line == line
    assert fault.hint


@pytest.mark.parametrize("name", sorted(WANT))
def test_nothing_but_a_refusal_comes_out_of_a_reader(name):
    seed, dice = (DATA / name).read_bytes(), random.Random(name)
    words = [b"[0-999999999]", b"x9999", b"\0", b"\xff", b"<!DOCTYPE a>", b"9999999999 GB/s", b'"',
             b"Nodes=", b"hosts ", b"busid=\"\"", b"\n", b"[", b"&lt;"]  # fmt: skip
    for _ in range(60):
        data = bytearray(seed)
        for _ in range(dice.randrange(1, 4)):
            begin, end = dice.randrange(len(data) + 1), dice.randrange(len(data) + 1)
            if dice.random() < 0.5:
                data[begin:begin] = dice.choice(words)
            elif dice.random() < 0.5:
                del data[begin : begin + dice.randrange(40)]
            else:
                data[begin:begin] = data[min(begin, end) : min(begin, end) + 60]
        try:
            graph = Graph.of(lines_of(bytes(data).decode(errors="replace"), name))
        except (SpecError, Unread):
            continue
        assert len(graph.hosts) > 1


def test_each_reader_knows_its_own():
    for name in WANT:
        text = (DATA / name).read_text()
        first = next(reader for reader in readers() if reader.recognises(text))
        assert first.__name__.rpartition(".")[2] == {
            "cluster.edges": "edges", "zoo.graphml": "graphml", "topology.conf": "slurm",
            "fabric.ibnetdiscover": "infiniband", "node.xml": "nccl",
        }[name]  # fmt: skip


@pytest.mark.parametrize(("fields", "why"), [
    ({"kind": "graph"}, "a graph without its links"),
    ({"kind": "switch", "graph": ["a b"]}, "has no graph"),
    ({"kind": "slim-fly", "shape": [2, 4, 4, 1]}, "is no slim-fly"),
    ({"kind": "dragonfly+"}, "without a shape"), ({"kind": "hyperx", "shape": [3, 3]}, "hold"),
    ({"kind": "hyperx", "shape": [4, 8], "routing": "telepathy"}, "no routing called"),
    ({"kind": "rail-only", "routing": "ecmp"}, "no routing called"),
    ({"kind": "graph", "graph": ["a b"], "routing": "minimal"}, "2 hosts for the 32 units"),
    ({"kind": "graph", "graph": ["a b", "c"]}, "no link"),
    ({"kind": "graph", "graph": "nowhere.edges"}, "no such file"),
    ({"kind": "multi-plane", "shape": [5]}, "do not fill leaves"),
])  # fmt: skip
def test_levels_are_refused(fields, why):
    level = {"name": "net", "devices": 32, "bandwidth": "10 GB/s", "latency": "1 us", "source": "x"}
    body = {"name": "s", "source": "x", "device": "v100-sxm2-16gb", "levels": [{**level, **fields}]}
    with pytest.raises(SpecError, match=why):
        catalogue.system(body)


def test_wired_kinds_say_how_flows_find_their_way():
    for kind in KINDS.values():
        if issubclass(kind, Wired) and kind is not Wired:
            assert kind.usual_way in ("minimal", "d-mod-k", "adaptive"), kind


@pytest.mark.parametrize("name", sorted(catalogue.shipped("systems")))
def test_every_shipped_system_says_how_its_network_routes(name):
    unsaid = [level.name for level in catalogue.system(name).levels if level.routing is None
              and level.kind not in (*PORTLESS, "switch", "pcie", "optical")]  # fmt: skip
    assert not unsaid
