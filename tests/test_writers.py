"""Exports checked by their readers: torchrun, DeepSpeed, torchtitan, shellcheck, trace viewers."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import itertools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import oracle
from oracle.commands.cli import main
from oracle.plan.plan import parse
from oracle.spec.document import SpecError
from oracle.writers import export, trace
from oracle.writers.exported import Job

FORMATS = {"job", "nemo", "torchrun", "slurm", "deepspeed", "executor", "megatron", "torchtitan",
           "trace", "rankfile"}  # fmt: skip
GPT = "gpt2"
A100 = "dgx-a100"
MIXTRAL, WHOLE = ("mixtral-8x7b", "dgx-h100"), "data:4 tensor:2,sequence=on expert:4"
PLANS = [  # model, system, plan, batch
    ("resnet50", "abci", "data:16", 1024),
    ("resnet50", "abci", "data:16 filter:4", 1024),
    ("resnet50", "abci", "data:4 spatial:2x2", 64),
    (GPT, A100, "data:8,zero=2,accumulate=4", 64),
    (GPT, A100, "sharded:8", 64),
    (GPT, A100, "data:2 sharded:8", 64),
    (GPT, A100, "pipeline:4,segments=8", 32),
    (GPT, A100, "pipeline:4,segments=8,schedule=gpipe", 32),
    (GPT, A100, "pipeline:4,segments=8,interleave=3", 32),
    (GPT, A100, "data:2 context:4", 8),
    ("mixtral-8x7b", "dgx-h100", "data:8,zero=3 expert:4", 8),
    ("megatron-18.4b", A100, "pipeline:2,segments=8 data:4,zero=1 tensor:8,sequence=on "
                             "recompute:full", 64),
    (GPT, A100, "serial", 8),
]  # fmt: skip


def job(model: Any, system: Any, plan: str, batch: int, **options: Any) -> Job:
    from oracle.models.model import network

    found = oracle.estimate(model, system, [plan], batch, **options)
    return Job(found, parse(plan, float(batch)), network(model)[0].transformer)


def written(format: str, *args: Any, **options: Any) -> dict[str, str]:
    return dict(export.writer(format).files(job(*args, **options)))


def lines(text: str) -> list[str]:
    return [word for line in text.splitlines() for word in line.split()]


def test_every_format_is_found_and_named() -> None:
    assert set(export.formats()) == FORMATS
    assert all(export.formats().values())
    with pytest.raises(SpecError, match="did you mean `slurm`"):
        export.writer("slrum")


# --------------------------------------------------------------- launchers


@pytest.mark.parametrize("asked", PLANS, ids=lambda a: a[2])
def test_torchrun_reads_the_line(asked: Any, tmp_path: Path) -> None:
    run = pytest.importorskip("torch.distributed.run")
    script = written("torchrun", *asked)["launch.sh"]
    seen = tmp_path / "seen"
    fake = tmp_path / "bin" / "torchrun"
    fake.parent.mkdir()
    fake.write_text(f'#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done > "{seen}"\n')
    fake.chmod(0o755)
    (tmp_path / "launch.sh").write_text(script)
    env = {"PATH": f"{fake.parent}:{os.environ['PATH']}", "MASTER_ADDR": "node0"}
    subprocess.run(["bash", str(tmp_path / "launch.sh"), "--lr", "0.1"], check=True, env=env)
    found = run.get_args_parser().parse_args(seen.read_text().splitlines())
    devices = int(parse(asked[2], 1).devices[0, 0])
    assert int(found.nnodes) * int(found.nproc_per_node) == devices
    assert found.training_script == "train.py"
    assert found.training_script_args == ["--lr", "0.1"]


@pytest.mark.parametrize("asked", PLANS, ids=lambda a: a[2])
def test_the_mesh_numbers_ranks_as_the_plan_does(asked: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from oracle.plan.mesh import Groups

    file = tmp_path / "mesh.py"
    file.write_text(written("torchrun", *asked)["mesh.py"])
    spec = importlib.util.spec_from_file_location("mesh", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    plan = parse(asked[2], float(asked[3]))
    devices = int(plan.devices[0, 0])
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=devices)
    try:
        mesh = module.mesh("cpu")
        groups = Groups(plan)
        for dim, name in enumerate(module.NAMES):
            expert = plan.axis("expert").degree[0, 0] > 1
            axis = "data/expert" if name == "data" and expert else name
            assert mesh.size(dim) == groups.sizes[axis][0, 0]
            stride = int(mesh.mesh.stride(dim))
            assert mesh.size(dim) == 1 or stride == groups.strides[axis][0, 0]
    finally:
        dist.destroy_process_group()
    assert module.MICRO_BATCH * module.MICRO_BATCHES * (
        plan.axis("data").degree * plan.axis("sharded").degree
    ) == asked[3]  # fmt: skip


def shell(text: str, tmp_path: Path) -> None:
    file = tmp_path / "script.sh"
    file.write_text(text)
    subprocess.run(["bash", "-n", str(file)], check=True)
    beside = Path(sys.executable).parent / "shellcheck"
    check = shutil.which("shellcheck") or (str(beside) if beside.exists() else None)
    if check:
        ran = subprocess.run([check, "-s", "bash", "-o", "all", "-e", "SC2250,SC2312,SC2310",
                              str(file)], capture_output=True, text=True, check=False)  # fmt: skip
        assert ran.returncode == 0, ran.stdout


@pytest.mark.parametrize("asked", PLANS, ids=lambda a: a[2])
def test_scripts_are_sound(asked: Any, tmp_path: Path) -> None:
    script = written("slurm", *asked)["job.sbatch"]
    shell(script, tmp_path)
    shell(written("torchrun", *asked)["launch.sh"], tmp_path)
    said = dict(
        line.removeprefix("#SBATCH --").split("=", 1)
        for line in script.splitlines()
        if line.startswith("#SBATCH") and "=" in line
    )
    devices = int(parse(asked[2], 1).devices[0, 0])
    assert int(said["nodes"]) * int(said["gpus-per-node"]) == devices
    hours, minutes, _ = said["time"].split(":")
    assert int(hours) * 60 + int(minutes) >= 1


UNLIKE = [  # model, system, plan, batch, (partition, nodes, ranks of a node, GPUs)
    (GPT, "v100-a100-mixed", "data:128", 512, [("v100", 8, 8, True), ("a100", 8, 8, True)]),
    (GPT, "v100-a100-mixed", "on:2/1 data:96", 960, [("a100", 8, 8, True), ("v100", 4, 8, True)]),
    (GPT, "v100-a100-mixed", "on:2 data:64", 512, [("a100", 8, 8, True)]),
    (GPT, "v100-slow-node", "pipeline:2,segments=8 data:64", 512,
     [("sound", 15, 8, True), ("slow", 1, 8, True)]),
    ("resnet50", "xeon-p100-mixed", "on:all,shares=3/1 data:48", 960,
     [("gpu", 2, 8, True), ("cpu", 32, 1, False)]),
]  # fmt: skip


@pytest.mark.parametrize("asked", UNLIKE, ids=lambda a: f"{a[1]} {a[2]}")
def test_nodes_of_several_kinds_are_asked_for_and_dealt_ranks_in_order(
    asked: Any, tmp_path: Path
) -> None:
    *what, kinds = asked
    script = written("slurm", *what)["job.sbatch"]
    shell(script, tmp_path)
    components = script.split("#SBATCH hetjob\n")
    assert len(components) == len(kinds)
    for text, (partition, nodes, each, gpus) in zip(components, kinds, strict=True):
        assert f"#SBATCH --partition={partition}\n#SBATCH --nodes={nodes}\n" in text
        assert (f"#SBATCH --gpus-per-node={each}\n" in text) == gpus
    files = written("torchrun", *what)
    shell(files["launch.sh"], tmp_path)
    said, fake = tmp_path / "said", tmp_path / "torchrun"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {said}\n')
    fake.chmod(0o755)
    started = [each for _, nodes, each, _ in kinds for _ in range(nodes)]
    for number in (0, kinds[0][1] - 1, kinds[0][1], len(started) - 1)[: 4 if kinds[1:] else 0]:
        env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "MASTER_ADDR": "node0"}
        subprocess.run(["bash", str(tmp_path / "script.sh")], check=True,
                       env=env | {"NODE_RANK": str(number)})  # fmt: skip
        words = said.read_text().splitlines()[-1].split()
        assert {f"--nnodes={len(started)}", f"--node-rank={number}",
                f"--nproc-per-node={started[number]}"} <= {*words}  # fmt: skip
    found = written("rankfile", *what)["devices.txt"].splitlines()
    nodes = [node for node, each in enumerate(started) for _ in range(each)]
    assert [line.split()[1] for line in found] == [f"+n{node}" for node in nodes]


def test_a_mesh_says_what_each_partition_does() -> None:
    text = written("torchrun", *UNLIKE[-1][:4])["mesh.py"]
    values = {one.targets[0].id: ast.literal_eval(one.value)  # type: ignore[attr-defined]
              for one in ast.parse(text).body
              if isinstance(one, ast.Assign) and one.targets[0].id != "REPLICAS"}  # type: ignore[attr-defined]  # fmt: skip
    assert values["PARTITIONS"] == {"gpu": (0, 16, 36, 1), "cpu": (16, 32, 12, 1)}
    assert values["MICRO_BATCH"] == 36


def test_jobs_over_unlike_nodes() -> None:
    """One program, the same on all; shares only where a script of one's own deals them."""
    files = written("job", GPT, "v100-a100-mixed", "on:2/1 data:128", 512, software="pytorch-ddp")
    assert "srun --kill-on-bad-exit=1 --het-group=0,1 bash start.sh" in files["job.sbatch"]
    assert "--partition=a100" in files["job.sbatch"].split("hetjob")[0]
    with pytest.raises(SpecError, match="on processors or beside GPUs, not on both"):
        written("job", "lenet5", "xeon-p100-mixed", "data:48", 480, software="executor")
    uneven = "on:all,shares=1/2 data:128"
    with pytest.raises(SpecError, match="pytorch-ddp knows on shares=even only"):
        written("job", GPT, "v100-a100-mixed", uneven, 768, software="pytorch-ddp")
    with pytest.raises(SpecError, match="8 on one of gpu, 1 on one of cpu"):
        _ = job("resnet50", "xeon-p100-mixed", "data:48", 480).per_node
    with pytest.raises(SpecError, match="12 devices of a100 do not fill"):
        _ = job(GPT, "v100-a100-mixed", "data:76", 760).kinds


