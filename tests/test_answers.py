"""Answers as text, JSON, CSV, Markdown, files and frames, and their schemas."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from command_line import FEW, NCCL, ONE, ROOT, closed, told
from grids import rest_slow

import oracle
from oracle.show import contract


def lines_of(tmp_path: Path) -> dict[str, list[str]]:
    return {
        "recommend": ["recommend", *FEW],
        "recommend, nothing fits": ["recommend", "gpt3-175b", "dgx-a100", "--devices", "8",
                                    "--batch", "8", "--only", "data"],
        "estimate": ["estimate", *ONE],
        "estimate, placed": ["estimate", *ONE, "--place", "best"],
        "estimate, unlike devices": ["estimate", "alexnet", "v100-slow-node", "--plan", "data:128",
                                     "--batch", "2048"],
        "explain": ["explain", "lenet5", "abci", "--plan", "data:4", "--batch", "64"],
        "choose": ["choose", "resnet50", "--systems", "abci,fugaku", "--devices", "8..16",
                   "--batch", "1024", "--steps", "1k", "--budget", "100USD", "--only", "data"],
        "design-network": ["design-network", "--devices", "128", "--ports", "36", "--for",
                           "resnet50:2048", "--plan", "data:128", "--switch-price", "9000"],
        "sweep": ["sweep", "resnet50", "abci", "--devices", "1..8", "--batch", "256",
                  "--only", "data,filter"],
        "calibrate": ["calibrate", NCCL, "--onto", "abci"],
        "config": ["config", "show", "--origin"],
        "selftest": ["selftest"],
    }  # fmt: skip


WHAT = list(lines_of(Path()))
QUICK = ("recommend", "estimate", "estimate, unlike devices", "config")


@pytest.mark.parametrize("what", rest_slow(WHAT, QUICK))
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


@pytest.mark.parametrize("what", rest_slow(WHAT, QUICK))
def test_json_is_as_its_published_schema_says(capsys: Any, tmp_path: Path, what: str) -> None:
    verb = what.split(",")[0]
    found = json.loads(told(capsys, *lines_of(tmp_path)[what], "--json")[1])
    published = json.loads(told(capsys, "schema", verb)[1])
    jsonschema.Draft202012Validator.check_schema(published)
    jsonschema.validate(found, published)
    jsonschema.validate(found, closed(published))  # and no field is left unsaid
    del published["properties"]  # seconds to check, of which nothing changes below
    for name in published["required"]:
        less = {key: value for key, value in found.items() if key != name}
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(less, published)


def test_json_of_compare_is_as_its_schema_says() -> None:
    from oracle.ask.compare import Comparison
    from oracle.show.comparison import comparison_text
    from oracle.show.provenance import specs_read, stamped

    predicted = oracle.estimate("resnet50", "abci", ["data:4", "data:2 filter:2"], 64)
    found = Comparison(predicted, predicted.seconds * 1.1, predicted.seconds * 0 + 0.01,
                       ({"forward": 0.1}, {"data: gradients": 0.1}), predicted.memory,
                       ({}, {"data: gradients": 0.04}))  # fmt: skip
    said = found.compared(1)["data: gradients"]
    assert (said["waiting"], said["transfer"]) == (0.04, pytest.approx(0.06))
    assert re.search("of it for late ranks +40 ms", comparison_text(found))
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
    found = json.loads(told(capsys, "recommend", *FEW, "--dataset", "imagenet", "--json")[1])
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


def test_json_says_the_software_and_its_file(capsys: Any, tmp_path: Path) -> None:
    """Named, changed, of a file, or usual for the model: with its hash; so does `-v`."""
    text = (ROOT / "specs" / "software" / "nemo.yaml").read_text(encoding="utf-8")
    (tmp_path / "my.yaml").write_text(text.replace("name: nemo", "name: mine", 1))
    line = ["estimate", "gpt2", "dgx-a100", "--plan", "data:8", "--batch", "64"]
    for said, name, label in (
        ([], "plain", "plain"), (["--software", "nemo,gradients=bf16"], "nemo",
                                                 "nemo,gradients=bf16"),
        (["--software", str(tmp_path / "my.yaml")], str(tmp_path / "my.yaml"), "mine"),
        (["--ideal"], None, "plain"),
    ):  # fmt: skip
        found = json.loads(told(capsys, *line, *said, "--json")[1])
        read = [one for one in found["inputs"] if one["kind"] == "software"]
        assert [one["name"] for one in read] == [name] * (name is not None)
        assert found["software"] == label
        for one in read:
            place = Path(name) if said[-1:] == [name] and "/" in name else (
                ROOT / "specs" / "software" / f"{name}.yaml")  # fmt: skip
            assert one["sha256"] == hashlib.sha256(place.read_bytes()).hexdigest()
        assert found["options"]["software"] == {
            "value": said[1] if len(said) > 1 else label,
            "origin": "command line" if len(said) > 1 else "model",
        }
        assert (f"read: software {name}, sha256" in told(capsys, *line, *said, "-v")[2]) == bool(
            read
        )


def test_sweeps_and_calibrations_say_their_files_too(capsys: Any) -> None:
    line = ["sweep", "lenet5,alexnet", "abci", "--devices", "1", "--batch", "8", "--jobs", "1"]
    found = json.loads(told(capsys, *line, "--json")[1])
    names = {(one["kind"], one["name"]) for one in found["inputs"]}
    assert {("model", "lenet5"), ("model", "alexnet"), ("system", "abci"),
            ("software", "plain")} <= names  # fmt: skip
    assert found["options"]["devices"] == {"value": "1", "origin": "command line"}
    found = json.loads(told(capsys, "calibrate", NCCL, "--onto", "abci", "--json")[1])
    hashes = {(one["kind"], one["name"]): one["sha256"] for one in found["inputs"]}
    assert hashes["file", NCCL] == hashlib.sha256(Path(NCCL).read_bytes()).hexdigest()
    assert ("system", "abci") in hashes


def test_the_speed_of_light_is_what_it_says(capsys: Any) -> None:
    model, system = oracle.model("resnet50"), oracle.system("abci")
    found = oracle.estimate(model, system, ["data:16", "data:4"], 1024, precision="fp32")
    flop = 3 * 2 * float(model.repeat @ model.mac) * 1024
    assert found.speed_of_light == pytest.approx(
        [flop / (p * system.device.peak["fp32"]) for p in (16, 4)]
    )
    mfu = round(100 * oracle.estimate(model, system, "data:16", 1024).rates()["mfu"])
    assert f"MFU {mfu} %" in told(capsys, "recommend", *FEW)[1]


def test_an_answer_goes_into_a_file_whole_or_not_at_all(capsys: Any, tmp_path: Path) -> None:
    place = tmp_path / "answer.json"
    plain = told(capsys, "recommend", *FEW, "--json")[1]
    code, out, err = told(capsys, "recommend", *FEW, "--json", "-o", str(place))
    assert (code, out, err) == (0, "", f"wrote {place}\n")
    assert place.read_text() == plain
    assert told(capsys, "recommend", *FEW, "--json", "-o", "-")[1] == plain
    assert told(capsys, "recommend", *FEW, "-q", "-o", str(place))[2] == ""
    assert "Fastest: " in place.read_text()
    assert [path.name for path in tmp_path.iterdir()] == ["answer.json"]
    for wrong in (tmp_path / "no" / "where.json", tmp_path):
        code, out, err = told(capsys, "recommend", *FEW, "--json", "-o", str(wrong))
        assert (code, out) == (2, "")
        assert err.startswith("error[E100]: ")
        assert str(wrong) in err


def test_a_csv_of_plans_can_be_drawn(capsys: Any, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    rows, picture = str(tmp_path / "plans.csv"), tmp_path / "front.svg"
    assert told(capsys, "recommend", *FEW, "--format", "csv", "-o", rows)[0] == 0
    assert told(capsys, "plot", "pareto", "--rows", rows, "-o", str(picture))[0] == 0
    assert picture.read_text().lstrip().startswith("<?xml")


@pytest.mark.slow
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
