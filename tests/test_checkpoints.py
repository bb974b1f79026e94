"""Checkpoints: a training that was read back goes on as if nothing had been; damage is found."""

import json
import os
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from checkpoint_damage import damage
from equality_cases import GPT, RESNET, VGG

from benchmarks.recovery_loop import system
from oracle.ask.recovered import recovered
from oracle.commands.cli import main
from oracle.executor import measured
from oracle.executor.checkpointing import folder as checkpoints
from oracle.executor.checkpointing.folder import Damaged, SavedState, Section, StateFile
from oracle.executor.checkpointing.keeping import Keeping, Planted
from oracle.executor.checkpointing.restart import started_again
from oracle.executor.checkpointing.summary import Recovery
from oracle.executor.loading.throttle import Throttle
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import same
from oracle.executor.ranks import records
from oracle.executor.ranks.faults import RankFault
from oracle.executor.ranks.launch import DONE, FAILED, Host, Outcome, launch
from oracle.executor.run import run
from oracle.models.model import model
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate
from oracle.run.checkpoints import saving
from oracle.run.goodput import goodput
from oracle.run.interrupted import Failure, interrupted
from oracle.show.recovery import recovery
from oracle.spec.document import SpecError
from oracle.spec.options import SLOTS
from oracle.spec.running import Checkpoint

pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
HERE = Path(__file__).parent
DROPPED = {**VGG, "name": "dropped", "layers": [*VGG["layers"][:-2], {"dropout": 0.5},
                                                *VGG["layers"][-2:]]}  # fmt: skip
CASES = [
    {"name": f"{what['name']} {plan} {optimizer} {way}", "model": what, "plan": plan, "batch": 8,
     "optimizer": optimizer, "way": way, "damage": number == 3}
    for number, (what, plan, optimizer, way) in enumerate([
        (VGG, "serial", "adam", "rank0"),
        (VGG, "data:4", "momentum", "sharded"),
        (VGG, "data:3", "momentum", "rank0"),
        (VGG, "data:4,zero=1", "adam", "sharded"),
        (VGG, "data:2,zero=2,accumulate=2", "momentum", "async"),
        (VGG, "data:4,zero=3", "adam", "rank0"),
        (VGG, "data:2,zero=3", "adam", "async"),
        (VGG, "sharded:2 data:2", "adam", "sharded"),
        (GPT, "tensor:2", "adam", "sharded"),
        (GPT, "data:2,zero=1 tensor:2,sequence=on", "adam", "async"),
        (GPT, "data:2 context:2", "momentum", "sharded"),
        (RESNET, "filter:2 channel:2", "momentum", "sharded"),
        (RESNET, "data:2 filter:2", "adam", "rank0"),
        (VGG, "data:2,zero=1 spatial:2", "adam", "sharded"),
        (RESNET, "channel:2", "adam", "async"),
        (RESNET, "pipeline:2,segments=2 data:2", "momentum", "rank0"),
        (VGG, "pipeline:2,segments=4,interleave=3", "sgd", "sharded"),
        (DROPPED, "data:2", "lars", "sharded"),
    ])
]  # fmt: skip

CASES.append(CASES[5] | {"name": "of 16 bits", "dtype": "bfloat16"})
BY_ENGINES = [
    {"name": f"{engine} {what['name']} {plan} {optimizer} {way}", "model": what, "plan": plan,
     "batch": 8, "optimizer": optimizer, "way": way, "engine": engine, "damage": number == 2}
    for number, (engine, what, plan, optimizer, way) in enumerate([
        ("ddp", VGG, "data:2", "momentum", "sharded"),
        ("ddp", VGG, "data:4", "momentum", "rank0"),
        ("ddp", VGG, "data:2,zero=1", "adam", "rank0"),
        ("ddp", DROPPED, "data:2,accumulate=2", "adam", "async"),
        ("fsdp2", VGG, "data:4,zero=3", "adam", "sharded"),
        ("fsdp2", VGG, "data:2 sharded:2", "adam", "rank0"),
        ("fsdp2", RESNET, "data:2,zero=2,accumulate=2", "momentum", "async"),
        ("pipelining", VGG, "pipeline:2,segments=2 data:2,zero=3", "adam", "sharded"),
        ("dtensor", GPT, "sharded:2 context:2", "adam", "sharded"),
    ])
]  # fmt: skip


