"""Fifty mistakes that people make in spec files: the right line always, the right advice mostly."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import oracle
from oracle.spec import catalogue
from oracle.spec.document import SpecError
from oracle.spec.files import read_text

# spec, what stands there, what somebody wrote instead, what the advice must name
TOY = """\
name: toy
source: made up
device:
  name: gpu
  source: made up
  memory: 16 GiB
  memory_bandwidth: 900 GB/s
  peak: {fp32: 15 TFLOP/s, fp16: 120 TFLOP/s}
  processors: 80
  launch: 5 us
  kernels:
    - family: gemm
      precision: fp16
      sustained: 0.9
      start: 3 us
      source: made up
levels:
  - name: node
    devices: 4
    ports: 2
    bandwidth: 25 GB/s
    latency: 2 us
    kind: switch
    duplex: full
    source: made up
  - name: rack
    devices: 64
    bandwidth: 12.5 GB/s
    latency: 4 us
    oversubscription: 3
    source: made up
collectives:
  - op: allreduce
    level: rack
    algorithm: ring
    bandwidth: 10 GB/s
    source: made up
storage:
  bandwidth: 100 GB/s
  source: made up
"""
NET = """\
name: net
source: made up
dataset: imagenet
input: [3, 224, 224]
layers:
  - conv: {filters: 64, kernel: 7, stride: 2, padding: 3, bias: false}
  - norm: batch
  - relu
  - pool: {kernel: 3, stride: 2, op: max}
  - repeat: 2
    layers:
      - conv: {filters: 64, kernel: 3, padding: 1, name: branch}
      - add: {from: [branch, block]}
  - flatten
  - dense: 1000
  - loss
"""
FAMILY = """\
name: gpt
source: made up
transformer:
  layers: 12
  hidden: 768
  heads: 12
  vocab: 50257
  sequence: 1024
  gated: false
  activation: gelu
