"""Runs give measurements: complete or marked, resumable, in the words of an estimate."""

import argparse
import json
from dataclasses import replace
from pathlib import Path

import pytest
from equality_cases import GPT, RESNET, VGG

import oracle
from oracle.commands.cli import main
from oracle.commands.run import stages, units
from oracle.executor import measured
from oracle.executor.measure.profile import measure_compute
from oracle.executor.measured import MeasuredExchange, Measurement, waited
from oracle.executor.plan_run import PlanRun
from oracle.executor.ranks.launch import DONE
from oracle.executor.run import run
from oracle.executor.supported import NotSupported
from oracle.kernels.profile import profile as read_profile
from oracle.writers.trace import with_measured

pytestmark = pytest.mark.flaky(reruns=1)  # ranks wait for each other, and for the machine
ONE = Measurement(
    "m", "data:2", 8, 2, 0.5, (0.5, 0.6, 0.4), {"forward": 0.1, "backward": 0.2, "update": 0.01},
    (MeasuredExchange("data: gradients", "allreduce", 2, 1.0, 4096.0, 0.1),), 1e6,
    ({"host": "a", "work": 1.0, "memory": 1e6}, {"host": "b", "work": 1.1, "memory": 1e6},
     {"host": "c", "work": 1.9, "memory": 1e6}),
    {"precision": "fp32"}, {"torch": "2"}, ((0, 3),),
)  # fmt: skip


def test_measurement_survives_its_file(tmp_path):
    measured.write(tmp_path / "m.json", [ONE])
    assert measured.read(tmp_path / "m.json") == [ONE]


def test_waiting_for_a_late_rank_is_told_from_the_transfer(tmp_path):
    """Rank 1 comes 2 s late to the first of two sums, rank 0 half a second to the second."""
    both, alone = (0, 1), (2, 3)
    ranks = [
        [("sum", both, 1.0, 1.0, 4.0), ("sum", both, 6.5, 6.5, 7.0)],
        [("sum", both, 3.0, 3.0, 4.0), ("sum", both, 6.0, 6.0, 7.0)],
        # began beside work at 1, waited for from 5 to 6: the other was there long before
        [("sum", alone, 1.0, 5.0, 6.0)],
        [("sum", alone, 4.0, 4.0, 6.0)],
    ]
    assert waited(ranks) == [{"sum": 2.0}, {"sum": 0.5}, {"sum": 0.0}, {"sum": 0.0}]
    late = replace(ONE, exchange=(replace(ONE.exchange[0], waiting=0.04),))
    measured.write(tmp_path / "m.json", [late])
    assert measured.read(tmp_path / "m.json") == [late]
    (said,) = json.loads((tmp_path / "m.json").read_text())["plans"][0]["exchange"]
    assert (said["waiting"], said["transfer"]) == (0.04, pytest.approx(0.06))


def test_a_traced_step_lies_beside_the_predicted_one(tmp_path):
    """What PyTorch's profiler saw from the step's beginning, and what the oracle foresaw."""
    pytest.importorskip("torch")
    out, drawn = tmp_path / "run.json", tmp_path / "trace.json"
    said = ["run", "lenet5", "--local", "1", "--batch", "4", "--plan", "serial", "--steps", "1",
            "--warm-up", "1", "--system", "abci", "-o", str(out)]  # fmt: skip
    assert main([*said, "--trace", str(drawn)]) == 0
    found = json.loads(drawn.read_text())
    (wide,) = measured.read(out)
    assert wide.seconds / 20 < found["otherData"]["measured_seconds"] < wide.seconds * 20
    every = found["traceEvents"]
    titles = {e["pid"]: e["args"]["name"] for e in every if e["name"] == "process_name"}
    assert [title.split(",")[0] for title in titles.values()] == ["predicted", "measured"]
    passes = {pid: [e["name"].split()[0] for e in every if e["ph"] == "X" and e["pid"] == pid
                    and e["name"].split()[0] in ("forward", "backward", "update")]
              for pid in titles}  # fmt: skip
    assert [*passes.values()] == [["forward", "backward", "update"]] * 2
    (first,) = [e["ts"] for e in every if e["pid"] == 1000 and e["name"] == "forward"]
    assert 0 <= first < found["otherData"]["measured_seconds"] * 1e6
    assert {"aten::mm", "aten::addmm"} & {e["name"] for e in every}
    assert main([*said, "--plan", "data:1", "--trace", str(drawn)]) == 2


def test_messages_of_a_trace_are_waiting_and_transfer():
    rank = {"host": "a", "seconds": 2.0, "events": [
        {"name": "forward", "cat": "user", "track": "7", "began": 0.5, "seconds": 1.0}],
        "messages": [{"what": "sum", "began": 1.0, "waiting": 0.25, "seconds": 0.75}]}  # fmt: skip
    bars = [e for e in with_measured([rank], None)["traceEvents"] if e["ph"] == "X"]
    assert [(e["name"], e["tid"], e["ts"], e["dur"]) for e in bars] == [
        ("sum, waiting", 0, 1e6, 0.25e6), ("sum, transfer", 0, 1.25e6, 0.5e6),
        ("forward", 1, 0.5e6, 1e6),
    ]  # fmt: skip


def test_straggler_is_named_with_its_host():
    assert ONE.stragglers == ["rank 2 on c: 1.7 times the median"]


OTHERS = [
    "", "[]", "{}", '{"schema": 1}', '{"measured": true, "schema": 9}',
    '{"measured": true, "schema": 1, "plans": [{}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", OTHERS)
def test_other_files_are_refused_by_name(tmp_path, text):
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"other\.json"):
        measured.read(path)