def test_no_gpu_is_asked_for_where_nodes_compute_themselves() -> None:
    assert "gpus" not in written("slurm", "resnet50", "frontera", "data:8", 64)["job.sbatch"]
    text = written("job", "lenet5", "frontera", "data:2", 64, software="executor")["start.sh"]
    assert "BACKEND:-gloo" in text


def test_batches_that_launchers_cannot_deal_are_refused() -> None:
    with pytest.raises(SpecError, match="--batch"):
        written("torchrun", "resnet50", "abci", "data:16", 1000)
    with pytest.raises(SpecError, match="do not fill nodes"):
        written("slurm", "resnet50", "abci", "data:6", 60)


# --------------------------------------------------------------- frameworks

DEEPSPEED = [
    (GPT, A100, "data:8,zero=2,accumulate=4", 64), (GPT, A100, "sharded:8", 64),
    (GPT, A100, "pipeline:4,segments=8 data:2,zero=1", 64),
    (GPT, A100, "data:8,zero=1 tensor:4 recompute:full", 64), ("resnet50", "abci", "data:16", 1024),
]  # fmt: skip


@pytest.mark.parametrize("asked", DEEPSPEED, ids=lambda a: a[2])
def test_deepspeed_configuration(asked: Any) -> None:
    found = json.loads(written("deepspeed", *asked)["ds_config.json"])
    plan = parse(asked[2], float(asked[3]))
    replicas = int((plan.axis("data").degree * plan.axis("sharded").degree)[0, 0])
    assert found["train_batch_size"] == asked[3] == (
        found["train_micro_batch_size_per_gpu"] * found["gradient_accumulation_steps"] * replicas
    )  # fmt: skip
    assert ("zero_optimization" in found) == ("zero" in asked[2] or "sharded" in asked[2])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("asked", DEEPSPEED, ids=lambda a: a[2])
