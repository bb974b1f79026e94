"""Samples are read for real: which bytes, from where, ahead of time, and as slowly as is played."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from oracle.calibration import storage
from oracle.commands.cli import main
from oracle.commands.reading import synthetic
from oracle.executor import measured
from oracle.executor.loading import files, measure, samples, throttle
from oracle.executor.loading.loader import Loader
from oracle.executor.loading.samples import Made
from oracle.executor.loading.sources import Cached, Place, Staged, Striped
from oracle.executor.loading.store import WORD, Store
from oracle.executor.loading.throttle import Played, Throttle
from oracle.executor.ranks import records
from oracle.readers import logs, runs
from oracle.spec.document import SpecError
from oracle.spec.storage import Disk, SharedFiles

FREE = Throttle()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Twelve files of 100 to 1,200 bytes."""
    made = tmp_path / "data"
    made.mkdir()
    for k in range(12):
        (made / f"{k:02d}.bin").write_bytes(bytes([k]) * 100 * (k + 1))
    return made


# which bytes

BOXES = [
    [(0, 6), (0, 4), (0, 5)], [(2, 4), (0, 4), (0, 5)], [(0, 6), (1, 3), (0, 5)],
    [(3, 6), (2, 4), (1, 4)], [(5, 6), (0, 4), (4, 5)],
]  # fmt: skip


@pytest.mark.parametrize("box", BOXES, ids=str)
def test_a_part_of_an_array_is_read_alone(tmp_path: Path, box: list[tuple[int, int]]) -> None:
    whole = np.arange(3 * 6 * 4 * 5, dtype="<i4").reshape(3, 6, 4, 5)
    np.save(tmp_path / "one.npy", whole)
    (one,) = samples.of_folder(tmp_path).samples
    where = samples.runs(one, box)
    cut = whole[(slice(None), *(slice(a, b) for a, b in box))]
    found = samples.array(one, files.read(one.path, where), cut.shape)
    assert (found == cut).all()
    assert sum(count for _, count in where) == cut.nbytes
    assert (len(where) == 1) == (box == BOXES[0])


def test_arrays_of_many_samples_and_files_that_are_none(tmp_path: Path) -> None:
    many = np.random.default_rng(0).random((5, 2, 3), dtype=np.float32)
    np.save(tmp_path / "b.npy", many)
    (tmp_path / "a.bin").write_bytes(bytes(range(200)))
    (tmp_path / ".hidden").write_bytes(b"x")
    os.symlink(tmp_path / "a.bin", tmp_path / "link.bin")
    found = samples.of_shape(samples.of_folder(tmp_path), (2, 3))
    assert (len(found), found.files) == (6, 2)
    last = found.samples[-1]
    content = files.read(last.path, samples.runs(last))
    assert (samples.array(last, content, (2, 3)) == many[4]).all()
    plain = samples.array(found.samples[0], bytes(range(200)), (2, 300))
    assert plain[1, 100] == (400 % 200) / 256  # over and over, as many as are wanted
    with pytest.raises(SpecError, match="holds 5 × 2 × 3"):
        samples.of_shape(samples.of_folder(tmp_path), (4, 4))
    with pytest.raises(OSError, match=r"symbolic|Too many"):
        files.read(str(tmp_path / "link.bin"), [(0, 1)])
    with pytest.raises(OSError, match="ends before"):
        files.read(str(tmp_path / "a.bin"), [(0, 201)])


