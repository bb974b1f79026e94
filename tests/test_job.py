"""Whole jobs: every file is read by what it is for, or held against names of the pinned source."""

from __future__ import annotations

import ast
import itertools
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import oracle
from oracle.commands.cli import main
from oracle.executor import measured
from oracle.models.model import network
from oracle.plan.plan import parse
from oracle.spec.document import SpecError
from oracle.writers import job as whole
from oracle.writers.exported import Job
from oracle.writers.megatron import flags, versions
from tests.test_writers import _megatron, lines, shell

NAMES = json.loads((Path(__file__).parent / "data/nemo_names.json").read_text())
A100, H100 = "dgx-a100", "dgx-h100"
STAGED = "pipeline:8,segments=24,interleave=12 data:32,zero=1 tensor:4,sequence=on"
BLOOM = (
    "bloom-176b",
    A100,
    "pipeline:12,segments=256,cuts=balanced data:8,zero=1 tensor:4,sequence=on",
    2048,
)
RAGGED = ("llama3-405b", H100,
          "pipeline:16,segments=128,interleave=7,cuts=balanced data:16,zero=1 context:4 "
          "tensor:4,sequence=on", 2048)  # fmt: skip
MIXTURE = ("qwen3-30b-a3b", H100, "data:64,zero=2,accumulate=4 expert:8", 512)
JOBS = [  # software, model, system, plan, batch
    ("megatron-core", "gpt3-175b", A100, STAGED, 1536), ("megatron-core", *BLOOM),
    ("megatron-core", *RAGGED), ("megatron-core", *MIXTURE),
    ("megatron-lm-2022", "gpt3-175b", A100, "pipeline:8,segments=96,interleave=3 data:16,zero=1 "
                                            "tensor:8,sequence=on recompute:selective", 1536),
    ("megatron-lm-2021", "gpt3-175b", A100,
     "pipeline:8,segments=96,interleave=3 data:16 tensor:8 recompute:full", 1536),
    ("megatron-lm-2020", "gpt2", "dgx-2", "pipeline:2,segments=8 data:2 tensor:4", 16),
    ("nemo-2.5", *RAGGED), ("nemo-2.5", *MIXTURE),
    ("nemo-2.5", "gpt3-175b", A100, STAGED, 1536),
    ("torchtitan", "llama3-8b", H100, "data:32,zero=3,accumulate=8 tensor:2,sequence=on", 512),
    ("torchtitan", "llama3-405b", H100,
     "pipeline:64,segments=1024,schedule=zb-v,interleave=2 context:2 tensor:8,sequence=on", 1024),
    ("torchtitan", "qwen3-30b-a3b", H100,
     "data:32,zero=3,accumulate=2 context:2 expert:4 recompute:operators", 512),
    ("deepspeed", *BLOOM[:2], "pipeline:12,segments=256,cuts=balanced data:8,zero=1 tensor:4",
     2048),
    ("deepspeed", "llama3-8b", H100, "data:64,zero=2,accumulate=8", 512),
    ("pytorch-fsdp", "llama3-8b", H100, "data:64,zero=3,accumulate=8", 512),
    ("pytorch-fsdp", "qwen3-30b-a3b", H100, "data:8 sharded:8 recompute:full", 512),
    ("pytorch-ddp", "gpt2", A100, "data:4,accumulate=2 recompute:selective", 64),
    ("executor", "gpt2", A100, "pipeline:2,segments=4 data:8", 64),
]  # fmt: skip
IDS = [f"{asked[0]}-{asked[1]}" for asked in JOBS]


def made(software: str, model: Any, system: Any, plan: str, batch: int, **more: Any) -> Job:
    found = oracle.estimate(model, system, [plan], batch, software=software, **more)
    return Job(found, parse(plan, float(batch)), network(model)[0].transformer)


def files(*asked: Any, **more: Any) -> dict[str, str]:
    job = made(*asked, **more)
    found = whole.files(job)
    job.check_read("job")
    return found


def arguments(*asked: Any, **more: Any) -> Any:
    """What Megatron-LM's own options make of a job's."""
    job = made(*asked, **more)
    run = job.estimate.options.software
    version = run.version if run.version in versions() else "core_v0.14.0"
    return _megatron(version).parse_args(lines(whole.files(job)["megatron.args"]))


