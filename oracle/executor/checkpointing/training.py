"""Runs a rank's training steps from the newest checkpoint on, saving checkpoints between them.

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
from oracle.executor.loading.throttle import Throttle, played_of
from oracle.executor.measure.disk import kind_of
from oracle.executor.measure.hardware import kernel_text
from oracle.executor.measure.timed_steps import TrainingSteps, opened, timed
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import Question

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank


def trained(
    rank: Rank, name: str, job: PlanRun, question: Question, steps: TrainingSteps, entered: float,
    repeated: bool,
) -> bool:  # fmt: skip
    """Run the timed steps from the newest checkpoint on; False when asked to stop."""
    assert job.checkpoint
    keeping, start = Keeping(**job.checkpoint), int(rank.attempt.name.rpartition("-")[2])
    folder, state = Path(keeping.folder), steps.state
    throttle = Throttle(played_of(keeping.played), rank.attempt, rank.rank, rank.size)
    if rank.rank == 0:
        checkpoints.claim(folder)
        checkpoints.clear(folder)
    rank.agree(0)
    step_loaded, load = None, dict[str, Any]()
    if repeated or keeping.resume:
        step_loaded, load = restore(rank, state, folder, throttle)
    first = 1 - job.warm_up if step_loaded is None else step_loaded + 1
    steps.begin(first - 1 + job.warm_up)
    opened(rank, name, job, question, steps, job.steps - _lacking(rank, name, first))
    about = {"question": job.state_question(rank.size, rank.backend), "way": keeping.way}
    saver = Saver(rank, state, keeping, throttle, about)
    rank.record(f"{name}/begin {start}", entered=entered, at=time.time(), load=load, first=first,
                **_storage_facts(rank, folder, throttle))  # fmt: skip
    ended = time.perf_counter()
    for step in range(first, job.steps + 1):
        if not rank.go_on():
            _record_saved(rank, name, start, saver.finish())
            return False
        began = time.time()
        if saver.thread and not saver.thread.is_alive():
            _record_saved(rank, name, start, saver.finish())
        _arm(rank, name, job, steps, saver, step, (start, began))
        took, ended = timed(rank, steps, step, ended)
        if step > 0:
            repeated = rank.finished(f"{name}/step {step}")
            key = f"again {start} step {step}" if repeated else f"step {step}"
            rank.record(f"{name}/{key}", **took, at=began, start=start)
            if step % keeping.every == 0:
                _record_saved(rank, name, start, saver.save(step))
    stepped = time.time()
    _record_saved(rank, name, start, saver.finish())
    rank.record(f"{name}/end {job.steps}", at=time.time(), stepped=stepped)
    return True


def _storage_facts(rank: Rank, folder: Path, throttle: Throttle) -> dict[str, Any]:
    """The file system that checkpoints are written to, and how many nodes write."""
    if played := throttle.played:
        return {"file_system": "played", "nodes": -(-rank.size // played.ranks_per_node)}
    kind = kind_of(folder.absolute(), kernel_text(Path("/proc/mounts")))
    return {"file_system": kind, "nodes": len(set(rank.hosts))}


def _lacking(rank: Rank, name: str, first: int) -> int:
    """How many steps before the first have no results here: they ran elsewhere."""
    return sum(not rank.finished(f"{name}/step {step}") for step in range(1, first))


def _record_saved(rank: Rank, name: str, start: int, saved: Iterable[Mapping[str, Any]]) -> None:
    for report in saved:
        rank.record(f"{name}/checkpoint {start} {report['step']}", **report)


def _arm(
    rank: Rank, name: str, job: PlanRun, steps: TrainingSteps, saver: Saver, step: int,
    begun: tuple[int, float],
) -> None:  # fmt: skip
    """Watch where the rank is, and let it die where that is planted."""
    planted_here = [failure for failure in (Planted(**fields) for fields in job.fail)
                    if (failure.rank, failure.step) == (rank.rank, step)]  # fmt: skip

    def die(place: str) -> None:
        now = time.time()
        rank.record(f"{name}/dies {begun[0]}", at=now, began=begun[1], step=step, place=place)
        os.kill(os.getpid(), signal.SIGSTOP if place == "hang" else signal.SIGKILL)

    def enter(phase: str, label: str) -> None:
        rank.enter(phase, label, max(step, 0))
        due = [failure.at for failure in planted_here if failure.at != "checkpoint"]
        if phase == "backward" and due:
            die(due[0])

    steps.wire.enter = enter
    amid = any(failure.at == "checkpoint" for failure in planted_here)
    saver.halfway = (lambda: die("checkpoint")) if amid else saver.halfway if saver.thread else None
