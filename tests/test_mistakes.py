"""Sixty typical mistakes: specs, flags, plans, Python; what is said names the place and a cure."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import told
from test_spec_mistakes import FAMILY, NET, PICTURES, TOY

import oracle
from oracle.plan.plan import parse
from oracle.spec import catalogue
from oracle.spec.document import SpecError

# what reads it, a sound text, what stands there, what somebody wrote, the cure that must be named
NAMED = """\
name: mine
source: made up
device: h100-sxm5-80gb
levels:
  - {name: node, devices: 8, bandwidth: 450 GB/s, latency: 2 us, source: made up}
"""
SPECS: list[tuple[Callable[[str], Any], str, str, str, str]] = [
    (catalogue.system, NAMED, "device: h100-sxm5-80gb", "device: H100", "h100-sxm5-80gb"),
    (catalogue.system, NAMED, "device: h100-sxm5-80gb", "device: A100-80GB", "a100-sxm4-80gb"),
    (catalogue.system, TOY, "memory_bandwidth: 900 GB/s", "memory_bandwidth: 900 GB", "B/s"),
    (catalogue.system, TOY, "fp16: 120 TFLOP/s", "fp16: 120", "120 FLOP/s"),
    (catalogue.system, TOY, "bandwidth: 25 GB/s", "bandwidth: 200 Gb/s", "200 Gbit/s"),
    (catalogue.system, TOY, "latency: 2 us", "latency: 2 microseconds", "us"),
    (catalogue.system, TOY, "algorithm: ring", "algorithm: Ring", "`ring`"),
    (catalogue.system, TOY, "    devices: 4", "\tdevices: 4", "spaces"),
    (oracle.model, NET, "- conv: {filters: 64, kernel: 7", "- conv2d: {filters: 64, kernel: 7",
     "`conv`"),
    (oracle.model, NET, "filters: 64, kernel: 7", "out_channels: 64, kernel: 7", "`filters`"),
    (oracle.model, NET, "- norm: batch", "- batchnorm", "`norm"),
    (oracle.model, NET, "dataset: imagenet", "dataset: ImageNet-1k", "`imagenet`"),
    (oracle.model, FAMILY, "hidden: 768", "hidden_size: 768", "`hidden`"),
    (oracle.model, FAMILY, "sequence: 1024", "seq_len: 1024", "`sequence`"),
    (catalogue.dataset, PICTURES, "samples: 1281167", "samples: 1.28M", "1280000"),
]  # fmt: skip
# a command line, what is to blame, the cure
FLAGS: list[tuple[str, str, str]] = [
    ("recommend a100 gpt2 --devices 8 --batch 64", "`a100`", "recommend gpt2 dgx-a100"),
    ("recommend abci resnet50 --devices 8 --batch 64", "`abci`", "recommend resnet50 abci"),
    ("recommend resnet50 H100 --devices 8 --batch 64", "`H100`", "dgx-h100"),
    ("recommend resnet50 abci --gpus 64 --batch 512", "`--gpus`", "`--devices`"),
    ("recommend resnet50 abci --devices 64 --batch-size 512", "`--batch-size`", "`--batch`"),
    ("recommend resnet50 abci --devices 64", "--batch", "--batch-per-device"),
    ("recommend resnet50 abci --devices 8 --batch 64 --precision float16", "`float16`", "`fp16`"),
    ("recommend resnet50 abci --devices 8 --batch 64 --optimizer AdamW", "`AdamW`", "`adam`"),
    ("recommend resnet50 abci --devices 8 --batch 64 --only dp,pipeline", "`dp`", "`data`"),
    ("recommend resnet50 abci --devices 8 --batch 64 --max-memory 80", "80", "`80 GB`"),
    ("recommend llama-7b abci --devices 8 --batch 64", "`llama-7b`", "`llama2-7b`"),
    ("predict resnet50 abci --plan data:8 --batch 64", "`predict`", "`estimate`"),
    ("estimate resnet50 abci data:16 --batch 256", "data:16", "--plan data:16"),
    ("estimate resnet50 abci --plan data:8 filter:2 --batch 256", "filter:2",
     "--plan 'data:8 filter:2'"),
    ("export pytorch resnet50 abci --plan data:8 --batch 64 -o x", "`pytorch`", "`torchrun`"),
]  # fmt: skip
# a plan, where the fault stands, the cure
PLANS: list[tuple[str, int, str]] = [
    ("data=16", 1, "`data:16`"),
    ("data:8 dp:16", 8, "`data:16`"),
    ("tp:8 data:2", 1, "`tensor:8`"),
    ("data:2 pp=4", 8, "`pipeline:4`"),
    ("fsdp:64", 1, "`data:64,zero=3`"),
    ("data:16,filter:4", 9, "`data:16 filter:4`"),
    ("data: 16", 1, "`data:16`"),
    ("data16 filter:2", 1, "`data:16`"),
    ("data:16,zero3", 9, "`zero=3`"),
    ("data:16,stage=3", 9, "`zero`"),
    ("pipeline:8,microbatches=32", 12, "`segments`"),
    ("pipeline:8,segments=32,schedule=1F1B", 33, "`1f1b`"),
    ("tensor:8,sequence=true", 19, "`on`"),
    ("data:16 recompute", 9, "`recompute:full`"),
    ("data:0 filter:4", 6, "from 1"),
]
SMALL: dict[str, Any] = {"model": "lenet5", "system": "abci"}
# a call, what is to blame, the cure
PYTHON: list[tuple[str, Callable[[], Any], str, str]] = [
    ("batch_size=",
     lambda: oracle.estimate(**SMALL, plan="data:4", batch_size=64),  # type: ignore[call-arg]
     "`batch_size`", "`batch`"),
    ("gpus=",
     lambda: oracle.recommend(**SMALL, gpus=4, batch=64),  # type: ignore[call-arg]
     "`gpus`", "`devices`"),
    ("no batch",
     lambda: oracle.estimate("lenet5", "abci", "data:4"),  # type: ignore[call-arg]
     "estimate", "`batch`"),
    ("batch as text", lambda: oracle.estimate(**SMALL, plan="data:4", batch="64"),
     "`64`", "a whole number"),
    ("swapped", lambda: oracle.estimate("abci", "lenet5", "data:4", 64), "`abci`",
     '"lenet5", "abci"'),
    ("a device as system", lambda: oracle.system("A100"), "`A100`", "`dgx-a100`"),
    ("torch.float16",
     lambda: oracle.estimate(**SMALL, plan="data:4", batch=64, precision="torch.float16"),
     "`torch.float16`", "`fp16`"),
    ("AdamW", lambda: oracle.estimate(**SMALL, plan="data:4", batch=64, optimizer="AdamW"),
     "`AdamW`", "`adam`"),
    ("a plan as dict",
     lambda: oracle.estimate(**SMALL, plan={"data": 4, "filter": 2}, batch=64),
     "plan", "`data:4 filter:2`"),
    ("gigabytes as a number",
     lambda: oracle.estimate(**SMALL, plan="data:4", batch=64, max_memory=80), "80", "80 GB"),
    ("only dp", lambda: oracle.recommend(**SMALL, devices=4, batch=64, only=["dp"]), "`dp`",
     "`data`"),
    ("a verb of another name",
     lambda: oracle.simulate,  # type: ignore[attr-defined]
     "'simulate'", "`estimate`"),
    ("a field of another name",
     lambda: oracle.estimate(**SMALL, plan="data:4", batch=64).time,  # type: ignore[attr-defined]
     "'time'", "`seconds`"),
    ("a module as model", lambda: oracle.model(Path), "`type`", "oracle import torch"),
    ("devices as text",
     lambda: oracle.recommend(**SMALL, devices="four", batch=64),  # type: ignore[arg-type]
     "devices", "a whole number"),
]  # fmt: skip


def specs(folder: Path) -> Iterator[tuple[str, bool, bool]]:
    """Each mistake in a spec: itself, whether its line is named, whether the cure is."""
    for read, text, right, wrong, cure in SPECS:
        assert text.count(right) >= 1, right
        line = text[: text.index(right)].count("\n") + 1
        path = folder / "spec.yaml"
        path.write_text(text)
        read(str(path))
        path.write_text(text.replace(right, wrong, 1))
        try:
            read(str(path))
            yield wrong, False, False
        except SpecError as error:
            here = [fault for fault in error.faults if fault.place.line == line]
            said = " ".join(f"{fault.what} {fault.hint}" for fault in here)
            yield wrong, bool(here), cure in said


def flags(capsys: Any) -> Iterator[tuple[str, bool, bool]]:
    """The same of command lines."""
    for line, blamed, cure in FLAGS:
        code, out, err = told(capsys, *line.split())
        yield line, code == 2 and not out and blamed in err, cure in err


def plans() -> Iterator[tuple[str, bool, bool]]:
    """The same of plans, with the column of the fault as its place."""
    for text, column, cure in PLANS:
        try:
            parse(text, 64)
            yield text, False, False
        except SpecError as error:
            here = [fault for fault in error.faults if fault.place.column == column]
            yield text, bool(here), any(cure in f"{fault.what} {fault.hint}" for fault in here)


def python() -> Iterator[tuple[str, bool, bool]]:
    """The same of calls; what they raise is a SpecError, or an AttributeError where it is due."""
    for name, call, blamed, cure in PYTHON:
        try:
            call()
            yield name, False, False
        except (SpecError, AttributeError) as error:
            yield name, blamed in str(error), cure in str(error)
        except Exception:  # a traceback of ours
            yield name, False, False


def test_sixty_mistakes_are_placed_and_most_get_their_cure(tmp_path: Path, capsys: Any) -> None:
    told_of = [*specs(tmp_path), *flags(capsys), *plans(), *python()]
    assert len(told_of) == len({what for what, _, _ in told_of}) == 60
    assert not [what for what, placed, _ in told_of if not placed]
    uncured = [what for what, _, cured in told_of if not cured]
    assert len(uncured) <= 5, uncured


@pytest.mark.parametrize("kind", [SPECS, FLAGS, PLANS, PYTHON], ids=["s", "f", "p", "py"])
def test_fifteen_of_each_kind(kind: list[Any]) -> None:
    assert len(kind) == 15


def test_help_is_that_of_the_kind_of_figure(capsys: Any) -> None:
    line = ["plot", "parts", "resnet50", "abci", "--bogus", "1", "-o", "a.svg"]
    code, _, err = told(capsys, *line)
    assert code == 2
    assert "`oracle plot parts --help` lists what it takes" in err
    assert "`oracle plot --help` lists" in told(capsys, "plot", "--bogus")[2]


def test_names_of_measured_collectives_are_those_that_are_priced() -> None:
    """In a process of its own: registered classes add themselves."""
    code = """
from oracle.spec.collective_names import ALGORITHMS
before = {op: set(names) for op, names in ALGORITHMS.items()}
from oracle.network.collectives import ALGORITHMS as priced
assert before == {op: set(by) for op, by in priced.items()}
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
