"""Optical circuits shared by several patterns: dealt best, set when that pays, held to packets."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest
from command_line import told
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.ask.circuits import Flow, beside, best_settings, circuits, deal, threshold
from oracle.network.contention import CostLine
from oracle.network.designs import Design, Needs
from oracle.network.designs.optical import build
from oracle.spec import catalogue
from oracle.spec.level import Level

COUNT = 3


def flow(name: str, when: str, shows: tuple[float, ...], alone: tuple[float, ...] = ()) -> Flow:
    stride = 1 + sum(map(ord, name))
    return Flow(name, "allreduce", when, ((4, stride),), 1e6, shows[0], 0.0, shows,
                alone or shows, 0.0)  # fmt: skip


@st.composite
def flows(draw: Any) -> list[Flow]:
    some = []
    for number in range(draw(st.integers(1, 3))):
        taken = sorted(draw(st.lists(st.integers(0, 50), min_size=COUNT + 1, max_size=COUNT + 1)))
        shows = tuple(map(float, reversed(taken)))
        some.append(flow("abc"[number], draw(st.sampled_from(["passes", "step"])), shows))
    return some


@settings(deadline=None, max_examples=60)
@given(flows())
def test_circuits_are_dealt_as_brute_force_deals_them(some: list[Flow]) -> None:
    dealt = deal(some, ("passes", "step"), COUNT)
    assert sum(dealt.values()) <= COUNT

    def saved(counts: Any) -> float:
        return sum(one.saved(count, False) for one, count in zip(some, counts, strict=True))

    best = max(saved(counts) for counts in product(range(COUNT + 1), repeat=len(some))
               if sum(counts) <= COUNT)  # fmt: skip
    assert saved([dealt.get(one.pattern, 0) for one in some]) == pytest.approx(best)


@settings(deadline=None, max_examples=40)
@given(flows(), st.sampled_from([0.0, 1.0, 5.0, 1000.0]))
def test_settings_never_take_longer_than_packets(some: list[Flow], setting: float) -> None:
    def saved(parts: Any) -> float:
        anew = len(parts) > 1
        return sum(one.saved(dealt.get(one.pattern, 0), anew) for names, dealt in parts
                   for one in some if one.when in names.split()) - anew * 2 * setting  # fmt: skip

    found = best_settings(some, COUNT, setting)
    assert saved(found) >= 0
    kept = best_settings(some, COUNT, 1e9)
    assert len(kept) == 1
    assert saved(found) >= saved(kept)


def test_circuits_are_set_anew_where_that_saves_more_than_it_takes() -> None:
    """Either flow saves 30 with all three circuits, 20 with two, 10 with one."""
    shows = (30.0, 20.0, 10.0, 0.0)
    some = [flow("a", "passes", shows), flow("b", "step", shows)]
    (_, once), *more = best_settings(some, COUNT, 16.0)
    assert not more
    assert sum(once.values()) == 3  # together they save 30; each by itself 60 - 2 · 16
    anew = best_settings(some, COUNT, 14.0)
    assert [names for names, _ in anew] == ["passes", "step"]
    assert [list(dealt.values()) for _, dealt in anew] == [[3], [3]]
    late = replace(some[1], alone=(60.0, 50.0, 40.0, 30.0))  # what had hidden shows then
    assert len(best_settings([some[0], late], COUNT, 14.0)) == 1


def test_the_threshold_by_hand() -> None:
    """1 us and 1 ns a byte over packets; 1 us and 0.25 ns on circuits that take 3 ms to set."""
    dark, light = CostLine("ring", 1e-6, 1e-9), CostLine("ring on circuits", 1e-6, 0.25e-9)
    assert threshold([dark], [light], 1e6, 3e-3) == pytest.approx(3e-3 / 0.75e-9)
    assert threshold([dark], [dark], 1e6, 3e-3) == inf


def test_units_of_a_group_are_put_side_by_side() -> None:
    assert beside(((16, 4),), 4) == ((16, 4),)
    assert beside(((4, 16), (4, 1)), 4) == ((4, 4), (4, 1))
    assert beside(((2, 32), (2, 8)), 8) == ((4, 8),)
    assert beside(((16, 2),), 8) == ((4, 8), (4, 2))


def ring(count: int) -> Any:
    level = Level("fabric", 16, 1e9, 1e-6, source="made up", kind="optical", shape=(count, 50))
    base = catalogue.system("abci")
    return replace(base, name="ring", levels=(level,), collectives=(), library=(),
                   calibrated_on=(), device=replace(base.device, library=""))  # fmt: skip


def test_a_ring_on_circuits_takes_its_share_of_the_time_over_packets() -> None:
    """16 devices, 553 MB of gradients: 2 · 15/16 · m over c ports of 1 GB/s."""
    model, nbytes = oracle.model("vgg16"), 138357544 * 4
    for count in (1, 2, 4):
        shown = oracle.estimate(model, ring(count), "data:16", 64, algorithm="ring",
                                software="plain", reading="none")  # fmt: skip
        found = circuits(shown)
        assert found is not None
        (sent,) = found.flows
        calls = 2 * 15 * 1e-6
        for c in range(1, count + 1):
            assert sent.alone[c] - sent.alone[0] == pytest.approx(
                2 * 15 / 16 * nbytes / 1e9 * (1 / c - 1), rel=1e-3, abs=50 * calls
            )
        assert found.of(sent) == count or sent.seconds[found.of(sent)] == sent.seconds[count]
        assert found.seconds <= found.packets


@pytest.mark.parametrize("plan", ["data:64", "data:16 pipeline:4,segments=8",
                                  "pipeline:4,segments=16 data:16"])  # fmt: skip
def test_more_circuits_are_no_slower(plan: str) -> None:
    base = catalogue.system("optical-64")
    taken = []
    for count in (1, 2, 4):
        fabric = replace(base.levels[-1], shape=(count, 25000))
        system = replace(base, levels=(base.levels[0], fabric))
        found = circuits(oracle.estimate("vgg16", system, plan, 2048, reading="none"))
        assert found is not None
        assert all(sum(dealt.values()) <= count for _, dealt in found.dealt)
        assert found.seconds <= found.packets * (1 + 1e-9)
        taken.append(found.seconds)
    assert taken == sorted(taken, reverse=True)


@pytest.mark.slow
def test_systems_without_circuits_say_nothing_of_them(capsys: Any) -> None:
    shown = oracle.estimate("resnet18", "abci", "data:8", 256, reading="none")
    assert circuits(shown) is None
    line = ["--plan", "pipeline:4,segments=16 data:16", "vgg16", "optical-64", "--batch", "2048"]
    code, out, _ = told(capsys, "explain", *line, "--full")
    assert code == 0
    assert "pipeline: stage borders: 2 of 4 circuits a side" in out


def test_a_design_with_circuits_by_hand() -> None:
    """128 nodes of eight ports: three circuits a side on six optical switches, two for packets."""
    (one,) = build(Needs(128, 8, 8, 36, 25e9, 4e-6))
    assert isinstance(one, Design)
    assert (one.optical, one.levels[0].shape, one.levels[0].ports) == (6, (3, 25000), 2)
    assert one.wiring.cables["node"] == 128 * 8
    assert one.switches == one.wiring.switches + 6
    assert not isinstance(next(build(Needs(129, 8, 8, 36, 25e9, 4e-6))), Design)
    assert not isinstance(next(build(Needs(16, 8, 2, 36, 25e9, 4e-6))), Design)