@pytest.mark.parametrize(
    "text", ["\x93NUMPY", "\x93NUMPY\x01\0\xff\xff{", "\x93NUMPY\x01\0\x02\0()"]
)
def test_a_damaged_array_is_a_file_like_any_other(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.npy").write_bytes(text.encode("latin-1") + b" " * 64)
    (one,) = samples.of_folder(tmp_path).samples
    assert not one.dtype


def test_made_files_have_the_sizes_that_were_asked_for(tmp_path: Path) -> None:
    sizes = Made(2000, 1e5, 0.4).sizes()
    assert statistics.mean(sizes) == pytest.approx(1e5, rel=1e-3)
    assert statistics.stdev(sizes) / 1e5 == pytest.approx(0.4, rel=0.1)
    samples.make(tmp_path / "arrays", Made(3), (2, 4, 4))
    found = samples.of_folder(tmp_path / "arrays")
    assert [one.shape for one in found.samples] == [(2, 4, 4)] * 3
    assert np.load(tmp_path / "arrays" / "000001.npy").shape == (2, 4, 4)
    assert synthetic("synthetic:samples=8,size=2kB,spread=0.5") == {
        "samples": 8, "size": 2000.0, "spread": 0.5}  # fmt: skip
    for wrong in ("synthetic:size=-1B", "synthetic:colour=red", "synthetic:samples=1e3"):
        with pytest.raises(SpecError):
            synthetic(wrong)


# ahead of time


def test_batches_come_in_their_order_and_no_more_is_read_than_was_asked() -> None:
    read: list[int] = []

    def fetch(sample: int) -> int:
        read.append(sample)
        time.sleep(0.001 * (sample % 3))
        return sample

    loader = Loader(fetch, lambda step: [10 * step + k for k in range(4)], threads=3, depth=2)
    until = time.monotonic() + 60
    while len(read) < 8 and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.02)
    assert sorted(read) == [0, 1, 2, 3, 10, 11, 12, 13]
    for step in range(5):
        found, waited = loader.take()
        assert found == [10 * step + k for k in range(4)] == list(loader.last)
        assert waited >= 0
    loader.close()
    assert max(read) < 70


def test_what_fails_in_a_thread_is_said_to_the_step() -> None:
    def fetch(sample: int) -> int:
        raise OSError("the disk is gone")

    loader = Loader(fetch, lambda step: [0], threads=2, depth=1)
    with pytest.raises(OSError, match="the disk is gone"):
        loader.take()
    loader.close()


@pytest.mark.flaky(reruns=1)
@pytest.mark.parametrize("load", [0.005, 0.100])
def test_a_step_hides_what_is_read_meanwhile(load: float) -> None:
    """T_step = max(T, T_load): 40 ms of work beside 5 ms, and beside 100 ms, of reading."""

    def slept(seconds: float) -> float:
        began = time.perf_counter()
        time.sleep(seconds)
        return time.perf_counter() - began

    loads: list[float] = []
    loader = Loader(lambda sample: loads.append(slept(load)), lambda step: [step], 1, 2)
    waits, works = zip(*((loader.take()[1], slept(0.040)) for _ in range(8)), strict=True)
    loader.close()
    step, work = (statistics.median(times[3:]) for times in (
        [wait + work for wait, work in zip(waits, works, strict=True)], works))  # fmt: skip
    assert step == pytest.approx(max(work, statistics.median(loads)), rel=0.25)


# from where


def place(tmp_path: Path, number: int, readers: int = 2, everywhere: bool = True) -> Place:
    return Place(number, readers, tmp_path / "stage" / str(number), everywhere)


def told(sample: int) -> None:
    """Nobody is told."""


@pytest.mark.parametrize("kind", [Staged, Striped])
@pytest.mark.parametrize("everywhere", [True, False], ids=["global", "local"])
def test_each_rank_has_its_part_and_gets_the_rest(
    tmp_path: Path, folder: Path, kind: type[Staged], everywhere: bool
) -> None:
    data = samples.of_folder(folder)
    ranks = [kind(data, FREE, place(tmp_path, n, 3, everywhere), None) for n in range(3)]
    for one in ranks:
        one.prepare(told)
        if one.stores:
            one.store = Store(one.sample_for_others, FREE, b"w" * WORD, alone=True)
    stores = [one.store for one in ranks if one.store]
    for store in stores:
        store.meet([("127.0.0.1", each.port) for each in stores])
    for one in ranks:
        one.share(told)
    for one in ranks:
        wanted = range(12) if everywhere or kind is Striped else one.place.part(12)
        for sample in wanted:
            expected = (folder / f"{sample:02d}.bin").read_bytes()
            assert one.fetch(sample) == expected
    kept = [sum(1 for _ in one.place.folder.iterdir()) for one in ranks]
    assert kept == [12] * 3 if kind is Staged and everywhere else [4] * 3
    for one in ranks:
        one.close()
    assert not (tmp_path / "stage").exists()


def test_owners_are_those_of_the_parts() -> None:
    for count in (5, 12, 13):
        for readers in (1, 2, 3, 5, 7):
            one = Place(0, readers, Path("x"), True)
            for number in range(readers):
                assert all(one.owner(count, k) == number for k in one.part(count, number))


