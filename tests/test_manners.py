"""What the command line does beside answering: self-test, faults, hints, standard input."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import FEW, NCCL, ONE, ROOT, SMALL, closed, spawn, told

import oracle
from oracle.commands import cli
from oracle.commands.parser import VERBS, parser_of, parsers
from oracle.show import contract


def test_this_installation_is_sound(capsys: Any) -> None:
    code, out, _ = told(capsys, "selftest")
    assert code == 0
    assert "this installation is sound" in out
    assert out.count("sound  ") >= 6


def test_an_unsound_installation_is_a_no(capsys: Any, monkeypatch: Any) -> None:
    from oracle.ask import selftest

    def broken() -> tuple[bool, str]:
        raise ZeroDivisionError("nothing works")

    monkeypatch.setitem(selftest.CHECKS, "rows", broken)
    code, out, _ = told(capsys, "selftest")
    assert code == 1
    assert "WRONG  rows: ZeroDivisionError: nothing works" in out


def test_a_fault_of_ours_keeps_its_traceback_and_asks_for_a_report(
    capsys: Any, monkeypatch: Any
) -> None:
    from oracle import api

    def broken(*_: Any, **__: Any) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(api, "recommend", broken)
    code, out, err = told(capsys, "recommend", *SMALL, "--only", "data,pipeline")
    assert (code, out) == (4, "")
    assert "ValueError: a bug" in err
    assert "Traceback" in err
    assert "Please report it" in err
    assert f"oracle   {oracle.__version__}, Python 3." in err
    assert "command  oracle recommend resnet50 abci" in err


@pytest.mark.parametrize(("line", "says"), [
    (["recomend"], "unknown command `recomend`; did you mean `recommend`?"),
    (["--verison"], "unknown option `--verison`; did you mean `--version`?"),
    (["plot", "timelin"], "did you mean `timeline`?"),
    (["plot", "timeline", *ONE, "-o", "t.svg", "--titel", "x"], "did you mean `--title`?"),
    (["recommend", *SMALL, "--objective", "tme"], "did you mean `time`?"),
    (["recommend", *SMALL, "--format", "jsn"], "did you mean `json`?"),
    (["recommend", *SMALL, "--colour", "never"], "did you mean `--color`?"),
    (["recommend", "resnet50", "abci", "--devices", "4", "--bacth", "8"],
     "unknown option `--bacth`; did you mean `--batch`?"),
    (["completion", "bsh"], "did you mean `bash`?"),
    (["run", "resnet50", "--plan", "serial", "--batch", "8", "-o", "x", "--precision", "fp23"],
     "did you mean `fp32`?"),
    (["recommend", *SMALL, "--form", "json"], "--form"),
])  # fmt: skip
def test_what_is_unknown_gets_the_nearest(capsys: Any, line: list[str], says: str) -> None:
    code, out, err = told(capsys, *line)
    assert (code, out) == (2, "")
    assert says in err


def test_help_of_a_verb_by_either_name(capsys: Any) -> None:
    assert told(capsys, "help", "recommend")[1] == told(capsys, "recommend", "--help")[1]
    assert cli.VERBS is VERBS


def test_precisions_that_run_are_those_the_executor_has() -> None:
    pytest.importorskip("torch")
    from oracle.commands.measure import EXECUTED
    from oracle.executor.plan_run import DTYPES

    assert list(DTYPES) == EXECUTED


@pytest.mark.slow
def test_it_works_where_there_is_no_network() -> None:
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-rn", "true"], check=False).returncode:
        pytest.skip("no network namespaces here")
    for line in (["recommend", *FEW], ["specs", "check", "abci"], ["selftest"]):
        done = subprocess.run([unshare, "-rn", sys.executable, "-m", "oracle", *line], cwd=ROOT,
                              capture_output=True, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_ranking_is_in_the_order_of_what_was_asked() -> None:
    for objective, value in (("time", lambda e: e.seconds), ("memory", lambda e: e.memory),
                             ("cost", lambda e: e.seconds * e.devices)):  # fmt: skip
        shown = oracle.recommend("gpt2-xl", "dgx-a100", devices=32, batch=64, top=12,
                                 objective=objective, fastest=True).estimate  # fmt: skip
        each = value(shown)
        assert len(each) > 5
        assert all(each[1:] >= each[:-1]), objective


def test_every_option_is_explained_and_every_verb_shown_by_example() -> None:
    for verb in VERBS:
        parser = parser_of(verb)
        assert f"oracle {verb}" in str(parser.description)
        for one in parsers(parser):
            assert all(action.help for action in one._actions), one.prog


@pytest.mark.slow
def test_a_dash_is_what_is_piped_in() -> None:
    text = (ROOT / "specs" / "systems" / "abci.yaml").read_bytes()
    line = ["recommend", "resnet50", "-", "--devices", "4", "--batch", "64", "--json"]
    piped = json.loads(spawn(*line, input=text).stdout)
    named = json.loads(spawn(*["abci" if word == "-" else word for word in line]).stdout)
    assert piped["plans"] == named["plans"]
    assert [one["sha256"] for one in piped["inputs"]] == [one["sha256"] for one in named["inputs"]]
    wrong = spawn(*line, input=text.replace(b"latency", b"latncy"))
    assert wrong.returncode == 2
    assert b"did you mean `latency`?" in wrong.stderr
    for bad in (b"\xff\xfe\x00", b"a" * (2**20 + 1), b""):
        done = spawn(*line, input=bad)
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"Traceback" not in done.stderr
    log = spawn("calibrate", "-", "--onto", "abci", "--json", input=Path(NCCL).read_bytes())
    assert json.loads(log.stdout)["readings"][0]["path"] == "standard input"
    for verb in (["sweep", "-", "abci", "--devices", "2", "--batch", "8"],
                 ["run", "-", "--plan", "serial", "--batch", "8", "-o", "x"]):  # fmt: skip
        done = spawn(*verb, input=text)
        assert done.returncode == 2
        assert b"name a file" in done.stderr


def test_words_that_begin_with_a_dash_follow_two(
    capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "specs" / "systems" / "abci.yaml", "-mine.yaml")
    code, out, _ = told(capsys, "recommend", "--devices", "4", "--batch", "64", "--", "resnet50",
                        "-mine.yaml")  # fmt: skip
    assert code == 0
    assert "Fastest: " in out


@pytest.mark.slow
def test_where_nothing_fits_it_says_what_would(capsys: Any) -> None:
    line = ["recommend", "gpt3-175b", "dgx-a100", "--batch", "64", "--without", "offload",
            "--devices"]  # fmt: skip
    code, out, _ = told(capsys, *line, "8")
    assert code == 1
    found = re.search(r"^It fits on (\d+) devices: --devices \1$", out, re.M)
    assert found
    assert told(capsys, *line, found[1])[0] == 0
    assert told(capsys, *line, str(int(found[1]) // 2))[0] == 1


def test_what_check_finds_can_be_read_by_programs(capsys: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\nsource: x\nlevles: []\n")
    line = ["specs", "check", "abci", str(path), "--kind", "systems"]
    code, out, err = told(capsys, *line, "--json")
    assert (code, err) == (2, "")
    found = json.loads(out)
    jsonschema.validate(found, closed(contract.answer("check")))
    good, bad = found["files"]
    assert (good["sound"], good["faults"]) == (True, [])
    assert not bad["sound"]
    assert {(f["code"], f["line"]) for f in bad["faults"]} >= {("E102", 3)}
    code, out, _ = told(capsys, *line, "--format", "csv")
    assert (code, out.split("\n")[0]) == (2, "name,kind,code,what,line,column,hint,file")
