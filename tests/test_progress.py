"""A long answer says on a terminal how much is done and how much time is left."""

from __future__ import annotations

import contextlib
import contextvars
import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from command_line import SMALL, told

from oracle.ask.progress import counted, listening, parts
from oracle.commands import progress
from oracle.commands.progress import Line
from oracle.show import terminal

SEARCH = ["recommend", "gpt2", "dgx-a100", "--devices", "16", "--batch", "64"]
SHORT = ["choose", "resnet50", "--systems", "abci,dgx-a100", "--devices", "4,8", "--epochs", "1",
         "--batch", "256", "--only", "data"]  # fmt: skip


def test_a_loop_in_a_loop_is_a_part_of_one_item() -> None:
    shares: list[float] = []
    with listening(shares.append):
        for _ in counted("ab"):
            for _ in counted([1, 2, 3, 4]):
                pass
    assert shares == pytest.approx([0.125, 0.25, 0.375, 0.5, 0.5, 0.625, 0.75, 0.875, 1.0, 1.0])
    assert list(counted("ab")) == ["a", "b"]
    assert len(shares) == 10  # nobody listens any longer


def test_parts_are_as_long_as_they_say_and_loops_are_parts_of_them() -> None:
    shares: list[float] = []
    with listening(shares.append), parts(1, 3) as done:
        done()
        for _ in counted("abc"):
            pass
        done()
    assert shares == pytest.approx([0.25, 0.5, 0.75, 1.0, 1.0])


def test_a_loop_that_is_left_counts_no_longer() -> None:
    shares: list[float] = []
    with listening(shares.append):
        for item in counted([1, 2, 3]):
            if item == 2:
                break
        for _ in counted([1, 2]):
            pass
    assert shares == pytest.approx([1 / 3, 0.5, 1.0])


def test_loops_that_look_alike_are_told_apart() -> None:
    shares: list[float] = []
    with listening(shares.append):
        for _ in counted([1, 2]):
            for _ in counted([1, 2]):
                break  # both loops have done nothing of two
    assert shares == pytest.approx([0.5, 1.0])


def test_each_thread_hears_its_own_loops() -> None:
    def ask(size: int) -> list[float]:
        shares: list[float] = []
        with listening(shares.append):
            for _ in counted(range(size)):
                meet.wait(timeout=60)
        return shares

    meet = threading.Barrier(8)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(ask, [5] * 8))
    assert found == [pytest.approx([0.2, 0.4, 0.6, 0.8, 1.0])] * 8


def test_a_thread_that_takes_over_the_context_is_not_heard() -> None:
    shares: list[float] = []
    with listening(shares.append):
        context = contextvars.copy_context()
        other = threading.Thread(target=lambda: context.run(list, counted([1, 2])))
        other.start()
        other.join()
        assert shares == []
        assert list(counted([1])) == [1]
    assert shares == [1.0]


def test_the_time_left_is_what_the_rest_takes_at_this_pace() -> None:
    now = [0.0]
    line = Line("choose", lambda: now[0])
    now[0] = 3.0
    assert line.text() == "choose: 3 s so far"
    for second in range(4, 8):
        now[0] = float(second)
        line.hear(second / 10)
        assert line.text() == f"choose: {second}0%, about {10 - second} s left"
    now[0] = 8.0
    assert line.text() == "choose: 70%, about 2 s left"
    now[0] = 10.0
    line.hear(0.1)  # another part begins here
    assert line.text() == "choose: 10%"
    now[0] = 11.0
    line.hear(0.2)
    assert line.text() == "choose: 20%, about 8 s left"


SLOW = [["design-network", "--devices", "64", "--ports", "16", "--for", "resnet50"],
        ["recommend", *SMALL[:4], "--only", "data", "--to-target"]]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    [SHORT, SEARCH, *(pytest.param(line, marks=pytest.mark.slow) for line in SLOW)],
    ids=lambda line: line[0],
)
def test_verbs_that_take_long_say_so_on_a_terminal_only(
    line: list[str], capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PATIENCE", 0.001)
    monkeypatch.setattr(progress, "OFTEN", 0.001)
    monkeypatch.setenv("TERM", "xterm")
    code, out, err = told(capsys, *line)
    assert code == 0
    assert "left" not in err
    monkeypatch.setattr(terminal, "overwrites", lambda stream: stream is sys.stderr)
    code, again, err = told(capsys, *line)
    assert (code, again) == (0, out)
    assert f"\r\x1b[K{line[0]}: " in err
    assert "s left" in err
    assert err.endswith("\r\x1b[K")
    assert "left" not in told(capsys, *line, "--quiet")[2]


def test_a_terminal_gets_the_line_and_a_pipe_does_not() -> None:
    code = ("from oracle.commands import progress, cli; progress.PATIENCE = progress.OFTEN = 1e-3;"
            f"cli.main({SHORT!r})")  # fmt: skip
    ours, theirs = os.openpty()
    line = [sys.executable, "-c", code]
    kept = {**os.environ, "TERM": "xterm"}
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=theirs, env=kept) as here:
        os.close(theirs)
        said = b""
        with contextlib.suppress(OSError):  # its end, on Linux
            while some := os.read(ours, 4096):
                said += some
        out = here.stdout.read() if here.stdout else b""
    os.close(ours)
    assert b"choose: " in said
    assert b"s left" in said
    assert b"\x1b" not in out
    dumb = subprocess.run(line, capture_output=True, env=kept, check=True)
    assert dumb.stdout == out
    assert b"\x1b" not in dumb.stderr