def constants(text: str) -> dict[str, Any]:
    """The constants of a program, without running it."""
    found = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            try:
                found[node.targets[0].id] = ast.literal_eval(node.value)
            except ValueError:
                continue
    return found


@pytest.mark.parametrize("asked", JOBS, ids=IDS)
def test_a_job_is_whole(asked: Any, tmp_path: Path) -> None:
    found = files(*asked)
    shell(found["start.sh"], tmp_path)
    devices = int(parse(asked[3], 1).devices[0, 0])
    said = re.search(r"--nnodes=(\d+) --nproc-per-node=(\d+)", found["start.sh"])
    assert said is not None
    assert int(said[1]) * int(said[2]) == devices
    assert ("job.sbatch" in found) == (int(said[1]) > 1)
    if "job.sbatch" in found:
        shell(found["job.sbatch"], tmp_path)
        assert f"#SBATCH --nodes={said[1]}\n" in found["job.sbatch"]
    for name, text in found.items():
        if name.endswith(".py"):
            compile(text, name, "exec")
            assert "CONSTANTS" not in text
    plan = f"Plan: `{asked[3]}`"
    assert plan in found["README.md"]
    assert "tokens/s" in found["README.md"]
    assert "outermost first" in found["README.md"]


# ------------------------------------------------------------------ Megatron-LM


@pytest.mark.parametrize("asked", [a for a in JOBS if a[0].startswith("megatron")],
                         ids=[i for i in IDS if i.startswith("megatron")])  # fmt: skip
def test_megatron_of_each_version_knows_every_option(asked: Any) -> None:
    found, plan = arguments(*asked), parse(asked[3], float(asked[4]))
    assert found.tensor_model_parallel_size == plan.axis("tensor").degree[0, 0]
    assert found.pipeline_model_parallel_size == plan.axis("pipeline").degree[0, 0]
    assert found.num_layers % found.pipeline_model_parallel_size == 0 or (
        found.pipeline_model_parallel_layout
    )
    replicas = int(plan.axis("data").degree[0, 0])
    pieces = plan.axis("pipeline").segments * plan.axis("data").accumulate
    assert found.global_batch_size == asked[4]
    assert found.micro_batch_size * replicas * int(pieces[0, 0]) == asked[4]


def test_old_versions_have_old_names() -> None:
    said = files(*JOBS[IDS.index("megatron-lm-2021-gpt3-175b")])
    words = lines(said["megatron.args"])
    assert words[words.index("--num-layers-per-virtual-pipeline-stage") + 1] == "4"
    assert "--checkpoint-activations" in words
    assert words[words.index("--DDP-impl") + 1] == "local"
    assert "DATA_PATH" in said["start.sh"]  # that version makes no data up
    assert "--mock-data" not in words
    with pytest.raises(SpecError, match="swiglu"):
        files("megatron-lm-2021", "llama2-7b", A100, "data:8", 64)
    with pytest.raises(SpecError, match="bf16"):
        files("megatron-lm-2020", "gpt2", A100, "data:8", 64, precision="bf16")


def test_weights_that_are_sharded_have_their_companions() -> None:
    said = files("megatron-core", "llama3-8b", H100, "data:8,zero=3", 64)
    found = arguments("megatron-core", "llama3-8b", H100, "data:8,zero=3", 64)
    assert found.use_megatron_fsdp
    assert found.data_parallel_sharding_strategy == "optim_grads_params"
    assert found.ckpt_format == "fsdp_dtensor"
    assert found.no_gradient_accumulation_fusion
    assert found.init_model_with_meta_device
    assert found.use_distributed_optimizer
    assert "unset CUDA_DEVICE_MAX_CONNECTIONS" in said["start.sh"]
    other = files("megatron-core", "llama3-8b", H100, "data:4,zero=1 tensor:2", 64)
    assert "CUDA_DEVICE_MAX_CONNECTIONS=1" in other["start.sh"]
    plain = files("megatron-core", "llama3-8b", H100, "data:8,zero=1", 64)
    assert "CUDA_DEVICE_MAX_CONNECTIONS" not in plain["start.sh"]


