"""Defaults of a user's own: layers of settings, where each comes from, faults."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from command_line import FEW, NCCL, ONE, told

from oracle.commands import settings
from oracle.commands.parser import VERBS, options, parser_of


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Path]:
    """A file of each layer, the weakest first, with the folder of the project at hand."""
    found = {
        "site": tmp_path / "xdg" / "oracle" / "config.toml",
        "user": tmp_path / "home" / "oracle" / "config.toml",
        "project": tmp_path / "project" / "oracle.toml",
    }
    for path in found.values():
        path.parent.mkdir(parents=True)
    (tmp_path / "project" / "deep" / "er").mkdir(parents=True)
    monkeypatch.setenv("XDG_CONFIG_DIRS", str(tmp_path / "xdg"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "project" / "deep" / "er")
    return found


def test_a_flag_beats_the_environment_beats_files(
    capsys: Any, monkeypatch: Any, places: dict[str, Path]
) -> None:
    def precision(*flags: str) -> Any:
        return json.loads(told(capsys, "recommend", *FEW, "--json", *flags)[1])["precision"]

    assert precision() == "fp32"
    for layer, word in (("site", "tf32"), ("user", "fp16"), ("project", "bf16")):
        places[layer].write_text(f'precision = "{word}"\n')
        assert precision() == word
    monkeypatch.setenv("ORACLE_PRECISION", "fp8")
    assert precision() == "fp8"
    assert precision("--precision", "fp32") == "fp32"
    monkeypatch.setenv("ORACLE_PRECISION", "")
    assert precision() == "bf16"


def test_a_table_holds_of_its_verb_alone(capsys: Any, places: dict[str, Path]) -> None:
    places["user"].write_text("top = 3\n[recommend]\ntop = 2\n")
    assert len(json.loads(told(capsys, "recommend", *FEW, "--json")[1])["plans"]) == 2
    rows = json.loads(told(capsys, "config", "show", "--origin", "--json")[1])["settings"]
    tops = {row["verbs"]: (row["value"], row["origin"]) for row in rows if row["key"] == "top"}
    assert tops == {"recommend": ("2", f"{places['user']}:3"),
                    "report plot": ("3", f"{places['user']}:1")}  # fmt: skip


def test_where_each_value_comes_from(
    capsys: Any, monkeypatch: Any, places: dict[str, Path]
) -> None:
    places["project"].write_text('# ours\nmax-memory = "14 GiB"\n')
    monkeypatch.setenv("ORACLE_OBJECTIVE", "cost")
    code, out, _ = told(capsys, "config", "show", "--origin")
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert code == 0
    assert set(lines) == set(settings.SETTINGS)
    assert lines["max-memory"].endswith(f"{places['project']}:2")
    assert lines["objective"].split()[1:] == ["cost", "environment", "ORACLE_OBJECTIVE"]
    assert lines["color"].split()[1:] == ["auto", "default"]
    assert "origin" not in json.loads(told(capsys, "config", "show", "--json")[1])["settings"][0]
    files = told(capsys, "config", "files")[1].splitlines()
    assert [line.split() for line in files] == [
        [str(places["project"]), "yes"], [str(places["user"]), "no"], [str(places["site"]), "no"],
    ]  # fmt: skip


def test_every_fault_of_a_settings_file_at_once(capsys: Any, places: dict[str, Path]) -> None:
    places["project"].write_text(
        'precison = "fp16"\nideal = true\ntop = [1]\n\n[recomend]\ntop = 2\n\n'
        "[recommend]\njobs = 2\n"
    )
    code, out, err = told(capsys, "recommend", *FEW)
    assert (code, out) == (2, "")
    for line, says in ((1, "did you mean `precision`?"), (2, "unknown setting `ideal`"),
                       (3, "`top` takes one word or number"), (5, "did you mean `recommend`?"),
                       (9, "unknown setting `jobs`")):  # fmt: skip
        assert re.search(rf"oracle\.toml:{line}:1\b", err) or f"oracle.toml:{line}:2" in err, err
        assert says in err
    assert "5 problems" in err


@pytest.mark.parametrize(("text", "says"), [
    ('precision = "fp61"', "did you mean `fp16`?"),
    ("top = 0", "`0` is not a whole number from 1 on"),
    ('objective = "tim"', "did you mean `time`?"),
    ("top = ", "oracle.toml:1:"),
    ("a = 1\na = 2", "oracle.toml:2:"),
])  # fmt: skip
def test_a_bad_value_is_refused_where_it_stands(
    capsys: Any, places: dict[str, Path], text: str, says: str
) -> None:
    places["project"].write_text(text)
    code, _, err = told(capsys, "recommend", *FEW)
    assert code == 2
    assert says in err
    assert "oracle.toml:" in err
    assert "Traceback" not in err


def test_a_bad_variable_is_refused_by_its_name(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ORACLE_TOP", "many")
    code, _, err = told(capsys, "recommend", *FEW)
    assert code == 2
    assert "ORACLE_TOP" in err
    assert "whole number" in err


def test_settings_are_options_that_some_verb_declares() -> None:
    declared = {flag for verb in VERBS for action in options(parser_of(verb))
                for flag in action.option_strings}  # fmt: skip
    assert {f"--{key}" for key in settings.SETTINGS} <= declared


def test_verbose_says_what_is_set_and_read(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ORACLE_TOP", "2")
    _, _, err = told(capsys, "recommend", *FEW, "-v")
    assert "set: top = 2 (environment ORACLE_TOP)" in err
    assert "read: system abci, sha256 " in err
    assert re.search(r"took \d", err)


@pytest.mark.slow
def test_verbose_is_more_for_every_verb(capsys: Any, tmp_path: Path) -> None:
    alone = ["resnet50", "abci", "--plan", "serial", "--batch", "32"]
    for line in (["estimate", *ONE], ["explain", *alone], ["explain", "filter"], ["config", "show"],
                 ["sweep", "resnet50,lenet5", "abci", "--devices", "1,2", "--batch", "8",
                  "--only", "data"],
                 ["export", "slurm", *ONE], ["calibrate", NCCL, "--onto", "abci"],
                 ["report", *FEW, "-o", str(tmp_path / "r.html")],
                 ["specs", "list"]):  # fmt: skip
        code, out, _ = told(capsys, *line)
        assert code == 0
        more_code, more_out, err = told(capsys, *line, "-v")
        assert more_code == code
        if line[0] == "calibrate":  # formulas come with it, below the same answer
            assert more_out.startswith(out.split("\n")[0])
        else:
            assert more_out == out
        assert re.search(r"^took \d+\.\d+ s$", err, re.M), line
        assert ("read: model resnet50" in err) == ("resnet50" in " ".join(line))


def test_what_a_file_set_is_on_the_screen_and_in_json(capsys: Any, places: dict[str, Path]) -> None:
    places["project"].write_text('precision = "bf16"\n[recommend]\nmax-memory = "14 GiB"\n')
    _, out, err = told(capsys, "recommend", *FEW, "--json")
    where = str(places["project"])
    said = f"config: precision = bf16 ({where}:1), max-memory = 14 GiB ({where}:3)"
    assert err.splitlines() == [said]
    found = json.loads(out)
    assert found["config"] == {
        "precision": {"value": "bf16", "origin": f"{where}:1"},
        "max-memory": {"value": "14 GiB", "origin": f"{where}:3"},
    }
    assert found["options"]["precision"] == found["config"]["precision"]
    _, out, err = told(capsys, "recommend", *FEW, "--json", "--precision", "fp16",
                       "--max-memory=15 GiB")  # fmt: skip
    assert (err, "config" in json.loads(out)) == ("", False)
    assert told(capsys, "recommend", *FEW, "-q")[2] == ""
    assert said in told(capsys, "recommend", *FEW)[2]


def test_each_option_says_who_set_it(capsys: Any, monkeypatch: Any, places: Any) -> None:
    monkeypatch.setenv("ORACLE_TOP", "2")
    found = json.loads(told(capsys, "recommend", *FEW, "--json", "--gamma", "0.5")[1])
    options = {name: (one["value"], one["origin"]) for name, one in found["options"].items()}
    assert options["top"] == (2, "environment ORACLE_TOP")
    assert options["gamma"] == (0.5, "command line")
    assert options["devices"] == (16, "command line")
    assert options["objective"] == ("time", "default")
    assert options["precision"] == ("fp32", "model")
    assert options["optimizer"] == ("momentum", "model")
    assert options["dataset"] == ("imagenet", "model")
    assert options["software"] == ("plain", "model")
    assert options["risk"] == (0.05, "default")
    assert options["grow"] == options["any"] == options["fastest"] == (False, "default")
    assert all(re.fullmatch("[0-9a-f]{64}", one["sha256"]) for one in found["inputs"])
    _, _, err = told(capsys, "estimate", *ONE, "-v", "--precision", "tf32")
    assert "option: precision = tf32 (command line)" in err
    assert "option: optimizer = momentum (model)" in err
    assert "option: algorithm" not in err


def test_a_file_that_others_may_change_is_passed_over_with_a_word(
    capsys: Any, monkeypatch: Any, places: dict[str, Path]
) -> None:
    def answer() -> tuple[str, str]:
        code, out, err = told(capsys, "recommend", *FEW, "--json")
        assert code == 0
        return json.loads(out)["precision"], err

    path = places["project"]
    path.write_text('precision = "bf16"\n')
    assert answer()[0] == "bf16"
    for place, why in ((path.parent, "anybody may write to its folder"),
                       (path, "anybody may write to it")):  # fmt: skip
        mode = place.stat().st_mode
        place.chmod(0o777)
        assert answer() == ("fp32", f"warning: the settings in {path} are not read: {why}\n")
        place.chmod(mode)
    monkeypatch.setattr("os.geteuid", lambda: path.stat().st_uid + 1)
    if path.stat().st_uid:
        assert answer()[0] == "fp32"
    monkeypatch.undo()
    if not path.stat().st_uid:  # only root gives a file away
        monkeypatch.chdir(path.parent)
        os.chown(path, 12345, 12345)
        assert "it belongs to another user" in answer()[1]


def test_a_home_that_cannot_be_looked_at_is_no_fault(
    capsys: Any, monkeypatch: Any, places: dict[str, Path]
) -> None:
    look = Path.stat

    def shut(self: Path, **how: Any) -> Any:
        if self == places["user"]:
            raise PermissionError(13, "Permission denied")
        return look(self, **how)

    monkeypatch.setattr(Path, "stat", shut)
    code, out, err = told(capsys, "specs", "list")
    assert code == 0
    assert "resnet50" in out
    assert f"{places['user']} are not read: permission denied" in err
    monkeypatch.undo()
    monkeypatch.delenv("HOME")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda text: text)  # nobody knows this user
    assert told(capsys, "specs", "list")[0] == 0
    assert not [path for path in settings.files({}, Path.cwd()) if "~" in str(path)]
