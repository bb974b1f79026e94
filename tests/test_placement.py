"""Where ranks sit: names of nodes, ways to deal ranks out, what it saves, and the files for it."""

from __future__ import annotations

import ast
import json
import re
from dataclasses import replace
from itertools import product
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.ask import placing
from oracle.ask.placing import ways
from oracle.commands.cli import main
from oracle.network.collectives import named
from oracle.network.contention import RankGroups, lines, schedule_cost
from oracle.network.contention.groups import seated
from oracle.network.topology import network_of, placement, swapping
from oracle.show.placing import better
from oracle.spec import catalogue, hostlist
from oracle.spec.document import SpecError
from oracle.spec.seats import Digit, Seats

TOY = {
    "name": "toy", "title": "two leaves of two nodes", "source": "made up",
    "nodes": "a[1-2],b[1-2]", "device": "v100-sxm2-16gb",
    "levels": [
        {"name": "node", "devices": 4, "bandwidth": "100 GB/s", "latency": "1 us",
         "source": "made up"},
        {"name": "leaf", "devices": 8, "bandwidth": "10 GB/s", "latency": "2 us", "ports": 1,
         "source": "made up"},
        {"name": "spine", "devices": 16, "bandwidth": "10 GB/s", "latency": "3 us",
         "kind": "fat-tree", "oversubscription": 2, "source": "made up"},
    ],
}  # fmt: skip


def test_host_lists_are_written_out_and_folded_again():
    assert hostlist.names("rack3-[9-11],r[1-2]n[08-09],login") == (
        "rack3-9", "rack3-10", "rack3-11", "r1n08", "r1n09", "r2n08", "r2n09", "login",
    )  # fmt: skip
    for text in ("rack3-[1-16],rack7-[1-16]", "n[008-112]", "a,b,c1", "n[1-3,7,9-12]"):
        assert hostlist.folded(hostlist.names(text)) == text
    assert hostlist.names(hostlist.folded(hostlist.names("x[1-2]y[98-101]")))[-1] == "x2y101"


@pytest.mark.parametrize(("text", "why"), [
    ("n[0-999999999]", "more than 200,000"), ("n[3-1]", "backwards"), ("n[1", "never closed"),
    ("n[x]", "not a range"), ("a,,b", "empty name"), ("a b", "no name of a node"),
    ("n[1-3],n2", "`n2` is named twice"), ("n[0-1]" * 9, "more than 8 brackets"),
    ("n[0-9]" * 7, "more than 200,000"),
])  # fmt: skip
def test_host_lists_are_refused(text, why):
    with pytest.raises(ValueError, match=why):
        hostlist.names(text)


@settings(deadline=None, max_examples=80)
@given(st.text("n[]0123456789-, a", max_size=24))
def test_no_host_list_brings_anything_down(text):
    try:
        names = hostlist.names(text)
    except ValueError:
        return
    assert hostlist.names(hostlist.folded(names)) == names


def test_cyclic_is_slurms():
    """`srun --distribution=cyclic`: rank 0 on the first node, rank 1 on the second."""
    seats = Seats(digits=placement.cyclic(12, 4))
    assert seats.slot_of(np.arange(12), 12).tolist() == [0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11]
    assert placement.cyclic(12, 8) == placement.cyclic(4, 4) == ()


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_groups_of_slots_are_the_groups_of_ranks(data):
    """Each group's members, by the pattern that was moved and by the seat of each rank."""
    sizes = data.draw(st.lists(st.sampled_from([2, 3, 4, 6]), min_size=1, max_size=3))
    p = prod(sizes)
    cut = [[(axis, f) for f in factors(size)] for axis, size in enumerate(sizes)]
    parts = data.draw(st.permutations([part for axis_parts in cut for part in axis_parts]))
    seats = Seats(digits=placement.dealt(sizes, tuple(parts)))
    slots = seats.slot_of(np.arange(p), p)
    assert sorted(slots.tolist()) == [*range(p)]
    axis = data.draw(st.integers(0, len(sizes) - 1))
    pattern = ((sizes[axis], prod(sizes[axis + 1 :])),)
    moved = seats.moved(pattern, p)
    assert moved is not None
    want, have = (
        {frozenset(int(place[base + off]) for off in groups.offsets) for base in groups.bases()}
        for groups, place in ((RankGroups(pattern, p), slots), (RankGroups(moved, p), np.arange(p)))
    )
    assert want == have