def test_deepspeed_reads_it(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    config = pytest.importorskip("deepspeed.runtime.config", exc_type=ImportError)
    plan = parse(asked[2], float(asked[3]))
    replicas = int((plan.axis("data").degree * plan.axis("sharded").degree)[0, 0])

    class Mesh:
        get_data_parallel_world_size = staticmethod(lambda: replicas)

    monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
    given = json.loads(written("deepspeed", *asked)["ds_config.json"])
    found = config.DeepSpeedConfig(given, mpu=Mesh())
    assert found.train_batch_size == asked[3]
    assert found.zero_optimization_stage == given.get("zero_optimization", {}).get("stage", 0)
    assert found.bfloat16_config.enabled == ("bf16" in given)


def test_megatron_leaves_experts_whole_where_the_plan_does() -> None:
    for cut in ("whole", "tensor"):  # where nothing is said they are cut as all is
        text = written("megatron", *MIXTRAL, f"{WHOLE},cut={cut}", 8)["megatron.args"]
        said = "--expert-tensor-parallel-size" in text
        assert said == (cut == "whole")
        assert not said or _megatron().parse_args(lines(text)).expert_tensor_parallel_size == 1


@pytest.mark.parametrize(
    "asked", [p for p in PLANS if p[0].startswith(("gpt", "meg", "mix"))], ids=lambda a: a[2]
)
def test_megatron_arguments_say_the_plan(asked: Any) -> None:
    if "gpipe" in asked[2] or "data:2 sharded" in asked[2]:
        with pytest.raises(SpecError, match="Megatron"):
            written("megatron", *asked)
        return
    text = written("megatron", *asked)["megatron.args"]
    found = _megatron().parse_args(lines(text))
    plan = parse(asked[2], float(asked[3]))
    whole = {
        "tensor": found.tensor_model_parallel_size, "context": found.context_parallel_size,
        "pipeline": found.pipeline_model_parallel_size, "expert": found.expert_model_parallel_size,
    }  # fmt: skip
    for axis, degree in whole.items():
        assert degree == plan.axis(axis).degree[0, 0]
    replicas = int((plan.axis("data").degree * plan.axis("sharded").degree)[0, 0])
    assert found.global_batch_size % (found.micro_batch_size * replicas) == 0
    model = oracle.model(asked[0])
    layers = sum(row.work == "attention" for row in model.rows) * model.repeat.max()
    assert found.num_layers == layers


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ("data:4 tensor:2", set()),
        ("data:4 tensor:2,sequence=on", {"sequence_parallel"}),
        ("data:4,zero=1 tensor:2", {"use_distributed_optimizer", "overlap_param_gather"}),
        ("data:4,zero=1 tensor:2,sequence=on",
         {"use_distributed_optimizer", "overlap_param_gather", "sequence_parallel"}),
        ("data:4,zero=2 tensor:2",
         {"use_distributed_optimizer", "overlap_param_gather", "use_megatron_fsdp"}),
    ],
)  # fmt: skip
def test_megatron_is_told_each_knob(knobs: str, said: set[str]) -> None:
    found = _megatron().parse_args(
        lines(written("megatron", GPT, A100, knobs, 32)["megatron.args"])
    )
    turned = {"sequence_parallel", "use_distributed_optimizer", "overlap_param_gather",
              "use_megatron_fsdp", "use_tp_pp_dp_mapping", "swiglu"}  # fmt: skip
    assert {flag for flag in turned if getattr(found, flag)} == said
    assert found.overlap_grad_reduce


