"""Colour, width and characters of what a terminal shows."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest
from command_line import FEW, ROOT, spawn, told

import oracle
from oracle.plan.names import short_names
from oracle.show import terminal
from oracle.show.first_screen import ranking_table
from oracle.show.text import estimate_text, why_not
from oracle.spec.units import show


def on_a_terminal(columns: int, *line: str, **environment: str) -> str:
    """What a terminal of so many columns receives."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    kept = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "LINES")}
    with subprocess.Popen(
        [sys.executable, "-m", "oracle", *line], stdout=theirs, stderr=theirs, stdin=theirs,
        cwd=ROOT, env={**kept, "TERM": "xterm", **environment},
    ) as run:  # fmt: skip
        os.close(theirs)
        said = b""
        try:
            while more := os.read(ours, 65536):
                said += more
        except OSError:  # the other side is closed
            pass
        run.wait(timeout=60)
    os.close(ours)
    # a line of progress that was written anew, or wiped away, stands there no longer
    return re.sub(r"\r\x1b\[K([^\r\n]*(?=\r))?", "", said.decode().replace("\r\n", "\n"))


@pytest.mark.slow
def test_colour_is_for_terminals_that_want_it(capsys: Any) -> None:
    line = ["recommend", *FEW]
    assert "\x1b[" in on_a_terminal(100, *line)
    assert "\x1b[" not in on_a_terminal(100, *line, NO_COLOR="1")
    assert "\x1b[" in on_a_terminal(100, *line, NO_COLOR="")
    assert "\x1b[" not in on_a_terminal(100, *line, TERM="dumb")
    assert "\x1b[" not in on_a_terminal(100, *line, "--color", "never")
    assert "\x1b[" in on_a_terminal(100, *line, "--color", "always", NO_COLOR="1")
    assert "\x1b[" not in on_a_terminal(100, *line, "--json")
    assert "\x1b[1;31merror[E110]\x1b[0m" in on_a_terminal(100, "specs", "show", "abic")
    plain, painted = (told(capsys, *line, "--color", when)[1] for when in ("never", "always"))
    assert "\x1b[" in painted
    assert re.sub(r"\x1b\[[\d;]*m", "", painted) == plain
    assert "\x1b" not in told(capsys, *line, "--color", "always", "--json")[1]


def test_a_caret_is_coloured(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsource: x\nlevles: []\n")
    _, _, err = told(capsys, "recommend", "resnet50", str(path), "--devices", "1", "--batch", "8",
                     "--color", "always")  # fmt: skip
    assert "\x1b[1;31m^^^^^^\x1b[0m did you mean \x1b[36m`levels`\x1b[0m?" in err


def test_the_width_is_the_terminals() -> None:
    widest = {}
    for columns in (60, 120):
        text = on_a_terminal(columns, "recommend", "gpt3-175b", "dgx-a100", "--devices", "128",
                             "--batch", "256", "--only", "pipeline,data,tensor",
                             "--color", "never")  # fmt: skip
        widest[columns] = max(map(len, text.splitlines()))
        assert widest[columns] <= columns
    assert widest[120] > 90


@pytest.mark.parametrize("columns", [60, 80, 100, 140])
def test_plans_and_reasons_are_whole_at_any_width(columns: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(terminal, "_is_terminal", lambda stream: True)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
    plans = ["pipeline:8,segments=48,interleave=12 data:8,zero=1 tensor:8,sequence=on",
             "pipeline:8,segments=96,interleave=6 data:8,zero=1 context:2,kind=alltoall "
             "tensor:4,sequence=on"]  # fmt: skip
    shown = oracle.estimate("gpt3-175b", "dgx-a100", plans, 768)
    table = ranking_table(shown, [0.7, 0.3])
    assert all(len(line) <= columns for text in table for line in text.splitlines())
    whole = " ".join(" ".join(table).split())
    names = short_names(plans)
    assert names == ["PP8·DP8·TP8", "PP8·DP8·CP2·TP4"]
    assert all(name in whole for name in names)
    assert "PP pipeline stages, DP replicas, TP layer parts, CP sequence parts" in whole
    ahead = f"{show(shown.seconds[0] - shown.seconds[1], 's')} faster"
    assert (ahead in whole) == (columns >= 80)
    assert terminal.wrapped("  a  b c", 4) == ["  a  b c"]


def test_characters_that_a_stream_cannot_carry_are_spelled_out() -> None:
    for line in (["--help"], ["recommend", *FEW], ["calibrate", "--help"], ["explain", "data"]):
        done = spawn(*line, environment={"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, b"")
        done.stdout.decode("ascii")
    assert b"alpha, beta" in spawn("--help", environment={"PYTHONIOENCODING": "ascii"}).stdout
    wrong = spawn("specs", "show", "äbçi→", environment={"PYTHONIOENCODING": "latin-1"})
    assert wrong.returncode == 2
    assert "äbçi->" in wrong.stderr.decode("latin-1")


def test_memory_that_is_free_is_what_is_left() -> None:
    """A limit of 2 GiB more than what a plan needs leaves 2 GiB."""
    needs = float(oracle.estimate("lenet5", "abci", "serial", 4).memory[0])
    shown = oracle.estimate("lenet5", "abci", "serial", 4, max_memory=needs + 2 * 2**30)
    assert "a device, 2 GiB free" in estimate_text(shown)


def test_the_part_in_which_a_plan_loses_most_is_named() -> None:
    best = {"forward and backward": 3.0, "data: gradients": 1.0}
    other = {"forward and backward": 2.0, "data: gradients": 1.5, "filter: activations": 0.4}
    assert why_not(best, other) == "+500 ms data gradients"
    assert why_not(best, {**best, "bubble": 7.0}) == "+7 s bubble"
    assert why_not(best, best) == "as fast"


@pytest.mark.parametrize("columns", [60, 140])
def test_tables_carry_their_texts_whole_at_any_width(columns: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(terminal, "width", lambda: columns)
    long = "pipeline:8,segments=48,schedule=1f1b,interleave=6 data:16,zero=1 tensor:8"
    head = ("plan", "seconds", "why")
    lines = terminal.laid_out([head, (long, "1.5 s", "bubble")], "<><")
    words = " ".join(" ".join(lines).split())
    assert long in words
    assert "1.5 s" in words
    assert "bubble" in words
    assert max(map(len, lines)) <= columns
    assert len(lines) == (2 if columns == 140 else 5)
    assert "a" * 150 in terminal.fit(f"plan {'a' * 150}")
