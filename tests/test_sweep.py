"""Sweeps: ranges, rows, what-if factors, ledgers that survive kills, several processes."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from oracle import api
from oracle.ask.sweep import (
    COLUMNS,
    FACTORS,
    Grid,
    Ledger,
    numbers,
    sizes,
    supposed,
    sweep,
    written,
)
from oracle.ask.sweep.row import row
from oracle.commands.cli import main
from oracle.spec.catalogue import system
from oracle.spec.document import SpecError

HOME = Path(__file__).parents[1]
SMALL = Grid(("resnet50",), ("abci",), (1, 2, 4, 8), (16.0, 32.0), True, ways=("plan:data:*",))


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "oracle", "sweep", *words]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("1..1024", tuple(2**i for i in range(11))),
        ("3..20", (3, 6, 12)),
        ("4..7:all", (4, 5, 6, 7)),
        ("8..64:8", tuple(range(8, 65, 8))),
        ("8,16, 24 8", (8, 16, 24)),
        ("1..2,7", (1, 2, 7)),
    ],
)
def test_ranges(text, found):
    assert numbers(text) == found


@pytest.mark.parametrize("text", ["", "0", "8..4", "1..", "a", "-4", "1..8:0", "1e3", "1..9:some"])
def test_ranges_that_are_none_are_refused(text):
    if text:
        with pytest.raises(SpecError):
            numbers(text)
    with pytest.raises(SpecError):
        Grid(("resnet50",), ("abci",), numbers(text), (1.0,))


def test_sizes_may_be_fractions():
    assert sizes("0.25,1,4") == (0.25, 1.0, 4.0)
    assert sizes("16..64") == (16.0, 32.0, 64.0)
    with pytest.raises(SpecError):
        sizes("0,1")


def test_a_sweep_without_end_is_refused():
    with pytest.raises(SpecError, match="more than"):
        Grid(("a",) * 1000, ("b",) * 1000, (1, 2), (1.0,))


def test_points_are_found_by_number():
    grid = Grid(("a", "b"), ("c",), (1, 2, 4), (8.0, 16.0), what_ifs=("", "network=2"))
    assert len(grid) == 24
    assert [grid.point(n) for n in range(24)] == list(grid.points())
    assert len(set(grid.points())) == 24
    assert Grid.from_dict(json.loads(json.dumps(grid.to_dict()))) == grid


def test_a_row_says_what_recommend_says():
    grid = Grid(("resnet50",), ("abci",), (16,), (512.0,))
    found = row(grid, grid.point(0))
    ranking = api.recommend("resnet50", "abci", 16, 512)
    assert found["plan"] == ranking.best.plan
    assert found["seconds"] == pytest.approx(float(ranking.estimate.seconds[0]), rel=1e-8)
    assert found["memory"] == pytest.approx(float(ranking.estimate.memory[0]), rel=1e-8)
    assert found["samples_per_second"] == pytest.approx(512 / found["seconds"], rel=1e-8)
    assert tuple(found) == COLUMNS


def test_a_system_may_be_used_whole():
    most = system("ethernet-pair").devices
    sizes = (most, most + 1)
    grid = Grid(("lenet5",), ("ethernet-pair",), sizes, (64.0,), True, ways=("plan:data:*",))
    whole, more = (row(grid, grid.point(n)) for n in range(2))
    assert (whole["status"], whole["plan"]) == ("ok", f"data:{most}")
    assert (more["status"], more["plan"]) == ("impossible", "")
    assert more["why"] == f"{most + 1} devices, but ethernet-pair has {most}"


def test_families_use_every_strategy_they_name():
    ways = ("each:data", "each:data+filter", "each:filter")
    found = sweep(Grid(("resnet50",), ("abci",), (8, 128), (8.0,), True, ways=ways), jobs=1)
    of = {(r["way"], r["devices"]): r for r in found.rows}
    assert of["each:data", 8]["plan"].startswith("data:8")
    plan = of["each:data+filter", 8]["plan"]
    assert "data:" in plan
    assert "filter:" in plan
    assert of["each:data+filter", 8]["status"] == "ok"
    assert of["each:filter", 128]["status"] != "ok", "ResNet-50 has 64 filters in its first layer"
    assert of["each:filter", 128]["why"]


def test_a_plan_with_an_open_degree():
    found = sweep(Grid(("resnet50",), ("abci",), (2, 4, 8, 8192), (8.0,), True,
                       ways=("plan:data:* filter:4",)), jobs=1)  # fmt: skip
    assert [r["plan"] for r in found.rows] == ["", "filter:4", "data:2 filter:4", ""]
    assert [r["status"] for r in found.rows] == ["infeasible", "ok", "ok", "impossible"]


@pytest.mark.parametrize("factor", FACTORS)
def test_a_better_part_is_never_slower(factor):
    better = 0.5 if factor in ("latency", "launch") else 2
    grid = Grid(("resnet50",), ("abci",), (8,), (64.0,), True, what_ifs=("", f"{factor}={better}"),
                ways=("plan:data:8", "plan:filter:8"), ideal=factor == "latency")  # fmt: skip
    rows = sweep(grid, jobs=1).rows
    for plain, changed in zip(rows[:2], rows[2:], strict=True):
        assert changed["seconds"] <= plain["seconds"] * (1 + 1e-9)
        if factor == "memory":
            assert changed["capacity"] == pytest.approx(2 * plain["capacity"], rel=1e-8)
        elif factor == "kernels":
            assert changed["forward"] < plain["forward"]
        elif factor == "network":
            assert changed["exchange"] < plain["exchange"]


def test_what_if_is_read_or_refused():
    assert supposed(system("abci"), "") is system("abci")
    both = supposed(system("abci"), "network=2,memory=0.5")
    assert both.levels[0].bandwidth == 2 * system("abci").levels[0].bandwidth
    assert both.device.memory == system("abci").device.memory / 2
    for wrong in ("netwrk=2", "network", "network=0", "network=-1", "network=nan", "network=x"):
        with pytest.raises(SpecError):
            supposed(system("abci"), wrong)


def test_every_shape_of_process_gives_the_same_bytes(tmp_path):
    alone = sweep(SMALL, tmp_path / "a", jobs=1)
    together = sweep(SMALL, tmp_path / "b", jobs=2)
    for part in (2, 3, 1):
        shard = sweep(SMALL, tmp_path / "c", jobs=1, shard=(part, 3))
    contents = {found.place.read_bytes() for found in (alone, together, shard)}
    assert len(contents) == 1
    assert alone.complete
    assert len(alone.rows) == len(SMALL)


def test_only_missing_points_are_computed(tmp_path, monkeypatch):
    sweep(SMALL, tmp_path, jobs=1, shard=(1, 2))
    seen = []
    from oracle.ask.sweep import crew

    real = crew.row
    monkeypatch.setattr(
        crew, "row", lambda grid, point: seen.append(point.number) or real(grid, point)
    )
    found = sweep(SMALL, tmp_path, jobs=1)
    assert seen == [1, 3, 5, 7]
    assert found.complete


@pytest.mark.slow
def test_a_line_torn_anywhere_is_computed_again(tmp_path):
    """Cut the only file after each of its bytes: what is whole stays, the rest comes back."""
    want = sweep(SMALL, tmp_path / "whole", jobs=1).place.read_bytes()
    (place,) = (tmp_path / "whole/rows").glob("*.jsonl")
    content = place.read_bytes()
    rng = random.Random(0)
    for cut in [0, 1, len(content) - 1, *rng.sample(range(len(content)), 25)]:
        folder = tmp_path / f"cut{cut}"
        ledger = Ledger(folder, SMALL)
        (folder / "rows/one.jsonl").write_bytes(content[:cut])
        assert len(ledger.done()) == content[:cut].count(b"\n")
        assert sweep(SMALL, folder, jobs=1).place.read_bytes() == want


@pytest.mark.parametrize(
    "line",
    [b"\x00" * 40, b"[1]", b"[9999, {}]", b'[0, {"point": 1}]', b"{}", b"[true,{}]", b"\xff"],
)
def test_a_strange_line_is_no_row(tmp_path, line):
    ledger = Ledger(tmp_path, SMALL)
    (tmp_path / "rows/one.jsonl").write_bytes(line + b"\n")
    assert ledger.done() == set()
    assert ledger.merged() == []


def test_a_row_that_two_processes_wrote_counts_once(tmp_path):
    for _ in range(2):
        ledger = Ledger(tmp_path, SMALL)
        for number in range(len(SMALL)):
            ledger.append(number, row(SMALL, SMALL.point(number)))
        ledger.close()
    found = sweep(SMALL, tmp_path, jobs=1)
    assert [r["point"] for r in found.rows] == list(range(len(SMALL)))


def test_a_folder_holds_one_sweep(tmp_path, capsys):
    sweep(SMALL, tmp_path, jobs=1)
    other = Grid(("resnet50",), ("abci",), (1, 2), (16.0,), True)
    with pytest.raises(SpecError, match="holds another sweep"):
        sweep(other, tmp_path, jobs=1)
    (tmp_path / "sweep.json").write_text("{")
    with pytest.raises(SpecError, match="not a sweep"):
        sweep(SMALL, tmp_path, jobs=1)


def test_a_changed_spec_is_another_sweep(tmp_path):
    place = tmp_path / "mine.yaml"
    text = (HOME / "specs/systems/abci.yaml").read_text()
    place.write_text(text)
    grid = Grid(("resnet50",), (str(place),), (1, 2), (16.0,), True)
    sweep(grid, tmp_path / "out", jobs=1, shard=(1, 2))
    place.write_text(text.replace("4.0 us", "4.5 us"))
    os.utime(place, ns=(1, 1))
    with pytest.raises(SpecError, match=r"mine.yaml"):
        sweep(grid, tmp_path / "out", jobs=1)


def test_formats(tmp_path):
    rows = sweep(SMALL, jobs=1).rows
    content = written(rows, "csv").decode()
    assert content.splitlines()[0] == ",".join(COLUMNS)
    assert len(content.splitlines()) == len(SMALL) + 1
    again = json.loads(written(rows, "json"))
    assert again["schema"] == 1
    assert again["rows"] == rows


@pytest.mark.slow
def test_parquet_or_a_clear_word(tmp_path):
    rows = sweep(SMALL, jobs=1).rows
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        with pytest.raises(SpecError, match="pyarrow"):
            sweep(SMALL, tmp_path, form="parquet")
        return
    place = sweep(SMALL, tmp_path, jobs=1, form="parquet").place
    assert parquet.read_table(place).to_pylist() == rows
    assert place.read_bytes() == written(rows, "parquet")


def test_no_cell_is_a_formula():
    grid = Grid(("resnet50",), ("abci",), (1,), (8.0,))
    hostile = row(grid, grid.point(0)) | {"model": "=cmd|' /C calc'!A0", "plan": "@x", "why": "a,b"}
    line = written([hostile], "csv").decode().splitlines()[1]
    assert "'=cmd" in line
    assert ",'@x," in line
    assert '"a,b"' in line


def test_command_line(tmp_path, capsys):
    words = ["resnet50", "abci", "--devices", "1..4", "--batch-per-device", "8", "--plan", "data:*"]
    assert main(["sweep", *words]) == 0
    out = capsys.readouterr()
    assert "data:4" in out.out
    assert "efficiency" in out.out
    assert out.err == ""
    assert main(["sweep", *words, "--format", "csv"]) == 0
    assert capsys.readouterr().out.startswith("point,model,")
    assert main(["sweep", *words, "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["rows"]) == 3
    assert main(["sweep", *words, "--out", str(tmp_path / "s")]) == 0
    assert "result.csv" in capsys.readouterr().err
    assert (tmp_path / "s/result.csv").is_file()
    assert main(["sweep", "resnet50", "abci", "--devices", "8192", "--batch", "64"]) == 1


@pytest.mark.parametrize(
    "words",
    [
        ["resnet50", "abci", "--devices", "x", "--batch", "8"],
        ["resnet5", "abci", "--devices", "1", "--batch", "8"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--each", "datta"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--plan", "data:* filter:*"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--what-if", "speed=2"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--shard", "1/2"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--shard", "3/2", "--out", "x"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--format", "parquet"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--max-memory", "16"],
        ["resnet50", "abci", "--devices", "1", "--batch", "8", "--precision", "fp99"],
        ["resnet50", "abci", "--devices", "1"],
    ],
)
def test_bad_usage_is_said_and_exits_2(words, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["sweep", *words]) == 2
    assert capsys.readouterr().err.startswith("error")
    assert not list(tmp_path.iterdir())


def long_sweep(folder: Path) -> list[str]:
    return command(
        "resnet50",
        "abci",
        "--devices",
        "1..64:all",
        "--batch-per-device",
        "1,2,4,8,16",
        "--plan",
        "data:*",
        "--plan",
        "spatial:*",
        "--out",
        str(folder),
        "--quiet",
    )


@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_signal_ends_the_row_and_keeps_it(tmp_path, number, code, jobs):
    process = subprocess.Popen([*long_sweep(tmp_path), "--jobs", jobs], cwd=HOME,
                               stderr=subprocess.PIPE, stdout=subprocess.PIPE)  # fmt: skip
    end = time.monotonic() + 60
    while not any(p.stat().st_size for p in tmp_path.glob("rows/*")) and time.monotonic() < end:
        time.sleep(0.02)
    process.send_signal(number)
    _out, err = process.communicate(timeout=120)
    assert process.returncode == code, err
    assert b"Traceback" not in err
    assert b"goes on from there" in err
    lines = b"".join(p.read_bytes() for p in tmp_path.glob("rows/*"))
    assert lines.endswith(b"\n")
    assert not (tmp_path / "result.csv").exists()


@pytest.mark.slow
def test_a_worker_that_dies_is_replaced(tmp_path):
    from oracle.ask.sweep import crew

    killed = []
    grid = Grid(("resnet50",), ("abci",), numbers("1..64:all"), (8.0,), True, ways=("plan:data:*",))
    want = sweep(grid, tmp_path / "calm", jobs=1).place.read_bytes()
    give = crew.Worker.give

    def shoot(self, number):
        give(self, number)
        if number in (5, 40) and number not in killed:
            killed.append(number)
            self.process.kill()

    try:
        crew.Worker.give = shoot
        found = sweep(grid, tmp_path / "shot", jobs=2)
    finally:
        crew.Worker.give = give
    assert killed == [5, 40]
    assert found.place.read_bytes() == want


def test_a_point_that_always_kills_is_named(tmp_path, monkeypatch):
    from oracle.ask.sweep import crew

    give = crew.Worker.give

    def shoot(self, number):
        if number == 3:
            self.process.kill()
        give(self, number)

    monkeypatch.setattr(crew.Worker, "give", shoot)
    with pytest.raises(crew.Lost, match="ends its process every time"):
        sweep(SMALL, tmp_path, jobs=2)


@pytest.mark.slow
@pytest.mark.parametrize("jobs", ["1", "2"])
def test_a_full_disk_is_said_plainly(tmp_path, jobs):
    """The first process to write finds no room; nothing that was kept is hurt."""
    sweep(SMALL, tmp_path, jobs=1, shard=(1, 2))
    before = {p.name: p.read_bytes() for p in tmp_path.glob("rows/*")}
    words = ["resnet50", "abci", "--devices", "1..8", "--batch-per-device", "16,32", "--plan",
             "data:*", "--out", str(tmp_path), "--jobs", jobs, "--quiet"]  # fmt: skip
    done = subprocess.run(
        ["bash", "-c", 'ulimit -f 0; trap "" XFSZ; exec "$@"', "-", *command(*words)],
        cwd=HOME, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    assert b"File too large" in done.stderr
    assert b"Traceback" not in done.stderr
    assert {n: (tmp_path / "rows" / n).read_bytes() for n in before} == before
    assert sweep(SMALL, tmp_path, jobs=1).complete


@pytest.mark.slow
def test_on_a_dask_cluster(tmp_path):
    pytest.importorskip("distributed", reason="the extra `scale` (dask[distributed]) is not here")
    done = subprocess.run(
        command("resnet50", "abci", "--devices", "1..8", "--batch-per-device", "16,32", "--plan",
                "data:*", "--dask", "local", "--out", str(tmp_path / "dask"), "--quiet"),
        cwd=HOME, capture_output=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    want = sweep(SMALL, tmp_path / "here", jobs=1).place.read_bytes()
    assert (tmp_path / "dask/result.csv").read_bytes() == want


def test_progress_in_a_log_is_a_line_now_and_then(monkeypatch, capsys):
    from oracle.commands import sweep as sweep_

    now = [0.0]
    monkeypatch.setattr(sweep_.time, "monotonic", lambda: now[0])
    say = sweep_.progress()
    for done in range(1, 101):
        now[0] += 1.0
        say(done, 100, now[0])
    lines = capsys.readouterr().err.splitlines()
    assert 2 <= len(lines) <= 4
    assert "of 100 rows" in lines[0]
    assert "s left" in lines[0]


@pytest.mark.slow
def test_thirty_kills_lose_nothing():
    from benchmarks.sweep_kills import kills

    found = kills(30, seed=int.from_bytes(os.urandom(4)), longest=1.5)
    value = {name.partition(".")[2]: figure["value"] for name, figure in found["figures"].items()}
    assert value["kills"] >= 30
    assert value["lost"] == value["doubled"] == value["unequal"] == 0, found


@pytest.mark.slow
def test_many_writers_share_a_folder_without_a_lock():
    from benchmarks.sweep_kills import writers

    figures = writers(8, 8_000)["figures"]
    value = {name.partition(".")[2]: figure["value"] for name, figure in figures.items()}
    assert value["failed"] == value["lost"] == 0
    assert value["whole"] == 1