def _megatron(version: str = "core_v0.14.0") -> argparse.ArgumentParser:
    """The options of a pinned version, with the types and words its own source gives them."""
    from oracle.writers.megatron import flags

    parser = argparse.ArgumentParser(allow_abbrev=False, exit_on_error=False)
    types = {"int": int, "float": float}
    for flag, kind in flags(version).items():
        if kind == "flag":
            parser.add_argument(flag, action="store_true")
        elif isinstance(kind, list):
            parser.add_argument(flag, choices=kind)
        else:
            one = 1 if flag.endswith("-parallel-size") else None
            parser.add_argument(flag, type=types.get(kind, str), default=one)
    return parser


TITAN = [
    ("llama3-8b", "dgx-h100", "pipeline:2,segments=4 data:4,zero=3 tensor:8,sequence=on", 64),
    ("llama3-8b", "dgx-h100", "data:2 sharded:8 recompute:selective", 64),
    ("llama3-8b", "dgx-h100", "pipeline:4,segments=8,interleave=2 sharded:4,zero=2", 64),
    ("llama3-8b", "dgx-h100", "sharded:8 context:4 recompute:full", 64),
]


@pytest.mark.parametrize("asked", TITAN, ids=lambda a: a[2])
def test_torchtitan_overrides_say_the_plan(asked: Any) -> None:
    words = lines(written("torchtitan", *asked)["torchtitan.args"])
    assert words[:4] == ["--module", "llama3", "--config", "llama3_8b"]
    said = dict(itertools.pairwise(words))
    p = "--parallelism."
    product = 1
    for name in ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel",
                 "context_parallel", "pipeline_parallel"):  # fmt: skip
        product *= int(said[f"{p}{name}_degree"])
    assert product == parse(asked[2], 1).devices[0, 0]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("asked", TITAN, ids=lambda a: a[2])
