"""From measurements to a spec by the command line: the same again, pictured, and used."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from oracle.calibration.calibrate import calibrate
from oracle.calibration.concurrency import concurrent
from oracle.calibration.entries import entries
from oracle.commands.cli import main
from oracle.network.contention import lines
from oracle.readers import logs
from oracle.readers.logs import Reading, Sample
from oracle.spec import catalogue

HOST = """\
name: here
device: laptop-cpu
levels:
  - {name: host, devices: 4, link: pcie, ports: 1, bandwidth: 10 GB/s, latency: 5 us, source: x}
source: made up
"""
PAIR = """\
name: pair
device: v100-pcie
levels:
  - {name: server, devices: 4, link: pcie, ports: 1, bandwidth: 16 GB/s, latency: 3 us, source: x}
  - {name: room, devices: 64, ports: 2, bandwidth: 12.5 GB/s, latency: 5 us, source: x}
source: made up
"""


def measurement(ranks: tuple[int, ...] = (8, 16, 32), noise: float = 0.02) -> str:
    """Our own format, of a ring allreduce of known cost."""
    dice = np.random.default_rng(3)
    rows = ['{"oracle-measurement": 1, "tool": "oracle 1", "date": "2026-11-21"}']
    for p in ranks:
        for m in 2.0 ** np.arange(10, 27):
            ideal = 9e-6 + 2 * (p - 1) * 4e-6 + 2 * (p - 1) / p * m / 1e10
            each = (ideal * np.exp(dice.normal(0, noise, 5))).tolist()
            rows.append(json.dumps({"operation": "allreduce", "bytes": m, "ranks": p,
                                    "nodes": p // 4, "seconds": each}))  # fmt: skip
    return "\n".join([*rows, '{"end": "complete"}']) + "\n"


@pytest.fixture
def pair(tmp_path: Path) -> list[str]:
    (tmp_path / "pair.yaml").write_text(PAIR)
    (tmp_path / "log.jsonl").write_text(measurement())
    return ["calibrate", str(tmp_path / "log.jsonl"), "--onto", str(tmp_path / "pair.yaml")]


def test_the_same_again_is_the_same_to_the_byte(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    said = set()
    for name in ("first.yaml", "second.yaml", "first.yaml"):
        assert main([*pair, "-o", str(tmp_path / name)]) == 0
        said.add(capsys.readouterr().out.partition("\nnext: ")[0])
    assert len(said) == 1
    first = (tmp_path / "first.yaml").read_bytes()
    assert first == (tmp_path / "second.yaml").read_bytes()
    # and onto what it made: the values are replaced by the same ones
    again = [*pair[:-1], str(tmp_path / "first.yaml"), "-o", str(tmp_path / "third.yaml")]
    assert main(again) == 0
    assert first == (tmp_path / "third.yaml").read_bytes()


def test_it_says_how_well_it_does_and_what_it_leaves(
    pair: list[str], capsys: pytest.CaptureFixture
) -> None:
    assert main(pair) == 0
    screen = capsys.readouterr().out
    assert screen.startswith("Fitted 1 operation onto pair\n")
    assert max(map(len, screen.partition("next: ")[0].splitlines())) <= 80
    assert "a size left out" not in screen
    assert main([*pair, "-v"]) == 0
    text = capsys.readouterr().out.partition("\nnext: ")[0]
    assert "a size left out" in text
    assert "a rank count left out" in text
    assert "fitted / measured − 1 by size" in text
    farthest = text[text.index("farthest off:") :].splitlines()[1:6]
    assert all(f"{Path(pair[1])}:" in line and "measured" in line for line in farthest)
    offs = [abs(float(line.split("fitted ")[1].split("%")[0])) for line in farthest]
    assert offs == sorted(offs, reverse=True)
    rest = " ".join(text.split()).rpartition("still at datasheet values: ")[2].split(", ")
    assert "allreduce in the server" in rest
    assert "allreduce beyond it" not in rest
    assert "alltoall beyond it" in rest
    assert main([*pair, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    (fit,) = data["fits"]
    assert 0 < fit["errors"]["size left out"]["large"] < 0.05
    assert 0 < fit["errors"]["ranks left out"]["large"] < 0.05
    assert data["datasheet"] == rest
    (entry,) = fit["entries"]
    half = 1.645 * entry["uncertainty"]["bandwidth"]
    assert abs(entry["bandwidth"] / 1e10 - 1) < half < 0.02


@pytest.mark.slow
def test_points_and_fits_are_drawn(
    pair: list[str], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    pytest.importorskip("matplotlib")
    for name in ("fits.png", "fits.svg"):
        assert main([*pair, "--plot", str(tmp_path / name)]) == 0
        assert str(tmp_path / name) in capsys.readouterr().err
        assert (tmp_path / name).stat().st_size > 5000
    assert "allreduce, room" in (tmp_path / "fits.svg").read_text()
    assert main([*pair, "--plot", str(tmp_path / "again.svg")]) == 0
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "fits.svg").read_bytes()


@pytest.mark.slow
def test_the_shipped_abci_is_what_its_logs_say() -> None:
    """288 published timings give the very entries that the system carries, to the last digit."""
    log = logs.read(Path(__file__).parents[1] / "notebooks" / "data" / "abci-allreduce.jsonl")
    found = calibrate([log], "abci")
    carried = [e for e in catalogue.system("abci").collectives if e.op == "allreduce"]
    lines = [each for fit in found.fits for each in entries(fit.pool, fit.envelope, "")]
    assert len(carried) == len(lines) == 10
    for mine, theirs in zip(lines, carried, strict=True):
        for name in ("level", "protocol", "algorithm", "base", "latency", "bandwidth", "ranks",
                     "sizes", "uncertainty"):  # fmt: skip
            assert getattr(mine, name) == getattr(theirs, name), name
    assert found.fits[0].pool.repeats < 0.015  # it is no noise that the fit leaves over
    assert "changes its ways" in " ".join(found.text().split())


# groups at once


def test_groups_at_once_are_held_against_one_alone() -> None:
    """Four pairs between two nodes of two ports are half as fast as one."""

    def pairs(groups: int, slower: float, memory: str, nodes: int = 2) -> list[Sample]:
        return [Sample("sendrecv", m, slower * (5e-6 + m / 12e9), 2, nodes, 1, groups=groups,
                       library="mpi", memory=memory, where="x:1")
                for m in 2.0 ** np.arange(10, 24)]  # fmt: skip

    samples = [*pairs(1, 1.0, "device"), *pairs(4, 1.97, "device"), *pairs(1, 1.0, "host"),
               *pairs(4, 3.9, "host"), *pairs(3, 1.0, "other")]  # fmt: skip
    found = concurrent([Reading("x", "y", tuple(samples))], catalogue.system("abci"))
    assert [(c.memory, c.groups, c.sizes) for c in found] == [("device", 4, 8), ("host", 4, 8)]
    assert found[0].measured == pytest.approx(1.97)
    assert found[0].counted == pytest.approx(2)
    assert found[0].words == ("sendrecv, 2 ranks on 2 nodes, device buffers, 4 at once: "
                              "1.97 × one alone [1.97, 1.97], counted φ = 2")  # fmt: skip
    told = calibrate([Reading("x", "y", tuple(samples))], "abci")
    assert f"groups at once:\n  {found[0].words}\n" in told.text()
    assert told.to_dict()["crowds"][0]["measured"] == pytest.approx(1.97)
    # five groups of one rank a node need nodes of five: a shape that this system has not
    others = [s._replace(groups=5) for s in pairs(1, 1, "device")]
    readings = [Reading("x", "y", (*pairs(1, 1, "device"), *others))]
    assert concurrent(readings, catalogue.system("abci")) == []


# measured here, fitted, used


def test_measured_here_fitted_and_used(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """What `measure collectives --local` writes is read, fitted and priced without a hand."""
    pytest.importorskip("torch")
    out, system, new = (tmp_path / name for name in ("out.jsonl", "here.yaml", "new.yaml"))
    system.write_text(HOST)
    measure = ["measure", "collectives", "--local", "4", "--operations", "allreduce,allgather",
               "--repeats", "3", "-o", str(out)]  # fmt: skip
    assert main([*measure, "--sizes", "4096,262144"]) == 0
    said = capsys.readouterr().err
    assert "1/12 allreduce of 4 KiB over 4x1" in said
    assert "s to go" in said
    begun = out.read_text().splitlines()
    assert main([*measure, "--sizes", "4096,65536,262144,1048576"]) == 0
    progress = capsys.readouterr().err
    assert "of 4 KiB" not in progress, "what was measured is kept"
    whole = out.read_text().splitlines()
    assert set(begun[1:-1]) < set(whole), "sample by sample"
    reading = logs.read(out)
    assert {(s.ranks, s.groups) for s in reading.samples} == {(4, 1), (2, 1), (2, 2)}
    assert all(len(json.loads(line)["seconds"]) == 3 for line in whole[1:-1])
    assert main(["calibrate", str(out), "--onto", str(system), "-o", str(new)]) == 0
    text = capsys.readouterr().out
    assert "2 ranks on 1 node, host buffers, 2 at once" in text
    (line, *_) = lines(catalogue.system(new), "allreduce", ((4, 1),), 4)
    assert line.origin == "fitted"
    assert line.start + line.per_byte * 4e6 > 0
    assert main(["estimate", "mnist-cnn", str(new), "--plan", "data:4", "--batch", "64"]) == 0
    assert "network fitted" in capsys.readouterr().out
    assert main([*measure[:3], "2", *measure[4:]]) == 2
    assert "had ranks 4; this one has 2" in capsys.readouterr().err


def test_a_calibrated_device_keeps_all_that_it_was(tmp_path: Path) -> None:
    """Its library, its generation and its host's link were lost on the way into the file."""
    from dataclasses import replace

    from oracle.commands.calibrate import write

    for name in ("h100-sxm5-80gb", "knl-7250", "tpu-v3", "gh200"):
        before = catalogue.device(name)
        write(str(tmp_path / f"{name}.yaml"), replace(before, price=1e-3))
        after = catalogue.device(str(tmp_path / f"{name}.yaml"))
        assert replace(after, kernels=(), price=before.price) == replace(before, kernels=())
        assert len(after.kernels) == len(before.kernels)
        for one, other in zip(before.kernels, after.kernels, strict=True):
            assert (one.family, one.part, one.origin) == (other.family, other.part, other.origin)
            assert other.sustained == pytest.approx(one.sustained, rel=1e-3)


