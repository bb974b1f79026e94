"""What a person sees first: short, 80 columns wide, the answer at the top, units behind figures."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
from command_line import told
from grids import rest_slow

from oracle.show import explanation, first_screen
from oracle.show.plan_words import legend, plan_in_words

QUESTIONS = """
resnet50 abci --devices 64 --batch 4096
resnet50 abci --devices 8 --batch 256
resnet50 abci --devices 512 --batch 16384 --precision fp16
resnet50 dgx-1-v100 --devices 8 --batch 512 --software mxnet
resnet50 dgx-a100 --devices 512 --batch 32768 --precision bf16
resnet50 abci --devices 64 --batch-per-device 64
resnet50 abci --devices 16 --batch 1024 --only data,filter
resnet50 abci --devices 16 --batch 1024 --ideal
resnet50 abci --devices 64 --batch 2048 --objective memory
resnet50 abci --devices 64 --batch 2048 --max-memory 4GiB
resnet50 dgx-h100 --devices 64 --batch 4096 --objective money
resnet50 fugaku --devices 64 --batch 1024
resnet50 ethernet-64 --devices 32 --batch 1024
resnet50 ethernet-pair --devices 8 --batch 64 --reading none
vgg16 abci --devices 16 --batch 4096
vgg16 frontera --devices 16 --batch 512
alexnet dgx-1-p100 --devices 8 --batch 2048
alexnet v100-slow-node --devices 128 --batch 2048
lenet5 abci --devices 4 --batch 64
mnist-cnn ethernet-pair --devices 4 --batch 64
unet3d-kits19 dgx-a100 --devices 16 --batch 16
unet3d-kits19 alps --devices 4 --batch 8
cosmoflow-512 abci --devices 64 --batch 64
cosmoflow-512 abci --devices 256 --batch 64 --precision fp16
cosmoflow-128 dgx-1-v100 --devices 8 --batch 32
bert-large dgx-a100 --devices 16 --batch 256
bert-large dgx-a100 --devices 16 --batch 256 --ideal
gpt2 dgx-a100 --devices 8 --batch 64
gpt2 ethernet-64 --devices 16 --batch 64
gpt2-xl dgx-a100 --devices 32 --batch 128 --without pipeline
gpt2-xl dgx-a100 --devices 32 --batch 128 --place best
gpt3-175b dgx-a100 --devices 1024 --batch 1536
gpt3-175b dgx-a100 --devices 512 --batch 1536 --fastest
llama3-8b dgx-h100 --devices 64 --batch 256
llama3-8b dgx-h100 --devices 8 --batch 32 --sequence 4096 --layers 8
llama3-70b dgx-h100 --devices 64 --batch 128 --precision bf16 --software nemo
llama3-70b dgx-h100 --devices 256 --batch 512 --precision fp8
llama3-70b aws-p5 --devices 128 --batch 256 --what-if network=2
mixtral-8x7b dgx-h100 --devices 64 --batch 256
mixtral-8x7b abci --devices 128 --batch 256
bloom-176b dgx-a100 --devices 384 --batch 2048
""".strip().splitlines()
# a figure has a unit, or counts what stands behind it
UNIT = re.compile(r"\d (?:s|ms|us|ns|min|h|days|%|[kMGTP]?i?B|USD|[kMGTP]?FLOP/s|\w)")
COUNTS = (r"^([\d,]+) combinations: ([\d,]+) fit and compete, ([\d,]+) cannot win, "
          r"([\d,]+) do not fit$")  # fmt: skip
LARGE = pytest.param(QUESTIONS[31], marks=pytest.mark.slow)
WIDEST = 80


@pytest.mark.parametrize("line", rest_slow(QUESTIONS, (QUESTIONS[6], QUESTIONS[12], QUESTIONS[18])))
def test_the_first_screen_of_a_question(line: str, capsys: Any) -> None:
    code, out, err = told(capsys, "recommend", *shlex.split(line))
    assert (code, err) == (0, "")
    lines = out.rstrip("\n").split("\n")
    assert len(lines) <= first_screen.SCREEN, out
    assert max(map(len, lines)) <= WIDEST
    assert re.match(
        r"(Fastest|Best|Steadiest|Cheapest|Leanest): [\d.]+ (s|ms|us|min) a step with ", lines[0]
    )
    labels = re.findall(r"^  (\w+) {2,}\S", out, re.M)
    assert {"plan", "time", "speed", "memory", "trust"} <= {*labels}
    assert len(labels) == len({*labels}), "each fact once"
    assert unitless(out) == []
    (counts,) = re.findall(COUNTS, out, re.M)
    tried, *parts = (int(count.replace(",", "")) for count in counts)
    assert tried == sum(parts)
    table = out[out.index("\n #  plan") :]
    for letters in {*re.findall(r"\b(PP|DP|TP|CP|EP|FSDP)\d", table)}:
        assert re.search(rf"\b{letters} [a-z]+", table), f"{letters} is explained nowhere"
    bases = re.findall(r"(?:GiB|MiB|KiB|TiB)  (\w+) +[\d<]", table)
    assert {*bases} <= {"measured", "fitted", "datasheet", "assumed"}
    assert not re.search(r"\bplain\b", out), "what nobody named has no name"
    assert table.rstrip().split("\nnext: ")[1].startswith("oracle explain ")


TRAININGS = """
resnet50 abci --devices 64 --to-target
resnet50 abci --devices 64 --batch 4096 --epochs 90
resnet50 abci --devices 64 --epochs 90 --batch 4096 --within 1h --budget 100USD
resnet50 abci --devices 64 --optimizer lars --to-target --fewer
llama3-8b dgx-h100 --devices 256 --batch 1024 --tokens 15T --checkpoint async
llama3-8b dgx-h100 --devices 256 --tokens 15T
""".strip().splitlines()


@pytest.mark.parametrize("line", rest_slow(TRAININGS, (TRAININGS[1], TRAININGS[2])))
def test_the_first_screen_of_a_whole_training(line: str, capsys: Any) -> None:
    """The first line says how long the training takes, and whether limits are kept."""
    code, out, err = told(capsys, "recommend", *shlex.split(line))
    assert err == ""
    lines = out.rstrip("\n").split("\n")
    assert len(lines) <= first_screen.SCREEN, out
    assert max(map(len, lines)) <= WIDEST
    over = "Nothing keeps to the limits. " * ("--within" in line)
    assert re.match(rf"{over}Fastest: [\d.]+ (min|h|days) \(.*\) (for|to) ", lines[0])
    assert code == bool(over)
    labels = set(re.findall(r"^  (\w+) {2,}\S", out, re.M))
    assert {"plan", "time", "memory", "training", "trust"} <= labels
    assert ("limits" in labels, "fewer" in labels) == (bool(over), "--fewer" in line)
    assert unitless(out.partition("  fewer ")[0].partition("  batches ")[0] + "\n #  plan") == []
    assert "a step, " in out


def unitless(text: str) -> list[str]:
    """Figures of the facts behind which neither a unit nor a word stands."""
    facts = " ".join(text[text.index("  time ") : text.index("\n #  plan")].split())
    facts = re.sub(r"\b[a-z]+ \d+(?=[;,])", "", facts.split(" trust ")[0]).replace(",", "")
    figures = re.findall(r"(?<![\w.:=(/×-])(\d+(?:\.\d+)?) ?([^\d\s]?)", facts)
    return [number for number, behind in figures if not re.match(r"[\w%×²³)]", behind)]


def test_figures_without_a_unit_are_found() -> None:
    table = "\n #  plan"
    assert unitless(f"  time 184 ms, 5 % of 64 devices{table}") == []
    assert unitless(f"  time 5 ms\n  memory 6.89; fits{table}") == ["6.89"]


@pytest.mark.parametrize("line", [QUESTIONS[18], LARGE])
def test_the_next_command_explains_the_plan_on_a_screen(line: str, capsys: Any) -> None:
    """It names no plan, and finds the one that was recommended."""
    out = told(capsys, "recommend", *shlex.split(line))[1]
    plan = re.split(r"\n  \w+ ", out.partition("  plan      ")[2])[0]
    command = shlex.split(out.partition("\nnext: oracle ")[2].replace("\\\n", ""))
    assert "--plan" not in command
    code, text, err = told(capsys, *command)
    assert (code, err) == (0, "")
    assert " ".join(plan.split()) in " ".join(text.split())
    lines = text.rstrip("\n").split("\n")
    assert len(lines) <= explanation.SCREEN, text
    assert max(map(len, lines)) <= WIDEST
    assert re.match(r"[\d.]+ (s|ms|us)", lines[0])
    for heading in ("Where the time goes", "What bounds it", "What would change the choice"):
        assert heading in lines
    full = shlex.split(text.partition("\nnext: oracle ")[2].replace("\\\n", ""))
    code, text, _ = told(capsys, *full)
    assert code == 0
    assert max(map(len, text.splitlines())) <= WIDEST
    assert {"How far each strategy goes", "Where the numbers come from"} <= {*text.splitlines()}


OTHERS = """
choose gpt2 --systems dgx-h100,abci --devices 8 --tokens 1B
choose gpt2 --systems dgx-h100,abci --devices 8..16 --tokens 300B --within 1h
workflow resnet50 abci --nodes 4 --trials 32 --epochs 90 --batch 128 --plan data:2
workflow resnet50 abci --nodes 2..4 --trials 32 --epochs 90 --batch 128 --plan data:2 --table
recommend resnet50 abci --devices 64 --epochs 90 --schedule '0:8192 30:16384'
recommend gpt3-175b dgx-a100 --devices 8 --batch 64 --software megatron-core
estimate gpt2 dgx-a100 --plan data:8,zero=1 --batch 64
explain gpt2 dgx-a100 --plan 'data:2 tensor:4' --batch 64 --full
explain gpt2 dgx-a100 --plan 'data:2 tensor:4' --batch 64 --memory
explain gpt2 dgx-a100 --plan 'data:2 tensor:4' --batch 64 --roofline
explain resnet50 dgx-1-v100 --plan data:8 --batch 512 --workspace 4GiB
explain filter
explain E112
explain
sweep resnet50 abci --devices 4,8 --batch 256 --jobs 1
specs list
specs basis abci
specs check abci
schema
selftest
""".strip().splitlines()
LONGEST = {"choose": 24, "workflow": 24, "recommend": first_screen.SCREEN}
ANSWERS = {
    "choose": r"(Cheapest|Fastest): .+ on [\d,]+ devices of |Nothing keeps to the limits",
    "workflow": r"[\d.]+ (min|h|days) ", "recommend": r"[\d.]+ (min|h|days) |Nothing fits",
}  # fmt: skip


@pytest.mark.parametrize("line", rest_slow(OTHERS, (OTHERS[6], OTHERS[11], OTHERS[15])))
def test_no_line_of_any_verb_is_too_wide(line: str, capsys: Any) -> None:
    """Nor is a screen too long, or its answer anywhere but in the first line."""
    verb, *words = shlex.split(line)
    code, out, _ = told(capsys, verb, *words)
    assert code in (0, 1)
    lines = out.rstrip("\n").split("\n")
    assert max(map(len, lines)) <= WIDEST, max(lines, key=len)
    if verb in ANSWERS:
        assert re.match(ANSWERS[verb], lines[0]), lines[0]
        assert len(lines) <= LONGEST[verb], out
    for command in re.findall(r"next: oracle (\w+)", out):
        assert command in ("recommend", "explain"), "what is typed next is a question"
    screen = out.replace("--software plain", "")
    assert not re.search(r"\bplain\b", screen) or verb in ("specs", "explain", "schema")


def test_another_rank_is_explained(capsys: Any) -> None:
    line = shlex.split(QUESTIONS[6])
    second = told(capsys, "recommend", *line, "-v")[1].partition("\n 2  ")[2].split("\n")[0]
    out = told(capsys, "explain", *line, "--rank", "2")[1]
    names = out.partition("  plan      ")[2].split("\n")[0]
    listed = re.findall(r"^ 2  (.*)$", told(capsys, "recommend", *line, "-v")[1], re.M)
    assert names == listed[-1] != second
    code, _, err = told(capsys, "explain", *line, "--rank", "200")
    assert code == 2
    assert "there is no plan 200 to explain" in err


def test_plans_are_said_as_a_colleague_would() -> None:
    assert plan_in_words("data:16,zero=1 tensor:4") == (
        "16 replicas × 4 devices that split every layer"
    )
    assert plan_in_words("data:4 spatial:2x2") == "4 replicas × 4 parts of each sample"
    assert plan_in_words("not a plan") == "not a plan"
    assert legend(["pipeline:2 data:4", "data:8"]) == "PP pipeline stages, DP replicas"


TRAP = ["qwen3-32b", "dgx-h100", "--plan", "data:16,zero=1 tensor:4,sequence=on", "--batch", "256"]


def test_a_plan_that_fits_once_its_batch_is_cut_says_what_to_type(capsys: Any) -> None:
    code, out, _ = told(capsys, "estimate", *TRAP)
    assert code == 1
    (plan,) = re.findall(r"--plan '(.*)'", out)
    assert plan == "data:16,zero=1,accumulate=16 tensor:4,sequence=on"
    assert "with smaller micro-batches it fits" in out
    line = [plan if word == TRAP[3] else word for word in TRAP]
    assert told(capsys, "estimate", *line)[0] == 0
    fewer = [word.replace("=16", "=8") for word in line]
    assert told(capsys, "estimate", *fewer)[0] == 1, "as few as make it fit"
    hopeless = ["gpt3-175b", "dgx-a100", "--plan", "data:8", "--batch", "64"]
    assert "micro-batches" not in told(capsys, "estimate", *hopeless)[1]


def test_micro_batches_are_said_by_their_size(capsys: Any) -> None:
    line = [word.replace("zero=1", "zero=1,micro=1") for word in TRAP]
    code, out, _ = told(capsys, "estimate", *line)
    assert code == 0
    assert out.startswith("data:16,zero=1,accumulate=16 tensor:4,sequence=on on 64 devices")
    code, _, err = told(capsys, "estimate", *[word.replace("micro=1", "micro=3") for word in line])
    assert code == 2
    assert "a batch of 256 cannot be cut into micro-batches of 3" in err
    assert "a multiple of 48" in err
    code, _, err = told(capsys, "estimate", *line[:-2], "--batch", "max")
    assert code == 2
    assert "`micro=` of a plan needs --batch B" in err
