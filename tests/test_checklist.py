"""What people expect of a command line: settings, colour, widths, formats, completions, schemas."""

from __future__ import annotations

import copy
import csv
import fcntl
import hashlib
import io
import json
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

import jsonschema
import pytest

import oracle
from oracle.commands import cli, settings
from oracle.commands.cli import main
from oracle.commands.parser import VERBS, options, parser_of, parsers
from oracle.show import contract

ROOT = Path(__file__).parents[1]
SMALL = ["resnet50", "abci", "--devices", "16", "--batch", "1024"]
ONE = ["resnet50", "abci", "--plan", "data:4 filter:4", "--batch", "256"]
NCCL = str(ROOT / "notebooks" / "data" / "two-servers.nccl")


def told(capsys: Any, *line: str) -> tuple[int, str, str]:
    code = main(list(line))
    out, err = capsys.readouterr()
    return code, out, err


def spawn(*line: str, environment: dict[str, str] | None = None, **more: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "oracle", *line], capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}, **more,
    )  # fmt: skip


# --- settings ----------------------------------------------------------------------------------


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
        return json.loads(told(capsys, "recommend", *SMALL, "--json", *flags)[1])["precision"]

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
    assert len(json.loads(told(capsys, "recommend", *SMALL, "--json")[1])["plans"]) == 2
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
    code, out, err = told(capsys, "recommend", *SMALL)
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
    code, _, err = told(capsys, "recommend", *SMALL)
    assert code == 2
    assert says in err
    assert "oracle.toml:" in err
    assert "Traceback" not in err


def test_a_bad_variable_is_refused_by_its_name(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ORACLE_TOP", "many")
    code, _, err = told(capsys, "recommend", *SMALL)
    assert code == 2
    assert "ORACLE_TOP" in err
    assert "whole number" in err


def test_settings_are_options_that_some_verb_declares() -> None:
    declared = {flag for verb in VERBS for action in options(parser_of(verb))
                for flag in action.option_strings}  # fmt: skip
    assert {f"--{key}" for key in settings.SETTINGS} <= declared


def test_verbose_says_what_is_set_and_read(capsys: Any, monkeypatch: Any) -> None:
    monkeypatch.setenv("ORACLE_TOP", "2")
    _, _, err = told(capsys, "recommend", *SMALL, "-v")
    assert "set: top = 2 (environment ORACLE_TOP)" in err
    assert "read: system abci, sha256 " in err
    assert re.search(r"took \d", err)


def test_verbose_is_more_for_every_verb(capsys: Any, tmp_path: Path) -> None:
    for line in (["estimate", *ONE], ["explain", *ONE], ["explain", "filter"], ["config", "show"],
                 ["sweep", "resnet50,vgg16", "abci", "--devices", "1,2", "--batch", "8"],
                 ["export", "slurm", *ONE], ["calibrate", NCCL, "--onto", "abci"],
                 ["report", *SMALL, "-o", str(tmp_path / "r.html")],
                 ["specs", "list"]):  # fmt: skip
        code, out, _ = told(capsys, *line)
        assert code == 0
        more_code, more_out, err = told(capsys, *line, "-v")
        assert (more_code, more_out) == (code, out)
        assert re.search(r"^took \d+\.\d+ s$", err, re.M), line
        assert ("read: model resnet50" in err) == ("resnet50" in " ".join(line))


# --- completions and the manual page -------------------------------------------------------------


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
                          text=True, timeout=30, check=True, cwd=tmp_path)  # fmt: skip
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
                              text=True, timeout=30, check=True, cwd=tmp_path)  # fmt: skip
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


# --- the terminal --------------------------------------------------------------------------------


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
    return said.decode().replace("\r\n", "\n")


def test_colour_is_for_terminals_that_want_it(capsys: Any) -> None:
    line = ["recommend", *SMALL]
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
    for columns in (60, 80, 120):
        text = on_a_terminal(columns, "recommend", "gpt3-175b", "dgx-a100", "--devices", "1024",
                             "--batch", "1536", "--color", "never")  # fmt: skip
        widest[columns] = max(len(x) for x in text.splitlines() if not x.startswith("next:"))
        assert widest[columns] <= columns
    assert widest[120] > 90


def test_characters_that_a_stream_cannot_carry_are_spelled_out() -> None:
    for line in (["--help"], ["recommend", *SMALL], ["calibrate", "--help"], ["explain", "data"]):
        done = spawn(*line, environment={"PYTHONIOENCODING": "ascii"})
        assert (done.returncode, done.stderr) == (0, b"")
        done.stdout.decode("ascii")
    assert b"alpha, beta" in spawn("--help", environment={"PYTHONIOENCODING": "ascii"}).stdout
    wrong = spawn("specs", "show", "äbçi→", environment={"PYTHONIOENCODING": "latin-1"})
    assert wrong.returncode == 2
    assert "äbçi->" in wrong.stderr.decode("latin-1")


