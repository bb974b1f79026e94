"""The proof of a machine tries every strategy, finds what is broken, and says what it is."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import told

from oracle.ask.proved import checks
from oracle.executor.proof.machine import BOUND, Proof, proof_of
from oracle.executor.proof.plans import BATCH, MODELS, plans
from oracle.executor.ranks.launch import DONE, Host, launch
from oracle.models.model import model
from oracle.plan.plan import parse
from oracle.plan.strategies import strategies
from oracle.spec.catalogue import system

HERE = Path(__file__).parent
TWO = ["data:2", "pipeline:2,segments=2"]
SOUND = Proof(8, 1, "a device", "nccl", {"allreduce in groups of 8": 0}, {"images data:8": 1e-16},
              0, 1.5e12, {"allreduce": 200e9})  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_every_strategy_that_runs_is_tried_alone_and_with_others(ranks):
    tried = [parse(text, BATCH) for what in MODELS.values() for text in plans(model(what), BATCH,
                                                                              ranks)]  # fmt: skip
    assert all(1 <= plan.devices[0, 0] <= ranks for plan in tried)
    for name, new in strategies().items():
        if not new.runs and new.runs != ():
            continue
        own = [plan for plan in tried if plan.axis(name).active]
        degrees = {float(plan.axis(name).degree[0, 0]) for plan in own if new.degrees}
        if not new.degrees:
            assert own, name
        else:
            assert degrees == {d for d in (2.0, 4.0, 8.0) if d <= ranks}, name
        beside = [plan for plan in own if (plan.devices > plan.axis(name).degree).any()]
        assert bool(beside) == (ranks > 2) or not new.degrees, name


def test_a_sound_machine_is_said_to_be_sound():
    assert all(one.sound for one in checks(SOUND, system("dgx-a100")))
    exchanges, trained, memory, link = checks(SOUND)
    assert "1 exchanges among 8 ranks on 1 node" in exchanges.words
    assert "1 plans train as one device does, to 1e-16" in trained.words
    assert "--system" in memory.words
    assert link.check == "allreduce"


@pytest.mark.parametrize(("change", "check", "says"), [
    ({"exchanges": {"halo in groups of 4": 3}}, "exchanges", "halo in groups of 4 deliver wrong"),
    ({"plans": {"images data:8": 1e-16, "words tensor:2": 1e-3}}, "plans",
     "words tensor:2 train otherwise"),
    ({"memory": 3e11}, "memory", "15% of the 2.04 TB/s in the system's file: is another job"),
    ({"rates": {"sendrecv": 900e9}}, "sendrecv", "more than it can be"),
])  # fmt: skip
def test_what_is_wrong_is_named(change, check, says):
    found = {one.check: one for one in checks(replace(SOUND, **change), system("dgx-a100"))}
    assert [name for name, one in found.items() if not one.sound] == [check]
    assert says in found[check].words


def test_plans_that_were_not_tried_are_said():
    said = next(one for one in checks(replace(SOUND, untried=9)) if one.check == "plans")
    assert "no time for 9 more, --seconds gives it" in said.words


@pytest.mark.slow
@pytest.mark.flaky(reruns=1)
def test_a_broken_exchange_is_found(tmp_path):
    pytest.importorskip("torch")
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    host = Host(environment=lambda rank: {"PYTHONPATH": path})
    asked = {"seconds": 60, "plans": TWO}
    outcome = launch("proof_tasks:broken", asked, tmp_path, ranks=2, trust=True, host=host,
                     backend="ordered")  # fmt: skip
    assert outcome.code == DONE, outcome.message
    proof = proof_of(tmp_path)
    assert [name for name, wrong in proof.exchanges.items() if wrong] == [
        "allreduce in groups of 2"
    ]
    off = {name for name, far in proof.plans.items() if far > BOUND}
    assert off == {f"{model} data:2" for model in MODELS}  # stages add nothing up
    assert {one.check for one in checks(proof) if not one.sound} == {"exchanges", "plans"}


@pytest.mark.flaky(reruns=1)
@pytest.mark.slow
def test_ranks_of_a_launcher_prove_themselves(tmp_path):
    pytest.importorskip("torch")
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--no-python",
                "--nproc-per-node", "2"]  # fmt: skip
    done = subprocess.run(
        [*torchrun, sys.executable, "-m", "oracle", "selftest", "--seconds", "3"], cwd=tmp_path,
        capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.count("sound  exchanges") == 1  # one rank speaks
    assert "train as one device does" in done.stdout
    assert "on 2 ranks of" in done.stdout
    assert not list(tmp_path.iterdir())


def test_without_a_gpu_the_proof_of_one_is_refused(capsys):
    pytest.importorskip("torch")
    if list(Path("/proc/driver/nvidia/gpus").glob("*")):
        pytest.skip("there is a GPU here")
    code, _, err = told(capsys, "selftest", "--gpu")
    assert code == 2
    assert "no GPU" in err
    assert "--local 4" in err