def test_a_stranger_is_not_served(tmp_path: Path) -> None:
    store = Store(lambda sample: b"secret", FREE, b"w" * WORD, alone=True)
    with socket.create_connection(("127.0.0.1", store.port), timeout=60) as stranger:
        stranger.sendall(b"x" * WORD + bytes(8))
        heard = b""
        with contextlib.suppress(ConnectionResetError):
            heard = stranger.recv(100)
    assert heard == b""
    store.close()


def test_memory_keeps_what_came_first(tmp_path: Path, folder: Path) -> None:
    asked: list[int] = []

    class Counted(Cached):
        def from_files(self, sample: int) -> bytes:
            asked.append(sample)
            return super().from_files(sample)

    source = Counted(samples.of_folder(folder), FREE, place(tmp_path, 0), None)
    source.room = 100 * (1 + 2 + 3 + 4)
    for _ in range(3):
        for sample in range(12):
            assert len(source.fetch(sample)) == 100 * (sample + 1)
    assert asked == [*range(12), *range(4, 12), *range(4, 12)]


def test_a_full_disk_is_refused_before(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def tiny(path: object) -> os.statvfs_result:
        return os.statvfs_result((512, 512, 100, 1, 1, 1, 1, 1, 0, 255))

    monkeypatch.setattr(os, "statvfs", tiny)
    with pytest.raises(SpecError, match="staging takes"):
        Staged(samples.of_folder(folder), FREE, place(tmp_path, 0, 1), None).prepare(told)


# as slowly as is played

SLOW = Played(SharedFiles(2e6, per_node=1.5e6, streams=3, open=2e-3, metadata=600),
              Disk(4e6, write=8e6, open=1e-3), ports=1e6, latency=1e-4)  # fmt: skip


class Hours:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Hours:
    found = Hours()
    monkeypatch.setattr(throttle, "time", found)
    return found


@pytest.mark.parametrize(("nbytes", "seconds"), [
    (5000, 5e-3 + 0.01),  # three operations on names take 5 ms, more than opening
    (100, 5e-3 + 2e-4),
    (30_000, 5e-3 + 0.06),  # a stream's, of which a node has three
], ids=["some", "few", "many"])  # fmt: skip
def test_a_read_takes_what_is_played(
    tmp_path: Path, hours: Hours, nbytes: float, seconds: float
) -> None:
    rank = Throttle(SLOW, tmp_path, 0, 1)
    rank.shared(nbytes)
    assert hours.now == pytest.approx(seconds)
    rank.shared(nbytes)
    assert hours.now == pytest.approx(2 * seconds)
    rank.local_read(4000)
    assert hours.now == pytest.approx(2 * seconds + 1e-3 + 1e-3)
    rank.sent(500)
    assert hours.now == pytest.approx(2 * seconds + 2e-3 + 5e-4 + 1e-4)
    rank.named(3)
    assert hours.now == pytest.approx(2 * seconds + 2.6e-3 + 5e-3)


def test_who_comes_first_is_served_first_whichever_rank_it_is(tmp_path: Path, hours: Hours) -> None:
    one, other = (Throttle(SLOW, tmp_path, n, 2) for n in range(2))
    done = [rank.clock.reserve(throttle.ALL, 0.1) for rank in (one, other, one, other)]
    assert done == pytest.approx([0.1, 0.2, 0.3, 0.4])
    hours.now = 1.0  # long free: what was not used is gone
    assert other.clock.reserve(throttle.ALL, 0.1) == pytest.approx(1.1)
    nodes = [rank.clock.reserve(rank._slot(throttle.NODE), 0.1) for rank in (one, other, one)]
    assert nodes == pytest.approx([1.1, 1.1, 1.2])  # each node has its own
    assert Throttle(replace(SLOW, ranks_per_node=2), tmp_path, 1, 2)._slot(0) == one._slot(0)


# measured


@pytest.mark.flaky(reruns=1)
def test_a_round_is_bounded_in_time_and_asks_for_each_file_once() -> None:
    asked: list[str] = []

    def work(path: str, size: int) -> None:
        asked.append(path)
        time.sleep(0.002)

    done, spent = measure._run([(str(k), 1) for k in range(500)], 2, work, 0.05)
    assert len(set(asked)) == len(asked) == done < 200
    assert spent > 0.05
    assert measure._run([(str(k), 1) for k in range(5)], 2, work, 9)[0] == 5
    assert math.isclose(sum(3 * one.seconds for one in measure.rounds(60, [1, 2], True)), 60)
    assert measure.doubled(2) == [1, 2, 4, 8]


RUN = ["run", "resnet50", "--plan", "serial", "--batch", "8", "-o", "x"]


class OneRank:
    """What a task is given where it is alone."""

    rank, size, ranks_per_host, hosts = 0, 1, 1, ("here",)

    def __init__(self, attempt: Path) -> None:
        self.attempt, self.found = attempt, list[dict[str, object]]()

    def record(self, key: str, **values: object) -> None:
        self.found.append({"key": key, **values})

    def agree(self, value: float) -> float:
        return value

    def go_on(self) -> bool:
        return True

    def enter(self, *_: object) -> None:
        """Nobody watches."""

    say = enter


@pytest.mark.flaky(reruns=1)
def test_what_is_measured_of_a_played_storage_is_what_is_played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measure, "_all", lambda rank, rate: rate)
    rank = OneRank(tmp_path)
    shared = {"bandwidth": 4e6, "per_node": 2e6, "streams": 4, "open": 4e-3, "metadata": 1500}
    measure.task(rank, {  # type: ignore[arg-type]
        "folder": str(tmp_path / "made"), "seconds": 4.5, "threads": [1, 8],
        "made": {"samples": 60, "size": 2e4}, "played": [shared, None, 0.0, 0.0, 1],
    })  # fmt: skip
    assert not (tmp_path / "made").exists()
    header, *lines = rank.found
    records.write_lines(tmp_path / "s.jsonl", [
        {measure.MARK: 1, **header["header"]}, *(line["sample"] for line in lines),  # type: ignore[dict-item]
        {"end": "complete"}])  # fmt: skip
    reading = logs.read(tmp_path / "s.jsonl")
    assert not reading.skipped
    assert not any(one.cached for one in reading.storage)
    (fit,) = storage.fits([reading])
    value = {one.name: one.value for one in fit.limits}
    for name, expected in (("per_node", 2e6), ("metadata", 1500)):  # a busy machine is slower
        assert 0.6 * expected < value[name] < 1.1 * expected, name
    assert 4e-3 < value["open"] < 10e-3