def test_a_model_is_said_whole() -> None:
    llama = arguments("megatron-core", "llama3-8b", H100, "data:8,zero=1", 64)
    assert (llama.rotary_base, llama.num_query_groups) == (500000, 8)
    assert llama.untie_embeddings_and_output_weights
    assert llama.swiglu
    assert llama.disable_bias_linear
    assert llama.normalization == "RMSNorm"
    assert llama.attention_backend == "auto"
    mixture = arguments("megatron-core", *MIXTURE)
    assert mixture.moe_token_dispatcher_type == "alltoall"
    assert mixture.moe_grouped_gemm
    assert (mixture.num_experts, mixture.moe_router_topk) == (128, 8)
    assert mixture.expert_model_parallel_size == 8
    # the vocabulary with the tokenizer's end of text is no larger than the model's
    assert llama.vocab_size + 1 == 128256


@pytest.mark.parametrize(
    ("software", "plan", "on", "off"),
    [
        ("megatron-core", "data:8,zero=1", ["overlap_grad_reduce", "overlap_param_gather"], []),
        ("megatron-core,exchange.overlap=none", "data:8,zero=1", [],
         ["overlap_grad_reduce", "overlap_param_gather", "ddp_bucket_size"]),
        ("megatron-core,gather.overlap=none", "data:8,zero=1", ["overlap_grad_reduce"],
         ["overlap_param_gather"]),
        ("megatron-core", "data:8,zero=1,overlap=off", [],
         ["overlap_grad_reduce", "overlap_param_gather"]),
        ("megatron-core", "data:4 tensor:2,sequence=on",
         ["accumulate_allreduce_grads_in_fp32", "sequence_parallel"],
         ["tp_comm_overlap", "grad_reduce_in_bf16"]),
        ("megatron-core,tensor.forward_column=pipelined", "data:4 tensor:2,sequence=on",
         ["tp_comm_overlap"], []),
        ("megatron-core,exchange.gradients=bf16", "data:8", ["grad_reduce_in_bf16"],
         ["accumulate_allreduce_grads_in_fp32"]),
        ("megatron-core,borders.overlap=none", "pipeline:4,segments=8,interleave=2 data:2",
         ["no_overlap_p2p_communication"], []),
    ],
)  # fmt: skip
def test_overlap_is_as_the_software_has_it(
    software: str, plan: str, on: list[str], off: list[str]
) -> None:
    found = arguments(software, "llama3-8b", H100, plan, 64)
    assert [name for name in on if getattr(found, name)] == on
    assert not [name for name in off if getattr(found, name)]


def unrolled(layout: str) -> list[str]:
    """As megatron/core/transformer/pipeline_parallel_layer_layout.py reads one, core_v0.14.0."""
    for pattern in (r"\(([^)]+)\)\*(\d+)", r"(.)\*(\d+)"):
        layout = re.sub(pattern, lambda x: x.group(1) * int(x.group(2)), layout.replace(",", ""))
    return layout.split("|")


@pytest.mark.parametrize("asked", [BLOOM, RAGGED], ids=["bloom", "405b"])
def test_uneven_stages_are_laid_out_as_predicted(asked: Any) -> None:
    found = arguments("megatron-core", *asked)
    parts = unrolled(found.pipeline_model_parallel_layout)
    job = made("megatron-core", *asked)
    assert len(parts) == len(job.chunks)
    assert len(parts) % found.pipeline_model_parallel_size == 0
    assert "".join(parts) == "E" + "t" * found.num_layers + "L"
    assert [part.count("t") for part in parts] == [chunk.layers for chunk in job.chunks]
    assert found.num_virtual_stages_per_pipeline_rank is None  # the two exclude each other


# ------------------------------------------------------------------ NeMo, torchtitan


