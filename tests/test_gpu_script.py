"""The script that sees the project on a GPU, tried on a processor."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import ROOT

from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu.trainings import TRAININGS

NAMES = [training.name for training in TRAININGS]


def test_every_training_was_predicted_before_it_ran() -> None:
    assert list(gpu.rows_of(gpu.HERE / "predicted.jsonl")) == NAMES


def test_errors_are_of_what_was_predicted() -> None:
    names = ("seconds", "low", "high", "allocated", "fits")
    said = {"a": (1.1, 1.0, 1.2, 90.0, 1.0), "b": (2.0, 1.9, 2.1, 10.0, 1.0),
            "c": (3.0, 2.0, 4.0, 10.0, 0.0)}  # fmt: skip
    predictions = {name: dict(zip(names, numbers, strict=True)) for name, numbers in said.items()}
    results = {"a": {"seconds": 1.0, "allocated": 100}, "b": {"seconds": 1.0},
               "c": {"failed": "out of memory"}}  # fmt: skip
    table = gpu.compared(predictions, results)
    values = {name: figure["value"] for name, figure in table["figures"].items()}
    assert values == pytest.approx({"gpu.seconds": 55, "gpu.inside": 50, "gpu.memory": 10})
    assert table["rows"][2]["took ms"] == "out of memory"


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_the_script_runs_on_a_processor(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    done = subprocess.run(
        ["bash", str(ROOT / "benchmarks" / "gpu.sh"), "--dry"], text=True, capture_output=True,
        env=os.environ | {"OUT": str(tmp_path), "PYTHON": sys.executable}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    lines = (tmp_path / "measured.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    assert [row["name"] for row in rows] == NAMES
    assert all(row["seconds"] > 0 for row in rows)