@pytest.mark.parametrize("line", [
    ["measure", "storage", "-o", "x.jsonl"],
    ["measure", "storage", "--data", "nowhere", "-o", "x.jsonl"],
    ["measure", "storage", "--data", ".", "--threads", "0", "-o", "x.jsonl"],
    [*RUN, "--data", "nowhere"],
    [*RUN, "--throttle", "abci"], [*RUN, "--data", "synthetic:samples=4"],
    [*RUN, "--data", "synthetic:size=1kB", "--reading", "spatial"],
    [*RUN, "--data", "synthetic", "--cache", "5"],
], ids=["no data", "no folder", "no threads", "nothing there", "nothing read", "few", "no arrays",
        "no unit"])  # fmt: skip
def test_what_cannot_be_asked_is_refused(line: list[str]) -> None:
    pytest.importorskip("torch")
    assert main(line) == 2


READ = {"mode": "shared", "shuffle": "global", "samples": 64, "files": 64, "bytes": 64e5,
        "seconds": 0.3, "staging": 0.0, "each": [0.3, 0.4, 0.2]}  # fmt: skip


def measurement(**changed: object) -> measured.Measurement:
    work = dict.fromkeys(("forward", "backward", "update"), 0.1)
    return measured.Measurement(
        "m", "data:2", 8, 2, 0.5, (0.5, 0.6, 0.4), work, (), 1e6,
        ({"host": "a", "work": 1.0, "memory": 1e6},) * 2, reading={**READ, **changed},
    )  # fmt: skip


def test_waiting_is_no_work_of_a_run(tmp_path: Path) -> None:
    measured.write(tmp_path / "m.json", [measurement()])
    assert measured.read(tmp_path / "m.json")[0].reading == READ
    step = runs.read(tmp_path / "m.json").step
    assert step is not None
    assert step.seconds == pytest.approx(0.2)


