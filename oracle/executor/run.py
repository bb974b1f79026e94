"""Runs plans for real: warm-up, timed steps, seconds of each phase and each exchange."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor import measured
from oracle.executor.checkpointing.restart import refuse_checkpoints, started_again
from oracle.executor.engines import engines
from oracle.executor.measure.clock import ahead
from oracle.executor.measure.step_trace import traced
from oracle.executor.measure.timed_steps import ReplayedSteps, Steps, TrainingSteps, opened, timed
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import Question, digest, same
from oracle.executor.ranks.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.ranks.world import rank_count, recognise
from oracle.executor.supported import NotSupported
from oracle.models.model import model
from oracle.plan.plan import parse
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank


def run(
    jobs: PlanRun | Sequence[PlanRun],
    out: Path,
    *,
    ranks: int | None = None,
    replay: bool = False,
    timeout: float = TIMEOUT,
    backend: str = "gloo",
    say: Say = silent,
    host: Host | None = None,
) -> tuple[Outcome, list[measured.Measurement]]:
    """Run plans one after the other and write `out`; steps finished by an earlier run are kept.

    With `replay` only the messages are sent, in the order and at the sizes of the prediction.
    """
    runs = [jobs] if isinstance(jobs, PlanRun) else list(jobs)
    parts = out.with_name(out.name + ".parts")
    refuse(runs)
    size = rank_count(ranks, os.environ)
    joined = ranks is None and recognise(os.environ) is not None
    questions = [job.question(size, backend, replay) for job in runs]
    same(parts, questions)
    enough(runs, size)
    refuse_checkpoints(runs, questions, size, backend, parts, joined)
    plain = [asdict(job) for job in runs]

    def start(number: int, left: Sequence[Mapping[str, Any]]) -> Outcome:
        arguments = {"jobs": [{**job, "fail": list(left)} for job in plain], "replay": replay,
                     "asked": questions, "again": number > 0}  # fmt: skip
        return launch("oracle.executor.run:task", arguments, parts, ranks=ranks, timeout=timeout,
                      say=say, host=host, backend=backend)  # fmt: skip

    outcome, failures = started_again(start, runs[0].fail, parts, say)
    if not outcome.leads:
        return outcome, []
    measurements = list(measured.join(parts, size, outcome.complete, failures))
    if measurements:
        measured.write(out, measurements)
    return outcome, measurements


def refuse(jobs: Sequence[PlanRun]) -> None:
    """Raise for all plans at once, before anything starts, for what their engines cannot run."""
    reasons: dict[str, None] = {}
    for job in jobs:
        for why in refusals(job):
            reasons[f"{job.plan}: {why}"] = None
    if reasons:
        raise NotSupported("; ".join(reasons))


def refusals(job: PlanRun) -> list[str]:
    """The reasons why the engine of a run cannot run it."""
    by_name = engines()
    if job.engine not in by_name:
        return [f"no engine is called {job.engine}; {', '.join(by_name)} are"]
    return list(by_name[job.engine].refuses(job, model(job.model), parse(job.plan, job.batch)))


def enough(jobs: Sequence[PlanRun], ranks: int) -> None:
    """Refuse plans of more devices than there are ranks, or of fewer where an engine takes all."""
    for job in jobs:
        devices = int(parse(job.plan, job.batch).devices[0, 0])
        problem = ""
        if devices > ranks:
            problem = f"and there are {ranks} ranks"
        elif devices < ranks and not engines()[job.engine].spares:
            problem = f"{job.engine} takes all {ranks} ranks"
        if problem:
            hint = f"--local {devices}, or a launcher that starts as many"
            raise refusal("options", f"`{job.plan}` is for {devices} devices, {problem}", hint)


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Run all plans that are not finished; called on each rank."""
    with samples_made(rank, arguments["jobs"]):
        _all(rank, arguments)


def _all(rank: Rank, arguments: Mapping[str, Any]) -> None:
    for number, entry in enumerate(arguments["jobs"]):
        job, question = PlanRun(**entry), arguments["asked"][number]
        if not rank.go_on():
            return
        name = f"{digest(question)} {job.plan}"
        last = "end" if job.checkpoint else "step"
        if (
            rank.finished(f"{name}/plan")
            and rank.finished(f"{name}/{last} {job.steps}")
            and not job.trace
        ):
            continue
        rank.say(f"{number + 1}/{len(arguments['jobs'])} {job.plan}, batch {job.batch}")
        entered = time.time()
        steps = (
            ReplayedSteps(rank, job)
            if arguments["replay"]
            else engines()[job.engine].steps(rank, job)
        )
        steps.ahead = ahead(rank)
        if job.checkpoint and isinstance(steps, TrainingSteps):
            from oracle.executor.checkpointing.training import trained

            done = trained(rank, name, job, question, steps, entered, arguments["again"])
        else:
            done = _timed(rank, name, job, question, steps)
        steps.close()
        if not done:
            return


def _timed(rank: Rank, name: str, job: PlanRun, question: Question, steps: Steps) -> bool:
    """Warm up, then run the timed steps that are not done yet; False when asked to stop."""
    steps.begin()
    opened(rank, name, job, question, steps, job.steps)
    if rank.device.type == "cpu" and not rank.finished(f"{name}/alive"):
        rank.enter("warm-up", "counting bytes alive")
        rank.record(f"{name}/alive", kinds=steps.alive())
    ended = time.perf_counter()
    for step in range(1 - job.warm_up, job.steps + 1):
        if step > 0 and rank.finished(f"{name}/step {step}"):
            continue
        if not rank.go_on():
            return False
        steps.wire.enter = lambda phase, label, step=step: rank.enter(phase, label, max(step, 0))  # type: ignore[misc]
        sample, ended = timed(rank, steps, step, ended)
        if step > 0:
            rank.record(f"{name}/step {step}", **sample)
            rank.say(f"iteration {step}: {sample['seconds']:.6g} s")
    if job.trace:
        traced(rank, steps)
    return True


@contextmanager
def samples_made(rank: Rank, jobs: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Make data sets for this run, and remove them after it."""
    from oracle.executor.loading import samples
    from oracle.executor.loading.samples import Made

    jobs_by_folder = {job["data"]["folder"]: job for job in jobs if (job["data"] or {}).get("made")}
    try:
        for folder, job in jobs_by_folder.items():
            if rank.rank == 0:
                rank.enter("start", "making samples")
                shutil.rmtree(folder, ignore_errors=True)
                spec = Made(**job["data"]["made"])
                samples.make(Path(folder), spec, () if spec.size else input_shape(job["model"]))
            rank.agree(0)
        yield
        rank.agree(0)
    finally:
        for folder in jobs_by_folder:
            if rank.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)


def input_shape(source: Any) -> tuple[int, ...]:
    """Channels and extents of a model's sample."""
    from oracle.executor.local.graph import graph, sample_shape
    from oracle.models.layers import Embedding

    first = graph(source).operations[0]
    shape = first.shape.given
    return shape.extents if isinstance(first.layer, Embedding) else sample_shape(shape)
