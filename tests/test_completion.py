"""Completions in each shell, and the manual page."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from command_line import spawn

from oracle.commands.parser import VERBS, options, parser_of


@pytest.fixture(scope="session")
def scripts() -> dict[str, str]:
    return {name: spawn("completion", name).stdout.decode() for name in
            ("bash", "zsh", "fish", "man")}  # fmt: skip


CASES = [
    (["re"], ["recommend", "report"]),
    (["recommend", "resnet5"], ["resnet50", "resnet50-226"]),
    (["recommend", "resnet50", "abci", "--prec"], ["--precision"]),
    (["recommend", "resnet50", "abci", "--precision", "fp1"], ["fp16"]),
    (["recommend", "resnet50", "abci", "--dataset", "imag"], ["imagenet"]),
    (["recommend", "resnet50", "abci", "--objective", "c"], ["cost"]),
    (["explain", "filt"], ["filter"]),
    (["estimate", "resnet50", "abci", "--plan", "pipe"], ["pipeline:"]),
    (["export", "slu"], ["slurm"]),
    (["plot", "timel"], ["timeline"]),
    (["config", "sh"], ["show"]),
]


@pytest.mark.parametrize(("line", "wanted"), CASES, ids=lambda x: " ".join(x))
def test_completion_in_bash(scripts: Any, tmp_path: Path, line: list[str], wanted: Any) -> None:
    ask = (f'{scripts["bash"]}\nCOMP_WORDS=(oracle "$@"); COMP_CWORD=$#; _oracle; '
           'printf "%s\\n" "${COMPREPLY[@]}"')  # fmt: skip
    done = subprocess.run(["bash", "--norc", "-c", ask, "bash", *line], capture_output=True,
                          text=True, timeout=60, check=True, cwd=tmp_path)  # fmt: skip
    assert set(wanted) <= set(done.stdout.split())
    assert all(word.startswith(line[-1]) for word in done.stdout.split())
    assert done.stderr == ""


def test_completion_in_bash_of_lists_and_files(scripts: Any, tmp_path: Path) -> None:
    (tmp_path / "mine system.yaml").write_text("")
    ask = (f'{scripts["bash"]}\nCOMP_WORDS=(oracle "$@"); COMP_CWORD=$#; _oracle; '
           'printf "%s\\n" "${COMPREPLY[@]}"')  # fmt: skip
    for line, wanted in ((["recommend", "resnet50", "mine"], "mine system.yaml"),
                         (["sweep", "a", "b", "--only", "data,fil"], "data,filter")):  # fmt: skip
        done = subprocess.run(["bash", "--norc", "-c", ask, "bash", *line], capture_output=True,
                              text=True, timeout=60, check=True, cwd=tmp_path)  # fmt: skip
        assert wanted in done.stdout.splitlines()


@pytest.mark.skipif(not shutil.which("fish"), reason="fish is not here")
@pytest.mark.parametrize(("line", "wanted"), CASES, ids=lambda x: " ".join(x))
def test_completion_in_fish(scripts: Any, tmp_path: Path, line: list[str], wanted: Any) -> None:
    place = tmp_path / "oracle.fish"
    place.write_text(scripts["fish"])
    ask = f"source {place}; complete -C 'oracle {' '.join(line)}'"
    done = subprocess.run(["fish", "--no-config", "-c", ask], capture_output=True, text=True,
                          timeout=60, check=True, cwd=tmp_path,
                          env={**os.environ, "HOME": str(tmp_path)})  # fmt: skip
    assert set(wanted) <= {row.split("\t")[0] for row in done.stdout.splitlines()}


@pytest.mark.skipif(not shutil.which("zsh"), reason="zsh is not here")
def test_completion_in_zsh(scripts: Any, tmp_path: Path) -> None:
    """A terminal of its own: zsh completes nowhere else."""
    (tmp_path / "fun").mkdir()
    (tmp_path / "fun" / "_oracle").write_text(scripts["zsh"])
    (tmp_path / ".zshrc").write_text(
        f"fpath=({tmp_path}/fun $fpath); autoload -Uz compinit; compinit -u -d {tmp_path}/dump\n"
        "PS1=READY; unsetopt beep; LISTMAX=1000\n"
    )
    reader = f"""
zmodload zsh/zpty
zpty shell env ZDOTDIR={tmp_path} TERM=dumb zsh -i
zpty -r -m shell all '*READY*'
zpty -w -n shell $'oracle recommend resnet15\\t --objective co\\t'
sleep 2
zpty -w shell ''
zpty -r -m shell all '*cost*' ; print -r -- $all
zpty -d shell
"""
    done = subprocess.run(["zsh", "-f", "-c", reader], capture_output=True, text=True, timeout=60,
                          check=False, cwd=tmp_path)  # fmt: skip
    assert "resnet152" in done.stdout, done
    assert "cost" in done.stdout


def test_scripts_are_sound_shell(scripts: Any, tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        place = tmp_path / shell
        place.write_text(scripts[shell])
        if shutil.which(shell):
            done = subprocess.run([shell, "-n", place], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, "")
    if shutil.which("shellcheck"):
        done = subprocess.run(["shellcheck", "-s", "bash", tmp_path / "bash"], capture_output=True,
                              text=True, check=False)  # fmt: skip
        assert done.stdout == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "man"])
def test_scripts_know_every_option(scripts: Any, shell: str) -> None:
    text = scripts[shell].replace("\\-", "-")
    for verb in VERBS:
        assert verb in text
        for action in options(parser_of(verb)):
            for flag in action.option_strings:
                bare = flag.lstrip("-") if shell == "fish" else flag
                assert bare in text, (verb, flag)


def test_the_manual_page_is_sound(scripts: Any, tmp_path: Path) -> None:
    assert scripts["man"].isascii()
    for part in ("NAME", "SYNOPSIS", "EXAMPLES", "COMMANDS", "FILES", "EXIT STATUS"):
        assert f".SH {part}\n" in scripts["man"] or f".SH {part}" in scripts["man"]
    if shutil.which("groff"):
        place = tmp_path / "oracle.1"
        place.write_text(scripts["man"])
        done = subprocess.run(["groff", "-ww", "-man", "-Tutf8", place], capture_output=True,
                              check=False, timeout=60)  # fmt: skip
        assert (done.returncode, done.stderr) == (0, b"")
