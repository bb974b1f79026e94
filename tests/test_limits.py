"""What the product does not do: each limit on its page has a command that shows it."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, told
from test_every_key import LATER

import oracle

PAGE = (ROOT / "docs" / "limits.md").read_text(encoding="utf-8")
LIMITS = re.split(r"^\* ", PAGE, flags=re.MULTILINE)[1:]


def shown() -> Iterator[tuple[str, list[str]]]:
    """(command, lines that its answer has)."""
    for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL):
        for one in re.split(r"^\s*\$ ", block, flags=re.MULTILINE)[1:]:
            command, *lines = (line.strip() for line in one.strip().splitlines())
            yield command, lines


COMMANDS = list(shown())
ANSWERS: dict[str, str] = {}  # of commands that show several limits


def test_every_limit_has_a_command() -> None:
    assert len(LIMITS) > 20
    for limit in LIMITS:
        assert re.search(r"^\s*\$ (oracle|python -m benchmarks\.)", limit, re.MULTILINE), limit[:60]


def test_keys_that_nothing_reads_are_on_the_page() -> None:
    (said,) = (" ".join(limit.split()) for limit in LIMITS if limit.startswith("**I/O**"))
    for key in LATER:
        assert f"`{key.rpartition('.')[2]}`" in said, key


@pytest.fixture
def files(tmp_path: Path, monkeypatch: Any) -> None:
    """The files that the page speaks of."""
    monkeypatch.chdir(tmp_path)
    abci = (ROOT / "specs" / "systems" / "abci.yaml").read_text(encoding="utf-8")
    slow = re.sub(r"latency: [\d.]+ us", "latency: 4 ms", abci, count=1)
    assert slow != abci
    (tmp_path / "slow.yaml").write_text(slow, encoding="utf-8")
    mixed = abci.replace("device: v100-sxm2-16gb", "device: [v100-sxm2-16gb, h100-sxm5-80gb]")
    assert mixed != abci
    (tmp_path / "mixed.yaml").write_text(mixed, encoding="utf-8")
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "unheard-of"}))


DEAR = re.compile(r"oracle (explain|choose|sweep)\b|--to-target")  # a second each or more


@pytest.mark.parametrize(("command", "lines"), [
    pytest.param(*case, id=case[0], marks=pytest.mark.slow if DEAR.match(case[0]) else ())
    for case in COMMANDS
])  # fmt: skip
def test_a_command_shows_its_limit(
    command: str, lines: list[str], capsys: Any, files: None
) -> None:
    words = shlex.split(command)
    if words[0] == "python":  # minutes; that it is there, and takes these options, is seen
        assert importlib.util.find_spec(words[2])
        source = (ROOT / f"{words[2].replace('.', '/')}.py").read_text(encoding="utf-8")
        assert all(f'"{word}"' in source for word in words[3:])
        return
    if needs := {"plot": "matplotlib", "run": "torch"}.get(words[1]):
        pytest.importorskip(needs)
    assert lines, "a command without a line of its answer shows nothing"
    if command not in ANSWERS:
        code, out, err = told(capsys, *words[1:])
        assert code in (0, 1, 2)
        ANSWERS[command] = " ".join(f"{out} {err}".split())
    answer = ANSWERS[command]
    for line in lines:
        assert " ".join(line.split()) in answer, f"{line}: {answer[:600]}"


def test_all_to_all_wants_whole_heads_of_those_that_tensor_leaves() -> None:
    plans = ["context:2,kind=alltoall", "context:2", "context:4,kind=alltoall tensor:4",
             "context:4,kind=alltoall tensor:2"]  # fmt: skip
    found = oracle.estimate("llama3-8b", "dgx-h100", plans, 64, any_plan=True).broken
    odd = oracle.estimate("gpt2-xl", "dgx-h100", plans[:2], 64, any_plan=True).broken  # 25 heads
    said = "kind=alltoall wants as many whole heads and tokens on each device"
    assert [said in why for why in (*found, *odd)] == [False, False, True, False, True, False]
