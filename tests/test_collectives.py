"""Laws over every collective algorithm there is: a new file is tested the moment it exists."""

from __future__ import annotations

from inspect import signature
from pathlib import Path

import numpy as np
import pint
import pytest

from benchmarks import nccl_choice
from benchmarks.nccl_choice import NcclNetwork
from oracle.network import nccl, topology
from oracle.network.collectives import ALGORITHMS, Message, flows, menu, named
from oracle.network.collectives.sparse import filled, switched
from oracle.network.collectives.switches import InSwitch
from oracle.network.contention import RankGroups, schedule_cost
from oracle.spec.level import Level

EVERY = [by for table in ALGORITHMS.values() for by in table.values()]
RANKS = (2, 3, 4, 5, 6, 8, 12, 16, 20, 32)
ALPHA, BANDWIDTH = 1e-6, 1e9
UNITS = pint.UnitRegistry()


def cases():
    return list(_cases())


def _cases():
    for by in EVERY:
        for p in RANKS:
            inner = 4 if by.nodal and p % 4 == 0 and p > 4 else 1
            if by.fits(p, inner):
                yield pytest.param(by, p, inner, id=f"{by.op}-{by.name}-{p}-{inner}")


def counted(count, p, inner):
    return float(count(p, inner) if "q" in signature(count).parameters else count(p))


@pytest.mark.parametrize(("by", "p", "inner"), cases())
def test_closed_form_is_what_the_schedule_costs_where_no_link_is_shared(by, p, inner):
    graph = topology.crossbar(p, BANDWIDTH, ALPHA)
    cost = schedule_cost(graph, RankGroups(((p, 1),), p), by.schedule(p, inner))
    assert cost.start == pytest.approx(counted(by.steps, p, inner) * ALPHA, rel=1e-12)
    volume = counted(by.volume, p, inner)
    if by.name == "double_tree":  # the busiest rank of a small tree has fewer than four edges
        assert cost.per_byte <= volume / BANDWIDTH * (1 + 1e-12)
        assert cost.per_byte >= 1.5 / BANDWIDTH * (1 - 1e-12)
    else:
        one_of_two = 2 if by.name == "bidirectional_ring" else 1  # both ways share the one port
        assert cost.per_byte == pytest.approx(one_of_two * volume / BANDWIDTH, rel=1e-12)


def by_ranks_alone():
    """Where switches do the adding, a schedule stands for their load, not for routes."""
    return [case for case in cases() if case.values[0].name != "in_network"
            and not isinstance(case.values[0], InSwitch)]  # fmt: skip


@pytest.mark.parametrize(("by", "p", "inner"), by_ranks_alone())
def test_what_the_operation_promises_arrives(by, p, inner):
    """Follow who has heard of whom: enough news must reach everybody who is owed it."""
    heard = np.eye(p, dtype=bool)
    for source, target, share, times in flows(by.schedule(p, inner), p):
        assert ((source >= 0) & (source < p) & (target >= 0) & (target < p)).all()
        assert (source != target).all()
        assert (share >= 0).all()
        pieces = by.op in ("broadcast", "reduce") or by.name == "double_tree"
        for _ in range(int(min(times, p)) if not pieces else p):
            before = heard.copy()
            np.logical_or.at(heard, target, before[source])
    everybody = {"allreduce", "allgather", "alltoall", "reduce_scatter", "sparse_allreduce"}
    if by.op in everybody:
        assert heard.all()
    elif by.op == "broadcast":
        assert heard[:, 0].all()
    elif by.op == "reduce":
        assert heard[0].all()
    elif by.op == "sendrecv":
        assert heard[np.arange(1, p), np.arange(p - 1)].all()
    else:
        assert by.op == "halo"
        assert heard[np.arange(p - 1), np.arange(1, p)].all()
        assert heard[np.arange(1, p), np.arange(p - 1)].all()


LEAST = {  # bytes that the busiest rank cannot avoid sending or hearing, as parts of the message
    "allreduce": lambda p: (p - 1) / p,
    "allgather": lambda p: (p - 1) / p,
    "reduce_scatter": lambda p: (p - 1) / p,
    "alltoall": lambda p: (p - 1) / p,
    "broadcast": lambda p: 1.0,
    "reduce": lambda p: 1.0,
    "sendrecv": lambda p: 1.0,
    "halo": lambda p: min(p - 1.0, 2.0),
    "sparse_allreduce": lambda p: 0.0,
}


@pytest.mark.parametrize(("by", "p", "inner"), cases())
def test_no_algorithm_beats_the_lower_bound(by, p, inner):
    assert counted(by.volume, p, inner) >= LEAST[by.op](p) - 1e-12
    assert counted(by.steps, p, inner) >= 1
    assert float(by.reduced(p)) >= 0


