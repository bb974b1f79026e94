"""Networks that one may buy: counts by hand, laws over all that can be built, and the answer."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from math import prod
from typing import Any

import networkx as nx
import pytest
from command_line import told

import oracle
from oracle.ask.design_network import designed, wanted
from oracle.ask.timings import timings
from oracle.network.designs import Design, Needs, Refusal, designs
from oracle.network.designs.fat_tree import three_tiers, two_tiers
from oracle.network.designs.torus import extents
from oracle.spec.level import Level


def need(nodes: int, nics: int, ports: int, devices: int = 8) -> Needs:
    return Needs(nodes, devices, nics, ports, 25e9, 4e-6)


def built(*sizes: int) -> dict[str, Design]:
    return {one.name: one for one in designs(need(*sizes)) if isinstance(one, Design)}


def refused(*sizes: int) -> dict[str, str]:
    return {one.name: one.why for one in designs(need(*sizes)) if isinstance(one, Refusal)}


def graph(one: Design) -> nx.MultiGraph:
    """Switches by number, nodes by name, every cable an edge."""
    found = nx.MultiGraph()
    found.add_nodes_from(range(one.wiring.switches))
    for node, homes in enumerate(one.wiring.home.tolist()):
        found.add_edges_from((f"node {node}", switch) for switch in homes)
    for some in one.wiring.trunks.values():
        for a, b, count in some:
            found.add_edges_from([(a, b)] * count)
    return found


# --- counts worked by hand ---------------------------------------------------------------------


@pytest.mark.parametrize("k", [4, 8, 16])
def test_a_full_fat_tree_is_as_the_textbook_counts_it(k: int) -> None:
    """k³/4 nodes, 5k²/4 switches, as many cables a tier as nodes, half of them across."""
    one = built(k**3 // 4, 1, k)["fat tree 1:1"]
    assert one.switches == 5 * k * k // 4
    assert one.wiring.cables == {"node": k**3 // 4, "group": k**3 // 4, "global": k**3 // 4}
    assert set(one.wiring.ports.tolist()) == {k}
    assert (one.wiring.diameter, one.bisection) == (4, 1.0)


def test_one_node_more_than_two_tiers_hold_takes_three() -> None:
    """36 leaves of 18 nodes and 18 spines; then pods."""
    assert built(648, 1, 36)["fat tree 1:1"].switches == 36 + 18
    assert not [*two_tiers(need(649, 1, 36), 1)]
    assert built(649, 1, 36)["fat tree 1:1"].wiring.diameter == 4
    assert not [*three_tiers(need(36**3 // 4 + 1, 1, 36), 1)]


def test_oversubscribed_leaves_by_hand() -> None:
    """48 nodes, 16 ports, 3:1: four leaves of twelve, four cables up each to one spine."""
    one = built(48, 1, 16)["fat tree 3:1"]
    assert (one.switches, one.wiring.cables) == (4 + 1, {"node": 48, "global": 16})
    assert one.bisection == pytest.approx(8 / 24)
    assert one.levels[-1].oversubscription == 3


def test_rails_by_hand() -> None:
    """32 nodes of eight ports: eight switches where one holds a rail, else eight trees."""
    one = built(32, 8, 36)["rail-only"]
    assert (one.switches, one.cables, one.wiring.diameter) == (8, 256, 0)
    assert "rail-only" in refused(128, 8, 36)
    one = built(128, 8, 36)["rail trees 1:1"]  # 8 leaves of 16 nodes and 4 spines a rail
    assert (one.switches, one.wiring.cables) == (8 * 12, {"node": 1024, "global": 1024})


def test_a_dragonfly_by_hand() -> None:
    """k = 15 is p = h = 4, a = 8: with all of its 33 groups 1,056 nodes, one cable a pair."""
    one = built(1056, 1, 15)["dragonfly"]
    assert one.levels[0].shape == (33, 8, 4, 1)
    assert one.switches == 33 * 8
    assert one.wiring.cables == {"node": 1056, "group": 33 * 8 * 7 // 2, "global": 33 * 32 // 2}
    assert (one.wiring.diameter, int(one.wiring.ports.max())) == (3, 15)


def test_a_torus_by_hand() -> None:
    """64 switches in d dimensions: 64 d trunks; half-way round each, and 2 · 64 / 4 across."""
    two, three = (built(128, 8, 36)[f"{rank}-D torus"] for rank in (2, 3))
    assert two.wiring.cables == {"node": 1024, "group": 64 * 2 * 5}
    assert three.wiring.cables == {"node": 1024, "group": 64 * 3 * 3}
    assert (two.wiring.diameter, three.wiring.diameter) == (4 + 4, 2 + 2 + 2)
    assert (two.wiring.middle, three.wiring.middle) == (2 * 8 * 5, 2 * 16 * 3)
    assert extents(64, 2) == (8, 8)
    assert extents(64, 3) == (4, 4, 4)


def test_a_loop_by_hand() -> None:
    """64 switches, lengths 1 to 32: 64 cables each of five, 32 half-way round; degree 11."""
    one = built(128, 8, 36)["loop"]
    assert one.levels[0].shape == (64, 2)
    assert one.wiring.cables == {"node": 1024, "group": 64, "global": 4 * 64 + 32}
    assert int(one.wiring.ports.max()) == 2 * 8 + 11


def test_hyperx_and_slim_fly_by_hand() -> None:
    """5 × 9 switches have 4 + 8 links; 2 · 5² of degree (3 · 5 − 1)/2 = 7, two apart."""
    grid, graph_ = built(128, 8, 36)["hyperx"], built(128, 8, 36)["slim fly"]
    assert grid.wiring.cables == {"node": 1024, "group": 9 * 10, "global": 5 * 36}
    assert graph_.wiring.cables == {"node": 1024, "group": 2 * 5 * 5, "global": 5**3}
    assert graph_.wiring.diameter == 2


# --- laws over all -------------------------------------------------------------------------------

SIZES = [(128, 8, 36), (100, 8, 64), (300, 1, 48), (37, 2, 16), (40, 4, 24), (60, 1, 12)]
EVERY = [(sizes, name) for sizes in SIZES for name in built(*sizes)]
FLOWS = sum(len(built(*sizes)) for sizes in SIZES[-3:])


@pytest.mark.parametrize(("sizes", "name"), EVERY, ids=lambda part: str(part))
def test_every_network_joins_all_nodes_within_its_ports(sizes: Any, name: str) -> None:
    one = built(*sizes)[name]
    nodes, nics, ports = sizes
    net = graph(one)
    assert nx.is_connected(net)
    assert max(net.degree(switch) for switch in range(one.wiring.switches)) <= ports
    lit = one.wiring.circuits // nodes  # ports of a node on optical switches
    assert [net.degree(f"node {node}") for node in range(nodes)] == [nics - lit] * nodes
    assert net.number_of_edges() == one.cables - one.wiring.circuits
    assert sorted(net.degree(switch) for switch in range(one.wiring.switches)) == sorted(
        one.wiring.ports.tolist()
    )


@pytest.mark.parametrize(("sizes", "name"), EVERY[-FLOWS:], ids=lambda part: str(part))
def test_hops_and_the_middle_are_those_of_the_graph(sizes: Any, name: str) -> None:
    """Hops by networkx; no cut between the halves is smaller than the smallest there is."""
    one = built(*sizes)[name]
    plain = nx.Graph(graph(one).subgraph(range(one.wiring.switches)))
    homes = {int(switch) for switch in one.wiring.home.ravel()}
    first = min(homes)
    far = nx.single_source_shortest_path_length(plain, first)
    mine = one.wiring.hops[sorted(homes).index(first)]
    assert one.wiring.diameter >= max(far[switch] for switch in homes if switch in far)
    assert max(mine) == max(far.get(switch, -1) for switch in homes)
    cut = nx.DiGraph()
    for a, b in graph(one).edges():
        for way in ((a, b), (b, a)):
            room = cut.get_edge_data(*way, {"capacity": 0})["capacity"]
            cut.add_edge(*way, capacity=room + 1)
    half, ways = -(-sizes[0] // 2), one.wiring.home.shape[1]
    for node in range(sizes[0]):
        cut.add_edge(*(("s", f"node {node}") if node < half else (f"node {node}", "t")))
    least = nx.maximum_flow_value(cut, "s", "t")
    middle = min(one.wiring.middle, half * ways)
    assert least <= middle <= 1.35 * least


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_network_is_a_sound_system(sizes: Any) -> None:
    nodes, nics, _ = sizes
    base = oracle.system("dgx-a100")
    for one in designs(replace(need(*sizes), name="unit")):
        if isinstance(one, Refusal):
            assert one.why
            continue
        for levels in one.ways:
            system = designed(base, one, levels)
            assert not [*system.check()]
            assert not [clash for level in system.levels for clash in level.check()]
            assert system.devices >= nodes * 8
            assert all(prod(level.shape) for level in levels)
        assert one.levels[0].ports in (nics, None) or one.levels[0].kind in ("torus", "optical")


@pytest.mark.parametrize(("what", "words"), [
    ((2, 72, 64), "ports"), ((16, 4, 36), "one group"), ((11664, 1, 36), "46 ports or more"),
])  # fmt: skip
def test_what_cannot_be_built_says_why(what: tuple[int, int, int], words: str) -> None:
    assert any(words in why for why in refused(*what).values())


def test_tori_hold_all_switches_and_few_more() -> None:
    for count, rank in product(range(8, 200), (2, 3)):
        found = extents(count, rank)
        assert len(found) == rank
        assert count <= prod(found) <= 1.5 * count + 4
        assert min(found) >= 2


# --- the answer ----------------------------------------------------------------------------------

PLAN = "data:64"


@pytest.fixture(scope="module")
def answer() -> Any:
    return oracle.design_network(["vgg16:2048", "resnet50:4096"], 64, 20, plan=[PLAN, PLAN])


def test_the_answer_is_the_cheapest_near_the_fastest(answer: Any) -> None:
    least = min(one.slowdown for one in answer.candidates)
    near = [one for one in answer.candidates if one.slowdown <= 1.05 * least]
    assert answer.best.price == min(one.price for one in near)
    for at, work in enumerate(answer.workloads):
        fastest = min(one.seconds[at] for one in answer.candidates)
        assert all(one.slowdown >= one.seconds[at] / fastest for one in answer.candidates)
        assert work.batch == (2048, 4096)[at]


def test_nothing_beats_what_is_marked(answer: Any) -> None:
    marked = [one for one in answer.candidates if one.unbeaten]
    assert marked
    for one, other in product(answer.candidates, repeat=2):
        worse = all(a <= b for a, b in zip(one.price, other.price, strict=True))
        if other.unbeaten and worse and one.price != other.price:
            assert one.slowdown > other.slowdown * 0.998


def test_a_network_takes_what_estimate_says_of_it(answer: Any) -> None:
    base = oracle.system("dgx-a100")
    for one in answer.candidates:
        every = [designed(base, one.design, levels) for levels in one.design.ways]
        each = [
            float(oracle.estimate("vgg16", system, PLAN, 2048, algorithm=name,
                                  reading="none").seconds[0])
            for system in every for name in (None, *one.design.algorithms)
        ]  # fmt: skip
        if one.design.optical:  # an estimate prices each message by itself; circuits are shared out
            assert one.seconds[0] <= min(each) * (1 + 1e-9)
        else:
            assert one.seconds[0] == pytest.approx(min(each), rel=1e-9)


def test_wider_networks_are_no_slower(answer: Any) -> None:
    """Of fat trees, and of tori against trees."""
    taken = {one.design.name: one.seconds[0] for one in answer.candidates}
    assert taken["fat tree 1:1"] <= taken["fat tree 2:1"] * (1 + 1e-9)
    assert taken["fat tree 2:1"] <= taken["fat tree 3:1"] * (1 + 1e-9)
    assert taken["fat tree 1:1"] <= taken["2-D torus"]


def test_prices_decide_where_they_are_said() -> None:
    def asked(**price: Any) -> Any:
        return oracle.design_network("resnet50:4096", 64, 20, plan=PLAN, within=9.0, **price)

    dear = asked(switch_price=1.0, cable_price={"node": 0, "group": 1e6, "global": 1e6})
    far = {"group", "global"}
    short = [one.design for one in dear.candidates if not one.design.wiring.cables.keys() & far]
    assert {"rail-only", "optical circuits"} <= {design.name for design in short}
    assert dear.best.cost == min(design.switches for design in short)
    free = asked(switch_price=1e6, cable_price=0.0)
    assert free.best.design.switches == min(one.design.switches for one in free.candidates)


@pytest.mark.slow
def test_plans_are_searched_and_the_same_or_each_its_own() -> None:
    best = oracle.design_network("resnet18:64", 32, 8, system="abci")
    same = oracle.design_network("resnet18:64", 32, 8, system="abci", plans="same")
    assert len({shown.plans[0] for one in same.candidates for shown in one.shown}) == 1
    for one in same.candidates:
        other = next(two for two in best.candidates if two.design.name == one.design.name)
        assert other.seconds[0] <= one.seconds[0] * (1 + 1e-9)


def test_nodes_are_as_the_system_has_them() -> None:
    need_ = wanted(oracle.system("abci"), 130, 36)
    assert (need_.nodes, need_.devices, need_.nics, need_.bandwidth) == (33, 4, 2, 12.5e9)
    need_ = wanted(oracle.system("mi300x-node"), 64, 36, nics=8, link=50e9)
    assert (need_.nodes, need_.nics, need_.bandwidth) == (8, 8, 50e9)
    level = need_.level(8, 2.0)
    assert isinstance(level, Level)
    assert level.latency == pytest.approx(4e-6 + 2 * 0.23e-6)


@pytest.mark.parametrize(("words", "said"), [
    ("--devices 8 --ports 36 --for resnet50", "one node"),
    ("--devices 64 --ports 4 --for resnet50", "more than the 4 of a switch"),
    ("--devices 64 --ports 36 --for resnet50 --system mi300x-node", "no network between nodes"),
    ("--devices 64 --ports 36 --for resnet50 --plan data:32", "32 devices, not 64"),
    ("--devices 64 --ports 36 --for resnet50,vgg16 --plan data:64", "1 plans for 2 models"),
    ("--devices 64 --ports 36 --for gpt3-175b:64 --plan data:64", "another --plan"),
    ("--devices 64 --ports 36 --for resnet50 --link fast", "--link '50 GB/s'"),
    ("--devices 64 --ports 36 --for resnet50 --cable-price node=1", "each of node, group"),
    ("--devices 64 --ports 36 --for nothing", "nothing"),
])  # fmt: skip
def test_what_is_no_question_is_refused(capsys: Any, words: str, said: str) -> None:
    code, out, err = told(capsys, "design-network", *words.split())
    assert (code, out) == (2, "")
    assert said in err


def test_the_first_line_answers(capsys: Any) -> None:
    line = ["design-network", "--devices", "64", "--ports", "20", "--for", "vgg16:2048,resnet50",
            "--plan", PLAN, "--plan", PLAN, "--switch-price", "20000"]  # fmt: skip
    code, out, _ = told(capsys, *line)
    data = json.loads(told(capsys, *line, "--json")[1])
    assert code == 0
    assert out.startswith(f"{data['best']} is cheapest within 5% of the fastest")
    assert "32 a device" in out
    rows = [row for row in out.splitlines() if row.startswith(("   ", "  >")) and "%" in row]
    assert len(rows) == len(data["networks"])
    best = data["networks"][0]
    assert best["cost"] == 20000 * best["switches"]
    assert best["cables"] == sum(best["cables_by_length"].values())


def test_plans_timed_together_take_what_each_takes_alone() -> None:
    """Whichever order their axes have, and where one of them does not fit."""
    plans = ["data:16 tensor:4", "tensor:4 data:16", "data:64,zero=1", "serial data:64",
             "pipeline:4,segments=8 data:16", "data:1 tensor:64"]  # fmt: skip
    base = oracle.system("dgx-a100")
    shown = oracle.estimate("gpt2-xl", base, plans, batch=64, any_plan=True)
    found = timings(shown.model, base, plans, 64, shown.options)
    assert [one.plan for one in found] == plans
    assert [one.seconds for one in found] == pytest.approx(shown.seconds.tolist(), rel=1e-12)
    assert [one.fits for one in found] == shown.feasible.tolist()
    assert len(set(shown.feasible.tolist())) == 2
