"""Logs of runs move what they tell of, as far as they tell it; all else stays as it was."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
import run_logs as made
from command_line import closed

import oracle
from oracle.calibration.run_parts import Run, predicted
from oracle.calibration.runs import RunFit, fit
from oracle.commands.cli import main
from oracle.kernels.profile import Profile, profile
from oracle.kernels.profile.factors import NAMES, Factor, Factors
from oracle.kernels.profile.run_file import written
from oracle.models.model import Model
from oracle.predict.defaults import options_for
from oracle.readers.runs import RunLog, Timing
from oracle.show import contract
from oracle.spec.document import SpecError
from oracle.spec.options import Options
from oracle.spec.system import System

ABCI, DGX = oracle.system("abci"), oracle.system("dgx-a100")
CASES: dict[str, tuple[System, str, int, str]] = {
    "resnet50": (ABCI, "data:8", 512, "chainermn"),
    "gpt2": (DGX, "data:2 tensor:4", 64, "pytorch-ddp"),
}


def asked(name: str) -> tuple[Model, System, Options]:
    system, _, _, software = CASES[name]
    model = oracle.model(name)
    options = options_for(model, system, software=software, any_plan=True)
    return model.under(options.software.kernels), system, options


def with_factors(options: Options, system: System, factors: dict[str, float]) -> Options:
    told = Factors({each: Factor(times) for each, times in factors.items()})
    host = replace(options.software.host, times=told.times("host"))
    return replace(options, profile=Profile({}, factors=told).on(system.device),
                   software=options.software.but(host=host))  # fmt: skip


def planted(name: str, factors: dict[str, float], parts: str, spread: float = 0.01) -> Run:
    """The log of a run whose parts took so many times as long as they are predicted to."""
    model, system, options = asked(name)
    _, plan, batch, _ = CASES[name]
    kernels = dict.fromkeys(("gemm", "conv", "attention", "memory"), Timing(1.0))
    run = Run(RunLog("made", "made", step=Timing(1.0), kernels=kernels), plan, batch)
    _, (took,) = predicted([run], model, system, with_factors(options, system, factors))

    def timing(what: str) -> Timing:
        return Timing(took.get(what, 0.0), spread, 10)

    log = RunLog("made", "made", step=timing("step"))
    if parts == "totals":
        totals = {each: timing(each) for each in ("forward", "backward", "update")}
        log = RunLog("made", "made", totals=totals)
    if parts == "trace":
        joined = {"conv": "conv and gemm"} if name == "resnet50" else {"gemm": "gemm"}
        found = {group: timing(f"kernels: {joined.get(group, group)}")
                 for group in (*joined, "memory", "attention")}  # fmt: skip
        log = replace(log, kernels={k: v for k, v in found.items() if v.seconds},
                      messages={"allreduce": timing("messages")},
                      exposed=timing("messages shown"))  # fmt: skip
    return replace(run, log=log)


def solved(name: str, *runs: Run) -> RunFit:
    return fit(runs, *asked(name))


def seconds(name: str, plan: str, batch: int, told: Any = None) -> Any:
    system, _, _, software = CASES[name]
    return oracle.estimate(name, system, plan, batch, software=software, any_plan=True,
                           profile=told)  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_nothing_told_leaves_predictions_as_they_were(name: str) -> None:
    _, plan, batch, _ = CASES[name]
    plain = seconds(name, plan, batch)
    same = seconds(name, plan, batch, Profile({}))
    for part in ("seconds", "seconds_low", "seconds_high"):
        assert np.array_equal(getattr(same, part), getattr(plain, part))


@pytest.mark.parametrize("factor", NAMES)
def test_a_factor_moves_its_own_part_and_no_other(factor: str) -> None:
    _, plan, batch, _ = CASES["gpt2"]
    plain, told = (
        seconds("gpt2", plan, batch, Profile({}, factors=Factors(each)))
        for each in ({}, {factor: Factor(2.0, 0.1)})
    )
    moved = {name for name in ("forward", "backward", "update")
             if told.compute[name] != pytest.approx(plain.compute[name], rel=0.02)}  # fmt: skip
    both = {"forward", "backward"}
    wanted = {"gemm": both, "attention": both, "memory": both, "forward": {"forward"},
              "backward": {"backward"}, "update": {"update"}}  # fmt: skip
    if factor not in ("host", "inside", "shown"):  # for which a pass may wait
        assert moved == wanted.get(factor, set())
    sent, shown = (
        [sum(m[what] for m in each.exchange[0]) for each in (plain, told)]
        for what in ("seconds", "exposed")
    )
    assert (sent[1] > 1.5 * sent[0]) == (factor == "inside")
    assert (shown[1] > 1.01 * shown[0]) == (factor in ("inside", "shown"))
    assert (told.seconds > plain.seconds) == (factor not in ("conv", "between"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("times", [0.8, 1.5])
def test_one_step_time_is_met_and_moves_all_it_is_made_of(name: str, times: float) -> None:
    _, plan, batch, _ = CASES[name]
    everything = dict.fromkeys(("gemm", "conv", "attention", "memory"), times)
    run = planted(name, everything, "step")
    found = solved(name, run)
    assert run.log.step is not None
    told = seconds(name, plan, batch, found.profile)
    assert told.seconds[0] == pytest.approx(run.log.step.seconds, rel=0.05)
    moved = {each: factor.times for each, factor in found.file.factors.items()}
    assert {"gemm", "memory"} <= set(moved)
    assert all((each > 1) == (times > 1) for each in moved.values())
    assert not {"forward", "backward"} & set(moved)  # which one number cannot tell apart
    plain = seconds(name, plan, batch)
    width, before = (np.log(e.seconds_high / e.seconds_low)[0] for e in (told, plain))
    assert width < 1.05 * before  # half as long again is more than anybody doubted


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("products", "memory"), [(0.8, 1.3), (1.5, 0.9)])
def test_what_is_planted_in_a_trace_is_found_within_its_interval(
    name: str, products: float, memory: float
) -> None:
    factors = {"gemm": products, "conv": products, "memory": memory}
    found = solved(name, planted(name, factors, "trace")).file.factors
    key = "conv" if name == "resnet50" else "gemm"
    for each in (key, "memory"):
        error = abs(np.log(found[each].times / factors[each]))
        assert error < max(3 * found[each].doubt, 0.08)


def test_totals_tell_both_passes_and_the_update() -> None:
    factors = {"forward": 1.3, "backward": 0.9, "update": 1.5}
    found = solved("gpt2", planted("gpt2", factors, "totals")).file
    after = {each.part: each.after / each.seconds for each in found.runs}
    assert set(after) == {"forward", "backward", "update"}
    assert all(each == pytest.approx(1, abs=0.05) for each in after.values())
    ratio = found.factors["forward"].times / found.factors["backward"].times
    assert ratio > 1.15


def test_logs_that_spread_more_tell_less() -> None:
    _, plan, batch, _ = CASES["resnet50"]
    factors = {"gemm": 1.5, "conv": 1.5, "memory": 1.5}
    sure, unsure = (
        seconds("resnet50", plan, batch,
                solved("resnet50", planted("resnet50", factors, "step", spread)).profile)
        for spread in (0.01, 0.46)
    )  # fmt: skip
    assert sure.seconds > unsure.seconds
    widths = [float(np.log(e.seconds_high / e.seconds_low)[0]) for e in (sure, unsure)]
    assert widths[1] > widths[0] + 0.05


def test_runs_inside_a_node_and_between_nodes_tell_the_network() -> None:
    slow = {"between": 2.5}
    model, system, options = asked("resnet50")
    runs = []
    for devices in (1, 4, 8):
        run = Run(RunLog("made", "made"), f"data:{devices}", 64 * devices)
        _, (took,) = predicted([run], model, system, with_factors(options, system, slow))
        runs.append(replace(run, log=RunLog("made", "made", step=Timing(took["step"], 0.002))))
    found = solved("resnet50", *runs)
    assert found.file.factors["between"].times == pytest.approx(2.5, rel=0.35)
    assert found.file.factors["conv"].times == pytest.approx(1.0, abs=0.05)
    far = predicted([Run(RunLog("", ""), "data:64", 4096)], model, system,
                    with_factors(options, system, slow))[1][0]["step"]  # fmt: skip
    plain, told = (seconds("resnet50", "data:64", 4096, each) for each in (None, found.profile))
    assert abs(told.seconds[0] - far) < 0.4 * abs(plain.seconds[0] - far)
    assert told.seconds_low[0] < far < told.seconds_high[0]


@pytest.mark.parametrize(("log", "plan", "batch", "why"), [
    (RunLog("x", "", settings={"devices": 16}), "data:8", 64, "of devices 16, not of devices 8"),
    (RunLog("x", "", settings={"batch": 32}), "data:8", 64, "of batch 32, not of batch 64"),
    (RunLog("x", "", settings={"tensor": 2}), "data:8", 64, "of tensor 2, not of tensor 1"),
    (RunLog("x", "", layers={"nobody": (Timing(1),) * 3}), "data:8", 64, "no layer `nobody`"),
    (RunLog("x", "", kernels={"attention": Timing(1)}), "data:8", 64, "has none"),
    (RunLog("x", "", step=Timing(1000.0)), "data:8", 64, "times what is predicted"),
    (RunLog("x", ""), "data:8", 64, "no time of a step"),
])  # fmt: skip
def test_a_log_of_something_else_is_refused(log: RunLog, plan: str, batch: int, why: str) -> None:
    with pytest.raises(SpecError, match=why):
        solved("resnet50", Run(log, plan, batch))


def test_layers_that_were_timed_are_taken_as_they_were(tmp_path: Path) -> None:
    text = "layer,forward,backward\nattention.core,0.012,0.024\nmlp,0.024,0.048\n"
    (tmp_path / "layers.csv").write_text(text)
    (tmp_path / "out.yaml").unlink(missing_ok=True)
    line = ["calibrate", "run", str(tmp_path / "layers.csv"), "gpt2", "dgx-a100", "--plan",
            "data:4", "--batch", "32", "-o", str(tmp_path / "out.yaml"), "--quiet"]  # fmt: skip
    assert main(line) == 0
    told = profile(tmp_path / "out.yaml")
    found = oracle.estimate("gpt2", "dgx-a100", "data:4", 32, profile=told)
    assert found.compute["forward"][0] > 0.036  # twelve layers, an iteration
    assert {each.forward for each in told.rows.values()}
    core = next(each for text, each in told.rows.items() if text.split()[1] == "attention")
    assert core.forward == pytest.approx(0.001)
    assert core.backward == pytest.approx(0.002)


def test_a_profile_is_written_used_and_refused_elsewhere(tmp_path: Path) -> None:
    found = solved("resnet50", planted("resnet50", {"conv": 1.4}, "step"))
    path = tmp_path / "p.yaml"
    path.write_text(written(found.file))
    again = profile(path)
    assert again.factors.told.keys() == found.file.factors.keys()
    _, plan, batch, _ = CASES["resnet50"]
    one, other = (seconds("resnet50", plan, batch, each) for each in (found.profile, path))
    assert one.seconds[0] == pytest.approx(other.seconds[0], rel=1e-3)
    assert not [each for each in other.warnings if each["field"] == "profile"]
    strange = oracle.estimate("alexnet", "abci", plan, batch, profile=path).warnings
    said = " ".join(each["what"] for each in strange if each["field"] == "profile")
    assert "software chainermn, not plain" in said
    assert "model resnet50, not alexnet" in said
    with pytest.raises(SpecError, match="of v100-sxm2-16gb, not of a100"):
        oracle.estimate("resnet50", "dgx-a100", "data:8", 64, profile=path)
    path.write_text(written(found.file).replace("conv:", "cnov:"))
    with pytest.raises(SpecError, match="nothing is called `cnov`"):
        profile(path)


def test_a_log_that_says_its_plan_is_a_profile_and_one_that_does_not_is_refused(
    tmp_path: Path,
) -> None:
    log = tmp_path / "totals.csv"
    log.write_text(made.TOTALS)
    told = oracle.estimate("resnet50", "abci", "data:16", 128, profile=log)
    assert told.seconds[0] > oracle.estimate("resnet50", "abci", "data:16", 128).seconds[0]
    log.write_text(made.STEP)
    with pytest.raises(SpecError, match="nothing says the plan and batch of this run"):
        oracle.estimate("resnet50", "abci", "data:16", 128, profile=log)
    assert main(["sweep", "resnet50", "abci", "--devices", "8", "--batch", "64", "--jobs", "1",
                 "--profile", str(log)]) == 2  # fmt: skip


def test_the_command_says_what_moved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = made.trace(tmp_path / "trace.json.gz")
    line = ["calibrate", "run", str(log), "resnet50", "abci", "--batch", "512", "--json"]
    assert main([*line, "--plan", "data:4"]) == 2
    assert "of devices 8, not of devices 4" in capsys.readouterr().err
    assert main([*line, "--plan", "data:8", "--software", "chainermn"]) == 2  # attention, 11 %
    assert main([*line[:3], "vit-l16", *line[4:], "--plan", "data:8"]) == 0
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, contract.answer("profile"))
    jsonschema.validate(found, closed(contract.answer("profile")))
    assert {row["part"] for row in found["runs"]} >= {"step", "messages", "update"}
    assert {"update", "memory"} <= set(found["factors"])
    assert main(["calibrate", "run", str(log), "resnet50"]) == 2
    assert main([*line, "--plan", "data:8", "--onto", "abci"]) == 2
    assert "--onto is not for `calibrate run`" in capsys.readouterr().err
    assert main(["calibrate", str(log), "--onto", "abci", "--plan", "data:8"]) == 2
    assert "--plan is for `calibrate run`" in capsys.readouterr().err
