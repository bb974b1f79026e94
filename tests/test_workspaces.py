"""Workspaces of convolutions: bytes by hand, divisions and shares against brute force, laws."""

from __future__ import annotations

import itertools
import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import oracle
from benchmarks.memories import workspaces as published
from oracle.ask.explain.workspaces import workspaces
from oracle.commands.cli import main
from oracle.kernels import conv
from oracle.kernels.algorithms import offers
from oracle.kernels.box import Box
from oracle.kernels.conv import menu
from oracle.kernels.divisions import Menu, Offer, division
from oracle.kernels.fourier import workspace
from oracle.kernels.shared_room import least, pareto
from oracle.predict.allocation import timeline
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.kernel_choice import CONVOLUTION

P100 = catalogue.device("p100-sxm2-16gb")
V100 = catalogue.device("v100-sxm2-16gb")
MIB = 2**20


def box(part: str = "forward", side: int = 3, batch: int = 4, plane: int = 8) -> Box:
    """2 channels to 3 filters."""
    numbers = batch, plane**2, 2, 3, side**2, 1, 1, side
    return Box(part, *(np.asarray(float(n)) for n in numbers), 4.0,
               high=np.asarray(float(plane)), wide=np.asarray(float(plane)))  # fmt: skip


def test_bytes_of_workspaces_by_hand() -> None:
    rooms = {each.name: float(each.room) for each in offers(V100, "fp32", box())}
    # no workspace; windows in 4×4; windows and 4·(64/16) tiles of 5 channels and filters in 6×6
    assert rooms == {"implicit": 0, "winograd": 4 * 16 * 6, "apart": 4 * 36 * (6 + 16 * 5)}
    early = {each.name: float(each.room) for each in offers(P100, "fp32", box())}
    assert early["precomputed"] == 4 * 64 * 9
    assert "winograd" not in {each.name for each in offers(V100, "fp32", box("weight"))}
    # a 5×5 window leaves 12×12 of a tile of 16×16, 28×28 of 32×32; 8 bytes of 16·9 and of 32·17
    for plane, tile, tiles in ((8, 16, 1), (13, 16, 4), (13, 32, 1), (29, 32, 4)):
        room, found = workspace(box(side=5, plane=plane), tile)
        assert (float(found), float(room)) == (
            tiles, 8 * {16: 144, 32: 544}[tile] * (6 + 4 * tiles * 5))  # fmt: skip


def test_matrix_units_take_their_tensors_turned_where_channels_come_first() -> None:
    shape = 4, 16, 32, (1, 28, 28), (1, 3, 3)
    found = menu(V100, "fp16", *shape, layout="first", queued=True)
    both = 2 * 4 * 28 * 28 * (16 + 32)
    assert {each.name: float(each.room) for each in found.whole} == {"turned": both, "implicit": 0}
    volume = menu(V100, "fp16", 1, 16, 32, (8, 8, 8), (3, 3, 3), family="conv3d", layout="first")
    assert float(volume.whole[0].room) == 2 * 8**3 * (16 + 32)
    for groups, family in ((16, "depthwise"), (2, "grouped")):
        each = menu(V100, "fp32", 4, 16, 16, (1, 8, 8), (1, 3, 3), groups=groups, family=family)
        assert [float(one.room) for one in each.whole] == [0.0]


def sums(n: int, most: int) -> list[tuple[int, ...]]:
    """All ways to write n in powers of two that are no larger than `most`."""
    if n == 0:
        return [()]
    return [(size, *rest) for size in (1, 2, 4, 8, 16) if size <= min(n, most)
            for rest in sums(n - size, size)]  # fmt: skip


def test_the_division_is_the_best_of_all() -> None:
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(1, 17))
        seconds = {(size, a): float(rng.uniform(0.1, size)) for size in range(1, 18)
                   for a in range(3)}  # fmt: skip
        each = [0.0, *rng.uniform(0.1, 2.0, 2)]  # bytes a sample

        def offered(batch: Any, times: Any = seconds, each: Any = each) -> list[Offer]:
            size = int(batch)
            return [Offer(str(a), np.asarray(times[size, a]), np.asarray(each[a] * size))
                    for a in range(3)]  # fmt: skip

        limit = float(rng.uniform(0, 12))
        fits = {size: min(seconds[size, a] for a in range(3) if each[a] * size <= limit)
                for size in range(1, 18)}  # fmt: skip
        brute = min(fits[n], *(sum(fits[size] for size in way) for way in sums(n, 16)))
        found = Menu(np.asarray(float(n)), offered, micro=True).best(limit)
        assert float(found.seconds) == pytest.approx(brute)
        assert float(found.room) <= limit
        if found.divided:
            pieces = division(n, [int(level) for level in found.levels])
            assert sum(count * size for count, size in pieces) == n
            assert sum(count * fits[size] for count, size in pieces) == pytest.approx(brute)
            assert sum(count for count, _ in pieces) == int(found.pieces)