# one of each model, optimizer, way of saving and kind of axis; all others, and engines, are slow
QUICK = ("vgg data:4,zero=1 adam sharded", "gpt data:2,zero=1 tensor:2,sequence=on adam async",
         "resnet pipeline:2,segments=2 data:2 momentum rank0",
         "dropped data:2 lars sharded")  # fmt: skip


@pytest.fixture(scope="module")
def proved(tmp_path_factory):
    pytest.importorskip("torch")
    path = os.pathsep.join([str(HERE), str(HERE.parent)])

    @cache
    def ran(backend, quick):
        folder = tmp_path_factory.mktemp(backend)
        mine = [case for case in {"ordered": CASES, "gloo": BY_ENGINES}[backend]
                if (case["name"] in QUICK) == quick]  # fmt: skip
        outcome = launch(
            "checkpoint_tasks:prove", {"cases": mine, "folder": str(folder)}, folder / "parts",
            ranks=4, trust=True, host=Host(environment=lambda rank: {"PYTHONPATH": path}),
            backend=backend,
        )  # fmt: skip
        assert outcome.code == DONE, outcome.message
        return records.of_all_ranks(folder / "parts", 4)

    return lambda case: ran("gloo" if "engine" in case else "ordered", case["name"] in QUICK)[
        case["name"]]  # fmt: skip


@pytest.mark.parametrize("case", [
    pytest.param(case, id=case["name"],
                 marks=[pytest.mark.slow] if case["name"] not in QUICK else [])
    for case in (*CASES, *BY_ENGINES)
])  # fmt: skip
def test_training_goes_on_bit_by_bit(proved, case):
    ranks = proved(case)
    assert not [rank["error"] for rank in ranks if "error" in rank]
    assert all(rank["step"] == 2 for rank in ranks)
    if case.get("engine") == "ddp" and "data:4" in case["plan"]:
        # it begins with other buckets, in which more than two gradients add up in another order
        assert max(rank["apart"] for rank in ranks) < 1e-6
    else:
        assert all(rank["same"] for rank in ranks)
    assert all(rank["kept"] == 1 + case["damage"] for rank in ranks)
    assert any(rank["trained"] for rank in ranks)
    width = 4 + (2 if "dtype" in case else 0)  # of weights, and of their masters
    state = (width + 4 * SLOTS[case["optimizer"]]) * model(case["model"]).parameters
    assert sum(rank["bytes"] for rank in ranks) == state  # each element once
    assert sum(rank["read"] for rank in ranks) >= state
    assert all(bool(rank["passed"]) == case["damage"] for rank in ranks)


# a folder of checkpoints

WHOLE = [Section(0, "weight", "[[0, 8]]", "weights", 0, 5),
         Section(0, "weight", "[[0, 8]]", "weights", 5, 8)]  # fmt: skip


def kept(folder, step, keep=2):
    for rank, one in enumerate(WHOLE):
        file = StateFile(folder, step, rank, Throttle())
        file.add(one, memoryview(bytes(range(one.begin, one.end))))
        file.finish()
        assert checkpoints.all_written(folder, step, 2) == bool(rank)
    checkpoints.commit(folder, step, {"question": {"plan": "data:2"}}, keep)


def content(folder, step):
    wanted = Section(0, "weight", "[[0, 8]]", "weights", 3, 8)
    found = SavedState(folder, step).overlapping(wanted)
    return b"".join(part[max(3 - one.begin, 0) :] for one, part in found)


def test_what_is_kept_is_read_back_and_the_oldest_go(tmp_path):
    for step in (5, 10, 15):
        kept(tmp_path, step)
    assert checkpoints.steps(tmp_path) == [15, 10]
    assert content(tmp_path, 15) == bytes([3, 4, 5, 6, 7])
    kept(tmp_path, 10)  # once more, by a training that went on from an earlier one
    assert checkpoints.steps(tmp_path) == [15, 10]


