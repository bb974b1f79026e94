"""Start ranks, or join those that a launcher started; watch them, and end all when one fails.

Each process that calls `launch` supervises. It never imports torch: the work is done by worker
processes (`oracle.executor.ranks.rank`), one for each rank under `--local N`, one under torchrun,
srun or mpirun. Supervisors see each other's ranks through files in one folder, which all hosts
share: heartbeats and faults. A worker dies with its supervisor (PDEATHSIG), so none is left behind;
a stall is reported by the supervisor, not by torch, whose own time-out is set longer.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from oracle.executor.ranks import faults
from oracle.executor.ranks.faults import RankFault
from oracle.executor.ranks.forked_ranks import Fork, ForkServer, shares
from oracle.executor.ranks.heartbeat import INTERVAL, Status, last_status
from oracle.executor.ranks.records import lines, write_whole
from oracle.executor.ranks.world import World, host_name, recognise
from oracle.spec.document import SpecError
from oracle.spec.files import LOG, read_json, read_text

DONE, FAILED, INTERRUPTED, TERMINATED = 0, 3, 130, 143
TIMEOUT = 60.0
_POLL = 0.1  # seconds between looks at this host's workers
_POLL_ALL = 0.5  # … and at the files of all ranks
_LATE = 1.0  # seconds that a look may be late before the machine itself is short of time
_MISSED = 2.5 * INTERVAL  # seconds without a beat after which a rank is suspected first
_SETTLE = 1.5  # a dying rank makes others fail: wait for all faults, then name the first
# variables that no two ranks share, and nothing reads while it loads
OWN = ("RANK", "WORLD_SIZE", "ORACLE_WORLD", "ORACLE_LOCAL", "ORACLE_HOST")
_STOP = {signal.SIGTERM: TERMINATED, signal.SIGINT: INTERRUPTED}

Say = Callable[[str], None]


def silent(_: str) -> None:
    """Drop a line of progress."""


@dataclass(frozen=True)
class Outcome:
    """How a launch ended: its exit code, and a message when that is not 0."""

    code: int
    message: str = ""
    fault: RankFault | None = None
    seconds: float = 0.0
    speaks: bool = True  # of several supervisors, the one whose message is shown
    leads: bool = True  # … and the one that merges the results

    @property
    def complete(self) -> bool:
        return self.code == DONE


@dataclass(frozen=True)
class Host:
    """Where local ranks run: a prefix of their command, and variables. Plain by default."""

    prefix: Callable[[int], Sequence[str]] = lambda rank: ()
    environment: Callable[[int], Mapping[str, str]] = field(default=lambda rank: {})


def launch(
    task: str,
    arguments: Mapping[str, Any],
    folder: Path,
    *,
    ranks: int | None = None,
    timeout: float = TIMEOUT,
    say: Say = silent,
    trust: bool = False,
    host: Host | None = None,
    backend: str = "gloo",
) -> Outcome:
    """Run `task` ("module:function") on every rank and wait for the end.

    With `ranks`, that many processes start here; without, the launcher's environment says which
    rank this process is, and without a launcher there is one. Only functions of this package
    run unless `trust` is given.
    """
    if not trust and not task.startswith("oracle."):
        raise PermissionError(f"{task} is user code; it runs only when that is asked for")
    joined = recognise(os.environ) if ranks is None else None
    world = joined or World(size=ranks or 1)
    folder.mkdir(parents=True, exist_ok=True)
    job = {"task": task, "arguments": arguments, "timeout": timeout, "backend": backend}
    supervisor = _Supervisor(
        folder.absolute(), world, joined is not None, timeout, say, host or Host()
    )
    with _signals(supervisor):
        return supervisor.run(job)


@contextlib.contextmanager
def _signals(supervisor: _Supervisor) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, supervisor.asked_to_stop) for number in _STOP}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Supervisor:
    """Starts the ranks of one launch on this host, watches all ranks, and ends its own."""

    def __init__(
        self, folder: Path, world: World, joined: bool, timeout: float, say: Say, host: Host
    ) -> None:
        self.folder, self.world, self.joined = folder, world, joined
        self.timeout, self.say, self.host = timeout, say, host
        self.mine = [world.rank] if joined else list(range(world.size))
        self.workers: dict[int, subprocess.Popen[bytes] | Fork] = {}
        self.fork_server: ForkServer | None = None
        self.stop = 0  # the signal that asked to stop, 0 for none
        self.told = 0  # lines of progress shown
        self.seen: dict[int, tuple[int, float]] = {}  # rank -> last beat, when it changed
        self.moved = (-1, 0.0)  # operations entered by all ranks, when that changed
        self.attempt = folder

    def asked_to_stop(self, number: int, frame: FrameType | None) -> None:
        if self.stop:  # asked twice: now
            self._end_workers()
        self.stop = self.stop or number

    def run(self, job: Mapping[str, Any]) -> Outcome:
        began = time.monotonic()
        try:
            self.attempt = self._meet() if self.joined else self._new_attempt()
            if not self.joined or self.world.rank == 0:
                write_whole(self.attempt / "job.json", json.dumps(job))
            self._start(job)
            fault = self._watch()
        except _RanksMissing as missing:
            fault = missing.fault
        finally:
            self._end_workers()
        return self._outcome(fault, time.monotonic() - began)

    def _new_attempt(self) -> Path:
        before = [int(p.name.split("-")[1]) for p in self.folder.glob("attempt-*")]
        attempt = self.folder / f"attempt-{max(before, default=0) + 1:04d}"
        attempt.mkdir()
        return attempt

    def _meet(self) -> Path:
        """Agree on one attempt among all supervisors: rank 0 opens it for those that have arrived.

        A random number in each arrival tells this run's ranks from those of an earlier run that
        left its files behind, without clocks.
        """
        door, nonce = self.folder / "arrivals", os.urandom(8).hex()
        limit = time.monotonic() + self.timeout
        door.mkdir(exist_ok=True)  # the folder stays; only the files in it are cleared away
        if self.world.rank == 0:
            for earlier in door.iterdir():
                earlier.unlink(missing_ok=True)
        while True:
            arrival = door / f"{self.world.rank:05d}-{nonce}"
            with contextlib.suppress(OSError):
                arrival.write_text(host_name(os.environ))
            if self.world.rank == 0:
                arrived = {int(p.name.split("-")[0]): p.name for p in door.iterdir()}
                if len(arrived) == self.world.size:
                    attempt = self._new_attempt()
                    opened = {"attempt": attempt.name, "came": sorted(arrived.values())}
                    write_whole(self.folder / "open.json", json.dumps(opened))
                    return attempt
            else:
                with contextlib.suppress(OSError, ValueError):
                    opened = read_json(self.folder / "open.json")
                    if arrival.name in opened["came"]:
                        return self.folder / str(opened["attempt"])
            if self.stop or time.monotonic() > limit:
                raise _RanksMissing(self._absent(door))
            time.sleep(0.2)

    def _absent(self, door: Path) -> RankFault:
        arrived = {int(p.name.split("-")[0]) for p in door.iterdir()} if door.is_dir() else set()
        rank = next((r for r in range(self.world.size) if r not in arrived), 0)
        missing = self.world.size - len(arrived) - 1
        also = f" and {missing} more" if missing > 0 else ""
        detail = f"{also} never arrived within {self.timeout:g} s (do all hosts see {self.folder}?)"
        return RankFault(rank, "an unknown host", "missing", detail.strip(), "start", time.time())

    def _start(self, job: Mapping[str, Any]) -> None:
        """Start all ranks of this host, forked from one process where only variables differ."""
        environments = {rank: self._environment(rank) for rank in self.mine}
        logs = {rank: self.attempt / f"log-{rank:05d}" for rank in self.mine}
        alone = job["backend"] == "nccl" or any(self.host.prefix(rank) for rank in self.mine)
        if not alone and shares(list(environments.values()), OWN):
            module = str(job["task"]).partition(":")[0]
            self.fork_server = ForkServer(self.attempt / "ranks.json", module, environments, logs)
            self.workers |= self.fork_server.forks
            return
        for rank in self.mine:
            command = [*self.host.prefix(rank), sys.executable, "-m", "oracle.executor.ranks.rank"]
            with open(logs[rank], "ab") as log:
                self.workers[rank] = subprocess.Popen(
                    command, env=environments[rank], stdin=subprocess.DEVNULL, stdout=log,
                    stderr=log, start_new_session=True,
                )  # fmt: skip

    def _environment(self, rank: int) -> dict[str, str]:
        local = {} if self.joined else {"RANK": str(rank), "WORLD_SIZE": str(self.world.size)}
        return {
            **os.environ,
            "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
            **local,
            **self.host.environment(rank),
            "ORACLE_ATTEMPT": str(self.attempt),
            "ORACLE_WORLD": f"{rank} {self.world.size}",
            "ORACLE_LOCAL": str(self.world.local if self.joined else rank),
            "ORACLE_JOINED": str(int(self.joined)),
            "ORACLE_SUPERVISOR": str(os.getpid()),
        }

    def _watch(self) -> RankFault | None:
        """Watch until all workers have ended (None), or something is wrong (the cause)."""
        stop_sent, first, last_look = False, None, 0.0
        before = time.monotonic()
        while True:
            time.sleep(_POLL)
            now = time.monotonic()
            self._forgive(now - before - _POLL)
            before = now
            if self.stop and not stop_sent:
                stop_sent = True
                for worker in self.workers.values():
                    with contextlib.suppress(OSError):
                        worker.send_signal(signal.SIGTERM)
            running = self._check_own()
            if now - last_look > _POLL_ALL or not running:
                last_look = now
                self._show_progress()
                if self.world.rank in (0, self.world.size - 1) or not self.joined:
                    self._check_everyone(now)
            reports = faults.reported(self.attempt)
            if reports and first is None:
                first = now
            if first is not None and (now - first > _SETTLE or len(reports) == self.world.size):
                return faults.root_cause(faults.reported(self.attempt))
            if not running and first is None:
                return None

    def _forgive(self, late: float) -> None:
        """Count time in which even the supervisor could not run against no rank."""
        if late > _LATE:
            self.seen = {rank: (beat, moment + late) for rank, (beat, moment) in self.seen.items()}
            self.moved = self.moved[0], self.moved[1] + late

    def _check_own(self) -> bool:
        """Whether a worker of this host still runs; reports the faults of those that failed."""
        running = False
        for rank, worker in self.workers.items():
            code = worker.poll()
            if code is None:
                running = True
            elif code != 0:
                status = last_status(self.attempt, rank)
                kind, detail = faults.of_exit(code, status)
                detail += _last_log_line(self.attempt, rank, status)
                self._report(rank, kind, detail, status)
        return running

    def _check_everyone(self, now: float) -> None:
        """Report ranks without a heartbeat, ranks that never began, and a stall of all."""
        statuses = [last_status(self.attempt, rank) for rank in range(self.world.size)]
        for rank, status in enumerate(statuses):
            beat = status.beat if status else -1
            if status is None and rank in self.seen and self.seen[rank][0] >= 0:
                continue  # it is just writing
            if rank not in self.seen or self.seen[rank][0] != beat:
                self.seen[rank] = (beat, now)
            quiet = now - self.seen[rank][1]
            if quiet > self.timeout and (status is None or status.state == "running"):
                kind = "stalled" if status else "missing"
                detail = "stalled: no heartbeat" if status else "never began"
                self._report(rank, kind, f"{detail} for {quiet:.0f} s", status)
        present = [status for status in statuses if status and status.state == "running"]
        entered = sum(status.entered for status in present)
        if entered != self.moved[0] or not present:
            self.moved = (entered, now)
        elif any(now - self.seen[status.rank][1] > _MISSED for status in present):
            return  # all others may wait for that rank: its heartbeat will tell, a moment later
        elif now - self.moved[1] > self._patience(present) and len(present) == self.world.size:
            last = min(present, key=lambda status: status.entered)
            lags = any(status.entered > last.entered for status in present)
            why = "it lags" if lags else "all ranks wait in the same operation (a dead link?)"
            detail = f"stalled: nothing has moved for {now - self.moved[1]:.0f} s, {why}"
            self._report(last.rank, "stalled", detail, last)

    def _patience(self, present: Sequence[Status]) -> float:
        """Seconds in which some rank should move; a shared file system makes starting slow."""
        starting = all(status.phase == "start" for status in present)
        return max(self.timeout, TIMEOUT) if starting else self.timeout

    def _report(self, rank: int, kind: str, detail: str, status: Status | None) -> None:
        host = status.host if status else self.host.environment(rank).get("ORACLE_HOST", "?")
        place = status.activity() if status else "start"
        faults.report(self.attempt, RankFault(rank, host, kind, detail, place, time.time()))

    def _show_progress(self) -> None:
        spoken = list(lines(self.attempt / "progress"))
        if not self.joined or self.world.rank == 0:
            for line in spoken[self.told :]:
                self.say(str(line.get("said", "")))
        self.told = len(spoken)

    def _end_workers(self) -> None:
        for worker in self.workers.values():
            if worker.pid:  # a fork has none before it begins
                with contextlib.suppress(OSError):
                    os.killpg(worker.pid, signal.SIGKILL)
        if self.fork_server is not None:
            self.fork_server.end()
        for worker in self.workers.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                worker.wait(5)

    def _outcome(self, fault: RankFault | None, seconds: float) -> Outcome:
        leads = self.world.rank == 0 or not self.joined
        if fault is not None:
            speaker = 1 if fault.rank == 0 and self.world.size > 1 else 0
            speaks = not self.joined or self.world.rank == speaker
            consequences = len(faults.reported(self.attempt)) - 1
            words = f"; {consequences} other ranks failed in consequence"
            followed = words if consequences > 0 else ""
            message = f"{fault}{followed}. Finished samples are kept; logs: {self.attempt}"
            return Outcome(FAILED, message, fault, seconds, speaks, leads)
        states = [last_status(self.attempt, rank) for rank in self.mine]
        if self.stop or any(status and status.state == "stopped" for status in states):
            code = _STOP.get(signal.Signals(self.stop or signal.SIGTERM), TERMINATED)
            message = "stopped when asked to; finished samples are kept, run again to go on"
            return Outcome(code, message, None, seconds, leads, leads)
        return Outcome(DONE, seconds=seconds, leads=leads)


class _RanksMissing(Exception):
    """Not all ranks of a launcher arrived in time."""

    def __init__(self, fault: RankFault) -> None:
        super().__init__(str(fault))
        self.fault = fault


def _last_log_line(attempt: Path, rank: int, status: Status | None) -> str:
    """The last line in the log of a worker that failed before its first heartbeat."""
    if status is not None:
        return ""
    with contextlib.suppress(OSError, SpecError):
        text = read_text(attempt / f"log-{rank:05d}", "log of a rank", LOG, errors="replace")
        log = text.strip().splitlines()
        if log:
            return f" ({log[-1][:300]})"
    return ""
