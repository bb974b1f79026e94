"""Names in spec files: beside the file that says them, as they are now, never shadowed."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
from command_line import ROOT, SMALL, told

import oracle
from oracle.spec import catalogue
from oracle.spec.document import SpecError

SPECS = ROOT / "specs"
MODEL = {"name": "m", "source": "x", "input": [3, 8, 8], "layers": ["relu"]}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: Any) -> Path:
    """A system and a model with a device, collectives and a data set beside them."""
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    own = tmp_path / "own"
    (own / "parts").mkdir(parents=True)
    text = (SPECS / "systems" / "abci.yaml").read_text()
    text = text.replace("device: v100-sxm2-16gb", "device: chip.yaml")
    (own / "system.yaml").write_text(text.replace("abci-nccl", "parts/nccl.yaml"))
    shutil.copy(SPECS / "devices" / "v100-sxm2-16gb.yaml", own / "chip.yaml")
    shutil.copy(SPECS / "collectives" / "abci-nccl.yaml", own / "parts" / "nccl.yaml")
    shutil.copy(SPECS / "datasets" / "mnist.yaml", own / "data.yaml")
    (own / "model.yaml").write_text(json.dumps({**MODEL, "dataset": "data.yaml"}))
    return own


def test_what_a_file_names_is_beside_it(folder: Path, capsys: Any) -> None:
    assert "parts/nccl.yaml" in (folder / "system.yaml").read_text()
    system = oracle.system(folder / "system.yaml")
    assert system.device.name == "v100-sxm2-16gb"
    assert len(system.collectives) == len(oracle.system("abci").collectives)
    found = oracle.model(folder / "model.yaml")
    assert found.dataset is not None
    assert found.dataset.name == "mnist"
    code, out, _ = told(
        capsys,
        "recommend",
        str(folder / "model.yaml"),
        str(folder / "system.yaml"),
        "--devices",
        "2",
        "--batch",
        "8",
        "--json",
    )
    assert code == 0
    kinds = {one["kind"]: one["name"] for one in json.loads(out)["inputs"]}
    assert kinds == {"model": str(folder / "model.yaml"), "dataset": "data.yaml",
                     "system": str(folder / "system.yaml"), "device": "chip.yaml",
                     "collectives": "parts/nccl.yaml", "software": "plain"}  # fmt: skip


def test_a_change_of_any_file_is_seen_whatever_its_time(folder: Path) -> None:
    def edit(path: Path, before: str, after: str) -> None:
        times = path.stat().st_atime_ns, path.stat().st_mtime_ns
        text = path.read_text()
        assert before in text
        path.write_text(text.replace(before, after, 1))
        os.utime(path, ns=times)

    before = oracle.system(folder / "system.yaml")
    assert oracle.system(folder / "system.yaml") is before
    edit(folder / "chip.yaml", "memory: 16160 MiB", "memory: 17160 MiB")
    after = oracle.system(folder / "system.yaml")
    assert after.device.memory == before.device.memory + 1000 * 2**20
    edit(folder / "system.yaml", "name: abci", "name: abcd")
    assert oracle.system(folder / "system.yaml").name == "abcd"
    held = oracle.model(folder / "model.yaml")
    assert oracle.model(folder / "model.yaml") is held
    edit(folder / "data.yaml", "name: mnist", "name: other")
    changed = oracle.model(folder / "model.yaml").dataset
    assert changed is not None
    assert changed.name == "other"
    edit(folder / "parts" / "nccl.yaml", "collectives:", "colectives:")
    with pytest.raises(SpecError, match="colectives"):
        oracle.system(folder / "system.yaml")


def test_faults_of_all_files_are_said_at_once(folder: Path, capsys: Any) -> None:
    """Those of a device and of its collectives hid each other's, and the system's own."""
    for name, word in (("chip.yaml", "memory:"), ("parts/nccl.yaml", "collectives:"),
                       ("system.yaml", "levels:")):  # fmt: skip
        path = folder / name
        path.write_text(path.read_text().replace(f"\n{word}", f"\n{word[0]}{word}", 1))
    with pytest.raises(SpecError) as caught:
        oracle.system(folder / "system.yaml")
    assert [Path(one.name).name for one in caught.value.every()] == [
        "nccl.yaml", "chip.yaml", "system.yaml"]  # fmt: skip
    for word in ("mmemory", "ccollectives", "llevels"):
        assert f"unknown field `{word}`" in str(caught.value)
    code, out, _ = told(capsys, "specs", "check", str(folder / "system.yaml"), "--json")
    found = json.loads(out)["files"][0]["faults"]
    assert code == 2
    assert {Path(one["file"]).name for one in found} == {"chip.yaml", "nccl.yaml", "system.yaml"}
    (folder / "system.yaml").write_text((SPECS / "systems" / "abci.yaml").read_text().replace(
        "device: v100-sxm2-16gb", "device: chip.yaml"))  # fmt: skip
    with pytest.raises(SpecError) as caught:
        oracle.system(folder / "system.yaml")
    assert [Path(one.name).name for one in caught.value.every()] == ["chip.yaml"]


@pytest.mark.slow
def test_a_path_has_a_separator_or_an_ending(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "abci").write_text("not: a system\n")
    (tmp_path / "resnet50").mkdir()
    shipped = oracle.recommend("resnet50", "abci", devices=4, batch=64)
    assert shipped.estimate.system.name == "abci"
    assert told(capsys, "recommend", *SMALL)[0] == 0
    shutil.copy(SPECS / "systems" / "abci.yaml", tmp_path / "mine")
    code, _, err = told(capsys, "specs", "check", "mine", "--kind", "systems")
    assert code == 2
    assert f"write `.{os.sep}mine` for the file" in err
    assert oracle.system("./mine").name == "abci"
    with pytest.raises(SpecError, match="no shipped system is called ``"):
        oracle.system("")


def test_what_was_read_is_noted_also_where_it_was_kept(folder: Path) -> None:
    oracle.system(folder / "system.yaml")
    with catalogue.noted() as found:
        oracle.system(folder / "system.yaml")
    assert [one.kind for one in found] == ["system", "collectives", "device"]
    for one in found:
        assert one.sha256 == catalogue.digest(one.path.read_text())
