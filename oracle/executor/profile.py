"""Seconds of each row of a model at its local shape, measured on the devices of a plan.

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

from oracle.executor import records
from oracle.executor.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.question import digest, same
from oracle.executor.run import enough, refuse
from oracle.executor.timed_steps import environment, same_machine
from oracle.executor.world import recognise
from oracle.kernels.profile import signature
from oracle.kernels.profile.file import MARK
from oracle.spec.precision import PRECISIONS

if TYPE_CHECKING:
    from oracle.executor.rank import Rank


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
    wanted = [jobs] if isinstance(jobs, PlanRun) else list(jobs)
    refuse(wanted)
    parts = out.with_name(out.name + ".parts")
    world = recognise(os.environ) if ranks is None else None
    size = ranks or (world.size if world else 1)
    asked = [job.question(size, backend) | {"rate": rate} for job in wanted]
    same(parts, asked)
    enough(wanted, size)
    arguments = {"jobs": [asdict(job) for job in wanted], "rate": rate, "asked": asked}
    outcome = launch(
        "oracle.executor.profile:task", arguments, parts,
        ranks=ranks, timeout=timeout, say=say, host=host, backend=backend,
    )  # fmt: skip
    if outcome.leads:
        lines = [
            line for path in sorted(parts.glob("rank-*.jsonl")) for line in records.lines(path)
        ]
        head: dict[str, Any] = {MARK: 1, "complete": outcome.complete}
        if len(said := {job.precision for job in wanted}) == 1 and said <= set(PRECISIONS):
            head |= {"precision": said.pop()}
        head |= {"questions": asked}
        there = [one["environment"] for one in lines if "environment" in one]
        head |= {"environment": there[0]} if there else {}
        records.write_lines(out, [head, *_joined(lines)])
    return outcome


def _joined(lines: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Each row's median, scaled so that rows add up to what a step waits for.

    A pause hits one row of many, so medians of rows add up to less than a pass takes; and
    between two exchanges all wait for whoever is slowest.
    """
    parts: dict[tuple[str, str], list[Mapping[str, Any]]] = {}
    updates: dict[tuple[str, float], list[float]] = {}
    for line in lines:
        if line.get("rows"):
            parts.setdefault((line["key"], " ".join(sorted(line["rows"]))), []).append(line)
        if line.get("update"):
            updates.setdefault((line["optimizer"], line["weights"]), []).extend(line["update"])
    rows: dict[str, list[tuple[float, float, float]]] = {}
    for ranks in parts.values():
        alike = {row: [pair for rank in ranks for pair in rank["rows"][row]]
                 for row in ranks[0]["rows"]}  # fmt: skip
        medians = {
            row: tuple(statistics.median(pair[way] for pair in pairs) for way in (0, 1))
            for row, pairs in alike.items()
        }
        waited: list[dict[str, float]] = [{}, {}]
        for way, one in enumerate(waited):
            for run in _runs(ranks[0], way):
                scale = _waited(ranks, way, run) / max(sum(medians[row][way] for row in run), 1e-12)
                one |= {row: medians[row][way] * scale for row in run}
        for row in medians:
            both = [f + b for f, b in alike[row]]
            spread = statistics.pstdev(both) / max(statistics.mean(both), 1e-12)
            rows.setdefault(row, []).append((waited[0][row], waited[1][row], spread))
    for row, found in sorted(rows.items()):
        forward, backward, spread = (
            statistics.median(column) for column in zip(*found, strict=True)
        )
        yield {"row": row, "forward": forward, "backward": backward, "spread": spread,
               "samples": len(found)}  # fmt: skip
    for (optimizer, weights), seconds in sorted(updates.items()):
        yield {"optimizer": optimizer, "weights": weights, "seconds": statistics.median(seconds)}


def _runs(rank: Mapping[str, Any], way: int) -> Iterator[list[str]]:
    """Runs of rows between two messages, forward (0) or backward (1)."""
    rows = list(rank["rows"])
    run: list[str] = []
    for row in reversed(rows) if way else rows:
        run.append(row)
        if row in rank["joins"][way]:
            yield run
            run = []
    if run:
        yield run


def _waited(ranks: Sequence[Mapping[str, Any]], way: int, run: Sequence[str]) -> float:
    """Median over the steps of the slowest device's time for these rows together."""
    steps = min(len(pairs) for rank in ranks for pairs in rank["rows"].values())
    totals: list[float] = [
        max(sum(rank["rows"][row][step][way] for row in run) for rank in ranks)
        for step in range(steps)
    ]
    return statistics.median(totals)


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Time the rows of all plans that are not finished; called on each rank."""
    import torch
    import torch.distributed as dist

    from oracle.executor.batch import inputs
    from oracle.executor.clock import timer_of
    from oracle.executor.cuts import shard_of
    from oracle.executor.graph import graph
    from oracle.executor.local_model import LocalModel
    from oracle.executor.mesh import DeviceMesh
    from oracle.executor.mock import MockWire
    from oracle.executor.optimizer import Optimizer
    from oracle.executor.row_timer import RowTimer
    from oracle.executor.steps import Trainer
    from oracle.plan.plan import parse

    for before in rank.records.finished.values():
        if "environment" in before:
            same_machine(rank, before["environment"])
    for number, entry in enumerate(arguments["jobs"]):
        job, asked = PlanRun(**entry), arguments["asked"][number]
        key = f"{digest(asked)} {job.plan}"
        if rank.finished(key):
            continue
        if not rank.go_on():
            return
        rank.say(f"{number + 1}/{len(arguments['jobs'])} compute of {job.plan}, batch {job.batch}")
        layers, plan = graph(job.model), parse(job.plan, job.batch)
        dtype = getattr(torch, DTYPES[job.precision])
        wire = MockWire(DeviceMesh(plan, rank.rank, rank.size), timer_of(rank.device),
                        arguments["rate"])  # fmt: skip
        local = LocalModel(layers, plan, wire, dtype=dtype, device=rank.device, seed=job.seed,
                           edges=list(job.stages) or None, routing="even")  # fmt: skip
        shard = shard_of(layers.model, plan, dtype.itemsize)
        names = {op.row: signature(shard, op.row) for op in local.operations}
        found: dict[str, list[tuple[float, float]]] = {}
        joins: list[list[str]] = [[], []]
        updates = []
        if wire.mesh.taking_part:
            timer = RowTimer(wire)
            trainer = Trainer(local, Optimizer(job.optimizer, rate=1e-6), timer)
            x, target = inputs(layers, job.batch, job.seed, dtype)
        for step in range(1 - job.warm_up, job.steps + 1):
            rank.enter("measure" if step > 0 else "warm-up", f"compute of {job.plan}", max(step, 0))
            dist.barrier(group=rank.control)
            if not wire.mesh.taking_part:
                continue
            timer.reset()
            wire.timer.begin()
            trainer.step(x, target)
            wire.timer.settle()
            if step > 0:
                for row, pair in timer.rows().items():
                    found.setdefault(names[row], []).append(pair)
                joins = [sorted({names[row] for row in rows}) for rows in timer.joins]
                updates.append(wire.timer.seconds()["update"])
        held = sum(b.weights[b.own].numel() if b.here else b.shard.numel() for b in local.bundles)
        rank.record(
            key,
            rows=found,
            joins=joins,
            optimizer=job.optimizer,
            weights=held,
            update=updates,
            question=asked,
            environment=environment(rank),
        )