def test_torchtitan_reads_them(asked: Any) -> None:
    tyro = pytest.importorskip("tyro")
    configs = pytest.importorskip("torchtitan.config.configs", exc_type=ImportError)
    from dataclasses import field, make_dataclass

    from torchtitan.config.manager import custom_registry
    from torchtitan.distributed import activation_checkpoint as recomputed

    kinds = {"training": configs.TrainingConfig, "parallelism": configs.ParallelismConfig}
    whole = make_dataclass("Whole", [
        *((name, kind, field(default_factory=kind)) for name, kind in kinds.items()),
        ("activation_checkpoint", recomputed.ActivationCheckpointingConfig,
         field(default_factory=recomputed.SelectiveAC.Config)),
    ])  # fmt: skip
    words = lines(written("torchtitan", *asked)["torchtitan.args"])[4:]
    found: Any = tyro.cli(whole, args=words, registry=custom_registry, config=())
    plan = parse(asked[2], float(asked[3]))
    assert found.parallelism.pipeline_parallel_degree == plan.axis("pipeline").degree[0, 0]
    assert found.training.global_batch_size == asked[3]
    assert (found.activation_checkpoint is None) == ("recompute" not in asked[2])


REFUSED = [
    ("torchrun", (*MIXTRAL, f"{WHOLE},cut=whole", 8), "one axis"),
    ("megatron", (GPT, A100, "filter:4", 8), "filter"),
    ("megatron", ("resnet50", "abci", "data:4", 64), "list of layers"),
    ("megatron", (GPT, A100, "tensor:4 data:2", 8), "nest"),
    ("megatron", ("opt-175b", A100, "tensor:8", 8), "relu"),
    ("megatron", ("bert-large", A100, "data:8", 8), "GPT"),
    ("deepspeed", ("resnet50", "abci", "data:4 spatial:2x2", 64), "spatial"),
    ("deepspeed", (GPT, A100, "pipeline:4,segments=8,interleave=3", 32), "interleave"),
    ("deepspeed", (GPT, A100, "pipeline:2,segments=2 data:2,zero=3", 32), "ZeRO stage 3"),
    ("deepspeed", (GPT, A100, "data:2 context:4", 8), "context"),
    ("deepspeed", (GPT, A100, "data:2 sharded:8", 64), "within groups"),
    ("torchtitan", ("resnet50", "abci", "data:4", 64), "transformers|list of layers"),
    ("torchtitan", (GPT, A100, "data:8,zero=1", 64), "optimizer alone"),
    ("torchtitan", (GPT, A100, "data:4 filter:2", 64), "filter"),
    ("megatron", (GPT, A100, "pipeline:4,segments=8,schedule=zb-h1", 32), "1F1B only"),
    ("deepspeed", (GPT, A100, "pipeline:4,segments=8,schedule=zb-h1", 32), "1F1B only"),
    ("torchtitan", (GPT, A100, "pipeline:4,segments=8,schedule=zb-h1", 32), "no schedule `zb-h1`"),
    ("trace", (GPT, A100, "pipeline:4,segments=100000", 100000), "viewer"),
]


@pytest.mark.parametrize(("knobs", "name"), [
    ("schedule=gpipe", "GPipe"), ("schedule=1f1b", "1F1B"), ("interleave=3", "Interleaved1F1B"),
    ("schedule=zb-v,interleave=2", "ZBVZeroBubble"),
    ("schedule=dualpipe-v,interleave=2", "DualPipeV"),
])  # fmt: skip
def test_schedules_go_by_the_names_that_torchtitan_has(knobs: str, name: str) -> None:
    degree = 2 if "interleave" in knobs else 4
    text = written("torchtitan", GPT, A100, f"pipeline:{degree},segments=8,{knobs}", 32)
    given = lines(text["torchtitan.args"])
    assert given[given.index("--parallelism.pipeline_parallel_schedule") + 1] == name


