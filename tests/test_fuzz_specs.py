"""Spec files broken at random: whatever the text, a spec or a SpecError, and soon."""

from __future__ import annotations

import contextlib
import random
import timeit
from collections.abc import Callable
from time import process_time
from typing import Any

import pytest

import oracle
from oracle.models import model as models
from oracle.plan.launchable import clashes, software
from oracle.run.workflow import Workflow, workflow
from oracle.spec import catalogue
from oracle.spec.dataset import Dataset
from oracle.spec.device import Device
from oracle.spec.document import SpecError, load
from oracle.spec.files import read_text
from oracle.spec.schema import read
from oracle.spec.software import Software
from oracle.spec.system import System

SEEDS = {
    "systems": ["abci", "laptop", "dgx-a100"],
    "devices": ["v100-pcie", "tpu-v3-chip"],
    "models": ["alexnet", "resnet50", "gpt3-175b", "mixtral-8x7b", "unet3d-kits19", "vit-l16"],
    "datasets": ["imagenet", "openwebtext"],
    "software": ["plain", "megatron-core", "torchtitan"],
    "workflows": ["resnet50-search", "mnist-genetic"],
}
SPLICES = [
    "[", "]", "{", "}", ":", "- ", "\t", "\0", "&a ", "*a", "!!x ", "<<: ", "'", '"', "|", ">", "#",
    "%", "@", "`", "\n", "\n\n", "  ", "---\n", "...\n", "? ", "~", "null", "true", "nan", ".inf",
    "-1", "0", "1e999", "1e-6", "9" * 400, "25 Gb", "25 GB/s", "\u202e", "\ufeff", "\U0001f600",
    "٣", "é", "x" * 2000, "[" * 50, "{a: " * 50, "- " * 50, "a: b: c", ",", "0x10", "010", "1:30",
    "\x85", "\u2028", "layers", "devices: 3", "from: [block]", "repeat: 10000", "kernel: 0",
    "filters: 99999999999", "groups: 7", "input", "heads: 7", "\\ud800", "\r", "\x1b[31m",
]  # fmt: skip


def build(folder: str, text: str) -> Any:
    """As a file of this text would be read."""
    node = load(text, "fuzzed", partly=True)
    if folder == "models":
        spec = read(models.Network, node, "fuzzed", text, label="model")
        return models.build(spec, node, "fuzzed", text)
    kinds: dict[str, type] = {
        "systems": System, "devices": Device, "datasets": Dataset, "software": Software,
        "workflows": Workflow,
    }  # fmt: skip
    kind = kinds[folder]
    catalogue._open_references(kind, node)
    return read(kind, node, "fuzzed", text, also=clashes if kind is Software else None)


def broken(rng: random.Random, text: str) -> str:
    """One to four edits: cut, copy, swap, splice, change a number or a letter."""
    for _ in range(rng.randint(1, 4)):
        i, j = sorted(rng.randrange(len(text) + 1) for _ in range(2))
        j = min(j, i + rng.choice([1, 3, 10, 80]))
        what = rng.randrange(7)
        if what == 0:
            text = text[:i] + text[j:]
        elif what == 1:
            text = text[:j] + text[i:j] * rng.randint(1, 3) + text[j:]
        elif what == 2:
            text = text[:i] + rng.choice(SPLICES) + text[i:]
        elif what == 3:
            text = text[:i] + rng.choice(SPLICES) + text[j:]
        elif what == 4:
            text = (
                text[:i] + chr(rng.choice([rng.randrange(128), rng.randrange(0x3000)])) + text[j:]
            )
        elif what == 5:
            lines = text.split("\n")
            a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
            lines[a], lines[b] = lines[b], lines[a]
            text = "\n".join(lines)
        else:
            digits = [k for k, c in enumerate(text) if c.isdigit()]
            if digits:
                k = rng.choice(digits)
                text = (
                    text[:k]
                    + rng.choice("0123456789eE.-") * rng.choice([1, 1, 1, 30])
                    + text[k + 1 :]
                )
        if not text:
            text = "x"
    return text


def least_seconds(folder: str, text: str) -> float:
    """CPU seconds of reading a text, the least of three tries: a busy machine only adds to it."""

    def work() -> None:
        with contextlib.suppress(SpecError):
            build(folder, text)

    return min(timeit.repeat(work, timer=process_time, number=1, repeat=3))


def run(count: int, seed: int) -> int:
    """How many were refused. None takes twenty times as long as the longest sound file."""
    rng = random.Random(seed)
    texts = {
        (folder, name): read_text(catalogue.shipped(folder)[name])
        for folder, names in SEEDS.items()
        for name in names
    }
    refusals, longest, slowest = 0, 0.0, ("", "")
    for number in range(count):
        (folder, name), text = rng.choice(sorted(texts.items()))
        text = broken(rng, text)
        begin = process_time()
        try:
            found = build(folder, text)
        except SpecError as error:
            refusals += bool(str(error) and error.faults)
        except BaseException as error:
            raise AssertionError(f"{seed}:{number}, {folder}/{name}:\n{text}") from error
        else:
            assert found.name
        if (seconds := process_time() - begin) > longest:
            longest, slowest = seconds, (folder, text)
    usual = max(least_seconds(folder, text) for (folder, _), text in texts.items())
    assert least_seconds(*slowest) < 20 * usual, slowest
    return refusals


def test_broken_specs_are_refused() -> None:
    assert run(800, seed=1) >= 400, "the edits do break something"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_twenty_thousand_broken_specs_are_refused(seed: int) -> None:
    assert run(5000, seed=100 + seed) >= 2500


@pytest.mark.parametrize(
    "read_",
    [
        catalogue.system,
        catalogue.device,
        catalogue.dataset,
        oracle.model,
        software,
        workflow,
    ],
)
def test_any_data_is_a_spec_or_refused(read_: Callable[[Any], Any]) -> None:
    rng = random.Random(7)
    leaves: list[Any] = [None, True, 0, -1, 1.5, float("nan"), float("inf"), 10**40, "", "x",
                         b"x", (), [], {}, [[]], object(), "\0", "name"]  # fmt: skip
    keys = ["name", "source", "device", "levels", "layers", "input", "samples", "transformer",
            "search", "trials", "conv", "peak", "memory", "exchange", "launch", 3, None, ("a",),
            "from", "repeat"]  # fmt: skip

    def tree(depth: int) -> Any:
        if depth == 0 or rng.random() < 0.3:
            return rng.choice(leaves)
        if rng.random() < 0.3:
            return [tree(depth - 1) for _ in range(rng.randint(0, 3))]
        return {rng.choice(keys): tree(depth - 1) for _ in range(rng.randint(0, 5))}

    for _ in range(300):
        with pytest.raises(SpecError):
            read_({rng.choice(keys): tree(4) for _ in range(rng.randint(0, 6))})
