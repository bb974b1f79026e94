"""`measure machine` on the machine at hand, and a step of a small network held against it."""

import json

import pytest

from oracle.commands.cli import main
from oracle.spec import catalogue

pytest.importorskip("torch")


def test_a_machine_measures_itself_and_knows_its_own_step(tmp_path, capsys, monkeypatch):
    """The fastest step, within a factor of three: a test machine is seldom alone."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    out, ran = tmp_path / "here", tmp_path / "run.jsonl"
    line = ["measure", "machine", "--local", "2", "--seconds", "30", "-o", str(out), "--json"]
    assert main(line) == 0
    said = capsys.readouterr()
    found = json.loads(said.out)
    assert "kernels, " in said.err
    assert {"device.yaml", "kernels.csv", "machine.json", "system.yaml"} <= set(found["files"])
    assert {one["family"] for one in found["curves"]} >= {"gemm", "conv", "stream"}
    assert "allreduce, node" in found["collectives"]
    assert not list(tmp_path.glob("*.parts"))
    system = catalogue.system(str(out / "system.yaml"))
    assert system.devices == 2
    assert "measured by oracle measure machine" in system.device.source
    line = ["recommend", "resnet18", str(out / "system.yaml"), "--devices", "2", "--batch", "8"]
    assert main(line) == 0
    capsys.readouterr()
    run = ["run", "alexnet", "--local", "1", "--plan", "serial", "--batch", "8", "-o", str(ran)]
    assert main([*run, "--steps", "6", "--json"]) == 0
    (step,) = json.loads(capsys.readouterr().out)["plans"]
    assert main(["compare", str(ran), "alexnet", str(out / "system.yaml"), "--precision", "fp32",
                 "--optimizer", "momentum", "--json"]) == 0  # fmt: skip
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert 1 / 3 < plan["predicted"] / step["seconds"]["low"] < 3


def test_kernels_alone_become_a_table_that_calibrate_reads(tmp_path, capsys):
    out = tmp_path / "kernels.csv"
    assert main(["measure", "kernels", "--local", "1", "--seconds", "30", "-o", str(out)]) == 0
    capsys.readouterr()
    assert main(["calibrate", "compute", str(out), "--onto", "laptop-cpu"]) == 0
    assert "gemm fp32" in capsys.readouterr().out