"""
PICTURES = """\
name: pictures
source: made up
samples: 1281167
sample: [3, 224, 224]
size: 140 GB
files: 1281167
"""
TEXTS = {"system": TOY, "model": NET, "family": FAMILY, "dataset": PICTURES}
READ: dict[str, Callable[[Any], Any]] = {
    "system": catalogue.system, "model": oracle.model, "family": oracle.model,
    "dataset": catalogue.dataset,
}  # fmt: skip
MISTAKES: list[tuple[str, str, str, str]] = [
    # a field misspelt
    ("system", "bandwidth: 25 GB/s", "bandwith: 25 GB/s", "`bandwidth`"),
    ("system", "latency: 2 us", "latancy: 2 us", "`latency`"),
    ("system", "oversubscription: 3", "oversubcription: 3", "`oversubscription`"),
    ("system", "memory_bandwidth:", "memory-bandwidth:", "`memory_bandwidth`"),
    ("system", "memory: 16 GiB", "memmory: 16 GiB", "`memory`"),
    ("system", "processors: 80", "procesors: 80", "`processors`"),
    ("system", "ports: 2", "port: 2", "`ports`"),
    ("system", "levels:", "level:", "`levels`"),
    ("system", "collectives:", "colectives:", "`collectives`"),
    ("system", "algorithm: ring", "algoritm: ring", "`algorithm`"),
    ("system", "sustained: 0.9", "sustaned: 0.9", "`sustained`"),
    ("system", "storage:", "storrage:", "`storage`"),
    ("dataset", "samples: 1281167", "smaples: 1281167", "`samples`"),
    ("dataset", "files:", "file:", "`files`"),
    ("model", "input: [3", "inputs: [3", "`input`"),
    ("model", "stride: 2, padding: 3", "strides: 2, padding: 3", "`stride`"),
    ("model", "kernel: 7", "kernel_size: 7", "`kernel`"),
    ("model", "filters: 64, kernel: 7", "filter: 64, kernel: 7", "`filters`"),
    ("model", "repeat: 2", "repeats: 2", "`repeat`"),
    ("family", "hidden: 768", "hiden: 768", "`hidden`"),
    ("family", "vocab: 50257", "vocabulary: 50257", "`vocab`"),
    ("family", "sequence: 1024", "seqence: 1024", "`sequence`"),
    ("family", "heads: 12", "head: 12", "`heads`"),
    # a unit missing, ambiguous or of another dimension
    ("system", "bandwidth: 25 GB/s", "bandwidth: 25", "`25 B/s`"),
    ("system", "bandwidth: 25 GB/s", "bandwidth: 25 Gb/s", "`25 GB/s`"),
    ("system", "bandwidth: 25 GB/s", "bandwidth: 200 Gbps", "`200 Gbit/s`"),
    ("system", "bandwidth: 25 GB/s", "bandwidth: 25 GB", "B/s is wanted"),
    ("system", "memory: 16 GiB", "memory: 16 Gb", "`16 GB`"),
    ("system", "memory: 16 GiB", "memory: 16 GiB/s", "B is wanted"),
    ("system", "latency: 2 us", "latency: 2e-6", "`2e-6 s`"),
    ("system", "latency: 2 us", "latency: 2 usec", "us"),
    ("system", "fp32: 15 TFLOP/s", "fp32: 15 TFLOPS", "`15 TFLOP/s`"),
    ("dataset", "size: 140 GB", "size: 140", "`140 B`"),
    ("dataset", "size: 140 GB", "size: -140 GB", "above zero"),
    # a word that is not among the known ones
    ("system", "fp16: 120", "fp61: 120", "`fp16`"),
    ("system", "family: gemm", "family: gem", "`gemm`"),
    ("system", "duplex: full", "duplex: fulll", "full"),
    ("system", "level: rack", "level: rakc", "`rack`"),
    ("model", "- conv: {filters: 64, kernel: 7", "- convv: {filters: 64, kernel: 7", "`conv`"),
    ("model", "- relu", "- rellu", "`relu`"),
    ("model", "- flatten", "- flaten", "`flatten`"),
    ("model", "norm: batch", "norm: bach", "`batch`"),
    ("model", "op: max", "op: maxx", "`max`"),
    ("model", "from: [branch, block]", "from: [brnch, block]", "`branch`"),
    ("family", "activation: gelu", "activation: gellu", "`gelu`"),
    # values of the wrong kind, or that do not go together
    ("system", "devices: 64", "devices: 66", "multiple of 4"),
    ("model", "input: [3, 224, 224]", "input: 3, 224, 224", "`[...,"),
    ("model", "bias: false", "bias: no", "`true` or `false`"),
    ("family", "heads: 12", "heads: 13", "divisor"),
    ("dataset", "samples: 1281167", "samples: 1281167\nsamples: 50000", "keep one"),
]


def told(tmp_path: Path, number: int) -> tuple[SpecError, int]:
    """The refusal of a mistake, and the line it stands on."""
    kind, right, wrong, _ = MISTAKES[number]
    text = TEXTS[kind]
    assert text.count(right) >= 1, right
    line = text[: text.index(right)].count("\n") + 1 + wrong.count("\n")
    (tmp_path / "spec.yaml").write_text(text.replace(right, wrong, 1))
    with pytest.raises(SpecError) as caught:
        READ[kind](str(tmp_path / "spec.yaml"))
    return caught.value, line


def test_the_texts_are_sound(tmp_path: Path) -> None:
    for kind, text in TEXTS.items():
        (tmp_path / f"{kind}.yaml").write_text(text)
        assert READ[kind](str(tmp_path / f"{kind}.yaml")).name == text.split()[1]


def test_there_are_fifty() -> None:
    assert len(MISTAKES) == 50
    assert len({mistake[:3] for mistake in MISTAKES}) == 50


@pytest.mark.parametrize("number", range(50), ids=lambda n: MISTAKES[n][2][:30])
def test_the_line_is_right(tmp_path: Path, number: int) -> None:
    error, line = told(tmp_path, number)
    assert line in {fault.place.line for fault in error.faults}
    assert f"spec.yaml:{line}:" in str(error)


def test_the_advice_is_right_in_nine_of_ten(tmp_path: Path) -> None:
    wrong = []
    for number, (_, _, written, wanted) in enumerate(MISTAKES):
        error, line = told(tmp_path, number)
        here = [fault for fault in error.faults if fault.place.line == line]
        if not any(wanted in f"{fault.what} {fault.hint}" for fault in here):
            wrong.append((written, [(f.what, f.hint) for f in here]))
    assert len(wrong) <= 5, wrong


def test_a_wrong_name_gets_the_nearest() -> None:
    for read, name, meant in (
        (catalogue.system, "abic", "abci"), (oracle.model, "resnet-50", "resnet50"),
        (oracle.model, "gpt3_175b", "gpt3-175b"), (catalogue.dataset, "imagnet", "imagenet"),
        (catalogue.device, "v100-sxm2-16g", "v100-sxm2-16gb"),
    ):  # fmt: skip
        with pytest.raises(SpecError, match=f"did you mean `{meant}`"):
            read(name)


@pytest.mark.slow
def test_a_shipped_file_with_a_letter_gone_is_pointed_at(tmp_path: Path) -> None:
    """Every field name of shipped files, a letter dropped: its line, and its right name."""
    tried = right = 0
    for folder, read in (("systems", catalogue.system), ("devices", catalogue.device)):
        for path in list(catalogue.shipped(folder).values())[:3]:
            lines = read_text(path).splitlines()
            for number, line in enumerate(lines, 1):
                word = line.strip().removeprefix("- ").split(":")[0]
                if ":" not in line or not word.isidentifier() or len(word) < 5 or tried > 60:
                    continue
                broken = line.replace(word, word[:2] + word[3:], 1)
                text = "\n".join([*lines[: number - 1], broken, *lines[number:]]) + "\n"
                (tmp_path / "spec.yaml").write_text(text)
                try:
                    read(str(tmp_path / "spec.yaml"))
                except SpecError as error:
                    tried += 1
                    here = [f for f in error.faults if f.place.line == number]
                    assert here, line
                    right += any(f"`{word}`" in f.hint for f in here)
    assert tried >= 30
    assert right >= 0.9 * tried


LAYERS = """\
name: mine
source: made up
input: [3, 32, 32]
layers:
  - {conv: {filters: 16, kernel: 40}}
  - {pool: {kernel: 64}}
  - {conv: {filters: 16, kernel: 3, paddin: 1}}
  - {pool: {kernel: 99}}
  - {dense: ten}
