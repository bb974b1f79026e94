"""Logs of storage tools: rates in our units, what they say of a system, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from oracle.calibration import storage
from oracle.calibration.believed import storage_concerns
from oracle.calibration.calibrate import calibrate
from oracle.commands.cli import main
from oracle.readers import logs
from oracle.readers.logs import Reading
from oracle.readers.storage_samples import StorageSample, joined
from oracle.spec import catalogue

LOGS = Path(__file__).parent / "data" / "logs"
MIB = 2.0**20


def read(name: str) -> Reading:
    return logs.read(LOGS / name)


def rows(name: str) -> list[tuple[str, float, float, int | None, int | None]]:
    """(operation, a second, bytes of one, threads, nodes) of each sample."""
    return [(s.operation, round(s.per_second, 3), round(s.size), s.threads, s.nodes)
            for s in read(name).storage]  # fmt: skip


def test_fio_counts_jobs_that_ran_at_once_together() -> None:
    found = read("fio.json")
    assert rows("fio.json") == [("read", 400, MIB, 1, 1), ("read", 1500, MIB, 4, 1)]
    assert [one.latency for one in found.storage] == pytest.approx([2.5e-3, 2.667e-3], rel=1e-3)
    assert not any(one.cached for one in found.storage)
    assert found.counts() == {"it read and wrote at once": 1, "the job ended with an error": 1}
    assert rows("fio.txt") == [("read", 20000, 4095, 16, 1), ("read", 500, MIB, 1, 1)]
    small, large = read("fio.txt").storage
    assert (small.latency, large.latency) == pytest.approx((800e-6, 2e-3))
    assert (small.cached, large.cached) == (False, True)  # libaio queues nothing of memory
    assert rows("fio_old.txt") == [("write", 800, 131072, 4, 1)]


def test_mdtest_means_of_tasks_and_what_is_read() -> None:
    assert rows("mdtest.txt") == [
        ("create", 20000, 0, 16, 4), ("stat", 120000, 0, 16, 4), ("open", 60000, 0, 16, 4),
        ("remove", 25000, 0, 16, 4)]  # fmt: skip
    old = read("mdtest_old.txt")
    assert ("files", 10000, 4096, 2, 1) in rows("mdtest_old.txt")
    assert [fault.kind for fault in old.faults] == ["truncated"]


def test_ior_reads_past_the_memory_of_its_own_writes_where_tasks_are_shifted() -> None:
    shifted = [s for s in read("ior.txt").storage if s.operation == "read"]
    assert [(s.rate / MIB, s.threads, s.nodes, s.cached) for s in shifted] == [
        (8000, 8, 4, False), (7900, 8, 4, False)]  # fmt: skip
    opened = next(s for s in read("ior.txt").storage if s.operation == "open")
    assert (opened.per_second, opened.latency) == (pytest.approx(1e4), 3.2e-3)
    write, own = read("ior.json").storage
    assert (write.operation, write.cached, own.operation, own.cached) == (
        "write", False, "read", True)  # fmt: skip


def test_what_kept_accelerators_busy_is_a_bound_from_below() -> None:
    (summary,) = read("dlio_summary.json").storage
    assert (summary.per_second, summary.size / MIB) == (1000, pytest.approx(2.7))  # epoch one
    assert (summary.nodes, summary.cached, summary.least) == (2, False, False)
    (log,) = read("dlio.log").storage
    (report,) = read("mlperf_storage.json").storage
    assert (log.size, report.size) == pytest.approx((140 * MIB, 140 * MIB))
    assert log.least
    assert report.least
    assert (report.per_second, report.nodes) == (80, 2)


def test_what_is_said_with_a_name_holds_for_rates_too() -> None:
    (one,) = read("dlio.log").checked_with_facts(nodes=4).storage
    assert one.nodes == 4
    assert [fault.kind for fault in read("ior.txt").checked_with_facts(nodes=2).faults] == [
        "counts"
    ]


def test_jobs_at_once_add_up() -> None:
    jobs = [
        StorageSample("read", 100, 1e6, 2, 1, 0.02),
        StorageSample("read", 300, 2e6, 6, 1, 0.04),
    ]
    one = joined(jobs)
    assert (one.per_second, one.rate, one.threads) == (400, pytest.approx(7e8), 8)
    assert one.latency == pytest.approx(0.035)


TRUE = {"bandwidth": 20e9, "per_node": 2.5e9, "metadata": 40e3, "streams": 16, "open": 1.2e-3}


def planted() -> Iterator[StorageSample]:
    """What a file system of these values gives, 3 % of noise."""
    dice = np.random.default_rng(1)
    stream = TRUE["per_node"] / TRUE["streams"]
    for nodes in (1, 2, 4, 16):
        for threads in (1, 4, 16, 64):
            for size in (1e5, 1e6, 3e7):
                wait = (TRUE["open"] + size / stream) / nodes / threads
                moved = size / min(TRUE["bandwidth"], TRUE["per_node"] * nodes)
                seconds = max(moved, 3 / TRUE["metadata"], wait) * np.exp(dice.normal(0, 0.03))
                yield StorageSample("files", 1 / seconds, size, threads, nodes, where="x:1")
            for operation, names in (("stat", 1), ("open", 2)):
                seconds = max(names / TRUE["metadata"], names * 2e-4 / nodes / threads)
                yield StorageSample(operation, 1 / seconds, 0, threads, nodes, where="x:1")


def test_planted_values_are_found_by_all_samples_together() -> None:
    (fit,) = storage.fits([Reading("x", "y", storage=tuple(planted()))])
    for name, value in TRUE.items():
        assert fit.value(name) == pytest.approx(value, rel=0.05), name
    assert all(limit.reached for limit in fit.limits)
    assert float(np.median(np.abs(fit.error))) < 0.03


def test_small_blocks_tell_of_waiting_and_not_of_bandwidth() -> None:
    (fit,) = storage.fits([read("fio.txt")], "local")
    assert [(each.name, each.value) for each in fit.limits] == [("open", pytest.approx(8e-4))]


def test_a_bound_from_below_takes_nothing_away() -> None:
    known = catalogue.system("abci").storage
    (fit,) = storage.fits([read("mlperf_storage.json")])
    assert not any(each.reached for each in fit.limits)
    made = storage.with_fits(known, [fit])
    assert made is not None
    assert made.shared is not None
    before = known.shared.bandwidth if known and known.shared else 0.0
    assert made.shared.bandwidth == pytest.approx(max(before, 11200 * MIB), rel=1e-3)


def test_the_new_spec_holds_what_was_measured(tmp_path: Path) -> None:
    new = tmp_path / "my.yaml"
    line = ["calibrate", *(str(LOGS / name) for name in ("fio.json", "mdtest.txt"))]
    assert main([*line, "--onto", "abci", "-o", str(new)]) == 0
    made = catalogue.system(str(new)).storage
    assert made is not None
    assert made.shared is not None
    assert made.shared.metadata == pytest.approx(120e3)
    assert made.shared.per_node == pytest.approx(1500 * MIB, rel=1e-3)
    assert made.shared.streams == 4  # of 400 MiB/s each
    assert "fio.json" in made.shared.source
    local = calibrate([read("fio.json")], "abci", "local").spec()
    (tmp_path / "local.yaml").write_text(local)
    disk = catalogue.system(str(tmp_path / "local.yaml")).storage.local  # type: ignore[union-attr]
    assert disk is not None
    assert disk.read == pytest.approx(1500 * MIB, rel=1e-3)


def test_what_contradicts_is_refused(tmp_path: Path) -> None:
    abci = catalogue.system("abci")
    fast = StorageSample("files", 1e5, 1e6, 8, 1, where="a.log:3")
    (refused,) = storage_concerns([Reading("a.log", "y", storage=(fast,))], abci)
    assert refused.severity == "refuse"
    assert "network carries" in refused.problem
    assert not storage_concerns([Reading("a.log", "y", storage=(fast,))], abci, "local")
    wide = fast._replace(per_second=10.0, nodes=10**6)
    assert "nodes" in storage_concerns([Reading("a.log", "y", storage=(wide,))], abci)[0].problem
    pair = [StorageSample("stat", rate, 0, 8, 1, where="a.log:3") for rate in (100.0, 200.0, 400.0)]
    for count, severity in ((2, "warn"), (3, "refuse")):
        (apart,) = storage_concerns([Reading("a", "y", storage=tuple(pair[:count]))], abci)
        assert apart.severity == severity
    bad = tmp_path / "bad.jsonl"
    bad.write_text((LOGS / "storage.jsonl").read_text().replace("180.0", "1e9", 1))
    assert main(["calibrate", str(bad), "--onto", "abci"]) == 2