@pytest.mark.parametrize(("format", "asked", "word"), REFUSED, ids=lambda a: str(a)[:40])
def test_what_a_format_cannot_say_is_refused_in_words(format: str, asked: Any, word: str) -> None:
    with pytest.raises(SpecError, match=word):
        written(format, *asked)


@pytest.mark.parametrize("optimizer", ["lars"])
def test_optimizers_a_framework_lacks(optimizer: str) -> None:
    for format in ("deepspeed", "megatron", "torchtitan"):
        with pytest.raises(SpecError, match=optimizer):
            written(format, GPT, A100, "data:8", 64, optimizer=optimizer)


# -------------------------------------------------------------------- trace


@pytest.mark.parametrize("asked", PLANS, ids=lambda a: a[2])
def test_a_trace_is_well_formed_and_adds_up(asked: Any) -> None:
    found = json.loads(written("trace", *asked)["trace.json"])
    bars = [one for one in found["traceEvents"] if one["ph"] == "X"]
    assert {one["ph"] for one in found["traceEvents"]} == {"X", "M"}
    tracks: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for one in bars:
        assert one["dur"] >= 0
        assert one["ts"] >= 0
        assert one["name"]
        tracks.setdefault((one["pid"], one["tid"]), []).append((one["ts"], one["ts"] + one["dur"]))
    for spans in tracks.values():
        spans.sort()
        for (_, stop), (start, _) in itertools.pairwise(spans):
            assert start >= stop - 2e-3  # of a microsecond: the third digit is rounded
    plan = parse(asked[2], float(asked[3]))
    stages = int(plan.axis("pipeline").degree[0, 0])
    pieces = int((plan.axis("pipeline").segments * plan.axis("data").accumulate)[0, 0])
    chunks = int(plan.axis("pipeline").interleave[0, 0]) if stages > 1 else 1
    for word in ("forward", "backward"):
        names = [one for one in bars if one["tid"] == 0 and one["name"].startswith(word)]
        assert len(names) == stages * pieces * chunks
    said = found["otherData"]
    near = 1e-9 if stages == 1 else 0.1
    assert said["drawn_seconds"] == pytest.approx(said["predicted_seconds"], rel=near)


@pytest.mark.parametrize("asked", [p for p in PLANS if "pipeline" in p[2]], ids=lambda a: a[2])
def test_a_stage_waits_for_what_it_needs(asked: Any) -> None:
    found = trace.trace(job(*asked))
    begun: dict[tuple[str, str], dict[int, tuple[float, float]]] = {}
    for one in found["traceEvents"]:
        if one["ph"] == "X" and one["tid"] == 0 and one["name"] != "update":
            word, micro = one["name"].split()
            begun.setdefault((word, micro), {})[one["pid"]] = (one["ts"], one["ts"] + one["dur"])
    for (word, _), stages in begun.items():
        order = sorted(stages, reverse=word == "backward")
        for before, after in itertools.pairwise(order):
            assert stages[after][0] >= stages[before][1] - 2e-3


@pytest.mark.filterwarnings("ignore")
def test_perfetto_reads_a_trace(tmp_path: Path) -> None:
    """What it finds on each stream of a step as it was predicted, and as two ranks ran it."""
    pytest.importorskip("perfetto")
    shell_path = os.environ.get("TRACE_PROCESSOR_SHELL")
    if not shell_path:
        pytest.skip("no trace_processor_shell at hand")
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    predicted = json.loads(written("trace", GPT, A100, "pipeline:4,segments=8", 32)["trace.json"])
    found = trace.with_measured(two_ranks(), predicted)
    file = tmp_path / "trace.json"
    file.write_text(json.dumps(found))
    with TraceProcessor(trace=str(file), config=TraceProcessorConfig(bin_path=shell_path)) as tp:
        rows = tp.query("""
            select process.name as process, thread.name as stream, count(*) as slices,
                   sum(slice.dur) as dur, min(slice.ts) as ts
            from slice join thread_track on slice.track_id = thread_track.id
            join thread using (utid) join process using (upid) group by process, stream""")
        read = {(one.process, one.stream): (one.slices, one.dur) for one in rows}
        wrong = next(iter(tp.query("select sum(value) as n from stats where severity = 'error'")))
    assert read == streams_of(found)
    assert not wrong.n