def test_the_shared_workspace_is_dealt_out_as_well_as_can_be() -> None:
    rng = np.random.default_rng(1)
    for _ in range(25):
        kernels, counts = [], []
        for _ in range(int(rng.integers(1, 4))):
            size = int(rng.integers(1, 5))
            rooms = np.r_[0.0, rng.uniform(1, 10, size)]
            kernels.append(pareto(rooms, rng.uniform(1, 9, size + 1)))
            counts.append(int(rng.integers(1, 3)))
        total = float(rng.uniform(0, 30))
        alone = [ways for ways, count in zip(kernels, counts, strict=True) for _ in range(count)]
        brute = min(sum(way[1] for way in each) for each in itertools.product(*alone)
                    if sum(way[0] for way in each) <= total)  # fmt: skip
        rooms_of = least(tuple(kernels), tuple(counts), total)
        taken = sum(dict(ways)[room] for ways, rooms in zip(kernels, rooms_of, strict=True)
                    for room in rooms)  # fmt: skip
        assert taken == pytest.approx(brute)
        assert sum(map(sum, rooms_of)) <= total * (1 + 1e-6)
        assert tuple(map(len, rooms_of)) == tuple(counts)


def test_pareto_keeps_what_nothing_beats() -> None:
    rooms, seconds = np.array([4.0, 0.0, 2.0, 2.0, 6.0]), np.array([3.0, 5.0, 4.0, 6.0, 3.0])
    assert pareto(rooms, seconds) == ((0.0, 5.0), (2.0, 4.0), (4.0, 3.0))


LIMITS = ("0", "8MiB", "64MiB", "512MiB", "none")


@pytest.mark.parametrize("how", ["", ",micro=best", ",micro=best,shared=on"])
@pytest.mark.parametrize("network", ["alexnet", "resnet18"])
def test_more_workspace_is_never_slower(network: str, how: str) -> None:
    times = [
        float(oracle.estimate(network, "dgx-1-p100", "serial", 100, workspace=each + how)
              .seconds[0]) for each in LIMITS
    ]  # fmt: skip
    assert all(later <= before * (1 + 1e-9) for before, later in itertools.pairwise(times))
    assert times[-1] < times[0]


def test_pieces_are_never_slower_and_make_up_the_batch() -> None:
    for network, plan in (("alexnet", "data:8"), ("cosmoflow-128", "data:2"), ("unet-2d", "serial"),
                          ("resnet18", "spatial:2 data:2")):  # fmt: skip
        whole, best = (
            oracle.estimate(network, "dgx-1-p100", plan, 56, workspace="32MiB" + how)
            for how in ("", ",micro=best")
        )
        assert float(best.seconds[0]) <= float(whole.seconds[0]) * (1 + 1e-9)
        found = workspaces(best)
        micro = 56 / {"data:8": 8, "data:2": 2, "serial": 1}.get(plan, 2)
        for one in found.each:
            assert sum(piece.count * piece.samples for piece in one.pieces) == micro
            assert one.room <= 32 * MIB
            assert one.saved >= 0
        assert found.to_dict()
        assert found.saved <= float(whole.seconds[0])
    assert {one.part for one in found.each} == {"forward", "data", "weight"}