def factors(size):
    return {2: [2], 3: [3], 4: [2, 2], 6: [3, 2]}[size]


@pytest.mark.parametrize("op", ["allreduce", "alltoall", "sendrecv", "allgather"])
def test_a_moved_pattern_costs_what_its_seats_cost_one_by_one(op):
    system = catalogue.system(TOY)
    for parts in ways(system, (2, 8), 16):
        seats = Seats(digits=placement.dealt((2, 8), parts))
        for pattern in (((2, 8),), ((8, 1),)):
            network, groups = seated(system.seated(seats), pattern, 16)
            listed = RankGroups(pattern, 16, seats.devices_of(np.arange(16), 16))
            net, inner = network_of(network, 16), 1
            by = named(op, {"allreduce": "ring", "allgather": "ring", "alltoall": "pairwise"}
                       .get(op, "neighbour" if op == "halo" else "direct"))  # fmt: skip
            moved_cost, listed_cost = (
                schedule_cost(net, ranks, by.schedule(ranks.p, inner)) for ranks in (groups, listed)
            )
            assert moved_cost.per_byte == pytest.approx(listed_cost.per_byte, rel=1e-12)


def test_ways_hold_every_matrix_of_degrees_by_level():
    """Two axes over nodes of 4 and 4 nodes: counted by hand, and every rank is seated once."""
    system = catalogue.system(TOY)
    shares = {tuple(degrees) for degrees in product([1, 2, 4], repeat=2) if prod(degrees) == 4}
    assert shares == {(1, 4), (2, 2), (4, 1)}
    dealt_ways = [placement.dealt((4, 4), parts) for parts in ways(system, (4, 4), 16)]
    near = {tuple(sorted((d.rank, min(d.size, 4 // d.slot)) for d in digits if d.slot < 4))
            for digits in dealt_ways}  # fmt: skip
    assert {((1, 4),), ((1, 2), (4, 2)), ((4, 4),)} == near
    for digits in dealt_ways:
        slots = Seats(digits=digits).slot_of(np.arange(16), 16)
        assert sorted(slots.tolist()) == [*range(16)]


@pytest.mark.parametrize(("fields", "want"), [
    ({"kind": "dragonfly", "shape": [2, 4, 2]}, [("net by 2", 2), ("net by 8", 4), ("net", 2)]),
    ({"kind": "hyperx", "shape": [2, 2, 4]}, [("net by 4", 4), ("net by 8", 2), ("net", 2)]),
    ({"kind": "torus", "shape": [4, 2, 2]}, [("net by 4", 4), ("net by 8", 2), ("net", 2)]),
    ({"kind": "fat-tree", "shape": [4, 4]}, [("net by 4", 4), ("net", 4)]),
    ({"kind": "loop", "shape": [8, 2]}, [("net by 2", 2), ("net", 8)]),
    ({"kind": "graph", "graph": [*(f"n{i} leaf{i // 4}" for i in range(16)),
                                 *(f"leaf{i} spine" for i in range(4))]},
     [("net by 4", 4), ("net", 4)]),
    ({"kind": "switch"}, [("net", 16)]),
])  # fmt: skip
def test_what_lies_close_inside_a_level(fields, want):
    level = {"name": "net", "devices": 16, "bandwidth": "10 GB/s", "latency": "1 us", "source": "x"}
    body = {"name": "s", "source": "x", "device": "v100-sxm2-16gb", "levels": [{**level, **fields}]}
    assert placement.widths(catalogue.system(body), 16) == want


def test_ranks_that_talk_most_are_put_into_one_node():
    estimate = oracle.estimate("resnet50", "abci", "filter:4 data:16", 1024, place="best")
    (placing,) = estimate.placed
    assert placing.words.startswith("node: filter 4")
    assert placing.seconds < placing.block / 5
    want = oracle.estimate("resnet50", "abci", "data:16 filter:4", 1024)
    assert estimate.seconds[0] == pytest.approx(want.seconds[0], rel=1e-6)


@pytest.mark.parametrize("plan", ["data:4 tensor:2,sequence=on pipeline:4,segments=8",
                                  "tensor:8 data:4", "context:2 data:16", "data:32"])  # fmt: skip
@pytest.mark.parametrize("name", ["dgx-a100", "abci", "frontier"])
def test_the_best_is_never_worse_than_ranks_in_order(name, plan):
    estimate = oracle.estimate("gpt2", name, plan, 64, place="best")
    plain = oracle.estimate("gpt2", name, plan, 64)
    assert estimate.seconds[0] <= plain.seconds[0]
    assert estimate.placed[0].block == pytest.approx(plain.seconds[0])


def test_scattered_nodes_share_the_spine_by_hand():
    """Ranks 0-7 on nodes a1 and b1: eight ways of one leaf become one way over the spine."""
    system = catalogue.system(TOY)
    near, far = (
        lines(machine, "alltoall", ((8, 1),), 8, "pairwise")[0].per_byte
        for machine in (
            system.seated(Seats(slots=tuple(range(8)))),
            system.seated(Seats(slots=(0, 1, 2, 3, 8, 9, 10, 11))),
        )
    )
    assert near == far  # one link out of a node carries it, either way
    turns = (tuple(range(16)), (*range(4), *range(8, 12), *range(4, 8), *range(12, 16)))
    seatings = (system.seated(Seats(slots=slots)) for slots in turns)
    together, scattered = (lines(machine, "alltoall", ((8, 1),), 16, "pairwise")[0].per_byte
                       for machine in seatings)  # fmt: skip
    assert scattered == pytest.approx(2 * together)  # two nodes of a leaf share its one way up


@st.composite
def assignments(draw):
    """Flows and distances of up to seven parts and nodes, and where they sit."""
    count = draw(st.integers(3, 7))
    entries = st.lists(st.integers(0, 9), min_size=count * count, max_size=count * count)
    matrices = [np.array(draw(entries), float).reshape(count, count) for _ in range(2)]
    flow, distance = (matrix + matrix.T - 2 * np.diag(np.diag(matrix)) for matrix in matrices)
    return flow, distance, np.array(draw(st.permutations(range(count))))


def cost(flow, distance, order):
    return float((flow * distance[np.ix_(order, order)]).sum()) / 2


@settings(deadline=None, max_examples=60)
@given(assignments())
def test_what_a_swap_saves_is_the_difference_of_the_costs(case):
    flow, distance, order = case
    change = swapping.savings(flow, distance, order)
    for r, s in product(range(len(order)), repeat=2):
        swapped_order = order.copy()
        swapped_order[[r, s]] = order[[s, r]]
        if r != s:
            want = cost(flow, distance, swapped_order) - cost(flow, distance, order)
            assert change[r, s] == pytest.approx(want)


@settings(deadline=None, max_examples=60)
@given(assignments())
def test_swaps_end_where_none_saves_anything(case):
    flow, distance, order = case
    final_order = swapping.swapped(flow, distance, order)
    assert sorted(final_order.tolist()) == sorted(order.tolist())
    assert cost(flow, distance, final_order) <= cost(flow, distance, order)
    assert np.triu(swapping.savings(flow, distance, final_order), 1).min() >= -1e-3


def test_pairs_are_put_into_one_leaf_by_hand():
    """Three, two and three nodes of three leaves, four pairs: one pair is apart, not two."""
    leaf = np.array([0, 0, 0, 1, 1, 2, 2, 2])
    distance = np.where(leaf[:, None] == leaf, 2.0, 4.0) * (1 - np.eye(8))
    pair = np.arange(8) // 2
    flow = (pair[:, None] == pair) * (1.0 - np.eye(8))
    leaf_of_pair = leaf[swapping.swapped(flow, distance, np.arange(8))].reshape(4, 2)
    assert (leaf_of_pair[:, 0] != leaf_of_pair[:, 1]).sum() == 1


def test_distances_are_the_links_of_the_way():
    first = np.arange(0, 16, 4)
    distance = swapping.distances(network_of(catalogue.system(TOY), 16), first)
    assert distance.tolist() == [[0, 8, 12, 12], [8, 0, 12, 12], [12, 12, 0, 8], [12, 12, 8, 0]]


def test_swapped_nodes_save_what_no_way_to_deal_axes_does(monkeypatch):
    """Two, four, six and four nodes of four of ABCI's racks, for four groups of four nodes."""
    abci = replace(catalogue.system("abci"), nodes="n[1-1088]")
    names = [34 * rack + k + 1 for rack, count in enumerate((2, 4, 6, 4)) for k in range(count)]
    nodes = ",".join(f"n{k}" for k in names)
    options = {"nodes": nodes, "place": "best", "reading": "none"}
    best = oracle.estimate("resnet50", abci, "data:4 filter:16", 256, **options).placed[0]
    monkeypatch.setattr(placing, "_swapped", lambda seats, *_: seats)
    plain = oracle.estimate("resnet50", abci, "data:4 filter:16", 256, **options).placed[0]
    assert best.seconds < 0.8 * plain.seconds
    assert plain.seconds <= best.block
    assert sorted(best.seats.slots) == sorted((k - 1) * 4 + j for k in names for j in range(4))


def test_given_nodes_are_priced_where_they_are():
    two_nodes = oracle.estimate("vgg16", TOY, "data:8", 64, nodes="a1,b1")
    assert two_nodes.system.devices == 8
    assert two_nodes.placed[0].neighbours is not None
    all_nodes = oracle.estimate("vgg16", TOY, "data:16", 64, nodes="b2,a1,b1,a2", place="best")
    assert all_nodes.seconds[0] <= all_nodes.placed[0].block
    ranking = oracle.recommend("vgg16", TOY, 8, 64, nodes="a1,b1", place="best", only=["data"])
    assert ranking.estimate.placed


@pytest.mark.parametrize(("nodes", "plan", "why"), [
    ("a1,c9", "data:8", "no node is called `c9`"), ("a1,a1", "data:8", "named twice"),
    ("a1", "data:8", "the nodes that were given have 4"), ("a[1-", "data:8", "never closed"),
    ("0,2,0", "data:8", "named twice"), ("0-9", "data:8", "no nodes 0-9 of 4"),
    ("2-1", "data:8", "no nodes 2-1"), ("0-3/0", "data:8", "no nodes 0-3/0"),
])  # fmt: skip
def test_nodes_are_refused(nodes, plan, why, tmp_path, capsys):
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(TOY))
    command = ["estimate", "vgg16", str(path), "--plan", plan, "--batch", "64", "--nodes", nodes]
    assert main(command) != 0
    assert why in capsys.readouterr().err


def test_nodes_may_be_given_by_number():
    """Of a system that names them, and of one that does not."""
    named = oracle.estimate("vgg16", TOY, "data:8", 64, nodes="b1,b2")
    every = hostlist.names(TOY["nodes"])
    first = every.index("b1")
    counted = oracle.estimate("vgg16", TOY, "data:8", 64, nodes=f"{first}-{first + 1}")
    assert counted.seconds[0] == named.seconds[0]
    assert counted.placed[0].seats.nodes == ("b1", "b2")
    scattered = oracle.estimate("vgg16", "abci", "data:16", 64, nodes="0-6/2")
    assert scattered.placed[0].nodes == "0,2,4,6"
    assert scattered.placed[0].seats.slots[:5] == (0, 1, 2, 3, 8)


def test_names_of_nodes_are_checked():
    with pytest.raises(SpecError, match="3 names for 4 nodes"):
        catalogue.system({**TOY, "nodes": "a[1-3]"})
    with pytest.raises(SpecError, match=r"nobody says what its nodes are called(.|\n)*nodes:"):
        oracle.estimate("vgg16", "abci", "data:8", 64, nodes="a1")


def test_rank_files_say_where_each_rank_sits(tmp_path, capsys):
    """Parsed back by hand: rank -> (node, place), and torchrun's number of it."""
    path = tmp_path / "toy.json"
    path.write_text(json.dumps(TOY))
    command = ["export", "rankfile", "gpt2", str(path), "--plan", "tensor:4 data:4",
               "--batch", "64", "--place", "best", "--nodes", "b1,a2,a1,b2", "--json"]  # fmt: skip
    assert main(command) == 0
    files = json.loads(capsys.readouterr().out)["files"]
    lines = re.findall(r"^rank (\d+)=(\S+) slot=(\d+)$", files["rankfile"], re.MULTILINE)
    seat = {int(rank): (node, int(slot)) for rank, node, slot in lines}
    nodes = "b1,a2,a1,b2"
    estimate = oracle.estimate("gpt2", TOY, "tensor:4 data:4", 64, nodes=nodes, place="best")
    devices = estimate.placed[0].seats.devices_of(np.arange(16), 16)
    every = hostlist.names(TOY["nodes"])
    assert seat == {r: (every[d // 4], d % 4) for r, d in enumerate(devices.tolist())}
    assert len(set(seat.values())) == 16
    tensor = [{seat[rank][0] for rank in range(column, 16, 4)} for column in range(4)]
    assert all(len(nodes) == 1 for nodes in tensor)  # the four of each group share a node
    assert files["hosts.slurm"].split() == [seat[rank][0] for rank in range(16)]
    runs = [line.split(":") for line in files["hosts.mpich"].split()]
    assert [node for node, count in runs for _ in range(int(count))] == [
        seat[rank][0] for rank in range(16)
    ]
    order = next(ast.literal_eval(node.value) for node in ast.parse(files["mesh.py"]).body
                 if isinstance(node, ast.Assign) and node.targets[0].id == "ORDER")  # fmt: skip
    first = list(dict.fromkeys(every[d // 4] for d in estimate.placed[0].seats.slots))
    torchrun = [(node, place) for node in first for place in range(4)]
    assert [torchrun[number] for number in order] == [seat[rank] for rank in range(16)]


def test_rank_files_without_names_count_the_nodes(capsys):
    command = ["export", "rankfile", "resnet50", "abci", "--plan", "filter:4 data:4",
               "--batch", "64", "--place", "cyclic"]  # fmt: skip
    assert main(command) == 0
    out, err = capsys.readouterr()
    assert "rank 1=+n1 slot=0" in out
    assert "no host files" in err


def test_it_is_said_what_a_better_placement_saves():
    estimate = oracle.estimate(
        "lenet5", TOY, "filter:4 data:2", 4096, dataset="mnist", place="best"
    )
    placement = estimate.to_dict()["plans"][0]["placement"]
    assert placement["saved"] > 0
    assert placement["seconds"] + placement["saved"] == pytest.approx(placement["seconds_block"])
    text = " ".join(better(estimate.placed[0]))
    assert "with ranks placed node: filter 4" in text
    assert "less than in order" in text
    on_nodes = oracle.estimate("vgg16", TOY, "data:8", 64, nodes="a1,b1")
    assert any("a1,b1" in line for line in better(on_nodes.placed[0]))


def test_digits_move_a_part_of_an_axis():
    """16 ranks, 8 x 2, dealt 2 + 4: the pattern of every fourth of eight, by hand."""
    seats = Seats(digits=(Digit(4, 4, 1), Digit(2, 2, 8), Digit(2, 1, 4)))
    assert seats.moved(((8, 2),), 16) == ((4, 1), (2, 8))
    assert seats.moved(((2, 1),), 16) == ((2, 4),)
    assert seats.moved(((16, 1),), 16) == ((4, 1), (4, 4))
    assert seats.moved(((4, 2),), 16) == ((2, 1), (2, 8))  # cuts a digit in two
    assert seats.moved(((8, 2),), 8) == ((8, 2),)  # of other ranks it says nothing