@pytest.mark.parametrize(("named", "then"), [
    ("device: chip.yaml", "device: ../mine/chip.yaml"),
    ("device: './chip.yaml'  # ours", "device: '../mine/chip.yaml'  # ours"),
    ("device: v100-pcie", "device: v100-pcie"),
])  # fmt: skip
def test_a_calibrated_system_names_its_files_from_where_it_lies(
    named: str, then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was looked for in the folder at hand, and from another folder meant another file."""
    for folder in ("mine", "made", "here"):
        (tmp_path / folder).mkdir()
    chip = catalogue.shipped("devices")["v100-pcie"].read_text()
    (tmp_path / "mine" / "chip.yaml").write_text(chip)
    (tmp_path / "here" / "chip.yaml").write_text(chip.replace("16 GiB", "1 GiB", 1))
    (tmp_path / "mine" / "pair.yaml").write_text(PAIR.replace("device: v100-pcie", named))
    (tmp_path / "log.jsonl").write_text(measurement((8,)))
    monkeypatch.chdir(tmp_path / "here")
    made = tmp_path / "made" / "new.yaml"
    line = ["calibrate", "../log.jsonl", "--onto", "../mine/pair.yaml", "-o", "../made/new.yaml"]
    assert main(line) == 0
    assert then in made.read_text().splitlines()
    assert catalogue.system(str(made)).device.memory == catalogue.device("v100-pcie").memory


def test_files_between_collectives_move_with_a_spec() -> None:
    from oracle.calibration.spec_block import moved

    text = "device: x\ncollectives: [a.yaml, abci-nccl, 'sub/b.yaml']\nlevels: [c.yaml]\n"
    found = moved(text, Path("/one/two"), Path("/one/three"))
    assert found == text.replace("a.yaml", "../two/a.yaml").replace("sub/b", "../two/sub/b")
    text = "collectives:\n  - a.yaml\n  - {op: allreduce, source: x.yaml}\n"
    assert moved(text, Path("/one/two"), Path("/one/three")) == text.replace(
        "a.yaml", "../two/a.yaml"
    )