def two_ranks() -> list[dict[str, Any]]:
    """What the profiler saw on two ranks with a GPU: two threads of the host, two streams."""
    tracks = {"python": "cpu_op", "autograd": "cpu_op", "7": "kernel", "20": "kernel"}
    return [
        {"host": host, "seconds": 1.0, "events": [
            {"name": f"{kind} {k}", "cat": kind, "track": track, "began": 0.1 * k,
             "seconds": 0.05} for track, kind in tracks.items() for k in range(count)],
         "messages": [{"what": "data: gradients", "began": 0.5, "waiting": 0.125, "seconds": 0.25}]}
        for host, count in (("a", 3), ("b", 5))
    ]  # fmt: skip


def streams_of(found: dict[str, Any]) -> dict[tuple[str, str], tuple[int, int]]:
    """Bars of a trace, and the nanoseconds that they take, by process and track."""
    every, names = found["traceEvents"], dict[tuple[str, int, int], str]()
    for one in (one for one in every if one["ph"] == "M"):
        own = one["tid"] if one["name"] == "thread_name" else -1
        names[one["name"], one["pid"], own] = one["args"]["name"]
    streams: dict[tuple[str, str], tuple[int, int]] = {}
    for one in (one for one in every if one["ph"] == "X"):
        pid, tid = one["pid"], one["tid"]
        key = names["process_name", pid, -1], names["thread_name", pid, tid]
        count, spent = streams.get(key, (0, 0))
        streams[key] = count + 1, spent + round(one["dur"] * 1e3)
    return streams


def test_each_stream_of_a_traced_step_is_a_track() -> None:
    streams = streams_of(trace.with_measured(two_ranks(), None))
    assert set(streams) == {(f"measured, rank {n} {host}", track)
                            for n, host in enumerate("ab")
                            for track in ("messages", "python", "autograd", "7", "20")}  # fmt: skip
    for (_, track), (count, spent) in streams.items():
        assert spent == pytest.approx(0.25e9 if track == "messages" else count * 0.05e9)
    assert sum(count for count, _ in streams.values()) == 4 * (3 + 5) + 2 * 2


# -------------------------------------------------------------- hostile names

HOSTILE = ['$(touch pwned)', '"; touch pwned; "', "`touch pwned`", "a\n#SBATCH --wrap=touch pwned",
           "=cmd|' /C touch pwned'!A0", "<script>touch('pwned')</script>", "]]>pwned",
           "x' || touch pwned || '", '"""\nimport os; os.mknod("pwned")\n"""', "../../pwned",
           "--help", "\\\n touch pwned"]  # fmt: skip


