"""Loads that are counted without listing flows are those of the flows, listed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from growth import assert_grows_gently

from benchmarks.platforms import compared
from oracle.network import topology
from oracle.network.collectives import named
from oracle.network.collectives.schedule import AllPairs, Steps, shift
from oracle.network.contention import Cost, RankGroups, schedule_cost
from oracle.network.contention.counting.asynchronous import played, swaps
from oracle.network.contention.counting.steps import step_costs
from oracle.network.topology import Topology
from oracle.spec.system import Level

B = 1e9
OTHERS = Path(__file__).parent / "data" / "simgrid_others.csv"
COLUMNS = ("by_level", "alpha", "shared", "solo")


def alike(graph: Topology, groups: RankGroups, steps: Steps) -> None:
    (folded,), (listed,) = (step_costs(graph, groups, [steps], way) for way in (True, False))
    for column in COLUMNS:
        assert getattr(folded, column) == pytest.approx(getattr(listed, column)), column


def patterns(devices: int) -> list[tuple[int, int]]:
    return [(p, stride) for p in range(2, devices + 1) for stride in range(1, devices // p + 1)
            if devices % (p * stride) == 0]  # fmt: skip


@pytest.mark.parametrize("hop", [0.0, 1e-6])
@pytest.mark.parametrize("shape", [(5,), (8,), (4, 4), (3, 4, 5), (6, 2), (8, 4, 2), (2, 2, 2, 3)],
                         ids=str)  # fmt: skip
def test_shifts_on_a_torus(shape: tuple[int, ...], hop: float) -> None:
    graph = topology.torus(shape, B, hop=hop)
    for p, stride in patterns(graph.devices):
        alike(graph, RankGroups(((p, stride),), graph.devices), shift(np.arange(1, p), 1 / p))


def nested(routing: str | None, ports: int) -> Topology:
    node = Level("node", 4, 5 * B, 1e-6, source="made", ports=1)
    return Topology([node, Level("top", 96, B, 2e-6, source="made", kind="dragonfly",
                                 shape=(4, 3, 2), routing=routing, ports=ports)], 96)  # fmt: skip


@pytest.mark.parametrize("graph", [
    topology.dragonfly(4, 4, 4, B), topology.dragonfly(5, 3, 2, B, routing="matched"),
    topology.dragonfly(3, 4, 2, B, trunk=3), nested(None, 2), nested("matched", 1),
    nested("adaptive", 2),
], ids=["plain", "matched", "trunk", "nodes", "nodes matched", "adaptive"])  # fmt: skip
def test_all_to_all_on_a_dragonfly(graph: Topology) -> None:
    for p, stride in patterns(graph.devices)[::3]:
        alike(graph, RankGroups(((p, stride),), graph.devices),
              AllPairs(np.array([1 / p]), np.array([1.0])))  # fmt: skip


def test_ways_that_come_again_are_counted_once() -> None:
    graph, groups = topology.dragonfly(4, 4, 4, B), RankGroups(((16, 4),), 64)
    again = step_costs(graph, groups, [shift([1, 2, 1, 1], [0.1, 0.2, 0.3, 0.4], [1, 2, 3, 4])])[0]
    each = [step_costs(graph, groups, [shift(by, share)])[0]
            for by, share in ((1, 0.1), (2, 0.2), (1, 0.3), (1, 0.4))]  # fmt: skip
    for column in COLUMNS[1:]:
        assert getattr(again, column) == pytest.approx([getattr(one, column)[0] for one in each])


def test_a_turn_by_hand() -> None:
    """A ring of eight turned by three: three messages over each link; by four, four one way."""
    ring = topology.torus((8,), B)
    (cost,) = step_costs(ring, RankGroups(((8, 1),), 8), [shift([3, 4, 7], 1.0)])
    assert cost.shared * B == pytest.approx([3.0, 4.0, 1.0])


def test_pairwise_among_thousands_is_quick() -> None:
    def work_of_ranks(ranks: int) -> Callable[[], Cost]:
        graph = topology.torus((16, 16, ranks // 256), B)
        groups, steps = (
            RankGroups(((ranks, 1),), ranks),
            named("alltoall", "pairwise").schedule(ranks),
        )
        return lambda: schedule_cost(graph, groups, steps)

    assert_grows_gently(work_of_ranks, 4096)
    assert work_of_ranks(4096)().per_byte * B > 4095 / 4096


@pytest.mark.slow
def test_ranks_on_emptier_links_run_ahead() -> None:
    """Swaps by XOR on loops, simulated: the sum over steps is 4.4, 3.0 and 3.6 % too long."""
    found = {(row.platform, row.layout): row.error for row in compared(OTHERS)
             if row.algorithm == "pair" and row.platform in ("flat_dln_q8h1", "flat_dln_q5h2m4")
             and row.ranks // row.groups <= 64}  # fmt: skip
    assert found
    assert all(abs(error) < 0.015 for error in found.values()), found


def test_swaps_without_contention_take_what_their_closed_form_says() -> None:
    graph, by = topology.crossbar(16, B), named("alltoall", "exchange")
    groups = RankGroups(((16, 1),), 16)
    (steps,) = by.schedule(16)
    assert swaps([steps], groups)
    assert played(graph, groups, [steps]) * B == pytest.approx(15 / 16)
    halves = topology.fat_tree((2, 2), (1, 1), B)  # two leaves of two, one way up each
    groups = RankGroups(((4, 1),), 4)
    (steps,) = by.schedule(4)
    assert played(halves, groups, [steps]) * B == pytest.approx(1 / 4 + 2 * 2 / 4)