@pytest.mark.parametrize(("name", "how"), [
    ("rank-00001.state", "bit"), ("rank-00001.state", "cut"), ("rank-00000.state", "gone"),
    ("rank-00000.json", "bit"), ("rank-00000.json", "cut"), ("manifest.json", "bit"),
    ("manifest.json", "gone"),
], ids=str)  # fmt: skip
def test_damage_is_found_and_the_one_before_is_whole(tmp_path, name, how):
    kept(tmp_path, 5)
    kept(tmp_path, 10)
    path = tmp_path / "step-00000010" / name
    if how == "gone":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        damage(path)
    with pytest.raises(Damaged, match="step-00000010"):
        content(tmp_path, 10)
    assert content(tmp_path, 5) == bytes([3, 4, 5, 6, 7])


def test_what_is_half_written_is_no_checkpoint(tmp_path):
    kept(tmp_path, 5)
    StateFile(tmp_path, 10, 0, Throttle()).add(WHOLE[0], memoryview(bytes(5)))
    assert checkpoints.steps(tmp_path) == [5]
    assert checkpoints.newest(tmp_path)[0]["step"] == 5
    checkpoints.clear(tmp_path)
    assert [each.name for each in tmp_path.iterdir()] == ["step-00000005"]


def test_a_folder_is_of_one_training_at_a_time(tmp_path):
    handle = checkpoints.claim(tmp_path)
    with pytest.raises(SpecError, match="another training"):
        checkpoints.claim(tmp_path)
    os.close(handle)
    os.close(checkpoints.claim(tmp_path))


def test_nothing_elsewhere_is_written_or_removed(tmp_path):
    folder, outside = tmp_path / "kept", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    (outside / "manifest.json").write_text("mine")
    (folder / "step-00000005").symlink_to(outside)
    (folder / "step-00000010.partial").symlink_to(outside)
    assert checkpoints.steps(folder) == []
    for refused in (lambda: checkpoints.clear(folder), lambda: kept(folder, 10)):
        with pytest.raises((SpecError, OSError)):
            refused()
    assert [each.name for each in outside.iterdir()] == ["manifest.json"]
    (folder / "step-00000010.partial").unlink()
    (folder / "step-00000005").unlink()
    kept(folder, 5)
    (folder / "step-00000005" / "notes.txt").write_text("mine")
    kept(folder, 10, keep=1)
    assert (folder / "step-00000005" / "notes.txt").read_text() == "mine"


# a training that fails


def test_failures_are_walked_through_by_hand():
    # steps of 1 s, a checkpoint of 0.5 s after 4 and 8; it dies 0.5 s into step 6, and within the
    # checkpoint after 8, and begins anew after 3 s each time
    found = interrupted(10, 1.0, 4, 0.5, [Failure(6), Failure(8, 0.5, True)], restart=3.0)
    assert (found.lost, found.restarts) == (1.5 + 4.25, 6.0)
    assert found.seconds == 10 + 2 * 0.5 + 1.5 + 4.25 + 6
    # copied aside in 0.5 s and safe 2 s later: at step 6 that of step 4 is not yet safe
    late = interrupted(10, 1.0, 4, 0.5, [Failure(6)], restart=3.0, safe_after=2.0)
    assert late.lost == 4 + 0.5 + 1.5
    assert interrupted(10, 1.0, 4, 0.5, [], 3.0, begin=4).seconds == 6.5


def test_failures_at_random_cost_what_they_do_on_average():
    """A failure each 5,000 s, over 500,000 steps: the closed form agrees."""
    random = np.random.default_rng(5)
    steps, between, restart = 500_000, 5_000.0, 50.0
    at = random.uniform(0, steps, random.poisson(steps * 1.05 / between))
    failures = [Failure(1 + int(x), x % 1) for x in sorted(at)]
    found = interrupted(steps, 1.0, 100, 5.0, failures, restart)
    share = goodput(between, 5.0, restart, 100.0)
    assert found.progress / found.seconds == pytest.approx(float(share.progress), abs=0.003)
    assert found.checkpoints / found.seconds == pytest.approx(float(share.checkpoints), abs=0.001)


