"""Processes that answer, each within a time limit.

One is always free of searches and of pictures, for quick questions. A process that takes too long
is ended and another put in its place, so that nobody's long search is in another's way for long.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from anyio import to_thread

from oracle.commands.serve import job
from oracle.spec import strict_json

FEWEST = 3  # one for each kind of question


class TooLong(Exception):
    """An answer was not there in time."""


class Worker:
    """One process, and the pipe to it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.start()

    def start(self) -> None:
        new = multiprocessing.get_context("spawn")
        self.pipe, theirs = new.Pipe()
        self.process = new.Process(target=job.serve, args=(theirs, self.folder), daemon=True)
        self.process.start()
        theirs.close()

    def ask(
        self, words: Sequence[str], form: str, limit: float, rows: job.Rows | None = None
    ) -> job.JobAnswer:
        """Return the answer of the process, or raise `TooLong` where it takes too long."""
        try:
            self.pipe.send_bytes(json.dumps([list(words), form, rows]).encode())
            if self.pipe.poll(limit):
                answer: job.JobAnswer = strict_json.loads(self.pipe.recv_bytes().decode())
                return answer
        except (EOFError, OSError):  # it died, perhaps for want of memory
            self.restart()
            return {"crash": True}
        self.restart()
        raise TooLong

    def restart(self) -> None:
        """Start another process in place of this one."""
        self.end()
        self.start()

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


class Workers:
    """Processes that take turns; the one that answered last is asked first, for what it knows."""

    def __init__(self, count: int, folder: str, limit: float) -> None:
        self.limit = limit
        self.all = [Worker(folder) for _ in range(max(count, FEWEST))]
        self.idle: asyncio.LifoQueue[Worker] = asyncio.LifoQueue()
        for worker in self.all:
            self.idle.put_nowait(worker)
        workers = len(self.all)
        self.turns = {
            "search": asyncio.Semaphore(workers - 1),
            "picture": asyncio.Semaphore(workers - 2),
        }

    async def ask(
        self, words: Sequence[str], form: str, kind: str = "", rows: job.Rows | None = None
    ) -> job.JobAnswer:
        """Return the answer of a free process: a `search` leaves one free, a `picture` two."""
        turn: Any = self.turns.get(kind, nullcontext())
        async with turn:
            worker = await self.idle.get()
            try:
                answer: job.JobAnswer = await to_thread.run_sync(
                    worker.ask, words, form, self.limit, rows
                )
                return answer
            finally:
                self.idle.put_nowait(worker)

    def end(self) -> None:
        for worker in self.all:
            worker.end()