@pytest.mark.parametrize("asked", [a for a in JOBS if a[0] == "nemo-2.5"], ids=lambda a: a[1])
def test_nemo_has_every_field(asked: Any) -> None:
    text = files(*asked)["job.py"]
    said = constants(text)
    groups = {
        "MODEL": "GPTConfig", "STRATEGY": "MegatronStrategy",
        "DDP": "DistributedDataParallelConfig", "PRECISION": "MegatronMixedPrecision",
        "OVERLAP": "MegatronCommOverlapCallback", "OPTIMIZER": "OptimizerConfig",
        "DATA": "MockDataModule",
    }  # fmt: skip
    for group, kind in groups.items():
        assert not set(said[group]) - set(NAMES[kind]["names"]), group
    called = {
        node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id: {
            word.arg for word in node.keywords if word.arg
        }
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name)
    }
    for kind in set(called) & set(NAMES):
        assert not called[kind] - set(NAMES[kind]["names"]), kind
    plan = parse(asked[3], float(asked[4]))
    strategy = said["STRATEGY"]
    for axis, field in {
        "tensor": "tensor_model_parallel_size", "pipeline": "pipeline_model_parallel_size",
        "context": "context_parallel_size", "expert": "expert_model_parallel_size",
    }.items():  # fmt: skip
        assert strategy.get(field, 1) == plan.axis(axis).degree[0, 0]
    assert said["DDP"]["grad_reduce_in_fp32"] is False  # as this software has it
    assert said["OVERLAP"]["tp_comm_overlap"] == ("sequence=on" in asked[3])


TITAN = [asked for asked in JOBS if asked[0] == "torchtitan"]


@pytest.mark.parametrize("asked", TITAN, ids=lambda a: a[1])
def test_torchtitan_is_told_the_plan(asked: Any) -> None:
    said = tomllib.loads(files(*asked)["job.toml"])
    degrees = said["parallelism"]
    product = 1
    for name in ("data_parallel_replicate", "data_parallel_shard", "tensor_parallel",
                 "context_parallel", "pipeline_parallel"):  # fmt: skip
        product *= degrees[f"{name}_degree"]
    assert product == parse(asked[3], 1).devices[0, 0]
    parts = degrees.get("module_fqns_per_model_part")
    if parts:
        layers = [name for part in parts for name in part if name.startswith("layers")]
        assert layers == [f"layers.{i}" for i in range(126)]
        assert parts[0][0] == "tok_embeddings"
        assert parts[-1][-2:] == ["norm", "output"]