def hostile(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    level = {"name": "node", "devices": 8, "bandwidth": "300 GB/s", "latency": "5 us",
             "source": name}  # fmt: skip
    device = {"name": name, "memory": "80 GB", "memory_bandwidth": "2 TB/s", "source": name,
              "peak": {"fp32": "19.5 TFLOP/s", "bf16": "312 TFLOP/s"}}  # fmt: skip
    model = {"name": name, "title": name, "source": name, "transformer": {
        "layers": 4, "hidden": 256, "heads": 4, "vocab": 1000, "sequence": 128}}  # fmt: skip
    return model, {"name": name, "device": device, "levels": [level], "source": name}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_run_nothing(name: str, tmp_path: Path) -> None:
    model, system = hostile(name)
    bin = tmp_path / "bin"
    bin.mkdir()
    for tool in ("torchrun", "srun", "scontrol"):
        (bin / tool).write_text("#!/bin/sh\nexit 0\n")
        (bin / tool).chmod(0o755)
    place = tmp_path / "job"
    place.mkdir()
    for format in sorted(FORMATS - {"job", "nemo"}):
        for file, text in written(format, model, system, "data:8", 64).items():
            for line in text.splitlines():  # what is left of it is words in comments and strings
                assert not line.startswith("#SBATCH --wrap")
            (place / file).write_text(text)
            if file.endswith((".sh", ".sbatch")):
                shell(text, tmp_path)
                env = {"PATH": f"{bin}:{os.environ['PATH']}", "SLURM_JOB_ID": "7",
                       "SLURM_JOB_NODELIST": "n0"}  # fmt: skip
                subprocess.run(["bash", file], cwd=place, env=env, check=False, timeout=60)
            elif file.endswith(".py"):
                tree = ast.parse(text)
                calls = [n.func for n in ast.walk(tree) if isinstance(n, ast.Call)]
                assert [ast.unparse(c) for c in calls] == (
                    ["DeviceMesh", "torch.tensor(ORDER).reshape", "torch.tensor"]
                    if format == "rankfile" else ["init_device_mesh"])  # fmt: skip
            elif file.endswith(".json"):
                json.loads(text)
            elif format == "rankfile":  # ranks and nodes, and comments
                assert not set(text) & set("$`;|&<>\"'\\{}*!~")
            else:
                assert all(line.startswith(("--", "activation_checkpoint:")) for line in
                           text.splitlines())  # fmt: skip
                assert not set(text) & set("$`;|&<>\"'\\(){}*!#~")
    assert not list(tmp_path.rglob("*pwned*"))


# --------------------------------------------------------------------- files


def ask(*more: str) -> list[str]:
    return ["export", "slurm", "resnet50", "abci", "--plan", "data:8", "--batch", "64", *more]


def test_files_are_never_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a b; $(x)\nc"
    assert main(ask("-o", str(folder))) == 0
    assert sorted(p.name for p in folder.iterdir()) == ["job.sbatch", "mesh.py"]
    assert os.access(folder / "job.sbatch", os.X_OK)
    assert not os.access(folder / "mesh.py", os.X_OK)
    (folder / "mesh.py").write_text("mine")
    (folder / "job.sbatch").unlink()
    assert main(ask("-o", str(folder))) == 2
    assert (folder / "mesh.py").read_text() == "mine"
    assert not (folder / "job.sbatch").exists()  # all or nothing
    assert "--force" in capsys.readouterr().err
    assert main(ask("-o", str(folder), "--force")) == 0
    assert "init_device_mesh" in (folder / "mesh.py").read_text()


def test_a_failed_write_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "x"
    file.write_text("old")

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device", str(file))

    for place in ("fsync", "replace"):
        with monkeypatch.context() as patched:
            patched.setattr(os, place, full)
            with pytest.raises(OSError, match="No space"):
                export.put({str(file): "new"}, force=True)
        assert file.read_text() == "old"
        assert [p.name for p in tmp_path.iterdir()] == ["x"]


def test_of_several_files_all_are_written_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = os.fsync, []

    def second(handle: int) -> None:
        calls.append(handle)
        if len(calls) == 2:
            raise OSError(28, "No space left on device")
        real(handle)

    monkeypatch.setattr(os, "fsync", second)
    with pytest.raises(OSError, match="No space"):
        export.put({str(tmp_path / "a"): "1", str(tmp_path / "b"): "2"})
    assert not list(tmp_path.iterdir())


def test_a_file_that_appears_meanwhile_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real = tmp_path / "x", os.link

    def raced(one: str, other: Path) -> None:
        file.write_text("theirs")
        real(one, other)

    monkeypatch.setattr(os, "link", raced)
    with pytest.raises(SpecError, match="by now"):
        export.put({str(file): "ours"})
    assert [p.name for p in tmp_path.iterdir()] == ["x"]
    assert file.read_text() == "theirs"


def test_targets_that_are_no_plain_place_are_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for place in (tmp_path, tmp_path / "link"):
        with pytest.raises(SpecError):
            export.put({str(place): "x"})
    (tmp_path / "file").write_text("")
    assert main(ask("-o", str(tmp_path / "file"))) == 2


def test_without_a_folder_the_first_file_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ask()) == 0
    said = capsys.readouterr()
    assert said.out.startswith("#!/usr/bin/env bash")
    assert "mesh.py" in said.err


def test_all_files_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ask("--json")) == 0
    assert list(json.loads(capsys.readouterr().out)["files"]) == ["job.sbatch", "mesh.py"]


def test_a_plan_that_does_not_fit_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["export", "torchrun", "gpt3-175b", "dgx-a100", "--plan", "data:8", "--batch", "8"])
    assert code == 1
    assert "does not work" in capsys.readouterr().err