def test_run_is_told_where_the_oracle_cuts():
    given = {"model": "resnet50", "batch": 64, "precision": "fp32", "optimizer": "momentum",
             "profile": None, "max_memory": None, "software": None}  # fmt: skip
    asked = argparse.Namespace(system="abci", **given)
    edges = stages(asked, "pipeline:4,segments=4,cuts=balanced")
    assert len(edges) == 5
    units = len(oracle.model("resnet50").units[1])
    assert (edges[0], edges[-1], sorted(set(edges))) == (0, units, list(edges))
    assert stages(asked, "data:4") == ()
    asked.system = None
    assert stages(asked, "pipeline:4,segments=4") == ()


def test_run_is_told_what_units_do():
    """The less room, the more leave; where no room is told, nobody can say."""
    asked = argparse.Namespace(system="dgx-a100", model="gpt2", batch=16, precision="fp32",
                               optimizer="adam", profile=None, max_memory="20 GB")  # fmt: skip
    plan = "offload:activations"
    assert units(asked, "data:4 recompute:full", ()) == ()
    said = units(asked, plan, ())
    assert len(said) == len(oracle.model("gpt2").units[1])
    assert set(said) == {"keep", "offload"}
    asked.max_memory = "10 GB"
    assert units(asked, plan, ()).count("offload") > said.count("offload")
    asked.system = None
    with pytest.raises(ValueError, match="--system"):
        units(asked, plan, ())


def test_precision_that_cannot_be_run_is_refused():
    with pytest.raises(NotSupported, match="fp8"):
        run(PlanRun(VGG, "serial", 8, precision="fp8"), Path("unused"), ranks=1)


@pytest.mark.slow
def test_run_resume_and_replay(tmp_path):
    pytest.importorskip("torch")
    plans = ["serial", "data:2", "filter:2", "pipeline:2,segments=2"]
    jobs = [PlanRun(RESNET, plan, 8, steps=2, warm_up=1) for plan in plans]
    units = len(oracle.model(RESNET).units[1])
    jobs[-1] = replace(jobs[-1], stages=(0, 3, units))
    out, said = tmp_path / "m.json", []
    outcome, found = run(jobs[:2], out, ranks=2, say=said.append, backend="ordered")
    assert outcome.code == DONE, outcome.message
    assert [one.plan for one in found] == plans[:2]
    outcome, found = run(jobs, out, ranks=2, say=said.append, backend="ordered")
    assert outcome.code == DONE, outcome.message
    steps = [line for line in said if line.startswith("iteration")]
    assert (len(said) - len(steps), len(steps)) == (4, 8)  # the first two were not run again
    assert [one.plan for one in found] == plans
    assert [one.devices for one in found] == [1, 2, 2, 2]
    assert all(one.complete and len(one.step_seconds) == 2 and one.seconds > 0 for one in found)
    assert found[-1].stages == ((0, 3), (3, units))
    exchange = {said.what: said for said in found[1].exchange}
    assert set(exchange) == {"data: gradients"}
    assert exchange["data: gradients"].bytes == pytest.approx(
        4 * sum(row.weights * n for row, n in _rows())
    )
    document = json.loads(out.read_text())
    assert set(document["plans"][1]["compute"]) == {"forward", "backward", "update"}
    assert document["plans"][1]["measured"]["environment"]["backend"] == "ordered"

    outcome, played = run(jobs[1:3], tmp_path / "r.json", ranks=2, replay=True,
                          backend="ordered")  # fmt: skip
    assert outcome.code == DONE, outcome.message
    for one, real in zip(played, found[1:3], strict=True):
        told = {s.what: s for s in real.exchange if "loss" not in s.what}
        assert {s.what: s.calls for s in one.exchange} == {w: s.calls for w, s in told.items()}
        for said_ in one.exchange:
            assert said_.bytes == pytest.approx(told[said_.what].bytes, rel=1e-6)


def _rows():
    from oracle.models.model import model

    network = model(RESNET)
    return zip(network.rows, network.repeat, strict=True)


@pytest.mark.slow
def test_gradients_of_the_norms_of_cut_tensors_go_in_one_message(tmp_path):
    """Each is of a few hundred bytes, so that many messages would take as long as many starts."""
    pytest.importorskip("torch")
    job = PlanRun(GPT, "data:1 tensor:2,sequence=on", 2, steps=1, warm_up=1)
    _, (found,) = run(job, tmp_path / "m.json", ranks=2, backend="ordered")
    (norms,) = [one for one in found.exchange if one.what == "tensor: norms of cut tensors"]
    width, norms_of_all = GPT["transformer"]["hidden"], 2 * GPT["transformer"]["layers"] + 1
    assert norms.calls == 1
    assert norms.bytes == 4 * 2 * width * norms_of_all  # weights and biases, in fp32


@pytest.mark.slow
def test_profile_has_every_row_of_the_plans_at_its_local_shape(tmp_path):
    pytest.importorskip("torch")
    from oracle.executor.local.cuts import shard_of
    from oracle.models.model import model
    from oracle.plan.plan import parse

    plans = ["serial", "data:2", "filter:2", "pipeline:2,segments=2"]
    jobs = [PlanRun(RESNET, plan, 8, steps=2, warm_up=1) for plan in plans]
    outcome = measure_compute(jobs, tmp_path / "p.jsonl", ranks=2, backend="ordered")
    assert outcome.code == DONE, outcome.message
    profile, network = read_profile(tmp_path / "p.jsonl"), model(RESNET)
    for plan in plans:
        shard = shard_of(network, parse(plan, 8), 4.0)
        for row in range(len(network)):
            found = profile.lookup(shard, 0, row)
            assert found.forward > 0
            assert found.backward >= 0
    assert {each.weights for each in profile.updates} >= {network.parameters}
