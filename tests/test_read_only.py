"""Nothing is written but what was asked for: an installation may be read-only, a home not there.

And questions asked by several threads at once have the answers that they have one by one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from command_line import FEW, NCCL, ONE, ROOT

import oracle

READ_ONLY = """
import errno, json, os, sys

folder, lines = sys.argv[1], json.loads(sys.argv[2])
tried = []
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {"os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.link", "os.symlink",
           "os.truncate", "os.chmod", "os.utime"}

def watch(event, arguments):
    if event == "open":
        path, mode, flags = arguments
        writes = flags & WRITES if mode is None else not {*"wax+"}.isdisjoint(mode)
    else:
        path, writes = arguments and arguments[0], event in CHANGES
    if not writes or not isinstance(path, (str, bytes, os.PathLike)):
        return
    path = os.path.abspath(os.fsdecode(path))
    if not path.startswith((folder, os.devnull)):
        tried.append(path)
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)

sys.addaudithook(watch)
from oracle.commands.cli import main
codes = [main(line) for line in lines]
print(json.dumps({"codes": codes, "tried": tried}), file=sys.__stderr__)
"""
LINES = [
    ["recommend", *FEW], ["estimate", *ONE, "--json"], ["explain", "filter"],
    ["specs", "check", "my-system.yaml"], ["config", "show", "--origin"], ["specs", "list"],
    ["calibrate", NCCL, "--onto", "abci", "-o", "my-system.yaml"],
    ["schema", "recommend", "-o", "schema.json"], ["completion", "bash"],
    ["export", "slurm", *ONE, "-o", "job.sbatch"],
    ["recommend", *FEW, "--format", "csv", "-o", "plans.csv"],
]  # fmt: skip


def told_read_only(folder: Path, lines: list[list[str]]) -> tuple[dict[str, Any], str]:
    """What a process answers on which every disk but a folder is read-only."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    kept |= {"HOME": "/nowhere", "TMPDIR": str(folder), "PYTHONPATH": str(ROOT)}
    line = [sys.executable, "-c", READ_ONLY, str(folder), json.dumps(lines)]
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False,
                          cwd=folder, env=kept)  # fmt: skip
    assert done.returncode == 0, done.stderr
    *_, last = done.stderr.splitlines()
    return json.loads(last), done.stderr


@pytest.mark.slow
def test_verbs_write_what_was_asked_for_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "my-system.yaml").write_text(
        (ROOT / "specs" / "systems" / "laptop.yaml").read_text(encoding="utf-8"), encoding="utf-8"
    )
    lines = [line for line in LINES if line[0] != "calibrate"]
    found, said = told_read_only(tmp_path, [*lines, ["calibrate", NCCL, "--onto", "abci",
                                                     "-o", "fitted.yaml"]])  # fmt: skip
    assert found["codes"] == [0] * len(LINES), said
    # Python may try to keep what it compiled; it goes on where it cannot
    assert [path for path in found["tried"] if "__pycache__" not in path] == []
    written = {path.name for path in tmp_path.iterdir()}
    assert written == {"my-system.yaml", "fitted.yaml", "schema.json", "job.sbatch", "plans.csv"}


def test_the_watch_sees_who_writes_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    line = ["schema", "recommend", "-o", str(tmp_path / "elsewhere.json")]
    found, said = told_read_only(tmp_path / "here", [line])
    assert found["codes"] == [2]
    assert any("elsewhere" in path for path in found["tried"])
    assert "Read-only file system" in said
    assert not (tmp_path / "elsewhere.json").exists()


@pytest.mark.slow
def test_figures_and_reports_too(tmp_path: Path) -> None:
    """Matplotlib looks for a place of its own, and says so where it has to make one."""
    pytest.importorskip("matplotlib")
    few = ["lenet5", "abci", "--devices", "4", "--batch", "64"]
    lines = [["report", *few, "-o", "report.html"], ["plot", "parts", *few, "-o", "parts.svg"]]
    found, said = told_read_only(tmp_path, lines)
    assert found["codes"] == [0, 0], said
    ours = [path for path in found["tried"] if str(ROOT) in path and "__pycache__" not in path]
    assert ours == []
    assert {"report.html", "parts.svg"} <= {path.name for path in tmp_path.iterdir()}


def asked(number: int) -> Any:
    """One of eight questions that share models, systems and caches."""
    model, system, plan = [
        ("resnet50", "abci", "data:16"), ("resnet50", "abci", "data:4 filter:4"),
        ("gpt2", "dgx-a100", "data:8"), ("gpt2", "dgx-a100", "data:2 tensor:4"),
        ("lenet5", "abci", "data:4"), ("resnet50", "dgx-a100", "data:8"),
        ("gpt2", "abci", "pipeline:2,segments=4 data:4"), ("vgg16", "abci", "data:32"),
    ][number]  # fmt: skip
    if number == 0:
        return oracle.recommend(model, system, devices=16, batch=256, only=["data", "filter"],
                                software="plain")  # fmt: skip
    return oracle.estimate(model, system, plan, batch=128, software="plain")


@pytest.mark.slow
def test_threads_get_the_answers_that_one_gets() -> None:
    """Eight at a time, on caches that are empty, and again on those that are full."""
    code = "import json, sys; sys.path[:0] = [sys.argv[1]]; import test_read_only as here;"
    code += "print(json.dumps(here.in_threads()))"
    line = [sys.executable, "-c", code, str(ROOT / "tests")]
    kept = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False, env=kept)
    assert done.returncode == 0, done.stderr
    wanted = [json.loads(json.dumps(asked(number).to_dict())) for number in range(8)]
    for found in json.loads(done.stdout):
        assert found == wanted


def in_threads() -> list[list[Any]]:
    """Twice the answers of eight threads; often another one's turn."""
    sys.setswitchinterval(1e-4)
    with ThreadPoolExecutor(8) as pool:
        return [[one.to_dict() for one in pool.map(asked, range(8))] for _ in range(2)]
