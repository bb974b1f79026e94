"""Every predicted number says where it comes from, and doubts what no measurement covers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_profile import ABCI, DGX, lines_of, written

import oracle
from oracle.cli import main
from oracle.prediction import Estimate
from oracle.specs import ORIGINS, System

WORDS = {*ORIGINS, "counted"}
CASES = [
    ("resnet50", "abci", "data:4 filter:4", 256),
    ("gpt2", "dgx-a100", "pipeline:2,segments=4 data:4 tensor:2,sequence=on recompute:full", 64),
    ("cosmoflow-256", "abci", "data:4 spatial:4", 16),
    ("gpt2", "dgx-b200", "data:8,zero=3", 64),
]


def wide(found: Estimate, row: int = 0) -> float:
    """Relative 1σ."""
    return float(found.deviation[row] / found.seconds[row])


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]} {case[1]}")
def test_every_part_says_where_it_comes_from(case: tuple[str, str, str, int], capsys: Any) -> None:
    model, system, plan, batch = case
    assert main(["estimate", model, system, "--plan", plan, "--batch", str(batch), "--json"]) == 0
    (entry,) = json.loads(capsys.readouterr().out)["plans"]
    assert set(entry["origin"]) == {"forward", "backward", "update", "memory"}
    for part in entry["origin"].values():
        assert part["origin"] in WORDS
        assert isinstance(part["outside"], bool)
        assert sum(part["shares"].values()) == pytest.approx(1)
        assert part["shares"][part["origin"]] == max(part["shares"].values())
    assert entry["exchange"]
    for message in entry["exchange"]:
        assert message["origin"] in ORIGINS
        assert isinstance(message["outside"], bool)
        assert message["outside"] or message["origin"] in ("measured", "fitted")


def test_origins_follow_plans_through_selections() -> None:
    plans = ["data:16", "filter:4", "data:4 spatial:4"]
    table = oracle.estimate("resnet50", "abci", plans, 256)
    for row, plan in enumerate(plans):
        alone = oracle.estimate("resnet50", "abci", plan, 256)
        for part in ("forward", "backward", "update", "memory"):
            one, other = alone.origin[0][part], table.take([row]).origin[0][part]
            assert one["origin"] == other["origin"]
            assert one["shares"] == pytest.approx(other["shares"])


def test_ideal_assumptions_are_assumptions() -> None:
    found = oracle.estimate("resnet50", "abci", "data:16", 256, ideal=True)
    for part in ("forward", "backward", "update"):
        assert found.origin[0][part]["origin"] == "assumed"
        assert found.origin[0][part]["outside"]


def reaching(system: System, low: float, high: float) -> System:
    """The system as if its curves had been fitted to kernels of so many FLOP."""
    curves = tuple(replace(c, reach=(low, high) if c.reach else ()) for c in system.device.kernels)
    return replace(system, device=replace(system.device, kernels=curves))


@pytest.mark.parametrize(("low", "high"), [(1e18, 1e19), (1.0, 1e6)])
def test_kernels_beyond_what_was_fitted_say_so_and_are_doubted(low: float, high: float) -> None:
    known, beyond = reaching(DGX, 1.0, 1e19), reaching(DGX, low, high)
    inside, outside = (oracle.estimate("megatron-2.5b", s, "data:4", 64) for s in (known, beyond))
    assert not inside.origin[0]["forward"]["outside"]
    assert outside.origin[0]["forward"]["outside"]
    assert inside.origin[0]["forward"]["origin"] == "fitted"
    assert outside.seconds[0] == inside.seconds[0]
    assert wide(outside) > 1.2 * wide(inside)
    farther = oracle.estimate("megatron-2.5b", reaching(DGX, low * 1e3, high / 1e3), "data:4", 64)
    assert wide(farther) >= wide(outside)


def measured_at(sizes: tuple[float, ...], ranks: tuple[int, ...]) -> System:
    entries = tuple(replace(c, sizes=sizes, ranks=ranks) for c in ABCI.collectives)
    return replace(ABCI, collectives=entries)


@pytest.mark.parametrize(("sizes", "ranks"), [((8.0, 1e3), (4, 64)), ((1e12, 1e13), (4, 64)),
                                              ((8.0, 1e12), (512, 1024))])  # fmt: skip
def test_exchanges_beyond_what_was_fitted_say_so_and_are_doubted(
    sizes: tuple[float, ...], ranks: tuple[int, ...]
) -> None:
    plan = "data:16,overlap=off"
    inside, outside = (
        oracle.estimate("vgg16", system, plan, 256)
        for system in (measured_at((8.0, 1e12), (4, 64)), measured_at(sizes, ranks))
    )
    (before,), (after,) = (
        [m for m in found.exchange[0] if m["what"] == "data: gradients"]
        for found in (inside, outside)
    )
    assert (before["origin"], before["outside"]) == ("fitted", False)
    assert (after["origin"], after["outside"]) == ("fitted", True)
    assert wide(outside) > wide(inside)


def test_a_network_known_by_its_datasheet_says_so() -> None:
    bare = replace(ABCI, collectives=())
    found = oracle.estimate("vgg16", bare, "data:16,overlap=off", 256)
    assert {m["origin"] for m in found.exchange[0]} <= {"datasheet", "assumed"}
    assert wide(found) > wide(oracle.estimate("vgg16", ABCI, "data:16,overlap=off", 256))


def test_rows_that_were_measured_say_so_and_are_doubted_less(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64))
    found = oracle.estimate("resnet50", "abci", ["data:4", "data:32"], 64, profile=path)
    exact, scaled = (origin["backward"] for origin in found.origin)
    assert (exact["origin"], exact["outside"]) == ("measured", False)
    assert (scaled["origin"], scaled["outside"]) == ("measured", True)
    plain = oracle.estimate("resnet50", "abci", "data:4", 64)
    assert wide(found) < wide(plain)
    assert wide(found) < wide(found, 1)


def test_marks_and_their_legend(tmp_path: Path, capsys: Any) -> None:
    assert main(["recommend", "gpt3-175b", "dgx-a100", "--devices", "1024", "--batch", "1536"]) == 0
    out = capsys.readouterr().out
    assert "from: kernels, network, memory; f fitted, a assumed, c counted" in out
    path = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64))
    line = ["resnet50", "abci", "--batch", "64", "--profile", path]
    assert main(["estimate", *line, "--plan", "data:32"]) == 0
    out = capsys.readouterr().out
    assert "ms m!" in out
    assert "m measured" in out.splitlines()[-1]
    assert "! beyond what was measured" in out.splitlines()[-1]
    assert main(["explain", *line, "--plan", "data:4"]) == 0
    out = capsys.readouterr().out
    assert "where the numbers come from" in out
    assert "measured: forward, backward" in out


def test_shares_are_of_seconds() -> None:
    """Half of the kernels' time, by a curve of another origin, is half of the share."""
    device = DGX.device
    curves = tuple(replace(c, origin="measured") if c.family == "stream" else c
                   for c in device.kernels)  # fmt: skip
    found = oracle.estimate(
        "gpt2", replace(DGX, device=replace(device, kernels=curves)), "data:4", 64
    )
    slow = replace(device, kernels=curves, memory_bandwidth=device.memory_bandwidth / 100)
    bound = oracle.estimate("gpt2", replace(DGX, device=slow), "data:4", 64)
    shares = [each.origin[0]["forward"]["shares"]["measured"] for each in (found, bound)]
    assert shares[0] < shares[1]
    assert np.isclose(shares[1], 1, atol=0.6)