@pytest.mark.parametrize("way", ["rank0", "sharded", "async"])
@pytest.mark.parametrize(("what", "plan", "optimizer"), [
    (VGG, "filter:2", "sgd"), (RESNET, "data:2,zero=3", "momentum"), (GPT, "tensor:2", "adam"),
], ids=["vgg", "resnet", "gpt"])  # fmt: skip
def test_what_is_measured_is_what_a_training_is_priced_by(what, plan, optimizer, way):
    """Its bytes in 32 bits, and the seconds until they are safe, on storage that is known."""
    where = system()
    options = options_for(model(what), where, "fp32", optimizer, software="plain")
    shown = estimate(model(what), where, [plan], [8], options)
    saved = saving(shown, 0, Checkpoint(way))
    took = {"way": way, "every": 2, "file_system": "played", "nodes": 2, "seconds": {"copy": 0.0}}
    work = dict.fromkeys(("forward", "backward", "update"), 0.1)
    one = measured.Measurement("m", plan, 8, 2, 0.5, (0.5,), work, (), 1e6, (),
                               {"precision": "fp32", "optimizer": optimizer},
                               recovery=Recovery(took, (), {}))  # fmt: skip
    said = recovered(one, model(what), where)
    assert said["bytes"] == saved.state.whole
    copied = said["seconds"] if way == "async" else 0.0
    assert said["safe_after"] - copied == pytest.approx(saved.written)
    assert recovered(one, model(what))["unknown"] == ["the storage of a `--system`"]


def test_only_failures_that_were_asked_for_are_started_again(tmp_path):
    fail = [asdict(one) for one in (Planted(7, 0, "hang"), Planted(3, 1), Planted(8, 1))]
    kinds, seen = iter(["killed", "stalled", "raised"]), []

    def start(number, left):
        (tmp_path / f"attempt-{number + 1:04d}").mkdir()
        seen.append([one["step"] for one in left])
        kind = next(kinds)
        return Outcome(FAILED, kind, RankFault(0 if kind == "stalled" else 1, "here", kind, ""))

    outcome, failures = started_again(start, fail, tmp_path, lambda _: None)
    assert outcome.message == "raised"
    assert seen == [[3, 7, 8], [7, 8], [8]]
    assert [(one["step"], one["attempt"]) for one in failures] == [(3, 1), (7, 2)]


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "plan", "backend"), [
    ("native", "data:2", "ordered"), ("ddp", "data:2", "gloo"), ("fsdp2", "data:2,zero=3", "gloo"),
])  # fmt: skip
def test_ranks_that_die_amid_a_checkpoint_go_on_from_the_one_before(
    tmp_path, engine, plan, backend
):
    torch = pytest.importorskip("torch")
    how = Keeping("sharded", str(tmp_path / "kept"), every=2, resume=True)
    job = PlanRun(VGG, plan, 8, 6, 1, checkpoint=asdict(how), engine=engine,
                  fail=(asdict(Planted(6, 1, "checkpoint")),))  # fmt: skip
    outcome, (found,) = run(job, tmp_path / "m.json", ranks=2, backend=backend)
    assert outcome.code == DONE, outcome.message
    assert measured.read(tmp_path / "m.json") == [json_like(found)]
    assert found.complete
    assert len(found.step_seconds) == 6
    saved, (failure,) = found.recovery.checkpoints, found.recovery.failures
    said = recovered(found, model(VGG))
    assert said["bytes"] == saved["bytes"] == 8 * model(VGG).parameters
    assert [one["step"] for one in saved["each"]] == [2, 4, 6]
    assert (failure["rank"], failure["step"], failure["from"]) == (1, 6, 4)
    assert failure["again"]["steps"] == 2
    assert 0 < failure["detection"] < 3 < 60
    assert sum(failure["parts"].values()) == pytest.approx(failure["restart"])
    spent = found.recovery.goodput
    names = ("progress", "checkpoints", "lost", "detection", "restart", "other")
    assert sum(spent[name] for name in names) == pytest.approx(spent["seconds"])
    assert said["goodput"]["seconds"] == pytest.approx(spent["seconds"], rel=0.25)
    assert len([*recovery(found.recovery, said)]) == 3
    assert checkpoints.steps(tmp_path / "kept") == [6, 4]
    assert not list((tmp_path / "kept").glob("*.partial"))
    weights = alone(torch, job)
    for name, whole in weights.items():
        assert torch.allclose(read_back(torch, tmp_path / "kept", name), whole, atol=1e-5)
    same(tmp_path / "m.json.parts", [job.question(2, backend)])
    other = "data:2,overlap=off"
    again = asdict(job) | {"plan": other, "fail": ()}
    with pytest.raises(SpecError, match=f"plan was {plan} and is {other}"):
        run(PlanRun(**again), tmp_path / "other.json", ranks=2)