# --- formats and what stands in them -------------------------------------------------------------


def lines_of(tmp_path: Path) -> dict[str, list[str]]:
    return {
        "recommend": ["recommend", *SMALL],
        "recommend, nothing fits": ["recommend", "gpt3-175b", "dgx-a100", "--devices", "8",
                                    "--batch", "8"],
        "estimate": ["estimate", *ONE],
        "explain": ["explain", *ONE],
        "sweep": ["sweep", "resnet50", "abci", "--devices", "1..8", "--batch", "256"],
        "calibrate": ["calibrate", NCCL, "--onto", "abci"],
        "config": ["config", "show", "--origin"],
        "selftest": ["selftest"],
    }  # fmt: skip


WHAT = list(lines_of(Path()))


@pytest.mark.parametrize("what", WHAT)
def test_each_format(capsys: Any, tmp_path: Path, what: str) -> None:
    line = lines_of(tmp_path)[what]
    codes = set()
    for form in ("text", "json", "csv", "md"):
        code, out, _ = told(capsys, *line, "--format", form)
        codes.add(code)
        if form == "json":
            assert json.loads(out)["schema"] == 1
            assert told(capsys, *line, "--json")[1] == out or what == "selftest"
        elif form == "csv":
            rows = list(csv.reader(io.StringIO(out)))
            assert len(rows) > 1
            assert len({len(row) for row in rows}) == 1
        elif form == "md":
            rows = out.rstrip("\n").split("\n")
            assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
            assert set(rows[1]) <= set("|-: ")
        else:
            assert out.strip()
    assert len(codes) == 1


@pytest.mark.parametrize("what", WHAT)
def test_json_is_as_its_published_schema_says(capsys: Any, tmp_path: Path, what: str) -> None:
    verb = what.split(",")[0]
    found = json.loads(told(capsys, *lines_of(tmp_path)[what], "--json")[1])
    published = json.loads(told(capsys, "schema", verb)[1])
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(found, published)
    jsonschema.validate(found, closed(published))  # and no field is left unsaid
    for name in published["required"]:
        less = {key: value for key, value in found.items() if key != name}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(less, published)


def closed(schema: Any) -> Any:
    """The same schema, with nothing allowed that it does not name."""
    schema = copy.deepcopy(schema)
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if "properties" in node:
                node.setdefault("additionalProperties", False)
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return schema


def test_json_of_compare_is_as_its_schema_says() -> None:
    from oracle.ask.compare import Comparison
    from oracle.show.provenance import specs_read, stamped

    predicted = oracle.estimate("resnet50", "abci", ["data:4", "data:2 filter:2"], 64)
    found = Comparison(predicted, predicted.seconds * 1.1, predicted.seconds * 0 + 0.01,
                       ({"forward": 0.1}, {"forward": 0.1}), predicted.memory)  # fmt: skip
    data = stamped(found.to_dict(), specs_read("resnet50", "abci"))
    jsonschema.validate(data, closed(contract.answer("compare")))


def test_schemas_are_listed_and_the_nearest_is_named(capsys: Any) -> None:
    code, out, _ = told(capsys, "schema")
    assert code == 0
    names = out.replace("specs:", "").replace("answers:", "").split()
    assert {"models", "systems", "recommend", "estimate", "sweep"} <= set(names)
    for name in names:
        assert "json-schema.org" in told(capsys, "schema", name)[1]
    assert told(capsys, "schema", "systems")[1] == told(capsys, "specs", "schema", "systems")[1]
    code, _, err = told(capsys, "schema", "recomend")
    assert code == 2
    assert "did you mean `recommend`?" in err


def test_json_says_what_made_it_from_what(capsys: Any) -> None:
    found = json.loads(told(capsys, "recommend", *SMALL, "--dataset", "imagenet", "--json")[1])
    assert found["tool"] == {"name": "oracle", "version": oracle.__version__}
    assert found["seed"] == 0
    hashes = {(one["kind"], one["name"]): one["sha256"] for one in found["inputs"]}
    for kind, name, folder in (("model", "resnet50", "models"), ("system", "abci", "systems"),
                               ("dataset", "imagenet", "datasets"),
                               ("device", "v100-sxm2-16gb", "devices"),
                               ("collectives", "abci-nccl", "collectives")):  # fmt: skip
        text = (ROOT / "specs" / folder / f"{name}.yaml").read_bytes()
        assert hashes[kind, name] == hashlib.sha256(text).hexdigest()
    light = [plan["seconds"] for plan in found["plans"]]
    assert all(0 < one["speed_of_light"] < one["iteration"] for one in light)