@pytest.mark.parametrize("changed", [
    {"mode": "by hand"}, {"each": [0.3]}, {"each": [0.3, -1, 0.2]}, {"bytes": "many"},
    {"samples": 0}, {"shuffle": None}, {"made": {"spread": "x"}},
], ids=str)  # fmt: skip
def test_samples_that_nobody_read_so_are_refused(
    tmp_path: Path, changed: dict[str, object]
) -> None:
    measured.write(tmp_path / "m.json", [measurement(**changed)])
    with pytest.raises(SpecError, match="no measurement of plans"):
        measured.read(tmp_path / "m.json")


NETWORK = {
    "name": "planes", "source": "a test", "input": [2, 8, 6],
    "layers": [{"conv": {"filters": 4, "kernel": 3, "padding": 1}}, "relu", "flatten",
               {"dense": 4}, "loss"],
}  # fmt: skip
CASES = [
    ("data:4", "shared", "global", 4), ("data:4", "striped", "global", 4),
    ("data:2 spatial:2", "shared", "local", 2), ("data:2 spatial:2", "spatial", "global", 4),
    ("data:2 filter:2", "staged", "global", 2), ("data:2 filter:2", "cached", "local", 2),
    ("pipeline:2,segments=2 data:2", "staged", "local", 2),
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.flaky(reruns=1)
def test_every_rank_of_a_plan_gets_what_it_works_on(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    from oracle.executor.ranks.launch import Host, launch
    from oracle.executor.ranks.records import of_all_ranks

    folder = tmp_path / "data"
    samples.make(folder, Made(16), (2, 8, 6))
    asked = [
        {"name": f"{plan} {mode} {shuffle}", "model": NETWORK, "plan": plan, "batch": 8,
         "data": {"folder": str(folder), "mode": mode, "shuffle": shuffle, "cache": 1e6}}
        for plan, mode, shuffle, _ in CASES
    ]  # fmt: skip
    path = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    outcome = launch("loading_tasks:prove", {"cases": asked}, tmp_path / "run", ranks=4, trust=True,
                     backend="ordered",
                     host=Host(environment=lambda rank: {"PYTHONPATH": path}))  # fmt: skip
    assert outcome.complete, outcome.message
    found = of_all_ranks(tmp_path / "run", 4)
    for case, (plan, mode, shuffle, readers) in zip(asked, CASES, strict=True):
        ranks = found[str(case["name"])]
        assert not any(rank["wrong"] for rank in ranks), case["name"]
        assert {rank["readers"] for rank in ranks} == {readers}
        assert sum(rank["needs"] for rank in ranks) == (2 if "pipeline" in plan else 4)
        assert sum(rank["files"] for rank in ranks) == 5 * 8 * (2 if mode == "spatial" else 1)
        own = 8 if shuffle == "local" else 16
        assert all(rank["seen"] <= own for rank in ranks)


@pytest.mark.flaky(reruns=1)
@pytest.mark.slow
def test_a_run_waits_for_samples_as_long_as_is_predicted(tmp_path: Path) -> None:
    """One configuration of `benchmarks.reading_loop`, which has twelve: bound by names of files."""
    pytest.importorskip("torch")
    from benchmarks.reading_loop import MODEL, SETTINGS, system
    from oracle.ask.compare import compare
    from oracle.executor.run import run

    one = SETTINGS[1]
    outcome, (found,) = run(one.job(tmp_path / "made", 6), tmp_path / "m.json", ranks=2,
                            backend="ordered")  # fmt: skip
    assert outcome.complete, outcome.message
    assert measured.read(tmp_path / "m.json") == [found]
    assert not (tmp_path / "made").exists()
    assert found.reading["files_a_step"] == 16
    assert found.reading["bytes_a_step"] == pytest.approx(16 * one.size)
    waited, between = found.reading["seconds"], found.reading["between"]
    work = statistics.median(took - wait for took, wait in zip(
        found.step_seconds, found.reading["each"], strict=True))  # fmt: skip
    # 16 files of three operations each at 600 a second are 80 ms, whatever shorter work is beside
    assert work + between + waited == pytest.approx(max(0.08, work + between), rel=0.4)
    assert one.predicted(system(), work + between) == pytest.approx(waited, abs=0.03)
    (row,) = compare([tmp_path / "m.json"], MODEL, system()).to_dict()["plans"]
    assert row["parts"]["reading"]["measured"] == waited
    assert 0 < row["parts"]["reading"]["predicted"] < 0.08
