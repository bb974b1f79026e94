"""A rank's training steps with checkpoints between them, from the newest one that is there.

Every step is a step of one training: those that a failure undid are done again, and kept apart.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.checkpointing import folder as checkpoints
from oracle.executor.checkpointing.keeping import Keeping, Planted
from oracle.executor.checkpointing.loader import restore
from oracle.executor.checkpointing.saver import Saver
from oracle.executor.disk import kind_of
from oracle.executor.hardware import said
from oracle.executor.loading.throttle import Throttle, played_of
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import Question
from oracle.executor.timed_steps import TrainingSteps, opened, timed

if TYPE_CHECKING:
    from oracle.executor.rank import Rank


def trained(
    rank: Rank, name: str, job: PlanRun, asked: Question, steps: TrainingSteps, entered: float,
    again: bool,
) -> bool:  # fmt: skip
    """The timed steps from the newest checkpoint on; False when asked to stop."""
    assert job.checkpoint
    keeping, start = Keeping(**job.checkpoint), int(rank.attempt.name.rpartition("-")[2])
    folder, state = Path(keeping.folder), steps.state
    throttle = Throttle(played_of(keeping.played), rank.attempt, rank.rank, rank.size)
    if rank.rank == 0:
        checkpoints.claim(folder)
        checkpoints.clear(folder)
    rank.agree(0)
    at, load = None, dict[str, Any]()
    if again or keeping.resume:
        at, load = restore(rank, state, folder, throttle)
    first = 1 - job.warm_up if at is None else at + 1
    steps.begin(first - 1 + job.warm_up)
    opened(rank, name, job, asked, steps, job.steps - _lacking(rank, name, first))
    about = {"question": job.state_question(rank.size, rank.backend), "way": keeping.way}
    saver = Saver(rank, state, keeping, throttle, about)
    rank.record(f"{name}/begin {start}", entered=entered, at=time.time(), load=load, first=first,
                **_where(rank, folder, throttle))  # fmt: skip
    ended = time.perf_counter()
    for step in range(first, job.steps + 1):
        if not rank.go_on():
            _kept(rank, name, start, saver.finish())
            return False
        began = time.time()
        if saver.thread and not saver.thread.is_alive():
            _kept(rank, name, start, saver.finish())
        _arm(rank, name, job, steps, saver, step, (start, began))
        took, ended = timed(rank, steps, step, ended)
        if step > 0:
            again = rank.finished(f"{name}/step {step}")
            key = f"again {start} step {step}" if again else f"step {step}"
            rank.record(f"{name}/{key}", **took, at=began, start=start)
            if step % keeping.every == 0:
                _kept(rank, name, start, saver.save(step))
    stepped = time.time()
    _kept(rank, name, start, saver.finish())
    rank.record(f"{name}/end {job.steps}", at=time.time(), stepped=stepped)
    return True


def _where(rank: Rank, folder: Path, throttle: Throttle) -> dict[str, Any]:
    """What checkpoints are written to, and by how many nodes."""
    if played := throttle.played:
        return {"file_system": "played", "nodes": -(-rank.size // played.each)}
    kind = kind_of(folder.absolute(), said(Path("/proc/mounts")))
    return {"file_system": kind, "nodes": len(set(rank.hosts))}


def _lacking(rank: Rank, name: str, first: int) -> int:
    """Steps before the first that nobody's results hold: they ran elsewhere."""
    return sum(not rank.finished(f"{name}/step {step}") for step in range(1, first))


def _kept(rank: Rank, name: str, start: int, found: Iterable[Mapping[str, Any]]) -> None:
    for one in found:
        rank.record(f"{name}/checkpoint {start} {one['step']}", **one)


def _arm(
    rank: Rank, name: str, job: PlanRun, steps: TrainingSteps, saver: Saver, step: int,
    begun: tuple[int, float],
) -> None:  # fmt: skip
    """Watch where the rank is, and let it die where that is planted."""
    mine = [one for one in (Planted(**each) for each in job.fail)
            if (one.rank, one.step) == (rank.rank, step)]  # fmt: skip

    def die(at: str) -> None:
        now = time.time()
        rank.record(f"{name}/dies {begun[0]}", at=now, began=begun[1], step=step, place=at)
        os.kill(os.getpid(), signal.SIGSTOP if at == "hang" else signal.SIGKILL)

    def enter(phase: str, what: str) -> None:
        rank.enter(phase, what, max(step, 0))
        if phase == "backward" and (due := [one.at for one in mine if one.at != "checkpoint"]):
            die(due[0])

    steps.wire.enter = enter
    amid = any(one.at == "checkpoint" for one in mine)
    saver.halfway = (lambda: die("checkpoint")) if amid else saver.halfway if saver.thread else None
