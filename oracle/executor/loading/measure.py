"""Measures a folder's files a second by threads: cold, warm, first bytes, and names alone.

All ranks read at once, each its part of the files; a host's threads are those of all its ranks. A
file is pushed out of the page cache before it is read cold; where the kernel says that it is still
there, what was read counts as cached. Every figure is the median of rounds, each bounded in time.
"""

from __future__ import annotations

import math
import os
import shutil
import statistics
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.loading import files, samples
from oracle.executor.loading.throttle import Throttle, played_of
from oracle.executor.measure.disk import RAM, SHARED, kind_of
from oracle.executor.measure.hardware import kernel_text, usable_cores
from oracle.executor.question import PACKAGE, installed
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import TIMEOUT, Outcome, Say, launch, silent

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

ROUNDS = 3
LONGEST = 20.0  # seconds of a round: a rank that says nothing for longer looks stalled
FIRST = 4096  # bytes of a file that tell what its opening takes
LEAST = 8  # files of a rank's round
MOST = 20_000  # … that it may read
FEW = 0.02  # the share of files that may stay in memory in a cold round
MARK = "oracle-storage"  # what `readers.logs.storage_measurement` looks for

Work = Callable[[str, int], None]


def measure_storage(
    out: Path, folder: str, *, seconds: float, threads: Sequence[int] = (),
    made: Mapping[str, Any] | None = None, played: Sequence[Any] | None = None,
    ranks: int | None = None, timeout: float = TIMEOUT, backend: str = "gloo", say: Say = silent,
) -> tuple[Outcome, list[dict[str, Any]]]:  # fmt: skip
    """Measure a folder, filled before and emptied after if asked for; write `out`."""
    arguments = {"folder": folder, "seconds": seconds, "threads": list(threads),
                 "made": dict(made) if made else None,
                 "played": list(played) if played else None}  # fmt: skip
    parts = out.with_name(out.name + ".parts")
    for left in parts.glob("rank-*.jsonl"):  # a measurement is short, so it begins anew
        left.unlink(missing_ok=True)
    outcome = launch("oracle.executor.loading.measure:task", arguments, parts, ranks=ranks,
                     timeout=timeout, say=say, backend=backend)  # fmt: skip
    if not (outcome.complete and outcome.leads):
        return outcome, []
    lines = [*records.lines(parts / "rank-00000.jsonl")]
    header = next(line["header"] for line in lines if line["key"] == "header")
    samples_measured = [line["sample"] for line in lines if "sample" in line]
    records.write_lines(out, [{MARK: 1, **header}, *samples_measured, {"end": "complete"}])
    return outcome, samples_measured


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Measure a folder; run by each rank."""
    folder, made_spec = Path(arguments["folder"]), arguments["made"]
    if made_spec and rank.rank == 0:
        rank.enter("start", "making samples")
        rank.say(f"making {made_spec['samples']} files")
        shutil.rmtree(folder, ignore_errors=True)
        samples.make(folder, samples.Made(**made_spec))
    rank.agree(0)
    try:
        _measure(rank, arguments, folder)
    finally:
        if made_spec and rank.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Round:
    """One thing to measure: what of files, by how many threads, cold or warm."""

    kind: str
    threads: int
    cold: bool
    seconds: float  # of one of its rounds

    @property
    def words(self) -> str:
        return f"{self.kind}, {self.threads} threads{'' if self.cold else ', warm'}"


def rounds(seconds: float, counts: Sequence[int], warm: bool) -> list[Round]:
    """All that is measured in a time."""
    kinds = [(kind, count, True) for count in counts for kind in ("files", "first", "stat")]
    kinds += [("files", counts[-1], False)] if warm else []
    round_seconds = min(seconds / len(kinds) / ROUNDS, LONGEST)
    return [Round(kind, count, cold, round_seconds) for kind, count, cold in kinds]


def _measure(rank: Rank, arguments: Mapping[str, Any], folder: Path) -> None:
    kind = kind_of(folder.absolute(), kernel_text(Path("/proc/mounts")))
    played = played_of(arguments["played"])
    listed = files.listed(folder)
    files_here = (listed[rank.rank :: rank.size] or listed)[:MOST]
    nodes, ranks_per_node = len(set(rank.hosts)), rank.ranks_per_host
    if played is not None:  # ranks are its nodes
        nodes, ranks_per_node = -(-rank.size // played.ranks_per_node), played.ranks_per_node
    if rank.rank == 0:
        machine = {"ranks": rank.size, "nodes": nodes, "cores": usable_cores()}
        header = {"tool": f"oracle {installed(PACKAGE)}", "date": date.today().isoformat(),
                  "kind": "shared" if played or kind in SHARED else "local",
                  "file_system": "played" if played else kind, "machine": machine}  # fmt: skip
        rank.record("header", header=header)
    cores = max(1, usable_cores() // max(1, rank.ranks_per_host))
    throttle = Throttle(played, rank.attempt, rank.rank, rank.size)
    planned = rounds(arguments["seconds"], arguments["threads"] or doubled(cores), played is None)
    for number, measurement in enumerate(planned, 1):
        if not rank.go_on():
            return
        rank.enter("measure", measurement.words, number)
        rank.say(f"{number}/{len(planned)} {measurement.words}")
        work = _work(measurement.kind, throttle)
        rates, mean, served = _rounds(rank, measurement, files_here, work)
        if rank.rank == 0:
            rank.record(f"{measurement.kind} {measurement.threads} {measurement.cold}", sample={
                "operation": "stat" if measurement.kind == "stat" else "files",
                "per_second": statistics.median(rates), "size": mean,
                "threads": measurement.threads * ranks_per_node, "nodes": nodes, "repeats": rates,
                "cached": played is None and (served or kind in RAM),
            })  # fmt: skip


def _rounds(
    rank: Rank, measurement: Round, files_here: Sequence[tuple[str, int]], work: Work
) -> tuple[list[float], float, bool]:
    """(operations a second of all ranks in each round, bytes of one, whether memory served)."""
    rates, sizes, cached = [], [], not measurement.cold
    for turn in range(ROUNDS):
        first = turn * len(files_here) // ROUNDS
        turned = [*files_here[first:], *files_here[:first]]
        if not measurement.cold and not turn:
            _run(turned, measurement.threads, work, measurement.seconds)  # into memory
        if measurement.cold and measurement.kind != "stat":
            cached |= stayed(turned) > FEW * len(turned)
        rank.agree(0)
        done, spent = _run(turned, measurement.threads, work, measurement.seconds)
        limit = FIRST if measurement.kind == "first" else math.inf
        moved = [min(size, limit) for _, size in turned[:done]]
        rates.append(_all(rank, done / spent))
        sizes.append(statistics.mean(moved))
    return rates, 0.0 if measurement.kind == "stat" else statistics.mean(sizes), cached


def stayed(paths_and_sizes: Sequence[tuple[str, int]]) -> int:
    """How many files are still in memory after they were pushed out of it."""
    left = [path for path, _ in paths_and_sizes if not files.dropped(path)]
    return sum(not files.dropped(path) for path in left)


def doubled(cores: int) -> list[int]:
    """Numbers of threads: 1, 2, 4 … up to four times the cores, since waiting takes no core."""
    counts = [1]
    while counts[-1] < 4 * cores:
        counts.append(2 * counts[-1])
    return counts


def _work(kind: str, throttle: Throttle) -> Work:
    def whole_file(path: str, size: int) -> None:
        throttle.shared(size)
        files.read(path, [(0, size)])

    def first(path: str, size: int) -> None:
        throttle.shared(min(size, FIRST))
        files.read(path, [(0, min(size, FIRST))])

    def stat(path: str, size: int) -> None:
        throttle.named(1)
        os.lstat(path)

    return {"files": whole_file, "first": first, "stat": stat}[kind]


def _run(
    paths_and_sizes: Sequence[tuple[str, int]], threads: int, work: Work, seconds: float
) -> tuple[int, float]:
    """(files that were done, seconds) of so many threads, until the time or the files are up.

    Each file is asked for once: a second time its pages would be there.
    """
    done: list[int] = []
    failed: list[BaseException] = []
    turn, lock = iter(paths_and_sizes), threading.Lock()
    began = time.perf_counter()

    def run() -> None:
        try:
            while True:
                with lock:
                    entry = next(turn, None)
                late = time.perf_counter() - began > seconds and len(done) >= LEAST
                if entry is None or late or failed:
                    return
                work(*entry)
                done.append(1)
        except BaseException as error:
            failed.append(error)

    crew = [threading.Thread(target=run) for _ in range(threads)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    if failed:
        raise failed[0]
    return len(done), max(time.perf_counter() - began, 1e-9)


def _all(rank: Rank, rate: float) -> float:
    """The sum of all ranks' rates."""
    import torch
    import torch.distributed as dist

    total = torch.tensor([rate], dtype=torch.float64)
    dist.all_reduce(total, group=rank.control)
    return float(total.item())
