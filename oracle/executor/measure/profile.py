"""Measures the seconds of each row of a model at its local shape, on the devices of a plan.

Every device runs its own part of the plan, as `run` does and all at once, but sends nothing: what
others would send is there already. So a row's seconds hold its kernels and the copies that
assemble its input, in the state in which a real step finds the caches, and no exchange.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.measure.lockstep import Stretch, in_step
from oracle.executor.measure.timed_steps import same_machine
from oracle.executor.plan_run import PlanRun
from oracle.executor.question import Question, digest, same
from oracle.executor.ranks import records
from oracle.executor.ranks.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.ranks.world import rank_count
from oracle.executor.run import enough, refuse
from oracle.kernels.profile.file import MARK
from oracle.spec.precision import PRECISIONS

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank


def measure_compute(
    jobs: PlanRun | Sequence[PlanRun],
    out: Path,
    *,
    ranks: int | None = None,
    timeout: float = TIMEOUT,
    backend: str = "gloo",
    say: Say = silent,
    host: Host | None = None,
    rate: float = 0.0,
) -> Outcome:
    """Time every row of these plans at its local shape, and the updates; write `out`.

    With the `rate` of the links (bytes per second), devices sleep where messages would be.
    """
    runs = [jobs] if isinstance(jobs, PlanRun) else list(jobs)
    refuse(runs)
    parts = out.with_name(out.name + ".parts")
    size = rank_count(ranks, os.environ)
    questions = [job.question(size, backend) | {"rate": rate} for job in runs]
    same(parts, questions)
    enough(runs, size)
    arguments = {"jobs": [asdict(job) for job in runs], "rate": rate, "asked": questions}
    outcome = launch(
        "oracle.executor.measure.profile:task", arguments, parts,
        ranks=ranks, timeout=timeout, say=say, host=host, backend=backend,
    )  # fmt: skip
    if outcome.leads:
        lines = [
            line for path in sorted(parts.glob("rank-*.jsonl")) for line in records.lines(path)
        ]
        precisions = {job.precision for job in runs}
        precision = precisions.pop() if len(precisions) == 1 else ""
        write(out, lines, questions, precision, outcome.complete)
    return outcome


def write(
    out: Path, lines: Sequence[Mapping[str, Any]], questions: Sequence[Question], precision: str,
    complete: bool,
) -> None:  # fmt: skip
    """Write the profile that the ranks' lines make together."""
    head: dict[str, Any] = {MARK: 1, "complete": complete}
    head |= {"precision": precision} if precision in PRECISIONS else {}
    head |= {"questions": list(questions)}
    environments = [line["environment"] for line in lines if "environment" in line]
    head |= {"environment": environments[0]} if environments else {}
    records.write_lines(out, [head, *_joined(lines)])


def _joined(lines: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each row's median, scaled so that rows add up to what a step takes.

    A pause hits one row of many, so medians of rows add up to less than passes take; and at each
    message all wait for whoever is late.
    """
    alike: dict[tuple[str, str], list[Mapping[str, Any]]] = {}  # ranks that have the same rows
    updates: dict[tuple[str, float], list[float]] = {}
    for line in lines:
        if line.get("rows"):
            alike.setdefault((line["key"], " ".join(sorted(line["rows"]))), []).append(line)
        if line.get("update"):
            updates.setdefault((line["optimizer"], line["weights"]), []).extend(line["update"])
    rows: dict[str, list[tuple[float, float, float, int]]] = {}
    for ranks in alike.values():
        for row, scaled in _scaled(ranks).items():
            rows.setdefault(row, []).append(scaled)
    for row, timings in sorted(rows.items()):
        forward, backward, spread = (
            statistics.median(column) for column in [*zip(*timings, strict=True)][:3]
        )
        yield {"row": row, "forward": forward, "backward": backward, "spread": spread,
               "samples": sum(count for *_, count in timings)}  # fmt: skip
    for (optimizer, weights), seconds in sorted(updates.items()):
        yield {"optimizer": optimizer, "weights": weights, "seconds": statistics.median(seconds)}


def _scaled(ranks: Sequence[Mapping[str, Any]]) -> dict[str, tuple[float, float, float, int]]:
    """Row -> seconds forward and backward, their spread, and how many timings these are of.

    The ranks are those that have the same rows.
    """
    pairs = {row: [pair for rank in ranks for pair in rank["rows"][row]]
             for row in ranks[0]["rows"]}  # fmt: skip
    medians = {row: [statistics.median(pair[way] for pair in row_pairs) for way in (0, 1)]
               for row, row_pairs in pairs.items()}  # fmt: skip
    times = ranks[0]["times"]
    alone = sum(seconds * n for row, row_pairs in medians.items()
                for seconds, n in zip(row_pairs, times[row], strict=True))  # fmt: skip
    together = []
    for step in zip(*(rank["stretches"] for rank in ranks), strict=True):
        stretches = {
            rank["rank"]: [Stretch(seconds, tuple(members)) for seconds, members in of_rank]
            for rank, of_rank in zip(ranks, step, strict=True)
        }
        together.append(max(in_step(stretches).values()))
    scale = statistics.median(together) / max(alone, 1e-12)
    scaled = {}
    for row, (forward, backward) in medians.items():
        sums = [f + b for f, b in pairs[row]]
        spread = statistics.pstdev(sums) / max(statistics.mean(sums), 1e-12)
        scaled[row] = forward * scale, backward * scale, spread, len(sums)
    return scaled


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Time the rows of all plans that are not finished; called on each rank."""
    from oracle.executor.measure.row_steps import RowSteps

    for before in rank.records.finished.values():
        if "environment" in before:
            same_machine(rank, before["environment"])
    for number, entry in enumerate(arguments["jobs"]):
        job, question = PlanRun(**entry), arguments["asked"][number]
        key = f"{digest(question)} {job.plan}"
        if rank.finished(key):
            continue
        if not rank.go_on():
            return
        rank.say(f"{number + 1}/{len(arguments['jobs'])} compute of {job.plan}, batch {job.batch}")
        steps = RowSteps(rank, job, arguments["rate"])
        for step in range(1 - job.warm_up, job.steps + 1):
            steps.step(step)
        steps.record(key, question=question)