def json_like(one):
    return measured.Measurement.from_json(json.loads(json.dumps(one.as_json())))


def alone(torch, job):
    """Weights after the same steps on one device, which never stopped."""
    from oracle.executor.local.batch import inputs
    from oracle.executor.local.graph import graph
    from oracle.executor.local.local_model import LocalModel
    from oracle.executor.messages.mesh import DeviceMesh
    from oracle.executor.messages.wire import Wire
    from oracle.executor.steps.optimizer import Optimizer
    from oracle.executor.steps.trainer import Trainer
    from oracle.plan.plan import parse

    plan = parse("serial", job.batch)
    local = LocalModel(graph(job.model), plan, Wire(DeviceMesh(plan, 0, 1)))
    trainer = Trainer(local, Optimizer(job.optimizer, rate=1e-4))
    x, target = inputs(local.graph, job.batch, job.seed, torch.float32)
    for _ in range(job.warm_up + job.steps):
        trainer.step(x, target)
    return {(held.op.index, held.name): held.value.detach().flatten()
            for held in local.held_weights}  # fmt: skip


def read_back(torch, folder, of):
    found = SavedState(folder, 6)
    (sections,) = (parts for key, parts in found.sections.items()
                   if (key[0], key[1], key[3]) == (*of, "weights"))  # fmt: skip
    op, name, held, kind = sections[0][1].key
    end = max(one.end for _, one in sections)
    parts = found.overlapping(Section(op, name, held, kind, 0, end))
    parts = sorted(parts, key=lambda part: part[0].begin)
    return torch.frombuffer(bytearray(b"".join(part for _, part in parts)), dtype=torch.float32)


RUN = ["run", "lenet5", "--plan", "data:2", "--batch", "8", "--local", "2", "--steps", "8", "-o"]


@pytest.mark.parametrize(("words", "said"), [
    ("--checkpoint sharded", "needs a folder"),
    ("--checkpoint some,to=F", "no way to keep"),
    ("--checkpoint sharded,every=0,to=F", "no whole number"),
    ("--checkpoint sharded,every=2,every=3,to=F", "no way to keep"),
    ("--resume", "none are kept"),
    ("--fail 3", "none are kept"),
    ("--checkpoint sharded,to=F --fail 9", "steps 1 to 8"),
    ("--checkpoint sharded,to=F --fail 3,rank=2", "ranks 0 to 1"),
    ("--checkpoint sharded,to=F --fail 3,at=checkpoint", "after step 3"),
    ("--checkpoint sharded,to=F --fail soon", "no failure"),
    ("--checkpoint sharded,to=F --replay", "trains nothing"),
    ("--checkpoint sharded,to=F --plan data:1", "one plan at a time"),
    ("--checkpoint sharded,to=LINK", "a link"),
    ("--checkpoint sharded,to=/dev/null/kept", "Not a directory"),
    ("--checkpoint sharded,to=KEPT", "--resume"),
    ("--checkpoint sharded,to=KEPT --resume", "of another training: model was"),
], ids=lambda word: word if word.startswith("--") else "")  # fmt: skip
def test_what_cannot_be_kept_is_refused_before_a_rank_starts(tmp_path, capsys, words, said):
    pytest.importorskip("torch")
    (tmp_path / "LINK").symlink_to(tmp_path)
    for name in ("F", "KEPT", "LINK"):
        words = words.replace(f"to={name}", f"to={tmp_path / name}")
    if "KEPT" in words:
        (tmp_path / "KEPT").mkdir()
        kept(tmp_path / "KEPT", 5)
    assert main([*RUN, str(tmp_path / "m.json"), *words.split()]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "m.json.parts").exists()


def test_ranks_of_another_launcher_are_not_started_again(tmp_path, capsys, monkeypatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    line = [word for word in RUN if word not in ("--local", "2")]
    words = ["--checkpoint", f"sharded,to={tmp_path}", "--fail", "3"]
    assert main([*line, str(tmp_path / "m.json"), *words]) == 2
    assert "another launcher" in capsys.readouterr().err
