"""Processes that answer points: here, as workers of their own, or on a Dask cluster.

A worker is `python -m oracle.ask.sweep.crew`: it reads the grid and then one point a line, and says
each point it has kept. It ends when its input does, so no worker outlives whoever started it by
more than a row.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

from oracle.ask.sweep.grid import Grid
from oracle.ask.sweep.ledger import Ledger
from oracle.ask.sweep.row import row
from oracle.spec.document import refusal
from oracle.spec.strict_json import loads

Stop = Callable[[], bool]
AGAIN = 2  # times a point may end its worker before the sweep gives up
AHEAD = 2  # points a worker has before it


class Lost(RuntimeError):
    """A point that cannot be answered: a fault of ours, or its process ends every time."""


def alone(grid: Grid, ledger: Ledger, points: Sequence[int], stop: Stop) -> Iterator[int]:
    """Answer points in this process."""
    try:
        for number in points:
            if stop():
                return
            ledger.append(number, row(grid, grid.point(number)))
            yield number
    finally:
        ledger.close()


class Worker:
    """One process beside this one."""

    def __init__(self, grid: Grid, folder: Path) -> None:
        home = str(Path(__file__).parents[3])
        search = os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH", "")]))
        threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "oracle.ask.sweep.crew"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, env={**os.environ, **threads, "PYTHONPATH": search},
        )  # fmt: skip
        self.owed: list[int] = []
        self._rest = b""
        self._say({"grid": grid.to_dict(), "folder": str(folder)})

    def _say(self, word: Any) -> None:
        stream = self.process.stdin
        assert stream is not None
        with contextlib.suppress(BrokenPipeError):  # its end is seen on the other pipe
            stream.write(json.dumps(word).encode() + b"\n")
            stream.flush()

    def give(self, number: int) -> None:
        """One more point to answer."""
        self.owed.append(number)
        self._say(number)

    def heard(self) -> list[int] | None:
        """Points it has kept since; nothing at all if it is gone."""
        assert self.process.stdout is not None
        data = os.read(self.process.stdout.fileno(), 65536)
        *said, self._rest = (self._rest + data).split(b"\n")
        if faults := [word for word in said if word.startswith(b"fault ")]:
            code, _, words = faults[0][6:].decode().partition(" ")
            raise OSError(int(code), os.strerror(int(code)), words) if int(code) else Lost(words)
        found = [int(word) for word in said]
        for number in found:
            self.owed.remove(number)
        return found if data else None

    def end(self) -> None:
        """Let it finish its row and go."""
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
        try:
            self.process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def together(
    grid: Grid, folder: Path, points: Sequence[int], jobs: int, stop: Stop
) -> Iterator[int]:
    """Answer points with several processes; one that dies is replaced and its points go again."""
    left, died = list(reversed(points)), dict.fromkeys(points, 0)
    crew: dict[int, Worker] = {}
    ears = selectors.DefaultSelector()

    def hire() -> None:
        worker = Worker(grid, folder)
        assert worker.process.stdout is not None
        ears.register(worker.process.stdout, selectors.EVENT_READ, worker)
        crew[id(worker)] = worker
        feed(worker)

    def feed(worker: Worker) -> None:
        while left and len(worker.owed) < AHEAD and not stop():
            worker.give(left.pop())

    def dismiss(worker: Worker) -> None:
        ears.unregister(worker.process.stdout)  # type: ignore[arg-type]
        del crew[id(worker)]
        worker.end()

    done = False
    try:
        for _ in range(min(jobs, len(points))):
            hire()
        while crew:
            for key, _ in ears.select(timeout=0.5):
                worker = cast(Worker, key.data)
                said = worker.heard()
                if said is not None:
                    yield from said
                    feed(worker)
                    continue
                owed = list(worker.owed)
                dismiss(worker)
                if owed:
                    died[owed[0]] += 1
                    if died[owed[0]] > AGAIN:
                        raise Lost(f"{grid.point(owed[0])} ends its process every time, "
                                   f"exit code {worker.process.returncode}")  # fmt: skip
                    left.extend(reversed(owed))
                    hire()
            for worker in [w for w in crew.values() if not w.owed and (not left or stop())]:
                dismiss(worker)
        done = True
    finally:
        for worker in list(crew.values()):
            if not done:  # a fault or a second Ctrl-C; what is kept is kept
                worker.process.kill()
            dismiss(worker)
        ears.close()


def answer(settings: dict[str, Any], number: int) -> dict[str, Any]:
    """One row, for a worker that shares nothing but this package and the spec files."""
    grid = Grid.from_dict(settings)
    return row(grid, grid.point(number))


def on_dask(
    grid: Grid, ledger: Ledger, points: Sequence[int], address: str, stop: Stop
) -> Iterator[int]:
    """Answer points on a Dask cluster; rows are kept here as they come."""
    try:
        from distributed import Client, as_completed  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        raise refusal(
            "sweep", "Dask is not installed here", "pip install 'oracle-training[scale]'"
        ) from None
    local: dict[str, Any] = {"processes": True, "dashboard_address": None}
    try:
        client = Client(**local) if address == "local" else Client(address, timeout=15)
    except OSError as error:
        raise refusal("sweep", f"no Dask scheduler answers at {address}: {error}") from None
    waiting = iter(points)
    with client:
        try:
            settings = grid.to_dict()

            def more(count: int) -> list[Any]:
                numbers = [n for n, _ in zip(waiting, range(count), strict=False)]
                return [client.submit(answer, settings, n, pure=False) for n in numbers]

            width = max(4, 4 * sum(client.nthreads().values()))
            coming = as_completed(more(width), with_results=True)
            for _, found in coming:
                ledger.append(found["point"], found)
                yield found["point"]
                if not stop():
                    for future in more(1):
                        coming.add(future)
        finally:
            ledger.close()


def _number(error: Exception) -> int:
    """The system's number of an error that is not ours: a full disk, a lost mount."""
    return (error.errno or 0) if isinstance(error, OSError) else 0


def work() -> int:
    """A worker's life: the grid, then points, until nobody asks any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started it decides when to end
    given = loads(sys.stdin.buffer.readline().decode() or "null")
    if given is None:
        return 0
    grid = Grid.from_dict(given["grid"])
    ledger = Ledger(given["folder"], grid)
    try:
        while line := sys.stdin.buffer.readline():
            number = int(line)
            try:
                ledger.append(number, row(grid, grid.point(number)))
                said = str(number)
            except Exception as error:
                if not _number(error):
                    traceback.print_exc()
                where = getattr(error, "filename", None)
                said = f"fault {_number(error)} {where or f'{grid.point(number)}: {error!r:.300}'}"
            sys.stdout.buffer.write(said.replace("\n", " ").encode() + b"\n")
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    finally:
        ledger.close()
    return 0


if __name__ == "__main__":
    sys.exit(work())