def test_the_speed_of_light_is_what_it_says(capsys: Any) -> None:
    model, system = oracle.model("resnet50"), oracle.system("abci")
    found = oracle.estimate(model, system, ["data:16", "data:4"], 1024, precision="fp32")
    flop = 3 * 2 * float(model.repeat @ model.mac) * 1024
    assert found.speed_of_light == pytest.approx(
        [flop / (p * system.device.peak["fp32"]) for p in (16, 4)]
    )
    assert "of it reached" in told(capsys, "recommend", *SMALL)[1]


def test_an_answer_goes_into_a_file_whole_or_not_at_all(capsys: Any, tmp_path: Path) -> None:
    place = tmp_path / "answer.json"
    plain = told(capsys, "recommend", *SMALL, "--json")[1]
    code, out, err = told(capsys, "recommend", *SMALL, "--json", "-o", str(place))
    assert (code, out, err) == (0, "", f"wrote {place}\n")
    assert place.read_text() == plain
    assert told(capsys, "recommend", *SMALL, "--json", "-o", "-")[1] == plain
    assert told(capsys, "recommend", *SMALL, "-q", "-o", str(place))[2] == ""
    assert "is fastest" in place.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]
    for wrong in (tmp_path / "no" / "where.json", tmp_path):
        code, out, err = told(capsys, "recommend", *SMALL, "--json", "-o", str(wrong))
        assert (code, out) == (2, "")
        assert err.startswith("error[E100]: ")
        assert str(wrong) in err


def test_a_csv_of_plans_can_be_drawn(capsys: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows, picture = str(tmp_path / "plans.csv"), tmp_path / "front.svg"
    assert told(capsys, "recommend", *SMALL, "--format", "csv", "-o", rows)[0] == 0
    assert told(capsys, "plot", "pareto", "--rows", rows, "-o", str(picture))[0] == 0
    assert picture.read_text().lstrip().startswith("<?xml")


def test_answers_in_python_are_frames_dicts_and_tables(tmp_path: Path) -> None:
    from oracle.ask.compare import Comparison
    from oracle.ask.explain.explanation import explain
    from oracle.ask.selftest import selftest
    from oracle.ask.sweep import Grid, sweep
    from oracle.calibration import calibrate
    from oracle.predict.defaults import options_for
    from oracle.readers.logs import read

    model, system = oracle.model("resnet50"), oracle.system("abci")
    found = oracle.estimate(model, system, ["data:4", "data:2 filter:2"], 64)
    answers: list[Any] = [
        found,
        oracle.recommend(model, system, devices=8, batch=64),
        sweep(Grid(("resnet50",), ("abci",), (1, 2), (64.0,))),
        calibrate.calibrate([read(NCCL)], "abci"),
        Comparison(found, found.seconds, found.seconds * 0, ({}, {}), found.memory),
        explain(model, system, "data:4", 64, options_for(model, system)),
        selftest(),
    ]
    for answer in answers:
        frame = answer.to_frame()
        assert len(frame) >= 1, type(answer)
        assert not frame.columns.duplicated().any()
        json.dumps(answer.to_dict(), allow_nan=False)
        assert "<table" in answer._repr_html_()


# --- manners -------------------------------------------------------------------------------------


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
    from oracle.executor.run import DTYPES

    assert list(DTYPES) == EXECUTED


def test_it_works_where_there_is_no_network() -> None:
    unshare = shutil.which("unshare")
    if not unshare or subprocess.run([unshare, "-rn", "true"], check=False).returncode:
        pytest.skip("no network namespaces here")
    for line in (["recommend", *SMALL], ["specs", "check", "abci"], ["selftest"]):
        done = subprocess.run([unshare, "-rn", sys.executable, "-m", "oracle", *line], cwd=ROOT,
                              capture_output=True, timeout=120, check=False)  # fmt: skip
        assert done.returncode == 0, done.stderr


def test_a_ranking_is_in_the_order_of_what_was_asked() -> None:
    for objective, value in (("time", lambda e: e.seconds), ("memory", lambda e: e.memory),
                             ("cost", lambda e: e.seconds * e.devices)):  # fmt: skip
        shown = oracle.recommend("gpt3-175b", "dgx-a100", devices=256, batch=512, top=12,
                                 objective=objective).estimate  # fmt: skip
        each = value(shown)
        assert len(each) > 5
        assert all(each[1:] >= each[:-1]), objective


def test_every_option_is_explained_and_every_verb_shown_by_example() -> None:
    for verb in VERBS:
        parser = parser_of(verb)
        assert f"oracle {verb}" in str(parser.description)
        for one in parsers(parser):
            assert all(action.help for action in one._actions), one.prog


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
    assert "is fastest" in out


def test_where_nothing_fits_it_says_what_would(capsys: Any) -> None:
    line = ["recommend", "gpt3-175b", "dgx-a100", "--batch", "64", "--devices"]
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
    assert (code, out.split("\n")[0]) == (2, "name,kind,code,what,line,column,hint")