@pytest.mark.parametrize("asked", TITAN, ids=lambda a: a[1])
def test_torchtitan_0_2_reads_it(asked: Any, tmp_path: Path) -> None:
    pytest.importorskip("tyro")
    pytest.importorskip("triton")  # which its models import
    place = os.environ.get("TORCHTITAN_0_2")
    if not place:
        pytest.skip("no torchtitan 0.2.0 at hand: TORCHTITAN_0_2 names its folder")
    (tmp_path / "job.toml").write_text(files(*asked)["job.toml"])
    program = (
        "import sys; from torchtitan.config.manager import ConfigManager as C\n"
        "from torchtitan.protocols.train_spec import get_train_spec as spec\n"
        "c = C().parse_args(['--job.config_file', sys.argv[1], '--training.steps', '7'])\n"
        "p = c.parallelism\n"
        "assert c.model.flavor in spec(c.model.name).model_args\n"
        "print(c.training.global_batch_size, p.tensor_parallel_degree, c.training.steps)\n"
    )
    env = os.environ | {"PYTHONPATH": place}
    ran = subprocess.run([sys.executable, "-c", program, str(tmp_path / "job.toml")], env=env,
                         capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    tensor = int(parse(asked[3], 1).axis("tensor").degree[0, 0])
    assert ran.stdout.split()[-3:] == [str(asked[4]), str(tensor), "7"]


# ------------------------------------------------------------------ PyTorch alone, DeepSpeed


@pytest.mark.parametrize(
    "asked",
    [("pytorch-fsdp", "llama3-8b", A100, "data:8,zero=3", 8),
     pytest.param(("pytorch-fsdp", "qwen3-30b-a3b", A100, "data:8,zero=3", 8),
                  marks=pytest.mark.slow),
     ("pytorch-fsdp", "bloom-176b", A100, "data:8,zero=3", 8),
     ("pytorch-ddp", "gpt2", A100, "data:8", 8)],
    ids=lambda a: a[1],
)  # fmt: skip
def test_the_program_has_the_weights_of_the_model(asked: Any) -> None:
    torch = pytest.importorskip("torch")
    space: dict[str, Any] = {}
    exec(compile(files(*asked)["model.py"], "model.py", "exec"), space)
    with torch.device("meta"):
        model = space["Model"](space["SIZES"])
    held = sum(weight.numel() for weight in model.parameters())
    predicted = float(oracle.model(asked[1]).parameters)
    assert held == pytest.approx(predicted, rel=1e-3)


def started(asked: Any, folder: Path, ranks: int, **env: str) -> str:
    """The log of a job, shrunk, with so many ranks on this machine."""
    for name, text in files(*asked).items():
        (folder / name).write_text(text)
    script = (folder / "start.sh").read_text()
    here = f"exec {sys.executable} -m torch.distributed.run --nnodes=1 --nproc-per-node={ranks}"
    script = re.sub(r"exec torchrun --nnodes=\d+ --nproc-per-node=\d+", here, script)
    script = re.sub(r"  --node-rank.*\n  --master-addr.*\n", "  --standalone \\\\\n", script)
    (folder / "here.sh").write_text(script)
    ran = subprocess.run(
        ["bash", "here.sh", "--shrink"], cwd=folder, capture_output=True, text=True, timeout=300,
        env=os.environ | {"STEPS": "3", "OMP_NUM_THREADS": "1", **env}, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout + ran.stderr


RUN = [
    pytest.param(
        ("pytorch-fsdp", "llama3-8b", H100, "data:64,zero=3,accumulate=8 recompute:selective", 512),
        marks=pytest.mark.slow,
    ),
    ("pytorch-fsdp", "qwen3-30b-a3b", H100, "data:8 sharded:8 recompute:full", 512),
    ("pytorch-ddp", "gpt2", A100, "data:4,accumulate=2", 64),
]


@pytest.mark.slow
@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize("asked", RUN, ids=lambda a: f"{a[0]}-{a[1]}")
def test_a_job_of_pytorch_starts_and_is_checked(asked: Any, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    log = started(asked, tmp_path, 2)
    assert [int(step) for step in re.findall(r"iteration (\d): [0-9.]+ s", log)] == [1, 2, 3]
    (tmp_path / "log").write_text(log)
    ran = checked(tmp_path, "log")
    assert ran.returncode in (0, 1)
    assert "predicted" in ran.stdout


def test_deepspeed_reads_a_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    config = pytest.importorskip("deepspeed.runtime.config", exc_type=ImportError)
    for asked in (a for a in JOBS if a[0] == "deepspeed"):
        replicas = int(parse(asked[3], 1).axis("data").degree[0, 0])

        class Mesh:
            get_data_parallel_world_size = staticmethod(lambda replicas=replicas: replicas)

        monkeypatch.setattr(config.dist, "get_rank", lambda: 0)
        found = config.DeepSpeedConfig(json.loads(files(*asked)["ds_config.json"]), mpu=Mesh())
        assert found.train_batch_size == asked[4]


def test_deepspeed_overlaps_as_the_software_has_it() -> None:
    asked = ("llama3-8b", H100, "data:64,zero=2,accumulate=8", 512)
    for software, on in (("deepspeed", True), ("deepspeed,exchange.overlap=none", False)):
        zero = json.loads(files(software, *asked)["ds_config.json"])["zero_optimization"]
        assert zero["overlap_comm"] is on
        assert zero["reduce_bucket_size"] == 500_000_000
    said = constants(files(*JOBS[IDS.index("deepspeed-bloom-176b")])["train.py"])
    assert said["CUTS"][0] == 0
    assert said["CUTS"][-1] == 70 + 3  # a table, blocks, a norm and the tied table again
    assert len(said["CUTS"]) == 13


# ------------------------------------------------------------------ check.py, refusals

LOGGED = [  # a line of each framework, and the seconds of an iteration it says
    (" iteration {i}/ 20 | consumed samples: 64 | elapsed time per iteration (ms): 1500.0 |", 1.5),
    ("Training epoch 0, iteration {i}/19 | lr: 1e-4 | train_step_timing in s: 1.5", 1.5),
    ("[titan] step: {i}  loss: 8.1  memory: 1.0GiB(3.1%)  tps: 43,690.667  mfu: 3%", 1.0),
    ("epoch=0/micro_step={i}/global_step={i}, CurrSamplesPerSec=32.0, MemAllocated=1GB", 2.0),
    ("iteration {i}: 1.500000 s, loss 8.0", 1.5),
]


def checked(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "check.py", *words], cwd=folder, capture_output=True,
                          text=True, check=False)  # fmt: skip


@pytest.mark.parametrize(("line", "seconds"), LOGGED, ids=lambda x: str(x)[:20])
def test_a_log_is_compared_with_the_prediction(line: str, seconds: float, tmp_path: Path) -> None:
    asked = ("pytorch-ddp", "gpt2", A100, "data:8", 64)  # 65,536 tokens an iteration
    if "tps" in line:
        line = line.replace("43,690.667", f"{64 * 1024 / 8:,.0f}")  # of each device
    job = made(*asked)
    (tmp_path / "check.py").write_text(whole.files(job)["check.py"])
    log = ["loading", line.format(i=1).replace(str(seconds), "99")]
    log += [line.format(i=i) for i in range(2, 7)]
    (tmp_path / "log").write_text("\n".join(log))
    ran = checked(tmp_path, "log")
    assert f"measured {seconds:.4g} s" in ran.stdout
    assert f"measured / predicted {seconds / job.seconds:.3f}" in ran.stdout
    low, high = whole.interval(job)
    inside = low <= seconds <= high
    assert ran.returncode == (0 if inside else 1)
    assert ("inside" in ran.stdout) == inside


def test_a_log_inside_the_interval_is_said_so(tmp_path: Path) -> None:
    job = made("pytorch-ddp", "gpt2", A100, "data:8", 64)
    (tmp_path / "check.py").write_text(whole.files(job)["check.py"])
    log = "".join(f"iteration {i}: {job.seconds:.6f} s\n" for i in range(5))
    (tmp_path / "log").write_text(log)
    ran = checked(tmp_path, "log")
    assert ran.returncode == 0
    assert "inside the interval" in ran.stdout
    (tmp_path / "log").write_text("nothing here")
    assert "no iteration is timed" in checked(tmp_path, "log").stderr
    assert "missing" in checked(tmp_path, "missing").stderr


REFUSED = [
    ("megatron-core", "gpt2", A100, "data:2 tensor:5", 8, "as many whole heads.*heads % tensor"),
    ("megatron-core", "gpt2", A100, "pipeline:2,segments=4 data:2,zero=3", 64, "zero < 2"),
    ("megatron-core", "gpt2", A100, "data:4 filter:2", 8, "no `filter`"),
    ("torchtitan", "gpt2", H100, "data:8,zero=3", 64, "ships no gpt2"),
    ("torchtitan", "llama3-8b", H100, "data:8,zero=1", 64, "data zero="),
    ("pytorch-ddp", "resnet50", "abci", "data:8", 64, "list of layers"),
    ("pytorch-ddp", "gpt2", A100, "data:8,overlap=off", 64, "always exchanges"),
    ("horovod-tensorflow", "resnet50", "abci", "data:8", 64, "nobody writes jobs"),
]  # fmt: skip


@pytest.mark.parametrize("asked", REFUSED, ids=lambda a: f"{a[0]}-{a[3]}")
def test_what_a_software_cannot_do_is_refused_by_its_rule(asked: Any) -> None:
    *plan, why = asked
    with pytest.raises(SpecError, match=why) as found:
        files(*plan)
    assert found.value.faults[0].hint  # what to write instead


def test_a_job_wants_a_software_and_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["export", "job", "gpt2", A100, "--plan", "data:8", "--batch", "64"]
    assert main([*asked, "--software", "plain"]) == 2
    assert "--software" in capsys.readouterr().err
    assert main([*asked, "--software", "pytorch-ddp", "-o", str(tmp_path / "job")]) == 0
    written = sorted(place.name for place in (tmp_path / "job").iterdir())
    assert written == ["README.md", "check.py", "model.py", "start.sh", "train.py"]
    assert os.access(tmp_path / "job/start.sh", os.X_OK)


def test_lists_of_names_say_where_they_are_from() -> None:
    assert set(versions()) == {"1.0", "2.5", "3.0", "core_v0.14.0"}
    assert "--pipeline-model-parallel-layout" in flags("core_v0.14.0")
    assert "--pipeline-model-parallel-layout" not in flags("3.0")
    assert all(one["commit"] and one["file"] for one in (*versions().values(), *NAMES.values()))


# ------------------------------------------------------------------ what is recommended

QUESTIONS = [  # model, system, devices, batch
    ("gpt3-175b", A100, 1024, 1536), ("gpt3-175b", H100, 512, 512),
    ("gpt3-175b", A100, 4480, 3360), ("llama3-8b", H100, 64, 512), ("llama3-8b", H100, 512, 1024),
    ("llama3-70b", H100, 512, 1024), ("llama3-70b", "dgx-b200", 256, 512),
    ("llama3-405b", H100, 4096, 2048), ("llama3-405b", H100, 1024, 1024),
    ("bloom-176b", A100, 384, 2048), ("mixtral-8x7b", H100, 256, 1024),
    ("qwen3-30b-a3b", H100, 64, 512),
]  # fmt: skip
ASKED = ("megatron-core", "nemo-2.5", "torchtitan", "deepspeed", "pytorch-fsdp")
QUICK = {("megatron-core", 9), ("nemo-2.5", 7), ("torchtitan", 8), ("deepspeed", 11)}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("software", "number"),
    [pytest.param(software, number, marks=[] if (software, number) in QUICK else pytest.mark.slow)
     for software, number in itertools.product(ASKED, range(len(QUESTIONS)))],
)  # fmt: skip
def test_what_is_recommended_can_be_started(software: str, number: int) -> None:
    model, system, devices, batch = QUESTIONS[number]
    asked: dict[str, Any] = {"software": software, "top": 5}
    if software == "torchtitan" and not model.startswith(("llama3", "qwen3")):
        with pytest.raises(SpecError, match=f"ships no {model}"):
            oracle.recommend(model, system, devices, batch, **asked)
        return
    found = oracle.recommend(model, system, devices, batch, **asked)
    plans = [row["plan"] for row in found.rows()[:5] if row["status"] == "ok"]
    for plan in plans:
        assert "start.sh" in files(software, model, system, plan, batch)
    # too large for whole layers on every device, with the room that 95 % want
    if software != "pytorch-fsdp" or model not in ("gpt3-175b", "bloom-176b", "llama3-405b"):
        assert plans


# ------------------------------------------------------------------ the executor


def test_the_executor_is_told_what_it_can_run() -> None:
    said = files("executor", "lenet5", "abci", "data:2 filter:2", 64)["start.sh"]
    assert "run lenet5 --plan 'data:2 filter:2' --batch 64 --precision fp32" in said
    assert "--system abci" in said
    own = {"name": "mine", "source": "made", "input": [4], "layers": [{"dense": 8}, "loss"]}
    assert '"${MODEL:?' in files("executor", own, "abci", "data:2", 64)["start.sh"]
    with pytest.raises(SpecError, match="does not run this plan"):
        files("executor", "gemma3-1b", H100, "data:8", 64)  # attention over a window


@pytest.mark.slow
def test_a_job_of_the_executor_runs_and_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    found = files("executor", "lenet5", "gpu-server", "data:2", 32)
    for name, text in found.items():
        (tmp_path / name).write_text(text)
    place = str(Path(sys.executable).parent)
    env = os.environ | {"PATH": f"{place}:{os.environ['PATH']}", "BACKEND": "gloo",
                        "PYTHONPATH": str(Path(oracle.__file__).parents[1]),
                        "OMP_NUM_THREADS": "1"}  # fmt: skip
    for steps in ("2", "4"):
        ran = subprocess.run(["bash", "start.sh"], cwd=tmp_path, env=env | {"STEPS": steps},
                             capture_output=True, text=True, timeout=120, check=False)  # fmt: skip
        assert ran.returncode == 0, ran.stderr[-2000:]
    assert ran.stderr.count("iteration ") == 2  # the first two are there
    assert len(measured.read(tmp_path / "run.json")[0].step_seconds) == 4
    (tmp_path / "log").write_text(ran.stderr)
    said = subprocess.run([sys.executable, "check.py", "log"], cwd=tmp_path, capture_output=True,
                          text=True, check=False)  # fmt: skip
    assert "log of iterations: 2 iterations" in said.stdout
    wrong = subprocess.run(["bash", "start.sh", "mesure"], cwd=tmp_path, env=env,
                           capture_output=True, text=True, check=False)  # fmt: skip
    assert (wrong.returncode, wrong.stderr) == (2, "run, measure or selftest, not mesure\n")
