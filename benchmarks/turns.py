"""Steps of a plan, and steps that time rows beside it, in turns on the same ranks.

Whoever else has the processors of a shared machine makes the same step take a tenth more or less
from one minute to the next. Steps that take turns feel that alike.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor import measured
from oracle.executor.measure import profile
from oracle.executor.measured import Measurement
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import digest
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import Host, Say, launch
from oracle.kernels.profile import Profile
from oracle.kernels.profile import profile as read_profile

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Found:
    """What a plan took, and rows of plans of its model by their text."""

    run: Measurement
    rows: Mapping[str, Profile]


def taken(
    job: PlanRun, beside: Sequence[PlanRun], folder: Path, *, ranks: int, rate: float, host: Host,
    say: Say, timeout: float,
) -> Found:  # fmt: skip
    """Run a plan, and time the rows of plans `beside` it; what a folder has is not run again."""
    out, backend = folder / "run.json", "gloo"
    timed = [folder / f"rows-{number}.jsonl" for number in range(len(beside))]
    asked = [one.question(ranks, backend) for one in (job, *beside)]
    if not out.is_file():
        arguments = {"job": asdict(job), "beside": [asdict(one) for one in beside],
                     "asked": asked, "rate": rate}  # fmt: skip
        there = Host(host.prefix, lambda rank: {**host.environment(rank), "PYTHONPATH": str(ROOT)})
        outcome = launch("benchmarks.turns:task", arguments, folder, ranks=ranks, timeout=timeout,
                         say=say, host=there, backend=backend, trust=True)  # fmt: skip
        assert outcome.complete, outcome.message
        found = records.of_all_ranks(folder, ranks)
        for number, path in enumerate(timed):
            question = asked[1 + number]
            profile.write(path, found[_key(number)], [question], job.precision, True)
        measured.write(out, list(measured.join(folder, ranks, True)))
    (run,) = measured.read(out)
    return Found(run, {one.plan: read_profile(path)
                       for one, path in zip(beside, timed, strict=True)})  # fmt: skip


def rows_of(job: PlanRun) -> PlanRun:
    """The plan whose rows are timed, by the executor whatever engine is to run it."""
    return replace(job, engine="native", software="")


def _key(number: int) -> str:
    return f"rows {number}"


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Take the steps in turns; called on each rank."""
    from oracle.executor.engines import engines
    from oracle.executor.measure.clock import ahead
    from oracle.executor.measure.row_steps import RowSteps
    from oracle.executor.measure.timed_steps import opened, timed

    job, asked = PlanRun(**arguments["job"]), arguments["asked"]
    name = f"{digest(asked[0])} {job.plan}"
    rank.say(f"{job.plan}, batch {job.batch}")
    steps = engines()[job.engine].steps(rank, job)
    steps.ahead = ahead(rank)
    steps.begin()
    opened(rank, name, job, asked[0], steps, job.steps)
    beside = [RowSteps(rank, PlanRun(**one), arguments["rate"]) for one in arguments["beside"]]
    ended = time.perf_counter()
    for number in range(1 - job.warm_up, job.steps + 1):
        for one in beside:
            one.step(number)
        said, ended = timed(rank, steps, number, ended)
        if number > 0:
            rank.record(f"{name}/step {number}", **said)
    for number, one in enumerate(beside):
        one.record(_key(number), question=asked[1 + number])
    steps.close()