@pytest.mark.parametrize("by", EVERY, ids=lambda by: f"{by.op}-{by.name}")
def test_sources_are_in_the_bibliography(by):
    bib = Path("oracle/citations.bib").read_text(encoding="utf-8")
    for part in by.source.split(";"):
        key = part.strip().split(",")[0].split(" ")[0]
        assert f"{{{key}," in bib, key
    assert by.__doc__


@pytest.mark.parametrize("by", EVERY, ids=lambda by: f"{by.op}-{by.name}")
def test_equations_take_physical_quantities_and_arrays(by):
    unit, p = UNITS, 16
    one = by.seconds(p, 4e6 * unit.byte, 2e-6 * unit.second, 8e-11 * unit.second / unit.byte,
                     1e-12 * unit.second / unit.byte)  # fmt: skip
    assert one.check("[time]")
    sizes = np.array([0.0, 1e3, 1e6])
    table = by.seconds(p, sizes, 2e-6, 8e-11)
    assert table == pytest.approx([by.seconds(p, m, 2e-6, 8e-11) for m in sizes])
    assert (np.diff(table) > 0).all()


def test_published_forms_typed_in():
    p, m, a, b = 64, 1e6, 1e-6, 1 / 12.5e9
    forms = {
        ("allreduce", "ring"): 2 * (p - 1) * (a + m / p * b),
        ("allreduce", "recursive_doubling"): 6 * (a + m * b),
        ("allreduce", "halving_doubling"): 12 * a + 2 * (p - 1) / p * m * b,
        ("allreduce", "rabenseifner"): 12 * a + 2 * (p - 1) / p * m * b,
        ("allreduce", "shifted_halving_doubling"): 12 * a + 2 * (p - 1) / p * m * b,
        ("allreduce", "binomial"): 12 * (a + m * b),
        ("allreduce", "parameter_server"): 2 * a + 2 * (p - 1) * m * b,
        ("broadcast", "binomial"): 6 * (a + m * b),
        ("alltoall", "pairwise"): (p - 1) * (a + m / p * b),
        ("alltoall", "scattered"): a + (p - 1) * m / p * b,
        ("alltoall", "bruck"): 6 * (a + m / 2 * b),
        ("halo", "chain"): 2 * (p - 1) * (a + m * b),
        ("halo", "published"): 2 * (a + m * b),
        ("halo", "pairwise"): 2 * (a + m * b),
    }
    for (op, name), seconds in forms.items():
        assert named(op, name).seconds(p, m, a, b) == pytest.approx(seconds, rel=1e-12), name


def test_every_algorithm_of_the_field_is_there():
    assert {"ring", "bidirectional_ring", "binomial", "double_tree", "halving_doubling",
            "shifted_halving_doubling", "rabenseifner", "parameter_server", "hierarchical",
            "leader", "in_network"} <= set(ALGORITHMS["allreduce"])  # fmt: skip
    assert {"pairwise", "bruck", "scattered", "exchange"} <= set(ALGORITHMS["alltoall"])
    assert set(ALGORITHMS) >= {"allreduce", "reduce_scatter", "allgather", "broadcast", "reduce",
                               "alltoall", "sendrecv", "halo", "sparse_allreduce"}  # fmt: skip


def test_unknown_names_are_refused_with_those_there_are():
    with pytest.raises(ValueError, match="halving_doubling"):
        named("allreduce", "rign")
    with pytest.raises(ValueError, match="allgather"):
        menu("gather", 4)


def test_menu_leaves_out_what_does_not_fit():
    names = {by.name for by in menu("allreduce", 2)}
    assert "ring" in names
    assert not names & {"double_tree", "hierarchical", "rings"}
    assert "hierarchical" in {by.name for by in menu("allreduce", 16, 4)}


def test_dense_switch_never_sends_more_than_a_dense_ring():
    for density in (1e-4, 1e-3, 1e-2, 0.3):
        for p in (4, 64, 1024):
            parts = switched(density, p, 1.0)
            assert len(parts) == 2 * (p - 1)
            assert (np.diff(parts[: p - 1]) >= 0).all()
            assert parts.max() <= 1.0
            assert parts[0] == pytest.approx(min(2 * density, 1.0))
    pairwise, ring = named("sparse_allreduce", "pairwise"), named("allreduce", "ring")
    sent = 1e-4 * 2 * pairwise.volume(np.array([8.0, 1e5]))
    dense = ring.volume(np.array([8.0, 1e5]))
    assert sent[0] < dense[0]
    assert sent[1] > dense[1]  # the bytes do not shrink with p
    assert switched(1e-4, 100_000, 1.0).mean() <= 1.0


