"""What nobody well-meaning writes: files that are none, closed streams, words that are numbers."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import ONE, ROOT, SMALL, spawn, told
from growth import assert_grows_gently

import oracle
from oracle.models.build import MOST_ROWS
from oracle.models.places import MOST_UNITS
from oracle.spec import document, files, strict_json
from oracle.spec.document import SpecError
from oracle.spec.schema import read
from oracle.spec.system import System
from oracle.writers.rows import as_csv

# a file that is read, by every verb that reads one
READERS = {
    "model": ["estimate", "FILE", "abci", "--plan", "data:2", "--batch", "8"],
    "system": ["recommend", "resnet50", "FILE", "--devices", "2", "--batch", "8"],
    "data set": ["recommend", *SMALL, "--dataset", "FILE"],
    "profile": ["estimate", *ONE, "--profile", "FILE"],
    "check": ["specs", "check", "FILE"],
    "show": ["specs", "show", "FILE"],
    "measurement": ["compare", "FILE", "resnet50", "abci"],
    "log": ["calibrate", "FILE", "--onto", "abci"],
    "run": ["calibrate", "run", "FILE", "resnet50", "abci", "--plan", "data:2", "--batch", "8"],
    "kernels": ["calibrate", "compute", "FILE", "--onto", "v100-sxm2-16gb"],
    "rows": ["plot", "scaling", "--rows", "FILE", "-o", "figure.svg"],
    "measured": ["plot", "measured", "FILE", "-o", "figure.svg"],
    "bars": ["plot", "breakdown", "--rows", "FILE", "-o", "figure.svg"],
    "config": ["import", "huggingface", "FILE"],
    "onnx": ["import", "onnx", "FILE"],
}


def kinds(folder: Path) -> dict[str, Path]:
    """Things that are no files to read."""
    folder = folder / "given"
    folder.mkdir()
    found = {name: folder / f"{name}.yaml" for name in ("pipe", "sparse", "binary", "link", "deep")}
    os.mkfifo(found["pipe"])
    found["sparse"].touch()
    os.truncate(found["sparse"], 2**31)
    found["binary"].write_bytes(bytes(range(256)) * 8)
    found["link"].symlink_to(found["link"])
    found["deep"].write_text("[" * 50_000 + "]" * 50_000)
    return {**found, "folder": folder, "missing": folder / "missing.yaml",
            "device": Path("/dev/zero"), "kernel": Path("/proc/kmsg"),
            "long": folder / ("n" * 300)}  # fmt: skip


@pytest.mark.parametrize("reader", READERS)
def test_what_is_no_file_is_refused_at_once(
    reader: str, capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    if reader == "onnx":
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    for kind, path in kinds(tmp_path).items():
        line = [str(path) if word == "FILE" else word for word in READERS[reader]]
        code, out, err = told(capsys, *line)
        if reader != "show" or kind not in ("deep", "kernel"):  # it is text, and shown as it is
            assert (code, out) == (2, ""), (kind, err)
            assert "error[E" in err, kind
        if kind in ("pipe", "device"):
            assert "this is not a regular file" in err, kind
        if kind == "sparse" and reader != "onnx":  # which is looked at where it lies
            assert f"{2**31} bytes is more than" in err  # its size is asked, its content is not
    assert not (tmp_path / "figure.svg").exists()


def test_a_file_is_bounded_in_size_and_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a" * (files.SPEC + 1))
    with pytest.raises(SpecError, match=f"{files.SPEC + 1} bytes is more than .*{files.SPEC}"):
        files.read_text(path)
    path.write_bytes(b"\n" * (files.LINES + 1))
    with pytest.raises(SpecError, match=f"more lines than a log may have \\({files.LINES}"):
        files.read_text(path, "log", files.LOG)
    path.write_bytes(b"\n" * files.LINES)
    assert len(files.read_text(path, "log", files.LOG)) == files.LINES
    with pytest.raises(SpecError, match="more cells than a table may have"):
        list(files.csv_of("a,b,c,d\n" + "\n" * 9 + "1\n" * (files.CELLS // 4 + 1), "table")[1])
    with pytest.raises(SpecError, match="commas"):
        files.csv_of("a," * 2**20 + "a\n", "table")
    with pytest.raises(SpecError, match="more columns"):
        files.csv_of("a," * files.COLUMNS + "a\n", "table")


def test_a_link_is_read_only_where_that_is_safe(tmp_path: Path) -> None:
    (tmp_path / "there").write_text("content")
    (tmp_path / "link").symlink_to("there")
    assert files.read_text(tmp_path / "link") == "content"
    with pytest.raises(SpecError, match="this is a symbolic link"):
        files.read_text(tmp_path / "link", links=False)
    assert list(files.read_lines(tmp_path / "there", "file")) == [b"content"]
    with pytest.raises(SpecError, match="symbolic link"):
        list(files.read_lines(tmp_path / "link", "file", links=False))


def test_json_and_toml_are_read_in_linear_time() -> None:
    def twice(size: int) -> Any:
        text = "{" + ",".join(f'"k{i}":0' for i in range(size)) + ',"k0":0}'

        def work() -> None:
            with pytest.raises(strict_json.Unfit, match="`k0` stands twice"):
                strict_json.loads(text)

        return work

    assert_grows_gently(twice, 60_000)
    for deep in ("[" * 10**5, '{"a":' * 10**5, "[" * 65 + "]" * 65):
        with pytest.raises(SpecError):
            files.json_of(deep, "text")
    with pytest.raises(SpecError, match=r"more than \d+ values"):
        files.json_of("[" + "[]," * strict_json.MOST_VALUES + "0]", "text")
    for deep in ("a = " + "[" * 9999 + "]" * 9999, "a = " + "{b = " * 9999, "a = " + "9" * 9999,
                 "a" + ".a" * 30_000 + " = 1", "[" + '"a" . ' * 20_000 + "a]"):  # fmt: skip
        with pytest.raises(SpecError):
            files.toml_of(deep, "text")
    assert files.toml_of('a = "[[[["\n[b]\nc = [[1], [2]] # [[[', "text")["b"] == {"c": [[1], [2]]}


@pytest.mark.parametrize(("name", "row", "large", "line"), [
    ("oracle.toml", "k{} = 1\n", 6000, ["specs", "list"]),
    ("p.jsonl", '{{"a": 1}}\n', 100_000, ["estimate", *ONE, "--profile", "p.jsonl"]),
    ("a.yaml", "k{}: 1\n", 30_000, ["specs", "check", "a.yaml", "--kind", "systems"]),
])  # fmt: skip
def test_many_faults_of_a_file_take_no_time(
    name: str, row: str, large: int, line: list[str], capsys: Any, tmp_path: Path, monkeypatch: Any
) -> None:
    def work_of_rows(count: int) -> Any:
        (tmp_path / str(count)).mkdir()
        (tmp_path / str(count) / name).write_text("".join(map(row.format, range(count))))

        def work() -> None:
            monkeypatch.chdir(tmp_path / str(count))
            assert told(capsys, *line)[0] == 2

        return work

    assert_grows_gently(work_of_rows, large)


def test_only_faults_that_are_shown_bring_advice(monkeypatch: Any) -> None:
    """Which field forty thousand unknown ones may be was asked for each of them."""
    compared: list[str] = []
    near = document.difflib.get_close_matches

    def counted(word: str, *rest: Any, **more: Any) -> list[str]:
        compared.append(word)
        return near(word, *rest, **more)

    monkeypatch.setattr(document.difflib, "get_close_matches", counted)
    text = "".join(f"k{i}: 1\n" for i in range(2000))
    with pytest.raises(SpecError, match=f"2004 problems .the first {document.SHOWN} are shown"):
        read(System, document.load(text, "file"), "file", text)
    assert 0 < len(set(compared)) <= document.SHOWN


def test_very_deep_models_are_refused_and_deep_ones_soon_answered() -> None:
    body: dict[str, Any] = {"name": "deep", "source": "x", "input": [3, 8, 8]}
    with pytest.raises(SpecError, match=f"more than {MOST_ROWS} layers that stand one by one"):
        oracle.model({**body, "layers": ["relu"] * 30_000})
    block = {"transformer": {"layers": 10**9, "hidden": 64, "heads": 2, "vocab": 9, "sequence": 8}}
    with pytest.raises(SpecError, match=f"more than {MOST_ROWS} layers and blocks"):
        oracle.model({"name": "deep", "source": "x", **block})
    conv = {"conv": {"filters": 3, "kernel": 3, "padding": 1}}
    deep = oracle.model({**body, "layers": [conv] * 2000})
    units, ends = deep.units
    assert len(units) == len(ends) <= MOST_UNITS
    assert units.sum() == 2000
    assert ends[-1] == 1999


def test_time_of_a_deep_model_grows_gently() -> None:
    conv = {"conv": {"filters": 3, "kernel": 3, "padding": 1}}

    def work_of_layers(count: int) -> Any:
        body = {"name": "deep", "source": "x", "input": [3, 8, 8], "layers": [conv] * count}
        return lambda: oracle.estimate(body, "abci", "pipeline:4,segments=4", 8)

    assert_grows_gently(work_of_layers, 2000)


MEASURED = {
    "plan": "data:2", "seconds": {"iteration": 1.0}, "compute": {}, "exchange": [],
    "memory": {"total": 1.0},
    "measured": {"model": "resnet50", "batch": 8, "devices": 2, "each": [1.0], "ranks": [],
                 "options": {}, "environment": {}, "stages": [], "complete": True},
}  # fmt: skip


@pytest.mark.parametrize("content", [
    {}, [], 1, None, {"schema": 1, "measured": True}, {"schema": 1, "measured": True, "plans": []},
    {"schema": 2, "measured": True, "plans": [MEASURED]},
    *({"schema": 1, "measured": True, "plans": [{**MEASURED, **part}]} for part in (
        {"seconds": {"iteration": "x"}}, {"seconds": {"iteration": 0}}, {"plan": 3},
        {"seconds": 1}, {"memory": {}}, {"compute": {"forward": -1}}, {"exchange": [{}]},
        {"measured": {**MEASURED["measured"], "batch": 0}},  # type: ignore[dict-item]
        {"measured": {**MEASURED["measured"], "each": [True]}},  # type: ignore[dict-item]
    )),
], ids=str)  # fmt: skip
def test_what_is_no_measurement_is_refused(content: Any, capsys: Any, tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text(json.dumps(content))
    code, out, err = told(capsys, "compare", str(tmp_path / "run.json"), "resnet50", "abci")
    assert (code, out) == (2, "")
    assert "no measurement of plans" in err


@pytest.mark.parametrize("line", [
    ["sweep", "resnet50", "abci", "--devices", "²", "--batch", "8"],
    ["sweep", "resnet50", "abci", "--devices", "4", "--batch", ""],
    ["sweep", "resnet50", "abci", "--devices", "1..²", "--batch", "8"],
    ["sweep", "resnet50", "abci", "--devices", "٣", "--batch", "8"],
    ["recommend", "resnet50", "abci", "--devices", "²", "--batch", "8"],
    ["estimate", "resnet50", "abci", "--plan", "data:²", "--batch", "8"],
    ["estimate", "resnet50", "abci", "--plan", "data:2,accumulate=²", "--batch", "8"],
    ["estimate", "resnet50", "abci", "--plan", "data:2 " * 10**5, "--batch", "8"],
    ["recommend", "resnet50\0", "abci", "--devices", "2", "--batch", "8"],
    ["recommend", *SMALL, "--gamma=--"], ["sweep", *SMALL, "--batch=--"],
    ["recommend", *SMALL, "-o", "."], ["recommend", *SMALL, "-o", "a\0b"],
    ["recommend", *SMALL, "-o", "\ud800"],
    ["report", *SMALL, "-o", ""], ["schema", "models", "-o", "."],
    ["plot", "contention", "abci", "--devices", "4", "--pattern", "²x1", "-o", "x.svg"],
])  # fmt: skip
def test_words_that_look_like_numbers_are_refused(line: list[str], capsys: Any) -> None:
    code, out, err = told(capsys, *line)
    assert (code, out) == (2, ""), err
    assert len(err) < 10_000


@pytest.mark.parametrize("given", [
    {"batch": "big"}, {"batch": None, "batch_per_device": None}, {"batch": 1.5}, {"batch": -1},
    {"devices": "4"}, {"devices": 0}, {"devices": float("nan")}, {"devices": 2.5}, {"top": "x"},
    {"top": 0}, {"objective": 3}, {"batch": []},
])  # fmt: skip
def test_a_bad_argument_of_a_function_is_named(given: dict[str, Any]) -> None:
    with pytest.raises(SpecError):
        oracle.recommend("resnet50", "abci", **{"devices": 2, "batch": 8, **given})


@pytest.mark.parametrize(("shut", "code"), [
    ("<&-", 2), (">&-", 0), ("2>&-", 0), (">&- 2>&-", 0), ("<&- >&- 2>&-", 2)])  # fmt: skip
def test_streams_may_be_closed(shut: str, code: int) -> None:
    system = ROOT / "specs" / "systems" / "abci.yaml"
    words = f"recommend resnet50 {'-' if '<' in shut else system} --devices 4 --batch 64"
    done = subprocess.run(
        ["sh", "-c", f"exec {sys.executable} -m oracle {words} {shut}"], cwd=ROOT, timeout=60,
        input=None if "<" in shut else b"", capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == code
    assert b"Traceback" not in done.stderr
    if shut == "<&-":
        assert b"standard input is closed" in done.stderr


@pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv"),
    reason="only root becomes another user",
)
def test_no_home_and_a_user_whom_nobody_knows() -> None:
    command = ["setpriv", "--reuid", "12345", "--clear-groups", sys.executable, "-m", "oracle"]
    keep = {k: v for k, v in os.environ.items() if k not in ("HOME", "XDG_CONFIG_HOME")}
    done = subprocess.run([*command, "specs", "list"], cwd=ROOT, capture_output=True, timeout=60,
                          env={**keep, "PYTHONDONTWRITEBYTECODE": "1"}, check=False)  # fmt: skip
    if b"No module named" in done.stderr or b"Permission denied" in done.stderr:
        pytest.skip("this user may not read the interpreter or the checkout")
    assert done.returncode == 0, done.stderr


def test_a_name_makes_no_row_of_its_own() -> None:
    nasty = "a\r=cmd|' /C calc'!A0\n\u2028-2\x0b+1"
    rows = list(csv.reader(io.StringIO(as_csv([{"name": nasty, "plan": "=1"}]), newline="")))
    assert len(rows) == 2
    assert not set("\r\n\u2028\x0b") & set("".join(rows[1]))
    assert as_csv([{"name": nasty}]).count("\r") == 0
    assert rows[1][1] == "'=1"
    body = {"source": "x", "input": [3, 8, 8], "layers": ["relu"]}
    with pytest.raises(SpecError, match="control character"):
        oracle.model({"name": nasty, **body})
    with pytest.raises(SpecError, match="control character"):
        oracle.model({"name": "a", "a\rb": 1, **body})


def test_a_carriage_return_ends_a_row_of_a_table(tmp_path: Path, capsys: Any) -> None:
    path = tmp_path / "k.csv"
    path.write_bytes(b"device,family,precision,part,shape,seconds\r"
                     b"a100,gemm,bf16,,m=256 n=512 k=1024,3.5e-06\r")  # fmt: skip
    from oracle.readers.kernels import read

    assert len(read(path).kernels) == 1
    path.write_bytes(b"predicted,measured\r1,1\r2,2\r")
    assert told(capsys, "plot", "measured", str(path), "-o", str(tmp_path / "x.svg"))[0] == 0
    path.write_bytes(b"predicted,measured\n" + b"9" * 200_000 + b",1\n")
    code, _, err = told(capsys, "plot", "measured", str(path), "-o", str(tmp_path / "y.svg"))
    assert code == 2
    assert "not CSV" in err


def test_malformed_onnx_files_are_refused_in_words(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from test_importers import resnet50_onnx

    from oracle.readers.importers import onnx as reader

    proto = resnet50_onnx()
    whole, path = proto.SerializeToString(), tmp_path / "m.onnx"
    refused = 0
    for at in range(40):
        for change in ("input", "attribute", "output"):
            broken = type(proto).FromString(whole)
            del getattr(broken.graph.node[at], change)[:]
            path.write_bytes(broken.SerializeToString())
            try:
                reader.read(path)
            except SpecError as error:
                refused += str(path) in str(error)
    assert refused > 60


def test_the_values_of_weights_are_never_read(tmp_path: Path) -> None:
    """A gigabyte of weights costs nothing: they lie in a file of holes."""
    pytest.importorskip("onnx")
    from test_importers import resnet50_onnx

    from oracle.readers.importers import onnx as reader
    from oracle.readers.onnx_bytes import _varint, without_values

    proto = resnet50_onnx()
    path, hole = tmp_path / "m.onnx", 2**30
    # one more tensor of the graph, of a gigabyte: field 5 of field 7, its value field 9
    tensor = proto.graph.initializer[0].SerializeToString() + b"\x4a" + _varint(hole)
    tensors = b"\x2a" + _varint(len(tensor) + hole) + tensor
    with path.open("wb") as file:
        file.write(proto.SerializeToString() + b"\x3a" + _varint(len(tensors) + hole) + tensors)
        file.truncate(file.tell() + hole)
    assert path.stat().st_size > hole
    assert len(without_values(path)) < 2**17
    assert reader.read(path).spec["layers"]


def test_onnx_of_many_empty_nodes_is_refused_soon(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    from oracle.readers.importers import onnx as reader
    from oracle.readers.onnx_bytes import _varint

    def work_of_nodes(count: int, fault: str = "error") -> Any:
        path = tmp_path / f"{count}.onnx"
        path.write_bytes(b"\x3a" + _varint(2 * count) + b"\x0a\x00" * count)

        def work() -> None:
            with pytest.raises(SpecError, match=fault):
                reader.read(path)

        return work

    assert_grows_gently(work_of_nodes, 2**17)
    work_of_nodes(2**22, fault="more than 524288 fields")()


def test_a_sweep_stays_in_its_folder(tmp_path: Path, capsys: Any) -> None:
    line = ["sweep", "resnet50", "abci", "--devices", "1,2", "--batch", "8", "--jobs", "1", "--out"]
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.jsonl").write_text("[0, {}]\n")

    folder = tmp_path / "a"  # the folder of rows leads out
    folder.mkdir()
    (folder / "rows").symlink_to(outside)
    code, _, err = told(capsys, *line, str(folder))
    assert (code, "leads out of the sweep's folder" in err) == (2, True)
    assert [path.name for path in outside.iterdir()] == ["a.jsonl"]

    folder = tmp_path / "b"  # a file of rows leads out, is a pipe, has a line without end
    assert told(capsys, *line, str(folder))[0] == 0
    (folder / "rows" / "z.jsonl").symlink_to(outside / "a.jsonl")
    code, _, err = told(capsys, *line, str(folder))
    assert (code, "symbolic link" in err) == (2, True)
    (folder / "rows" / "z.jsonl").unlink()
    os.mkfifo(folder / "rows" / "z.jsonl")
    assert told(capsys, *line, str(folder))[0] == 2
    (folder / "rows" / "z.jsonl").unlink()
    (folder / "rows" / "z.jsonl").touch()
    os.truncate(folder / "rows" / "z.jsonl", 2**31)
    assert told(capsys, *line, str(folder))[0] == 2
    (folder / "rows" / "z.jsonl").unlink()

    (folder / "result.csv").unlink()  # the result is a link: replaced, not followed
    (folder / "result.csv").symlink_to(outside / "stolen")
    assert told(capsys, *line, str(folder))[0] == 0
    assert not (outside / "stolen").exists()
    (folder / "sweep.json").unlink()  # so is the head
    (folder / "sweep.json").symlink_to(outside / "stolen")
    assert told(capsys, *line, str(folder))[0] == 2
    for nested in ("[" * 10**5, "9" * 10**5, '{"grid":' * 10**4):
        (folder / "sweep.json").unlink()
        (folder / "sweep.json").write_text(nested)
        assert told(capsys, *line, str(folder))[0] == 2
    (folder / "sweep.json").unlink()
    shutil.rmtree(folder / "rows")
    for place, make in (("result.csv", os.mkfifo), ("rows/a.jsonl", lambda path: path.write_bytes(
            b"\n" * 2**22))):  # fmt: skip
        (folder / place).unlink(missing_ok=True)
        (folder / place).parent.mkdir(exist_ok=True)
        make(folder / place)
        assert told(capsys, *line, str(folder))[0] == 2
        (folder / place).unlink()
    assert [path.name for path in outside.iterdir()] == ["a.jsonl"]


@pytest.mark.slow
def test_a_reader_that_leaves_changes_no_exit_code(tmp_path: Path) -> None:
    """`oracle … 2>&1 | head -1` said 0 of what was refused, and of what does not fit."""
    large = ["recommend", "gpt3-175b", "dgx-a100", "--devices", "8", "--batch", "8"]
    lines = (["compare", "nothing.json", "resnet50", "abci"], large, ["specs", "list"])
    for line, code in zip(lines, (2, 1, 0), strict=True):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([sys.executable, "-m", "oracle", *line], cwd=ROOT, stdout=write,
                              stderr=write, timeout=120, check=False)  # fmt: skip
        os.close(write)
        assert done.returncode == code, line


def test_a_worker_of_the_command_line_says_nothing_of_python(tmp_path: Path) -> None:
    done = spawn("compare", "/dev/null", "resnet50", "abci")
    assert done.returncode == 2
    assert b"Traceback" not in done.stderr


@pytest.mark.slow
def test_no_hostile_input_ends_in_a_traceback_a_hang_or_beside_its_place() -> None:
    """A few hundred of the inputs of `python -m benchmarks.attack`, as many as take seconds."""
    done = subprocess.run([sys.executable, "-m", "benchmarks.attack", "--quick", "--json"],
                          cwd=ROOT, capture_output=True, timeout=300, check=False)  # fmt: skip
    found = json.loads(done.stdout)
    assert found["figures"]["attack.inputs"]["value"] >= 300
    assert found["rows"] == []
    assert done.returncode == 0