def test_one_workspace_for_all_holds_all() -> None:
    shown = oracle.estimate("alexnet", "dgx-1-p100", "serial", 256,
                            workspace="256MiB,micro=best,shared=on")  # fmt: skip
    found = workspaces(shown)
    assert 0.8 * 256 * MIB < found.most <= 256 * MIB * (1 + 1e-6)
    deep = workspaces(oracle.estimate("resnet101", "dgx-1-p100", "serial", 64,
                                      workspace="512MiB,micro=best,shared=on"))  # fmt: skip
    assert max(one.count for one in deep.each) > 20  # copies each have theirs
    assert 0.8 * 512 * MIB < deep.most <= 512 * MIB * (1 + 1e-6)
    apart = oracle.estimate("alexnet", "dgx-1-p100", "serial", 256, workspace="0")
    more = shown.memory_kinds["workspace"][0] - apart.memory_kinds["workspace"][0]
    assert more == pytest.approx(found.most)


def test_the_peak_has_the_workspace_of_the_row_at_work() -> None:
    """Of two convolutions: the second's, when it runs back, is there beside its gradients."""
    conv = {"conv": {"filters": 64, "kernel": 3, "padding": 1}}
    said = {"name": "two", "source": "here", "input": [8, 64, 64], "layers": [conv, conv, "loss"]}
    model = oracle.model(said)
    known = workspaces(oracle.estimate(model, "dgx-1-v100", "serial", 64, workspace="none"))
    most = max(one.room for one in known.each)
    free, none = (
        oracle.estimate(model, "dgx-1-v100", "serial", 64, workspace=each).memory_kinds["workspace"]
        for each in ("none", "0")
    )
    assert most > 100e6
    # and a gradient of weights beside it
    assert free[0] - none[0] == pytest.approx(most, rel=1e-3)


@pytest.mark.parametrize("case", [
    ("resnet18", "serial", 64, "none"), ("vgg16", "data:2", 64, "none"),
    ("alexnet", "serial", 256, "256MiB,micro=best,shared=on"),
    ("alexnet", "pipeline:2,segments=4", 256, "64MiB"),
])  # fmt: skip
def test_the_peak_is_that_of_the_timeline(case: tuple[str, str, int, str]) -> None:
    model, plan, batch, workspace = case
    shown = oracle.estimate(model, "dgx-1-v100", plan, batch, workspace=workspace)
    kinds = shown.memory_kinds
    peak = sum(float(kinds[kind][0]) for kind in kinds if kind != "reserve")
    assert timeline(shown).total.max() == pytest.approx(peak, rel=1e-9)


def test_what_is_said_of_a_workspace() -> None:
    assert CONVOLUTION.text is None
    for text in ("none", "64MiB,micro=best", "1GiB,shared=on", "0B", "1000B"):
        assert CONVOLUTION.said(text).text == text
    assert CONVOLUTION.said(2.0**20) == replace(CONVOLUTION, workspace=2.0**20, algorithms="all")
    for wrong in ("64 apples", "-1 MiB", "64MiB,micro=most", "inf"):
        with pytest.raises(SpecError):
            CONVOLUTION.said(wrong)


def test_a_network_without_convolutions_says_so() -> None:
    for room, said in (("64MiB", 1), (None, 0)):
        shown = oracle.estimate("gpt2", "dgx-1-p100", "data:8", 64, workspace=room)
        assert sum(one["field"] == "workspace" for one in shown.warnings) == said


def test_explain_says_what_each_layer_takes(capsys: Any) -> None:
    line = ["explain", "--plan", "serial", "alexnet", "dgx-1-p100", "--batch", "256"]
    assert main([*line, "--workspace", "64MiB,micro=best"]) == 0
    text = capsys.readouterr().out
    assert "256 = 16 × 16" in text
    assert "fourier" in text
    assert main([*line, "--workspace", "64MiB,micro=best", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["workspace"] == "64MiB,micro=best"
    assert len(data["workspaces"]) == 14  # five layers' passes, but for the samples' gradient
    assert main([*line, "--workspace"]) == 0
    assert "no limit said" in capsys.readouterr().out


def test_the_default_takes_no_transforms() -> None:
    shape = 256, 64, 192, (1, 27, 27), (1, 5, 5)
    usual, every = (conv(P100, "fp32", *shape, queued=True, every=each) for each in (False, True))
    assert float(every) < float(usual)


def test_published_speed_ups_are_met() -> None:
    figures = published.table(quick=True)["figures"]
    assert figures["networks.worst"]["value"] <= 0.2
    assert figures["deepbench.gaining_at_512"]["value"] < 0.5
    assert abs(figures["deepbench.gaining_at_128"]["value"] - 13 / 39) < 0.15