def test_words_on_the_busiest_link_by_hand():
    """Words over n, d = 1 %: the published forms, P = 64 and 256 [li2022oktopk, Table 1]."""
    for p, topk, gtopk, least, most in ((64, 1.26, 0.24, 0.0196, 0.0591),
                                        (256, 5.1, 0.32, 0.0199, 0.0598)):  # fmt: skip
        chosen = 0.02  # of n: values and indices
        assert chosen * p * named("allgather", "ring").volume(p) == pytest.approx(topk)
        tree, split = (named("sparse_allreduce", name) for name in ("gtopk", "oktopk"))
        assert chosen * float(tree.volume(p)) == pytest.approx(gtopk)
        assert least < chosen * float(split.volume(p)) < most
        assert chosen * float(named("sparse_allreduce", "pairwise").volume(p)) == pytest.approx(
            2 * chosen * (p - 1))  # fmt: skip
        mean = float(switched(0.01, p, 1.0).mean())
        ring = float(named("sparse_allreduce", "switching").volume(p))
        # between what is left of k where all select alike, and half sparse and half dense
        assert 4 * 0.01 * (p - 1) / p < mean * ring < 2 * (p - 1) / p
    assert filled(0.01, 64) == pytest.approx(1 - 0.99**64)
    assert filled(0.01, 64, overlap=1.0) == pytest.approx(0.01)


def test_servers_and_grids_by_hand():
    one = named("allreduce", "parameter_server")
    for p in (4, 16, 64):
        assert named("allreduce", "servers:1").volume(p) == pytest.approx(one.volume(p))
        assert named("allreduce", f"servers:{p}").volume(p) == pytest.approx(2 * (p - 1) / p)
        assert named("allreduce", "servers:4").volume(p) == pytest.approx(
            2 * max((p - 1) / 4, 3 / 4))  # fmt: skip
    a, b, m = 1e-6, 1e-9, 1e6
    grid = named("allreduce", "torus2d:8")
    assert grid.seconds(32, m, a, b) == pytest.approx(
        2 * 7 * (a + m / 8 * b) + 2 * 3 * (a + m / 32 * b))  # fmt: skip
    assert named("allreduce", "torus2d").steps(64) == 28  # 8 x 8; a ring takes 126
    assert [by.name for by in named("allreduce", "torus2d").choices(12)] == [
        "torus2d:2", "torus2d:3", "torus2d:4", "torus2d:6"]  # fmt: skip
    assert not named("allreduce", "torus2d").fits(7)
    assert not grid.fits(12)
    for name in ("ring:4", "torus2d:x", "servers:0", "torus2d:"):
        with pytest.raises(ValueError, match=r"torus2d|ring"):
            named("allreduce", name)


def test_nccl_goes_from_latency_to_bandwidth_protocols():
    net = NcclNetwork(ranks=64, nodes=16, channels=2, inside=12, between=12, ll128=False)
    sizes = 4.0 * 2 ** np.arange(24)
    choice, seconds = nccl_choice.choice("allreduce", net, sizes)
    assert choice[0] == "tree/LL"
    assert choice[-1] == "ring/Simple"
    order = [list(dict.fromkeys(choice)).index(c) for c in choice]
    assert order == sorted(order)  # once left, a choice does not come back
    assert (seconds > 0).all()
    bandwidth = sizes[-1] / seconds[-1] * 2 * 63 / 64
    assert 0.6 * 24e9 < bandwidth < 24e9  # near what two channels of 12 GB/s can carry


def test_nccl_latency_by_hand():
    net = NcclNetwork(ranks=8, nodes=2, channels=2, inside=12, between=12)
    table = nccl_choice.model("allreduce", net)
    assert table["ring", "LL"][0] == pytest.approx((3.6 + 10 * 0.47 + 4 * 2.7) * 1e-6)
    assert table["tree", "LL"][0] == pytest.approx((4.4 + 2 * (3 * 0.52 + 5.0)) * 1e-6)
    assert table["ring", "Simple"][1] == pytest.approx(24e9 * 8 / 14)


def test_nccl_constants_by_hand():
    """A tree's hops are its own, and the latency of a link beyond its ring's comes on top."""
    levels = [Level("node", 8, 1e11, 2.9e-6, source="by hand", link="nvlink"),
              Level("pod", 64, 1e10, 1e-6, source="by hand", link="network")]  # fmt: skip
    base, part, hops = nccl.constants("double_tree", "LL", levels)
    assert (base, part) == pytest.approx((6.8e-6, 0.92 / 3.8))
    assert hops.tolist() == pytest.approx([1.6e-6, 5e-6, 0.0])
    base, part, hops = nccl.constants("ring", "Simple", levels, (2, 8))
    assert (base, part) == pytest.approx((8.4e-6, 1.0))
    assert hops.tolist() == pytest.approx([4.4e-6, 1.9 * 9.6e-6, 0.0])


def test_message_is_a_frozen_description():
    message = Message("gradients", "allreduce", 1e6, ("data",))
    assert (message.calls, message.hides) == (1, "")
    with pytest.raises(AttributeError):
        message.op = "reduce"