datset: imagenet
"""


def faults_of(path: Path, text: str) -> list[tuple[int, str]]:
    """(line, code) of everything that is said at once of a file."""
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SpecError) as found:
        oracle.model(str(path))
    return [(fault.place.line, fault.code) for fault in found.value.faults]


def test_layers_that_do_not_fit_are_said_beside_fields_that_are_wrong(tmp_path: Path) -> None:
    """As far as the first layer that cannot be read: nobody knows the shape after it."""
    path = tmp_path / "mine.yaml"
    said = [(5, "E111"), (6, "E111"), (7, "E102"), (9, "E105"), (10, "E102")]
    assert faults_of(path, LAYERS) == said
    sound = LAYERS.replace("paddin", "padding").replace("ten", "10").replace("datset: image", "# ")
    assert faults_of(path, sound) == [(5, "E111"), (6, "E111"), (8, "E111")]
    block = (
        "{repeat: x, layers: [{conv: {filters: 4, kernel: 3}}, {conv: {filters: 4, kernel: 9}}]}"
    )
    times = LAYERS.replace("{conv: {filters: 16, kernel: 40}}", block)
    assert faults_of(path, times) == [(5, "E105"), *said[2:]]
    assert faults_of(path, LAYERS.replace("[3, 32, 32]", "[3, x, 32]")) == [(3, "E105"), *said[2:]]
