"""Starts ranks again after a planted failure, and notes when the failure was noticed."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from oracle.executor.checkpointing import folder as checkpoints
from oracle.executor.checkpointing.keeping import Keeping, refuse_failures, refuse_folder
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.question import Question, differences
from oracle.executor.ranks import records
from oracle.executor.ranks.faults import RankFault
from oracle.executor.ranks.launch import FAILED, Outcome, Say
from oracle.models.model import model
from oracle.spec.document import refusal
from oracle.spec.options import SLOTS

WIDTHS = {"float32": 4, "float64": 8, "bfloat16": 2, "float16": 2}
Start = Callable[[int, Sequence[Mapping[str, Any]]], Outcome]


def started_again(
    start: Start, fail: Sequence[Mapping[str, Any]], parts: Path, say: Say
) -> tuple[Outcome, list[dict[str, Any]]]:
    """Start ranks, again after each planted failure; the last outcome, and all failures."""
    left = sorted((dict(failure) for failure in fail), key=lambda failure: int(failure["step"]))
    failures: list[dict[str, Any]] = []
    while True:
        outcome = start(len(failures), left)
        fault = outcome.fault
        due = _planted(left, fault)
        if outcome.code != FAILED or fault is None or due is None:
            return outcome, failures
        attempt = max(int(path.name.rpartition("-")[2]) for path in parts.glob("attempt-*"))
        failures.append(due | {"noticed": fault.when, "ended": time.time(), "attempt": attempt})
        left.remove(due)
        say(f"rank {fault.rank} failed at {fault.activity}, as was asked; all ranks start again")


def _planted(left: Sequence[dict[str, Any]], fault: RankFault | None) -> dict[str, Any] | None:
    """The planted failure that explains this fault, if one does."""
    if fault is None or fault.kind not in ("killed", "stalled"):
        return None
    hangs = fault.kind == "stalled"
    return next((failure for failure in left if failure["rank"] == fault.rank
                 and (failure["at"] == "hang") == hangs), None)  # fmt: skip


def state_bytes(parameters: float, precision: str, optimizer: str) -> float:
    """Bytes of weights and optimizer state as the executor keeps them, each element once."""
    width = WIDTHS[DTYPES[precision]]
    wide = max(width, 4)  # the width of masters and moments
    return parameters * (width + (wide if width < wide else 0) + wide * SLOTS[optimizer])


def refuse_checkpoints(
    jobs: Sequence[PlanRun], questions: Sequence[Question], ranks: int, backend: str, parts: Path,
    joined: bool,
) -> None:  # fmt: skip
    """Raise, before a rank starts, for checkpoints that cannot be kept or gone on from."""
    for job in jobs:
        refuse_failures(job.fail, job.checkpoint, job.steps, joined)
    checkpointed = [job for job in jobs if job.checkpoint]
    if not checkpointed:
        return
    if len(jobs) > 1:
        raise refusal("options", "checkpoints are kept of one plan at a time", "one --plan")
    (job,) = checkpointed
    if questions[0].get("replay"):
        raise refusal("options", "--replay trains nothing that could be kept", "one of them")
    how = Keeping(**(job.checkpoint or {}))
    folder = Path(how.folder)
    checkpoint_bytes = state_bytes(model(job.model).parameters, job.precision, job.optimizer)
    refuse_folder(folder, (how.keep + 1) * checkpoint_bytes)
    ended = any(str(record["key"]).endswith(f"/end {job.steps}")
                for record in records.lines(parts / "rank-00000.jsonl"))  # fmt: skip
    _refuse_others(how, folder, job.state_question(ranks, backend), job.steps - (not ended))


def _refuse_others(how: Keeping, folder: Path, question: Question, last: int) -> None:
    """Raise where the checkpoints that lie there are not those of this training."""
    newest, passed = checkpoints.newest(folder)
    if newest is None:
        if passed:
            hint = "another folder begins anew"
            raise refusal(str(folder), f"no checkpoint is whole: {'; '.join(passed)}", hint)
        return
    if not how.resume:
        problem = f"it has a checkpoint of step {newest['step']}"
        raise refusal(str(folder), problem, "--resume goes on from it; another folder begins anew")
    if changed := differences(newest["question"], question):
        problem = f"its checkpoints are of another training: {'; '.join(changed)}"
        raise refusal(str(folder), problem, "another folder begins anew")
    if int(newest["step"]) > last:
        problem = f"its newest checkpoint is of step {newest['step']}: nothing is left to train"
        raise refusal(str(folder), problem, f"--steps {newest['step'] + 1} or more")
