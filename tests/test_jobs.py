"""Files that start a training, read back: launch scripts, logs, JSON, TOML; and hostile ones."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import closed, told
from growth import assert_grows_gently
from hypothesis import assume, given
from hypothesis import strategies as st
from plans_drawn import law
from test_fuzz_readers import mutated
from test_writers import written

from oracle.plan.plan import parse
from oracle.readers import frameworks, jobs
from oracle.readers.frameworks.training import Overrides, Training
from oracle.show import contract
from oracle.spec.document import SpecError

FOLDER = Path(__file__).parent / "data" / "jobs"
ARGS = ("--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 1024 "
        "--vocab-size 50304 --micro-batch-size 4 --global-batch-size 64 --bf16 ")  # fmt: skip


def read(*names: str, devices: int | None = None, **more: Any) -> Training:
    sheet = jobs.read([FOLDER / name for name in names], more.pop("variables", None))
    return frameworks.training(sheet, Overrides(devices=devices, **more))


def said(text: str, devices: int | None = 16, **more: Any) -> Training:
    """Of one text in hand."""
    return frameworks.training(jobs.parse({"job": text}, more.pop("variables", None)),
                               Overrides(devices=devices, **more))  # fmt: skip


# --------------------------------------------------------------- scripts


def test_a_batch_script_is_read_through_variables_arrays_and_branches() -> None:
    found = read("gpt.sbatch")
    assert found.devices == 128
    assert found.batch == 512
    assert found.plan == ("pipeline:2,segments=32,interleave=4 data:8,zero=1 tensor:8,sequence=on "
                          "recompute:selective")  # fmt: skip
    assert (found.precision, found.optimizer, found.software) == ("bf16", "adam", "megatron-core")
    block = found.model["transformer"]
    assert (block["layers"], block["hidden"], block["heads"]) == (40, 6144, 48)
    assert block["vocab"] == 51200  # a multiple of 128 · 8 already
    assert block["ffn"] == 4 * 6144


def test_a_variable_set_by_hand_holds_over_the_script() -> None:
    found = read("gpt.sbatch", variables={"TP": "4"})
    assert "data:16,zero=1 tensor:4,sequence=on" in found.plan
    assert "--wandb-project" not in str(found.notes)
    assert read("gpt.sbatch", variables={"micro-batch-size": "1"}).plan.startswith(
        "pipeline:2,segments=64"
    )


def test_a_log_of_arguments_is_read() -> None:
    found = read("megatron.log")
    assert found.devices == 64
    assert found.plan == "pipeline:4,segments=16 data:4 tensor:4,sequence=on"
    assert found.software == "megatron-core,gather.overlap=none,borders.overlap=none"
    block = found.model["transformer"]
    assert block["vocab"] == 128000  # 250 · 512
    assert not block["bias"]
    assert not block["dropout"]
    assert (block["kv_heads"], block["ffn"], block["norm"]) == (8, 14336, "rms")


def test_a_script_and_its_deepspeed_file_are_one_job() -> None:
    found = read("deepspeed.sh", "ds_config.json", model="gpt2")
    assert found.plan == "data:16,zero=2,accumulate=4"
    assert (found.devices, found.batch, found.precision) == (16, 256, "bf16")
    assert found.software == "deepspeed"
    with pytest.raises(SpecError, match="--model NAME"):
        read("deepspeed.sh", "ds_config.json")


def test_torchtitan_shards_over_the_devices_that_are_left() -> None:
    found = read("llama.toml", devices=64)
    assert found.plan == "data:16,zero=3,accumulate=4 tensor:4,sequence=on recompute:full"
    assert found.batch == 128
    assert found.model["transformer"]["sequence"] == 4096
    assert found.model["transformer"]["ffn"] == 14336
    with pytest.raises(SpecError, match="--devices N"):
        read("llama.toml")


@pytest.mark.parametrize(("more", "software"), [
    ("--swiglu --overlap-grad-reduce --overlap-param-gather", "megatron-core"),
    ("--swiglu", "megatron-core,exchange.overlap=none,gather.overlap=none"),
    ("--swiglu --overlap-grad-reduce --overlap-param-gather --grad-reduce-in-bf16",
     "megatron-core,exchange.gradients=bf16"),
    ("--swiglu --overlap-grad-reduce --overlap-param-gather --tp-comm-overlap",
     "megatron-core,tensor.forward_column=pipelined,tensor.forward_row=pipelined,"
     "tensor.backward_row=pipelined"),
    ("--checkpoint-activations --DDP-impl local", "megatron-lm-2021"),
    ("--DDP-impl local --recompute-activations", "megatron-lm-2022"),
    ("--checkpoint-activations --deepspeed", "megatron-deepspeed"),
])  # fmt: skip
def test_flags_say_the_software_and_what_it_does_otherwise(more: str, software: str) -> None:
    from oracle.plan.launchable import software as known

    assert said(ARGS + more).software == software
    assert known(software).label  # each field that is changed is there


@pytest.mark.parametrize(("more", "plan"), [
    ("", "data:16"),
    ("--global-batch-size 128", "data:16,accumulate=2"),
    ("--tensor-model-parallel-size 4", "data:4,accumulate=4 tensor:4"),
    ("--context-parallel-size 2 --cp-comm-type a2a", "data:8,accumulate=2 context:2,kind=alltoall"),
    ("--checkpoint-activations", "data:16 recompute:full"),
    ("--recompute-activations", "data:16 recompute:selective"),
    ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "data:16,zero=3"),
    ("--use-distributed-optimizer --num-distributed-optimizer-instances 4",
     "data:4 sharded:4,zero=1"),
    ("--use-tp-pp-dp-mapping --pipeline-model-parallel-size 2", "data:8 pipeline:2,segments=2"),
    ("--num-experts 8 --expert-model-parallel-size 4 --swiglu", "data:16 expert:4"),
])  # fmt: skip
def test_each_degree_and_knob(more: str, plan: str) -> None:
    assert said(ARGS + more).plan == plan


def test_the_vocabulary_is_filled_up_for_the_ranks() -> None:
    text = ARGS.replace("50304", "50257") + "--tensor-model-parallel-size 8"
    assert said(text).model["transformer"]["vocab"] == 51200
    assert said(text.replace("--vocab-size 50257", "--merge-file m.txt")
                ).model["transformer"]["vocab"] == 51200  # fmt: skip
    with pytest.raises(SpecError, match="vocab_size=…"):
        said(text.replace("--vocab-size 50257", "--tokenizer-type HuggingFaceTokenizer"))


def test_a_script_that_trains_no_gpt_is_refused() -> None:
    assert said(f"python /home/albert/megatron/pretrain_gpt.py {ARGS}").plan == "data:16"
    for script in ("pretrain_bert.py", "tools/run_text_generation.py", "tasks/main.py"):
        with pytest.raises(SpecError, match=r"trains no GPT.*\n.*job:2:1"):
            said(f"N=1\npython -u {script} {ARGS}")


def test_the_launch_that_says_most_is_the_training() -> None:
    script = ("python preprocess_data.py --input x --workers 3\ntorchrun --nnodes 2 "
              f"--nproc_per_node=4 pretrain_gpt.py {ARGS}\npython plot.py --x 1")  # fmt: skip
    assert said(script, None).devices == 8
    large = ARGS.replace("size 64", "size 128")
    only = f'export ARGUMENTS="{large}"\nsbatch -N 4 --ntasks-per-node=8 run.sh\n'
    assert said(only, None).devices == 32


@pytest.mark.parametrize(("line", "devices"), [
    ("mpirun -np 24 python pretrain_gpt.py", 24), ("srun -N2 --ntasks-per-node=4 python a.py", 8),
    ("srun -n 48 python a.py", 48), ("torchrun --nnodes=3 --nproc-per-node=8 a.py", 24),
    ("accelerate launch --num_processes 16 --num_machines 2 a.py", 16),
    ("deepspeed --num_gpus 4 a.py", 4), ("srun --nodes 2 --gres=gpu:a100:4 python a.py", 8),
    ("python -m torch.distributed.launch --nproc_per_node 8 a.py", 8),
])  # fmt: skip
def test_each_launcher_says_how_many_devices(line: str, devices: int) -> None:
    found = said(f"{line} {ARGS.replace('64', str(4 * devices), 1)}", None)
    assert found.devices == devices


def test_a_configuration_inside_a_script_is_read() -> None:
    script = (
        "#!/bin/bash\nMB=4\nZ=1\ncat <<EOT > $CONFIG\n"
        '{"train_micro_batch_size_per_gpu": $MB, "zero_optimization": {"stage": ${Z}}}\nEOT\n'
        f'CMD="pretrain_gpt.py {ARGS} --deepspeed"\n'
        "srun bash -c '$LAUNCHER --node_rank $SLURM_PROCID $CMD'\n"
    )
    assert said(script).plan == "data:16,zero=1"
    with pytest.raises(SpecError, match="the arguments say 4") as raised:
        said(script.replace("MB=4", "MB=2"))
    assert [fault.place.line for fault in raised.value.faults] == [5]


# --------------------------------------------------------------- what cannot be read


@pytest.mark.parametrize(("more", "line", "what", "hint"), [
    ("--tensor-model-parallel-size 3", 2, "16 devices are no multiple of 3", "a multiple of 3"),
    ("--tensor-model-parallel-size $TP", 2, "which nothing sets here", "--set TP="),
    ("--tensor-model-parallel-size four", 2, "not a whole number", ""),
    ("--global-batch-size 100", 2, "a batch of 100 is not 16 replicas", "e.g. 128"),
    ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 5", 2,
     "24 layers are not dealt to 2 stages by 5", "a divisor"),
    ("--num-experts 6 --expert-model-parallel-size 4", 2, "6 experts are not dealt", ""),
    ("--multi-latent-attention", 2, "multi-head latent attention", "--model FILE"),
    ("--optimizer muon", 2, "the optimizer `muon` is not known", "adam or sgd"),
    ("--group-query-attention --num-query-groups 5", 2, "5 groups do not divide 16", ""),
])  # fmt: skip
def test_what_cannot_be_is_said_with_its_line(more: str, line: int, what: str, hint: str) -> None:
    with pytest.raises(SpecError) as raised:
        said(f"{ARGS}\n{more}\n")
    found = [fault for fault in raised.value.faults if what in fault.what]
    assert found, str(raised.value)
    assert found[0].place.line == line
    assert hint in found[0].hint


def test_one_slip_is_one_fault_and_its_name_is_marked() -> None:
    with pytest.raises(SpecError) as raised:
        read("gpt.sbatch", variables={"PP": "3"})
    assert [(fault.place.line, fault.place.column, fault.length) for fault in raised.value.faults
            ] == [(25, 10, 26)]  # fmt: skip
    assert "128 devices" in str(raised.value)
    assert "no multiple of 24" in str(raised.value)


def test_all_faults_come_at_once_and_two_files_must_agree(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as raised:
        said("--num-layers x --hidden-size 1024 --seq-length -3 --micro-batch-size 1 --bf16")
    assert len(raised.value.faults) >= 4
    texts = {"a.sh": f"python train.py {ARGS}\n", "b.args": "\n--micro-batch-size 8\n"}
    with pytest.raises(SpecError, match=r"`micro_batch_size` is `8` here, `4` at a\.sh:1"):
        frameworks.training(jobs.parse(texts), Overrides(devices=16))


def test_flags_that_may_matter_are_named_and_the_rest_is_counted() -> None:
    notes = said(f"{ARGS}\n--mtp-num-layers 2\n--lr 1 --seed 3 --log-interval 10 --zork 4\n").notes
    assert "job:2: `mtp_num_layers` is not part of the prediction" in notes
    assert any("`zork`" in note for note in notes)
    assert any("nothing that is predicted: 3" in note for note in notes)


def test_a_repeated_flag_counts_as_it_was_last_said() -> None:
    found = said(f"{ARGS}\n--micro-batch-size 2\n")
    assert found.plan == "data:16,accumulate=2"
    assert any("the last one counts" in note for note in found.notes)


# --------------------------------------------------------------- round trip

MEGATRON = st.fixed_dictionaries({
    "pipeline": st.sampled_from([1, 2, 4]), "data": st.sampled_from([1, 2, 4]),
    "context": st.sampled_from([1, 2]), "tensor": st.sampled_from([1, 2, 4]),
    "pieces": st.sampled_from([1, 2, 4, 8]), "interleave": st.sampled_from([1, 3]),
    "zero": st.sampled_from([0, 1, 2, 3]), "sequence": st.booleans(),
    "kind": st.sampled_from(["ring", "alltoall"]), "overlap": st.sampled_from(["on", "off"]),
    "recompute": st.sampled_from(["none", "selective", "full"]),
})  # fmt: skip


def drawn(knobs: dict[str, Any]) -> tuple[str, int]:
    """A plan of these degrees and knobs, and a batch of whole micro-batches."""
    words = []
    pipeline = knobs["pipeline"] > 1
    if pipeline:
        inter = f",interleave={knobs['interleave']}" if knobs["interleave"] > 1 else ""
        words.append(f"pipeline:{knobs['pipeline']},segments={knobs['pieces']}{inter}")
    own = [f"zero={knobs['zero']}"] if knobs["data"] > 1 else []
    own += [f"accumulate={knobs['pieces']}"] if not pipeline else []
    words.append(",".join([f"data:{knobs['data']}", *own]))
    if knobs["context"] > 1:
        words.append(f"context:{knobs['context']},kind={knobs['kind']}")
    if knobs["tensor"] > 1:
        words.append(f"tensor:{knobs['tensor']},sequence={'on' if knobs['sequence'] else 'off'}")
    words.append(f"recompute:{knobs['recompute']}")
    plan = str(parse(" ".join(words), 1))
    return plan, knobs["data"] * knobs["pieces"] * 2


def back(format: str, plan: str, batch: int, precision: str = "bf16", **more: Any) -> Training:
    """What is read of what `export` writes."""
    try:
        files = written(format, "gpt2", "dgx-a100", plan, batch, precision=precision)
    except SpecError:
        assume(False)
    devices = int(parse(plan, 1).devices[0, 0])
    found = frameworks.training(jobs.parse(files), Overrides(devices=devices, **more))
    assert (found.batch, found.devices, found.precision) == (batch, devices, precision)
    return found


@law
@given(MEGATRON)
def test_what_megatron_is_told_is_read_back(knobs: dict[str, Any]) -> None:
    plan, batch = drawn(knobs)
    found = back("megatron", plan, batch)
    assert found.plan == plan
    block = found.model["transformer"]
    assert (block["layers"], block["hidden"], block["sequence"]) == (12, 768, 1024)
    assert block["vocab"] >= 50257
    assert block["tied_embeddings"]


def test_narrow_formats_are_told_and_read_back() -> None:
    """MXFP8 to Megatron-LM; what came after its 0.14 to NeMo alone, by the names of its plugin."""
    assert back("megatron", "data:8,zero=1", 16, "mxfp8").precision == "mxfp8"
    with pytest.raises(SpecError, match="has no `--fp4-format e2m1`"):
        written("megatron", "gpt2", "dgx-a100", "data:8,zero=1", 16, precision="nvfp4")
    job = written("nemo", "gpt2", "dgx-a100", "data:8,zero=1", 16, precision="nvfp4")["job.py"]
    assert "'fp4': 'e2m1'" in job
    assert "'fp4_recipe': 'nvfp4'" in job
    assert "'fp8_recipe': 'mxfp8'" in written(
        "nemo", "gpt2", "dgx-a100", "data:8,zero=1", 16, precision="mxfp8")["job.py"]  # fmt: skip


@law
@given(MEGATRON, st.sampled_from(["fp32", "bf16", "fp16"]))
def test_what_deepspeed_is_told_is_read_back(knobs: dict[str, Any], precision: str) -> None:
    plan, batch = drawn({**knobs, "context": 1, "sequence": False, "interleave": 1})
    assert back("deepspeed", plan, batch, precision, model="gpt2").plan == plan


@law
@given(MEGATRON, st.sampled_from(["fp32", "bf16"]))
def test_what_torchtitan_is_told_is_read_back(knobs: dict[str, Any], precision: str) -> None:
    mode = {"selective": "operators"}.get(knobs["recompute"], knobs["recompute"])
    plan, batch = drawn({**knobs, "kind": "ring", "recompute": mode})
    assert back("torchtitan", plan, batch, precision, model="gpt2").plan == plan


def test_overlap_is_a_matter_of_the_software() -> None:
    for overlap, software in (
        ("on", "megatron-core"),
        ("off", "megatron-core,exchange.overlap=none,gather.overlap=none"),
    ):
        text = written("megatron", "gpt2", "dgx-a100", f"data:8,zero=1,overlap={overlap}", 16,
                       precision="bf16")["megatron.args"]  # fmt: skip
        assert said(text + "--attention-backend flash", 8).software == software


# --------------------------------------------------------------- the command


def test_the_command_says_what_it_takes_and_what_is_better(capsys: Any, tmp_path: Path) -> None:
    file = str(FOLDER / "gpt.sbatch")
    code, out, err = told(capsys, "import", "job", file, "--system", "dgx-a100")
    assert code == 0
    assert "an iteration" in out
    assert "faster" in out or "better:" in out
    assert "128 devices" in err
    code, out, _ = told(capsys, "import", "job", file, "--system", "dgx-a100", "--json")
    found = json.loads(out)
    jsonschema.validate(found, closed(contract.answer("job")))
    folder = tmp_path / "launch"
    assert told(capsys, "import", "job", file, "-o", str(folder))[0] == 0
    code, out, _ = told(capsys, "estimate", str(folder / "model.yaml"), "dgx-a100", "--plan",
                        found["plan"], "--batch", "512", "--precision", "bf16", "--optimizer",
                        "adam", "--software", found["software"], "--json")  # fmt: skip
    again = json.loads(out)["plans"][0]["seconds"]["iteration"]
    assert again == pytest.approx(found["estimate"]["seconds"]["iteration"])
    assert told(capsys, "import", "job", file, "-o", str(folder))[0] == 2  # stands there already


def test_what_does_not_fit_is_the_answer_no(capsys: Any, tmp_path: Path) -> None:
    file = tmp_path / "big.args"
    file.write_text("--num-layers 96 --hidden-size 12288 --num-attention-heads 96 --bf16\n"
                    "--seq-length 2048 --vocab-size 50304 --micro-batch-size 4\n")  # fmt: skip
    code, out, _ = told(capsys, "import", "job", str(file), "--system", "dgx-a100",
                        "--devices", "16")  # fmt: skip
    assert code == 1
    assert "short" in out


def test_help_says_what_to_write(capsys: Any) -> None:
    assert told(capsys, "import", "job", "there-is-none.sh")[0] == 2
    assert told(capsys, "import", "job", str(FOLDER / "llama.toml"), "--set", "TP")[0] == 2
    code, _, err = told(capsys, "import", "job", str(FOLDER / "gpt.sbatch"), "--batch", "max")
    assert code == 2
    assert "--system S" in err
    assert told(capsys, "import", "onnx", "a.onnx", "b.onnx")[0] == 2


# --------------------------------------------------------------- hostile input

FILES = sorted(FOLDER.iterdir())
WORDS = (
    "$(( ", "${A:-", "${", "$(", "`", "<<E\n", "if [", "then", "fi", "case x in", "esac", "for",
    "do", "done", "( ", ")", "--", "--num-layers", "\\\n", '"', "'", "#SBATCH --nodes=", "A=(",
    "\ue000A\ue001", "{", "}", ";;", "&&", "||", "A+=", "1e999", "-1", "\x00",
)  # fmt: skip


def survives(texts: dict[str, str]) -> None:
    for beside in (Overrides(), Overrides(devices=64, model="gpt2")):
        try:
            found = frameworks.training(jobs.parse(texts), beside)
        except SpecError:
            continue
        assert parse(found.plan, 1).devices[0, 0] == found.devices


@pytest.mark.parametrize("file", FILES, ids=lambda path: path.name)
def test_a_few_accidents(file: Path) -> None:
    seed, dice = file.read_bytes(), random.Random(file.name)
    for _ in range(200):
        survives({"job": mutated(seed, dice).decode("utf-8", "replace")})


@law
@given(st.lists(st.sampled_from([*WORDS, *ARGS.split(), " ", "\n", "A=$A$A ", "$A"]), max_size=40))
def test_words_in_any_order(words: list[str]) -> None:
    survives({"job": " ".join(words)})
    survives({"a": "".join(words), "b": ARGS})


# how many copies there are, and the script of some
MONSTERS: dict[str, tuple[int, Callable[[int], str]]] = {
    "a value doubled": (
        64,
        lambda n: "A=xxxxxxxxxxxxxxxx\n" + "A=$A$A$A$A\n" * n + "python t.py --num-layers $A",
    ),
    "words doubled": (64, lambda n: "A=1\n" + 'A=$A" "$A\n' * n + "python t.py --num-layers $A"),
    "open sums": (2**16, lambda n: "A=$((" + "(" * n),
    "open defaults": (2**16, lambda n: "A=" + "${A:-" * n),
    "open branches": (2**15, lambda n: "if [ x ]\n" * n),
    "open cases": (2**15, lambda n: "case a in " * n),
    "open commands": (2**17, lambda n: "python " + "`" * n),
    "an open list": (2**17, lambda n: "A=(" + "x " * n),
    "open texts": (2**16, lambda n: "<<A\n" * n),
    "continued lines": (2**17, lambda n: "torchrun " + "\\\n" * n),
    "options": (2**15, lambda n: "python t.py " + "--a " * n),
    "open objects": (2**15, lambda n: '{"bf16":' * n),
    "open arrays": (2**15, lambda n: "[training]\na = " + "[" * n),
    "runs": (2**14, lambda n: "python x.py --a\n" * n),
    "a product": (2**12, lambda n: "A=$((1" + "*9" * n + "))"),
}


@pytest.mark.parametrize("name", MONSTERS)
def test_time_grows_gently_with_a_script(name: str) -> None:
    copies, script = MONSTERS[name]
    assert_grows_gently(lambda count: partial(survives, {"job": script(count)}), copies)
