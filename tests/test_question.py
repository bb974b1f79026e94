"""Results belong to their question: none is resumed, joined or compared as another's."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import told
from conftest import CONVOLUTIONS

import oracle
from oracle.ask.compare import compare
from oracle.ask.sweep import Grid, sweep
from oracle.executor import measured
from oracle.executor.measured import Measurement
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import differences, digest, same
from oracle.executor.ranks.records import Records
from oracle.executor.run import run
from oracle.models.model import Model
from oracle.spec.document import SpecError

JOB = PlanRun("lenet5", "data:2", 16)


def left(parts: Path, job: PlanRun, ranks: int = 2, **more: Any) -> None:
    """What an earlier run leaves behind, of one plan."""
    asked = job.question(ranks, "gloo") | more
    parts.mkdir(exist_ok=True)
    file = Records(parts / "rank-00000.jsonl")
    file.append({"key": f"{digest(asked)} {job.plan}/plan", "question": asked})
    file.append({"key": f"{digest(asked)} {job.plan}/step 1", "seconds": 1.0})
    file.close()


@pytest.mark.parametrize(("now", "ranks", "says"), [
    (replace(JOB, model="alexnet"), 2, "model was lenet5 and is alexnet"),
    (replace(JOB, batch=64), 2, "batch was 16 and is 64"),
    (replace(JOB, precision="bf16"), 2, "precision was fp32 and is bf16"),
    (replace(JOB, optimizer="adam"), 2, "optimizer was momentum and is adam"),
    (replace(JOB, stages=(0, 2, 12)), 2, r"stages was not said and is \[0, 2, 12\]"),
    (replace(JOB, seed=1), 2, "seed was 0 and is 1"),
    (replace(JOB, plan="serial"), 2, r"plan `data:2` here.*|add --plan"),
    (JOB, 4, "ranks was 2 and is 4"),
], ids=str)  # fmt: skip
def test_a_run_is_not_taken_up_with_another_question(
    tmp_path: Path, now: PlanRun, ranks: int, says: str
) -> None:
    pytest.importorskip("torch")
    out = tmp_path / "st.json"
    left(tmp_path / "st.json.parts", JOB)
    with pytest.raises(SpecError, match=says):
        run(now, out, ranks=ranks)
    assert not out.exists()
    from oracle.executor.measure.profile import measure_compute

    with pytest.raises(SpecError, match=says):
        measure_compute(now, out, ranks=ranks)
    assert not out.exists()


def test_the_same_question_is_taken_up(tmp_path: Path) -> None:
    left(tmp_path, JOB)
    more = replace(JOB, plan="serial").question(2, "gloo")
    same(tmp_path, [JOB.question(2, "gloo")])
    same(tmp_path, [replace(JOB, steps=50).question(2, "gloo"), more])  # more steps, more plans
    with pytest.raises(SpecError, match="replay was False and is True"):
        same(tmp_path, [JOB.question(2, "gloo", replay=True)])
    left(tmp_path / "older", JOB, torch="1.0")
    with pytest.raises(SpecError, match=r"torch was 1\.0 and is"):
        same(tmp_path / "older", [JOB.question(2, "gloo")])


def test_results_of_before_there_were_questions_are_not_taken_up(tmp_path: Path) -> None:
    file = Records(tmp_path / "rank-00000.jsonl")
    file.append({"key": "0 data:2/plan", "plan": "data:2"})
    file.close()
    with pytest.raises(SpecError, match="do not say what they are of") as caught:
        same(tmp_path, [JOB.question(2, "gloo")])
    assert "delete this folder to measure anew" in caught.value.faults[0].hint


def test_a_model_is_known_by_its_layers(model: Model) -> None:
    assert oracle.model(CONVOLUTIONS).fingerprint == model.fingerprint
    renamed: Any = {**CONVOLUTIONS, "name": "other", "title": "Other", "source": "elsewhere"}
    assert oracle.model(renamed).fingerprint == model.fingerprint
    fewer: Any = {**CONVOLUTIONS, "layers": CONVOLUTIONS["layers"][:-1]}  # type: ignore[index]
    assert oracle.model(fewer).fingerprint != model.fingerprint
    with_data = oracle.model("resnet50", dataset="mnist")
    assert with_data.fingerprint == oracle.model("resnet50").fingerprint != model.fingerprint
    assert len({oracle.model(name).fingerprint for name in ("resnet50", "vgg16", "gpt2")}) == 3


def test_differences_are_said_once() -> None:
    assert differences({"a": 1, "b": 2}, {"a": 1, "b": 3}) == ["b was 2 and is 3"]
    before, now = JOB.question(2, "gloo"), replace(JOB, model="alexnet").question(2, "gloo")
    assert differences(before, now) == ["model was lenet5 and is alexnet"]
    assert differences(before, before) == []


def measurement(plan: str = "data:2", name: str = "lenet5", **more: Any) -> Measurement:
    devices = int(np.prod([int(w.split(",")[0].split(":")[1]) for w in plan.split()]))
    job = PlanRun(name, plan, 16)
    given = {"options": {"precision": "fp32", "optimizer": "momentum"},
             "question": job.question(devices, "gloo"), **more}  # fmt: skip
    return Measurement(name, plan, 16, devices, 0.1, (0.1,), {"forward": 0.1}, (), 1e9,
                       ({"host": "a", "work": 0.1, "memory": 1.0},) * devices, **given)  # fmt: skip


def written(path: Path, *found: Measurement) -> str:
    measured.write(path, found)
    return str(path)


def test_compare_takes_only_what_was_measured_of_its_question(tmp_path: Path, capsys: Any) -> None:
    one = written(tmp_path / "a.json", measurement())
    assert told(capsys, "compare", one, "lenet5", "abci")[0] == 0
    other = written(tmp_path / "b.json", measurement(
        options={"precision": "bf16", "optimizer": "momentum"}))  # fmt: skip
    played = written(tmp_path / "c.json", measurement(
        question=JOB.question(2, "gloo", replay=True)))  # fmt: skip
    for line, says in (
        ([one, "alexnet", "abci"], "its model was lenet5 and is alexnet"),
        ([one, "lenet5", "abci", "--precision", "bf16"], "precision was fp32 and is bf16"),
        ([one, "lenet5", "abci", "--optimizer", "adam"], "optimizer was momentum and is adam"),
        ([one, other, "lenet5", "abci"], "precision was bf16, but fp32 of the first plan"),
        ([one, "lenet5", "tpu-one"], "it ran on 2 devices, but tpu-one has 1"),
        ([played, "lenet5", "abci"], "only its messages were sent"),
    ):
        system = {**json.loads(json.dumps(SMALLEST))}
        (tmp_path / "tpu-one.yaml").write_text(json.dumps(system))
        words = [str(tmp_path / "tpu-one.yaml") if word == "tpu-one" else word for word in line]
        code, out, err = told(capsys, "compare", *words)
        assert (code, out) == (2, ""), says
        assert says in err
    edited = tmp_path / "lenet5.yaml"
    layers = [{"dense": 10}]
    edited.write_text(json.dumps({"name": "lenet5", "source": "x", "input": [1, 28, 28],
                                  "layers": layers}))  # fmt: skip
    code, _, err = told(capsys, "compare", one, str(edited), "abci")
    assert code == 2
    assert "its model was lenet5 (" in err


SMALLEST = {
    "name": "tpu-one", "source": "made up", "device": "v100-sxm2-16gb",
    "levels": [{"name": "node", "devices": 1, "bandwidth": "1 GB/s", "latency": "1 us",
                "source": "made up"}],
}  # fmt: skip


def test_old_measurements_are_read_where_the_name_is_the_same(tmp_path: Path) -> None:
    old = written(tmp_path / "old.json", measurement(question={}))
    assert "question" not in Path(old).read_text()
    assert len(compare([old], "lenet5", "abci").seconds) == 1
    with pytest.raises(SpecError, match="it is of lenet5, not of alexnet") as caught:
        compare([old], "alexnet", "abci")
    assert "measure anew with `oracle run alexnet …`" in caught.value.faults[0].hint


def test_compare_prices_the_stages_that_ran(tmp_path: Path) -> None:
    plan = "pipeline:2,segments=4"
    units = len(oracle.model("lenet5").units[1])
    ran = [measurement(plan, stages=((0, cut), (cut, units))) for cut in (1, units - 1)]
    found = compare([written(tmp_path / "a.json", *ran)], "lenet5", "abci").predicted
    cuts = [list(work.cuts) for work in found.work]
    assert cuts == [[0, 1, units], [0, units - 1, units]]
    assert found.seconds[0] != found.seconds[1]
    alone = compare([written(tmp_path / "b.json", ran[1])], "lenet5", "abci").predicted
    assert alone.seconds[0] == found.seconds[1]
    assert found.plans == (plan, plan)
    free = oracle.estimate("lenet5", "abci", plan, 16, software="executor")
    none = compare([written(tmp_path / "c.json", measurement(plan))], "lenet5", "abci").predicted
    assert none.seconds[0] == free.seconds[0]


def test_a_row_of_another_sweep_is_not_taken(tmp_path: Path) -> None:
    mine = Grid(("resnet50",), ("abci",), (1, 2), (8.0,), True)
    other = Grid(("resnet50",), ("abci",), (1, 2), (16.0,), True)
    sweep(mine, tmp_path / "a", jobs=1)
    sweep(other, tmp_path / "b", jobs=1)
    (stray,) = (tmp_path / "b" / "rows").glob("*.jsonl")
    (tmp_path / "a" / "rows" / "stray.jsonl").write_bytes(stray.read_bytes())
    with pytest.raises(SpecError, match=r"stray.jsonl has a row of another sweep: batch is 16"):
        sweep(mine, tmp_path / "a", jobs=1)
    lines = stray.read_text().replace('"batch":16', '"batch":8').replace('"batch":32', '"batch":16')
    (tmp_path / "a" / "rows" / "stray.jsonl").write_text(lines)
    with pytest.raises(SpecError, match=r"stray.jsonl has a row of another sweep"):
        sweep(mine, tmp_path / "a", jobs=1)


def test_a_sweep_of_an_older_version_is_called_so(tmp_path: Path) -> None:
    grid = Grid(("resnet50",), ("abci",), (1,), (8.0,), True)
    sweep(grid, tmp_path / "a", jobs=1)
    head = json.loads((tmp_path / "a" / "sweep.json").read_text())
    del head["grid"]["any_plan"]
    (tmp_path / "a" / "sweep.json").write_text(json.dumps(head))
    with pytest.raises(SpecError, match="a sweep of another version") as caught:
        sweep(grid, tmp_path / "a", jobs=1)
    assert "result.csv` draws what is there" in caught.value.faults[0].hint


def test_more_devices_than_ranks_are_refused_before_any_starts(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from oracle.executor.measure.profile import measure_compute

    for start in (run, measure_compute):
        with pytest.raises(SpecError, match="`data:2` is for 2 devices, and there are 1 ranks"):
            start(JOB, tmp_path / "st.json", ranks=1)
    assert not list(tmp_path.iterdir())


def test_rows_of_two_machines_make_no_profile(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from types import SimpleNamespace

    from oracle.executor.measure.profile import task

    rank: Any = SimpleNamespace(
        attempt=tmp_path / "attempt", backend="gloo", size=1, hosts=["a"], ranks_per_host=1,
        records=SimpleNamespace(finished={"x": {"environment": {"device": "NVIDIA H100"}}}),
    )  # fmt: skip
    with pytest.raises(SpecError, match=r"of another machine: .*device was NVIDIA H100"):
        task(rank, {"jobs": []})


def test_a_profile_of_another_device_is_doubted_in_words(tmp_path: Path, capsys: Any) -> None:
    """Rows timed on a laptop wore the name of a V100."""
    from test_profile import ABCI, lines_of
    from test_profile import written as profile_at

    line = ["estimate", "resnet50", "abci", "--plan", "data:4", "--batch", "512", "--profile"]
    for factor, said in ((1.0, ""), (20.0, "longer"), (0.05, "shorter")):
        rows = lines_of("resnet50", ABCI, ["data:4"], 512, factor)
        path = profile_at(tmp_path / "p.jsonl", rows)
        out = " ".join(told(capsys, *line, path)[1].split())
        wanted = f"times {said} than v100-sxm2-16gb is expected to"
        assert ("profile: its rows take" in out) == (wanted in out) == bool(said)


def test_a_file_of_lines_that_are_no_results_is_soon_refused(tmp_path: Path) -> None:
    """Millions of them took minutes."""
    for number, line in enumerate(("\n", "1,1\n", "[]\n", "{}x\n")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "rank-00000.jsonl").write_text(line * 2_000_000)
        with pytest.raises(SpecError, match="more than 1000 lines are no results"):
            same(folder, [JOB.question(2, "gloo")])
