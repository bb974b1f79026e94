"""A profile is the truth at its shapes, and bends the kernel model to it at others."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

import oracle
from oracle.ask.sweep import supposed
from oracle.commands.cli import main
from oracle.kernels.profile import Profile, profile, signature
from oracle.kernels.profile.scale import Ramp
from oracle.kernels.rows import passes, priced
from oracle.models.model import model
from oracle.plan.plan import parse
from oracle.predict import evaluate
from oracle.predict.defaults import options_for
from oracle.spec.system import System

NEAR = 1e-5  # shapes are written with six digits
ABCI, DGX = oracle.system("abci"), oracle.system("dgx-a100")
CASES = {
    "resnet50": (ABCI, 64, ["data:4", "data:2 filter:2", "data:2 spatial:2", "channel:4"]),
    "gpt2": (DGX, 32, ["data:4", "data:2 tensor:2,sequence=on", "data:2 context:2", "data:8"]),
    "mixtral-8x7b": (DGX, 32, ["data:4", "data:2 tensor:2"]),
}


def lines_of(
    name: str, system: System, plans: list[str], batch: int, factor: Any = 1.0, **options: Any
) -> list[dict[str, Any]]:
    """A profile as it would be if the machine took `factor` times what the model says."""
    network = model(name)
    asked = options_for(network, system, **options)
    rows: dict[str, dict[str, Any]] = {}
    for text in plans:
        shard = evaluate.split(network, parse(text, batch), asked)
        found = priced(shard, system.device, asked.precision)
        for row in range(len(network)):
            text = signature(shard, row)
            times = {k: float(np.broadcast_to(getattr(found, k), (1, len(network)))[0, row])
                     for k in ("forward", "data", "weight")}  # fmt: skip
            slower = factor(text) if callable(factor) else factor
            rows[text] = {"row": text} | {k: v * slower for k, v in times.items()}
    head: dict[str, Any] = {"oracle-profile": 1, "complete": True}
    return [head, *rows.values()]


def written(path: Path, lines: list[dict[str, Any]]) -> str:
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return str(path)


def busy(found: Any) -> Any:
    return np.array([found.compute[k] for k in ("forward", "backward", "recompute")])


@pytest.mark.parametrize("name", CASES)
def test_the_models_own_times_as_a_profile_change_nothing(name: str, tmp_path: Path) -> None:
    system, batch, plans = CASES[name]
    own = written(tmp_path / "p.jsonl", lines_of(name, system, plans, batch))
    asked = [*plans, "data:8", "data:2 recompute:full", "pipeline:2,segments=4 data:2"]
    plain = oracle.estimate(name, system, asked, batch)
    same = oracle.estimate(name, system, asked, batch, profile=own)
    assert same.seconds == pytest.approx(plain.seconds, rel=NEAR)
    for part in plain.compute:
        assert same.compute[part] == pytest.approx(plain.compute[part], rel=NEAR)


def test_rows_are_scaled_as_the_software_that_runs_them_takes_them(tmp_path: Path) -> None:
    """Norms and pools with channels first were scaled by what they take with channels last."""
    said = {"software": "pytorch-channels-first", "precision": "fp16"}
    own = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64, **said))
    asked = ["data:2", "data:8", "data:2 spatial:2"]
    plain = oracle.estimate("resnet50", ABCI, asked, 64, any_plan=True, **said)
    with_rows = oracle.estimate("resnet50", ABCI, asked, 64, any_plan=True, profile=own, **said)
    assert busy(with_rows) == pytest.approx(busy(plain), rel=NEAR)


@pytest.mark.parametrize("name", CASES)
def test_a_profile_twice_as_slow_doubles_every_row_there_and_elsewhere(
    name: str, tmp_path: Path
) -> None:
    system, batch, plans = CASES[name]
    slow = profile(written(tmp_path / "p.jsonl", lines_of(name, system, plans, batch, 2.0)))
    network = model(name)
    asked = options_for(network, system, profile=slow)
    for plan, measured in ((plans[0], True), ("data:32", False)):
        shard = evaluate.split(network, parse(plan, batch), asked)
        before, after = (passes(shard, system.device, asked.precision, p)
                         for p in (None, asked.profile))  # fmt: skip
        for part in ("forward", "data", "weight"):
            twice = 2 * np.broadcast_to(getattr(before, part), getattr(after, part).shape)
            assert getattr(after, part) == pytest.approx(twice, rel=NEAR)
        assert (np.asarray(after.measured) == 2).all() == measured


def test_what_was_measured_is_taken_to_the_letter(tmp_path: Path) -> None:
    lines = lines_of("resnet50", ABCI, ["data:4"], 64, lambda text: 1 + len(text) / 50)
    found = profile(written(tmp_path / "p.jsonl", lines)).on(ABCI.device)
    network = model("resnet50")
    shard = evaluate.split(network, parse("data:4", 64), options_for(network, ABCI))
    after = found.passes(shard, ABCI.device, "fp32", priced)
    for row in range(len(network)):
        timed = found.lookup(shard, 0, row)
        assert timed is not None
        assert after.forward[0, row] == pytest.approx(timed.forward, rel=1e-12)
        assert after.data[0, row] + after.weight[0, row] == pytest.approx(timed.backward, rel=1e-12)
    assert found.lookup(evaluate.split(network, parse("data:2", 64), options_for(network, ABCI)),
                        0, 0) is None  # fmt: skip


def test_where_the_backward_pass_was_timed_as_one_nothing_hides_under_half_of_it(
    tmp_path: Path,
) -> None:
    lines = lines_of("resnet50", ABCI, ["data:4"], 64)
    joined = [{"row": e["row"], "forward": e["forward"], "backward": e["data"] + e["weight"]}
              for e in lines[1:]]  # fmt: skip
    found = oracle.estimate("resnet50", ABCI, "data:4", 64,
                            profile=written(tmp_path / "p.jsonl", [lines[0], *joined]))  # fmt: skip
    plain = oracle.estimate("resnet50", ABCI, "data:4", 64)
    assert found.compute["backward"] == pytest.approx(plain.compute["backward"], rel=NEAR)
    network = model("resnet50")
    after = passes(evaluate.split(network, parse("data:4", 64), found.options),
                            ABCI.device, "fp32", found.options.profile)  # fmt: skip
    assert not after.weight.any()


def test_more_work_is_never_faster_between_and_beyond_what_was_measured(tmp_path: Path) -> None:
    measured: dict[str, dict[str, Any]] = {}
    for batch, slower in ((8, 3.0), (16, 1.2), (32, 1.9)):  # 16 took less than 8
        lines = lines_of("resnet50", ABCI, ["serial"], batch, slower)
        measured |= {line["row"]: line for line in lines[1:]}
    path = written(tmp_path / "p.jsonl", [{"oracle-profile": 1}, *measured.values()])
    batches = [b for b in range(1, 65) if b not in (8, 16, 32)]
    found = oracle.estimate("resnet50", ABCI, ["serial"] * len(batches), batches, profile=path)
    assert (np.diff(busy(found)[:2]) >= 0).all()
    plain = oracle.estimate("resnet50", ABCI, ["serial"] * len(batches), batches)
    ratio = busy(found)[0] / busy(plain)[0]
    assert ratio[-1] == pytest.approx(1.9, rel=5e-2)  # beyond the largest: as there
    assert ratio.max() < 3.01


@given(
    pairs=some.lists(some.tuples(some.floats(1e-6, 1e3), some.floats(0, 1e3)), min_size=1,
                     max_size=8, unique_by=lambda pair: pair[0]),
    at=some.lists(some.floats(0, 1e4), min_size=2, max_size=8),
)  # fmt: skip
def test_scaling_never_falls_and_is_in_proportion_beyond(pairs: Any, at: Any) -> None:
    x, y = np.array(pairs).T
    found = Ramp.of(x, y)(np.sort(at))
    assert (np.diff(found) >= -1e-9 * found.max()).all()
    far = Ramp.of(x, y)(np.array([1e4, 2e4]))
    assert far[1] == pytest.approx(2 * far[0])
    if (np.diff(y[np.argsort(x)]) >= 0).all():
        assert Ramp.of(x, y)(x) == pytest.approx(y)


def test_a_table_of_plans_is_its_rows(tmp_path: Path) -> None:
    lines = lines_of("resnet50", ABCI, ["data:4", "filter:4"], 64, 1.7)
    path = written(tmp_path / "p.jsonl", lines)
    plans = ["data:2", "data:4", "data:8", "data:64"]
    table = oracle.estimate("resnet50", ABCI, plans, 64, profile=path)
    for row, plan in enumerate(plans):
        one = oracle.estimate("resnet50", ABCI, plan, 64, profile=path)
        assert one.seconds[0] == pytest.approx(table.seconds[row], rel=1e-12)


def test_a_faster_device_is_faster_by_what_the_model_says(tmp_path: Path) -> None:
    path = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64, 2.0))
    fast = supposed(ABCI, "kernels=2")
    network = model("resnet50")
    known = profile(path).on(ABCI.device)
    asked = options_for(network, fast, profile=known)
    shard = evaluate.split(network, parse("data:4", 64), asked)
    before, after = (passes(shard, s.device, "fp32", known) for s in (ABCI, fast))
    plain = priced(shard, fast.device, "fp32")
    assert after.forward == pytest.approx(2 * plain.forward, rel=NEAR)
    assert after.forward.sum() < 0.75 * before.forward.sum()


def test_a_profile_of_one_precision_serves_another_by_the_models_ratio(tmp_path: Path) -> None:
    lines = lines_of("gpt2", DGX, ["data:4"], 32, 1.5, precision="fp32")
    lines[0]["precision"] = "fp32"
    path = written(tmp_path / "p.jsonl", lines)
    network = model("gpt2")
    asked = options_for(network, DGX, "bf16", profile=path)
    shard = evaluate.split(network, parse("data:4", 32), asked)
    after = passes(shard, DGX.device, "bf16", asked.profile)
    assert after.forward == pytest.approx(1.5 * priced(shard, DGX.device, "bf16").forward, rel=NEAR)


def test_measured_updates_scale_with_their_weights(tmp_path: Path) -> None:
    plain = oracle.estimate("resnet50", ABCI, ["data:4", "data:4,zero=1"], 64)
    weights, seconds = model("resnet50").parameters, 3 * float(plain.compute["update"][0])
    step = {"optimizer": "momentum", "weights": weights, "seconds": seconds}
    path = written(tmp_path / "p.jsonl", [{"oracle-profile": 1}, step])
    found = oracle.estimate("resnet50", ABCI, ["data:4", "data:4,zero=1"], 64, profile=path)
    assert found.compute["update"] == pytest.approx(3 * plain.compute["update"], rel=NEAR)
    other = oracle.estimate("resnet50", ABCI, "data:4", 64, profile=path, optimizer="sgd")
    same = oracle.estimate("resnet50", ABCI, "data:4", 64, optimizer="sgd")
    assert other.compute["update"] == same.compute["update"]


def test_times_may_carry_their_unit(tmp_path: Path) -> None:
    row = lines_of("resnet50", ABCI, ["serial"], 2)[1]
    first, second = (
        profile(written(tmp_path / f"{i}.jsonl", [{"oracle-profile": 1}, row | {"forward": t}]))
        for i, t in enumerate((0.0015, "1.5 ms"))
    )
    assert first.rows == second.rows


BROKEN = """\
{"oracle-profile": 1, "precision": "fp12", "colour": "red"}
{"row": "activation stream n2", "forward": 1.0, "backward": 2.0}
{"row": "ROW", "forward": -1.0, "backward": "2 GB"}
{"row": "ROW", "forward": NaN, "backward": 2.0}
{"row": "OTHER", "forward": 1.0, "backward": 2.0, "weight": 1.0, "spread": -2}
{"row": "OTHER", "forward": 1.0}
not JSON
[1, 2]
{"optimizer": "adamm", "weights": -3}
{"something": 1}
"""


def test_a_broken_file_says_all_that_is_wrong_at_once(tmp_path: Path, capsys: Any) -> None:
    one, two = (line["row"] for line in lines_of("resnet50", ABCI, ["serial"], 2)[1:3])
    path = tmp_path / "p.jsonl"
    path.write_text(BROKEN.replace("ROW", one).replace("OTHER", two))
    with pytest.raises(oracle.SpecError) as caught:
        profile(path)
    places = [fault.place.line for fault in caught.value.faults]
    assert sorted(set(places)) == list(range(1, 11))
    said = str(caught.value)
    for words in ("`fp12`", "did you mean", "`colour`", "`row` is a kind", "`forward` is a number",
                  "`backward`", "`NaN` is not a number", "`weight` together", "`spread`",
                  "`data` is missing", "not JSON", "not an object", "unknown optimizer `adamm`",
                  "`weights`", "`seconds` is missing", "a `row` or an `optimizer`"):  # fmt: skip
        assert words in said, words
    code = main(["estimate", "resnet50", "abci", "--plan", "data:4", "--batch", "8",
                 "--profile", str(path)])  # fmt: skip
    error = capsys.readouterr().err
    assert code == 2
    assert f"{path}:3:1" in error
    assert "Traceback" not in error


@pytest.mark.parametrize("text", ["", "{}\n", '{"oracle-profile": 2}\n', '{"oracle-profile": 1}\n'])
def test_what_is_no_profile_is_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text(text)
    with pytest.raises(oracle.SpecError):
        profile(path)
    with pytest.raises(oracle.SpecError, match="no such file"):
        profile(tmp_path / "absent.jsonl")


@pytest.mark.parametrize("line", [
    ["recommend", "resnet50", "abci", "--devices", "4", "--batch", "64", "--json"],
    ["estimate", "resnet50", "abci", "--plan", "data:4", "--batch", "64", "--json"],
    pytest.param(["explain", "--plan", "data:4", "resnet50", "abci", "--batch", "64", "--json"],
                 marks=pytest.mark.slow),
    ["sweep", "resnet50", "abci", "--devices", "4", "--batch", "64", "--plan", "data:*", "--json"],
], ids=lambda line: line[0])  # fmt: skip
def test_every_verb_that_predicts_takes_a_profile(
    line: list[str], tmp_path: Path, capsys: Any
) -> None:
    path = written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64, 2.0))

    def seconds(*more: str) -> float:
        assert main([*line, *more]) == 0
        data = json.loads(capsys.readouterr().out)
        row = data["plans"][0] if "plans" in data else data["rows"][0]
        return float(row["compute"]["forward"] if "compute" in row else row["forward"])

    assert seconds("--profile", path) > 1.5 * seconds()


def test_a_system_may_differ_and_the_profile_stays_of_its_device(tmp_path: Path) -> None:
    known = profile(written(tmp_path / "p.jsonl", lines_of("resnet50", ABCI, ["data:4"], 64)))
    assert isinstance(known, Profile)
    assert known.device is None
    assert known.on(ABCI.device).on(replace(ABCI.device, memory=1e9)).device == ABCI.device
