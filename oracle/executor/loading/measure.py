"""Files a second of a folder, by threads: cold, warm, their first bytes, and names alone.

All ranks read at once, each its part of the files; a host's threads are those of all its ranks. A
file is pushed out of the page cache before it is read cold; where the kernel says that it is still
there, what was read counts as cached. Every figure is the median of rounds, each bounded in time.
"""

from __future__ import annotations

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

from oracle.executor import records
from oracle.executor.disk import RAM, SHARED, kind_of
from oracle.executor.hardware import said, usable_cores
from oracle.executor.launch import TIMEOUT, Outcome, Say, launch, silent
from oracle.executor.loading import files, samples
from oracle.executor.loading.throttle import Throttle, played_of

if TYPE_CHECKING:
    from oracle.executor.rank import Rank

ROUNDS = 3
LONGEST = 20.0  # seconds of a round: a rank that says nothing for longer looks stalled
FIRST = 4096  # bytes of a file that tell what its opening takes
LEAST = 8  # files of a rank's round
MOST = 20_000  # … that it may read
FEW = 0.02  # of them, that may stay in memory where a round counts as cold
MARK = "oracle-storage"  # what `readers.logs.storage_measurement` looks for

Work = Callable[[str, int], None]


def measure_storage(
    out: Path, folder: str, *, seconds: float, threads: Sequence[int] = (),
    made: Mapping[str, Any] | None = None, played: Sequence[Any] | None = None,
    ranks: int | None = None, timeout: float = TIMEOUT, backend: str = "gloo", say: Say = silent,
) -> tuple[Outcome, list[dict[str, Any]]]:  # fmt: skip
    """Measure a folder, or one that is filled first and emptied again; write `out`."""
    arguments = {"folder": folder, "seconds": seconds, "threads": list(threads),
                 "made": dict(made) if made else None,
                 "played": list(played) if played else None}  # fmt: skip
    parts = out.with_name(out.name + ".parts")
    for left in parts.glob("rank-*.jsonl"):  # a measurement is short: it begins anew
        left.unlink(missing_ok=True)
    outcome = launch("oracle.executor.loading.measure:task", arguments, parts, ranks=ranks,
                     timeout=timeout, say=say, backend=backend)  # fmt: skip
    if not (outcome.complete and outcome.leads):
        return outcome, []
    lines = [*records.lines(parts / "rank-00000.jsonl")]
    header = next(line["header"] for line in lines if line["key"] == "header")
    found = [line["sample"] for line in lines if "sample" in line]
    records.write_lines(out, [{MARK: 1, **header}, *found, {"end": "complete"}])
    return outcome, found


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Measure; run by each rank."""
    folder, made = Path(arguments["folder"]), arguments["made"]
    if made and rank.rank == 0:
        rank.enter("start", "making samples")
        rank.say(f"making {made['samples']} files")
        shutil.rmtree(folder, ignore_errors=True)
        samples.make(folder, samples.Made(**made))
    rank.agree(0)
    try:
        _measure(rank, arguments, folder)
    finally:
        if made and rank.rank == 0:
            shutil.rmtree(folder, ignore_errors=True)


@dataclass(frozen=True)
class Round:
    """What is measured: whole files, their first bytes or names; by how many threads, cold?"""

    what: str
    threads: int
    cold: bool
    seconds: float  # of one of its rounds

    @property
    def words(self) -> str:
        return f"{self.what}, {self.threads} threads{'' if self.cold else ', warm'}"


def rounds(seconds: float, counts: Sequence[int], warm: bool) -> list[Round]:
    """All that is measured, in a time."""
    asked = [(what, count, True) for count in counts for what in ("files", "first", "stat")]
    asked += [("files", counts[-1], False)] if warm else []
    each = min(seconds / len(asked) / ROUNDS, LONGEST)
    return [Round(what, count, cold, each) for what, count, cold in asked]


def _measure(rank: Rank, arguments: Mapping[str, Any], folder: Path) -> None:
    kind = kind_of(folder.absolute(), said(Path("/proc/mounts")))
    played = played_of(arguments["played"])
    found = files.listed(folder)
    mine = (found[rank.rank :: rank.size] or found)[:MOST]
    nodes, here = len(set(rank.hosts)), rank.ranks_per_host
    if played is not None:  # ranks are its nodes
        nodes, here = -(-rank.size // played.each), played.each
    if rank.rank == 0:
        machine = {"ranks": rank.size, "nodes": nodes, "cores": usable_cores()}
        header = {"tool": f"oracle {version()}", "date": date.today().isoformat(),
                  "kind": "shared" if played or kind in SHARED else "local",
                  "file_system": "played" if played else kind, "machine": machine}  # fmt: skip
        rank.record("header", header=header)
    cores = max(1, usable_cores() // max(1, rank.ranks_per_host))
    throttle = Throttle(played, rank.attempt, rank.rank, rank.size)
    asked = rounds(arguments["seconds"], arguments["threads"] or doubled(cores), played is None)
    for number, one in enumerate(asked, 1):
        if not rank.go_on():
            return
        rank.enter("measure", one.words, number)
        rank.say(f"{number}/{len(asked)} {one.words}")
        rates, mean, served = _rounds(rank, one, mine, _work(one.what, throttle))
        if rank.rank == 0:
            rank.record(f"{one.what} {one.threads} {one.cold}", sample={
                "operation": "stat" if one.what == "stat" else "files",
                "per_second": statistics.median(rates), "size": mean,
                "threads": one.threads * here, "nodes": nodes, "repeats": rates,
                "cached": played is None and (served or kind in RAM),
            })  # fmt: skip


def _rounds(
    rank: Rank, one: Round, mine: Sequence[tuple[str, int]], work: Work
) -> tuple[list[float], float, bool]:
    """(operations a second of all ranks in each round, bytes of one, whether memory served)."""
    rates, sizes, cached = [], [], not one.cold
    for turn in range(ROUNDS):
        first = turn * len(mine) // ROUNDS
        asked = [*mine[first:], *mine[:first]]
        if not one.cold and not turn:
            _run(asked, one.threads, work, one.seconds)  # into memory
        if one.cold and one.what != "stat":
            cached |= stayed(asked) > FEW * len(asked)
        rank.agree(0)
        done, spent = _run(asked, one.threads, work, one.seconds)
        moved = [min(size, FIRST if one.what == "first" else size) for _, size in asked[:done]]
        rates.append(_all(rank, done / spent))
        sizes.append(statistics.mean(moved))
    return rates, 0.0 if one.what == "stat" else statistics.mean(sizes), cached


def stayed(asked: Sequence[tuple[str, int]]) -> int:
    """How many files are still in memory after they were pushed out of it."""
    left = [path for path, _ in asked if not files.dropped(path)]
    return sum(not files.dropped(path) for path in left)


def doubled(most: int) -> list[int]:
    """1, 2, 4 … and four times the cores: threads that wait take none."""
    found = [1]
    while found[-1] < 4 * most:
        found.append(2 * found[-1])
    return found


def _work(what: str, throttle: Throttle) -> Work:
    def whole(path: str, size: int) -> None:
        throttle.shared(size)
        files.read(path, [(0, size)])

    def first(path: str, size: int) -> None:
        throttle.shared(min(size, FIRST))
        files.read(path, [(0, min(size, FIRST))])

    def stat(path: str, size: int) -> None:
        throttle.named(1)
        os.lstat(path)

    return {"files": whole, "first": first, "stat": stat}[what]


def _run(
    asked: Sequence[tuple[str, int]], threads: int, work: Work, seconds: float
) -> tuple[int, float]:
    """(files that were done, seconds) of so many threads, until the time or the files are up.

    Each file is asked for once: a second time its pages would be there.
    """
    done: list[int] = []
    failed: list[BaseException] = []
    turn, lock = iter(asked), threading.Lock()
    began = time.perf_counter()

    def run() -> None:
        try:
            while True:
                with lock:
                    one = next(turn, None)
                late = time.perf_counter() - began > seconds and len(done) >= LEAST
                if one is None or late or failed:
                    return
                work(*one)
                done.append(1)
        except BaseException as error:
            failed.append(error)

    crew = [threading.Thread(target=run) for _ in range(threads)]
    for one in crew:
        one.start()
    for one in crew:
        one.join()
    if failed:
        raise failed[0]
    return len(done), max(time.perf_counter() - began, 1e-9)


def _all(rank: Rank, rate: float) -> float:
    """The sum of all ranks' rates."""
    import torch
    import torch.distributed as dist

    seen = torch.tensor([rate], dtype=torch.float64)
    dist.all_reduce(seen, group=rank.control)
    return float(seen.item())


def version() -> str:
    """Of this package."""
    from oracle.executor.collectives import oracle_version

    return oracle_version()
