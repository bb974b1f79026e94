"""Run plans for real: warm-up, timed steps, seconds of each phase and each exchange."""

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
from oracle.executor.clock import ahead
from oracle.executor.engines import engines
from oracle.executor.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import Question, digest, same
from oracle.executor.step_trace import traced
from oracle.executor.supported import NotSupported
from oracle.executor.timed_steps import ReplayedSteps, Steps, TrainingSteps, opened, timed
from oracle.executor.world import recognise
from oracle.models.model import model
from oracle.plan.plan import parse
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.executor.rank import Rank


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
    wanted = [jobs] if isinstance(jobs, PlanRun) else list(jobs)
    parts = out.with_name(out.name + ".parts")
    refuse(wanted)
    world = recognise(os.environ) if ranks is None else None
    size = ranks or (world.size if world else 1)
    asked = [job.question(size, backend, replay) for job in wanted]
    same(parts, asked)
    enough(wanted, size)
    refuse_checkpoints(wanted, asked, size, backend, parts, world is not None)
    plain = [asdict(job) for job in wanted]

    def start(number: int, left: Sequence[Mapping[str, Any]]) -> Outcome:
        arguments = {"jobs": [{**job, "fail": list(left)} for job in plain], "replay": replay,
                     "asked": asked, "again": number > 0}  # fmt: skip
        return launch("oracle.executor.run:task", arguments, parts, ranks=ranks, timeout=timeout,
                      say=say, host=host, backend=backend)  # fmt: skip

    outcome, again = started_again(start, wanted[0].fail, parts, say)
    found = list(measured.join(parts, size, outcome.complete, again)) if outcome.leads else []
    if outcome.leads and found:
        measured.write(out, found)
    return outcome, found


def refuse(jobs: Sequence[PlanRun]) -> None:
    """Raise for all plans at once what their engine does not support, before anything starts."""
    found: dict[str, None] = {}
    for job in jobs:
        for why in refusals(job):
            found[f"{job.plan}: {why}"] = None
    if found:
        raise NotSupported("; ".join(found))


def refusals(job: PlanRun) -> list[str]:
    """All that the engine of a run cannot do of it."""
    known = engines()
    if job.engine not in known:
        return [f"no engine is called {job.engine}; {', '.join(known)} are"]
    return list(known[job.engine].refuses(job, model(job.model), parse(job.plan, job.batch)))


def enough(jobs: Sequence[PlanRun], ranks: int) -> None:
    """Refuse plans of more devices than there are ranks, or of fewer where an engine takes all."""
    for job in jobs:
        devices = int(parse(job.plan, job.batch).devices[0, 0])
        if devices > ranks:
            what = f"`{job.plan}` is for {devices} devices, and there are {ranks} ranks"
            raise refusal("options", what, f"--local {devices}, or a launcher that starts as many")
        if devices < ranks and not engines()[job.engine].spares:
            what = f"`{job.plan}` is for {devices} devices, {job.engine} takes all {ranks} ranks"
            raise refusal("options", what, f"--local {devices}, or a launcher that starts as many")


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Run all plans that are not finished; called on each rank."""
    with made(rank, arguments["jobs"]):
        _all(rank, arguments)


def _all(rank: Rank, arguments: Mapping[str, Any]) -> None:
    for number, entry in enumerate(arguments["jobs"]):
        job, asked = PlanRun(**entry), arguments["asked"][number]
        if not rank.go_on():
            return
        name = f"{digest(asked)} {job.plan}"
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

            done = trained(rank, name, job, asked, steps, entered, arguments["again"])
        else:
            done = _timed(rank, name, job, asked, steps)
        steps.close()
        if not done:
            return


def _timed(rank: Rank, name: str, job: PlanRun, asked: Question, steps: Steps) -> bool:
    """Warm up, then the timed steps that are not done yet; False when asked to stop."""
    steps.begin()
    opened(rank, name, job, asked, steps, job.steps)
    if rank.device.type == "cpu" and not rank.finished(f"{name}/alive"):
        rank.enter("warm-up", "counting bytes alive")
        rank.record(f"{name}/alive", kinds=steps.alive())
    ended = time.perf_counter()
    for step in range(1 - job.warm_up, job.steps + 1):
        if step > 0 and rank.finished(f"{name}/step {step}"):
            continue
        if not rank.go_on():
            return False
        steps.wire.enter = lambda phase, what, step=step: rank.enter(phase, what, max(step, 0))  # type: ignore[misc]
        said, ended = timed(rank, steps, step, ended)
        if step > 0:
            rank.record(f"{name}/step {step}", **said)
            rank.say(f"iteration {step}: {said['seconds']:.6g} s")
    if job.trace:
        traced(rank, steps)
    return True


@contextmanager
def made(rank: Rank, jobs: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Data sets that are made for this run, and gone after it."""
    from oracle.executor.loading import samples
    from oracle.executor.loading.samples import Made

    wanted = {job["data"]["folder"]: job for job in jobs if (job["data"] or {}).get("made")}
    try:
        for folder, job in wanted.items():
            if rank.rank == 0:
                rank.enter("start", "making samples")
                shutil.rmtree(folder, ignore_errors=True)
                what = Made(**job["data"]["made"])
                samples.make(Path(folder), what, () if what.size else input_shape(job["model"]))
            rank.agree(0)
        yield
        rank.agree(0)
    finally:
        for folder in wanted:
            if rank.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)


def input_shape(what: Any) -> tuple[int, ...]:
    """Channels and extents of a model's sample."""
    from oracle.executor.graph import graph
    from oracle.models.layers import Embedding

    first = graph(what).operations[0]
    given = first.shape.given
    if isinstance(first.layer, Embedding):
        return given.extents
    return (*given.extents, given.channels) if given.tokens else (given.channels, *given.extents)
