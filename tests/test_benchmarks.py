"""Command lines of benchmarks: each says what it does and does it; pages name what is there."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT

COMMANDS = sorted(
    [path.stem for path in (ROOT / "benchmarks").glob("*.py") if "__main__" in path.read_text()]
    + [path.parent.name for path in (ROOT / "benchmarks").glob("*/__main__.py")]
)
ELSEWHERE = {  # command: what runs it, or what it needs that no test has
    "mutants": ".ci/run, a third of them",
    "work": "test_work.py, question by question",
    "simulate": "SimGrid",
    "pinned_names": "clones of Megatron-LM and NeMo",
    "carry": "the tables that are carried from",
    "between": "the name of a device, and kernels of those on either side of it",
    "machine": "a machine that nobody else uses, for minutes",
    "hooks": "a machine that nobody else uses, for minutes",
}
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


def help_of(command: str, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return what a command says of itself, asked in this process."""
    monkeypatch.setattr(sys, "argv", [command, "--help"])
    for module in (f"benchmarks.{command}", f"benchmarks.{command}.__main__"):
        monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(SystemExit) as end:
        runpy.run_module(f"benchmarks.{command}", run_name="__main__")
    assert end.value.code == 0
    return str(capsys.readouterr().out)


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_says_what_it_does_and_writes_nothing(
    command: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "usage:" in help_of(command, capsys, monkeypatch)
    assert not [*tmp_path.iterdir()]


def test_pages_name_commands_and_flags_that_are_there(
    capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    named: dict[str, set[str]] = {}
    for page in PAGES:
        text = re.sub(r"\s+", " ", page.read_text(encoding="utf-8"))
        for command, rest in re.findall(r"python -m benchmarks\.(\w+)([^`$]*)", text):
            named.setdefault(command, set()).update(re.findall(r"(?<= )--[\w-]+", rest))
    assert len(named) > 20
    for command, flags in named.items():
        assert command in COMMANDS
        assert flags <= set(re.findall(r"--[\w-]+", help_of(command, capsys, monkeypatch))), command


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.flaky(reruns=1)  # some measure this machine
@pytest.mark.parametrize("command", [name for name in COMMANDS if name not in ELSEWHERE])
def test_a_command_ends_well(command: str, tmp_path: Path) -> None:
    source = ROOT / "benchmarks" / f"{command}.py"
    quick = ["--quick"] if source.exists() and "--quick" in source.read_text("utf-8") else []
    done = subprocess.run(
        [sys.executable, "-m", f"benchmarks.{command}", *quick],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
