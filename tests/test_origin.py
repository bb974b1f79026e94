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
from oracle.commands.cli import main
from oracle.plan.plan import parse
from oracle.predict import evaluate
from oracle.predict.estimate import Estimate
from oracle.spec.device import ORIGINS
from oracle.spec.system import System

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
    return replace(ABCI, collectives=entries, library=())


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
    """Under software that is known: what is not is doubted by what it shows, and ABCI's shows."""
    found, known = (
        oracle.estimate("vgg16", system, "data:16,overlap=off", 256, software="pytorch-ddp")
        for system in (replace(ABCI, collectives=(), library=()), ABCI)
    )
    assert {m["origin"] for m in found.exchange[0]} <= {"datasheet", "assumed"}
    assert wide(found) > wide(known)


def test_rows_that_were_measured_say_so_and_are_doubted_less(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64))
    found = oracle.estimate("resnet50", "abci", ["data:4", "data:32"], 64, profile=path)
    exact, scaled = (origin["backward"] for origin in found.origin)
    assert (exact["origin"], exact["outside"]) == ("measured", False)
    assert (scaled["origin"], scaled["outside"]) == ("measured", True)
    plain = oracle.estimate("resnet50", "abci", "data:4", 64)
    assert wide(found) < wide(plain)
    assert wide(found) < wide(found, 1)


@pytest.mark.slow
def test_what_figures_stand_on_is_said_in_words(tmp_path: Path, capsys: Any) -> None:
    assert main(["recommend", "gpt3-175b", "dgx-a100", "--devices", "1024", "--batch", "1536"]) == 0
    out = capsys.readouterr().out
    assert "kernels and network fitted to measurements" in " ".join(out.split())
    path = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64))
    line = ["resnet50", "abci", "--batch", "64", "--profile", path]
    assert main(["estimate", *line, "--plan", "data:32"]) == 0
    out = capsys.readouterr().out
    assert "ms extrapolated" in out
    assert main(["explain", *line, "--plan", "data:4", "--full"]) == 0
    out = capsys.readouterr().out
    assert "Where the numbers come from" in out
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


def sides(found: Estimate, row: int = 0) -> tuple[float, float]:
    """How far the interval reaches down and up, as logarithms."""
    low, mid, high = found.seconds_low[row], found.seconds[row], found.seconds_high[row]
    return float(np.log(mid / low)), float(np.log(high / mid))


def test_what_nobody_models_only_adds() -> None:
    down, up = sides(oracle.estimate("resnet50", "abci", "data:4", 256))
    assert 0.05 < down < up < 0.5


def test_an_unmeasured_network_falls_short_and_never_exceeds() -> None:
    """Up, a plan that mostly talks over it may take twice as long; down, little is to be had."""
    bare = replace(ABCI, collectives=(), library=())
    talking = oracle.estimate("vgg16", bare, "data:64,overlap=off", 64)
    share = sum(m["exposed"] for m in talking.exchange[0]) / talking.seconds[0]
    assert share > 0.5
    down, up = sides(talking)
    assert up > 1.3 * down
    assert up > 0.6 * share * np.log(2)
    measured = oracle.estimate("vgg16", ABCI, "data:64,overlap=off", 64)
    assert up > 1.5 * sides(measured)[1]


def test_messages_over_an_unmeasured_network_err_together() -> None:
    """Their doubts add up; those of messages over a fitted one cancel in part."""
    plan = "data:4,overlap=off filter:4"
    for system, adds in ((replace(ABCI, collectives=(), library=()), True), (ABCI, False)):
        found = oracle.estimate("vgg16", system, plan, 64)
        assert all((m["origin"] == "fitted") != adds for m in found.exchange[0])
        ((_, block),) = evaluate.blocks(found.model, system, parse(plan, 64.0), found.options)
        each = np.array([float(one.deviation[0]) for one in block.exchange if one.exposed[0] > 0])
        assert len(each) > 1
        talked = float(np.sqrt(block.step.uncertainty.talked[0]))
        assert (talked > 0.99 * each.sum()) == adds
        assert talked >= 0.99 * np.sqrt((each**2).sum())


def test_a_step_that_waits_for_its_host_is_doubted_more() -> None:
    slow = replace(DGX, dispatch=400e-6)
    waiting, working = (oracle.estimate("gpt2", s, "data:4", 4) for s in (slow, DGX))
    assert waiting.seconds[0] > 3 * working.seconds[0]
    assert sides(waiting)[0] > 1.3 * sides(oracle.estimate("gpt2", DGX, "data:4", 256))[0]


def test_assumed_kernels_are_doubted_more_than_fitted() -> None:
    curves = tuple(replace(c, origin="assumed") for c in DGX.device.kernels)
    guessed = replace(DGX, device=replace(DGX.device, kernels=curves))
    known, other = (oracle.estimate("megatron-2.5b", s, "data:8", 64) for s in (DGX, guessed))
    assert sides(other)[0] > sides(known)[0]
    assert sides(other)[1] > sides(known)[1]


def test_ideal_assumptions_leave_nothing_to_add() -> None:
    found = oracle.estimate("resnet50", "abci", "serial", 64, ideal=True)
    assert found.seconds_low[0] == found.seconds[0] == found.seconds_high[0]
