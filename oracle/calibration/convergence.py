"""Fits a model's `convergence:` to trainings: the law, its scatter, and its text in a spec."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.calibration.spec_block import plain, rounded
from oracle.readers.trainings import Run
from oracle.run.convergence import FEWEST, Law, fit, left_out
from oracle.spec.convergence import Convergence
from oracle.spec.document import refusal


@dataclass(frozen=True)
class Fitted:
    """The law of one optimizer's runs to one target, and how far it can be trusted."""

    entry: Convergence
    law: Law
    runs: int
    batches: int
    among: float | None  # relative 1σ of runs of one batch; None: no batch ran twice
    left: tuple[tuple[float, float], ...]  # (batch, its error by a fit to the others)
    missed: tuple[tuple[int, int], ...]  # (batch, runs) that did not meet the target

    def to_dict(self) -> dict[str, Any]:
        entry = self.entry
        return {
            "optimizer": entry.optimizer, "target": entry.target, "epochs": entry.epochs,
            "samples": entry.samples, "critical_batch": entry.critical_batch,
            "smallest": entry.smallest, "largest": entry.largest, "scatter": entry.scatter,
            "runs": self.runs, "batches": self.batches, "among": self.among,
            "left_out": [{"batch": batch, "error": error} for batch, error in self.left],
            "missed": [{"batch": batch, "runs": runs} for batch, runs in self.missed],
        }  # fmt: skip


def fitted(
    runs: Iterable[Run], source: str, optimizer: str = "", target: str = "",
    samples: float | None = None,
) -> list[Fitted]:  # fmt: skip
    """A law for each optimizer and target of some runs.

    `optimizer` and `target` apply to runs that state none; `samples` of an epoch are needed where
    some runs are in epochs and others are not.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        names = run.optimizer or optimizer, run.target or target
        groups.setdefault(names, []).append(run)
    for name, goal in groups:
        if not name or not goal:
            lacking = "the optimizer" if not name else "the target"
            hint = f"a column, or --{lacking.split()[1]}"
            raise refusal("calibrate", f"nobody says {lacking} of these runs", hint, "E103")
    return [_fitted(group, *names, source, samples) for names, group in groups.items()]


def _fitted(
    runs: Sequence[Run], optimizer: str, target: str, source: str, samples: float | None
) -> Fitted:
    """Fit the law through the mean of each batch; single runs add to its scatter."""
    runs, unit = _in_one_unit(runs, samples)
    met = [run for run in runs if run.met]
    if not met:
        problem = f"no run of {optimizer} met {target}"
        raise refusal("calibrate", problem, "a law needs runs that did", "E130")
    lengths: dict[int, list[float]] = {}
    for run in met:
        lengths.setdefault(run.batch, []).append(math.log(run.length))
    batches = sorted(lengths)
    means = [math.exp(float(np.mean(lengths[batch]))) for batch in batches]
    law, among = fit(batches, means), _among(lengths.values())
    missed = {run.batch: 0 for run in runs if not run.met}
    for run in runs:
        missed[run.batch] = missed.get(run.batch, 0) + (not run.met)
    scatter = float(np.hypot(law.scatter, among or 0.0))
    if len(batches) < FEWEST and among is None:
        scatter = max(scatter, 0.42)  # a single batch, or two, tell no scatter: a factor of 2
    entry = Convergence(
        optimizer, target, source,
        epochs=rounded(law.epochs, 4) if unit == "epochs" else None,
        samples=rounded(law.epochs, 4) if unit == "samples" else None,
        critical_batch=None if math.isinf(law.critical) else rounded(law.critical, 4),
        smallest=min(batches), largest=max(batches), scatter=rounded(scatter, 3), origin="fitted",
    )  # fmt: skip
    left = tuple(left_out(batches, means)) if len(batches) > FEWEST else ()
    return Fitted(entry, law, len(met), len(batches), among, left,
                  tuple(sorted((b, n) for b, n in missed.items() if n)))  # fmt: skip


def _in_one_unit(runs: Sequence[Run], samples: float | None) -> tuple[list[Run], str]:
    """Runs in one unit: epochs if any are, else samples."""
    units = {run.unit for run in runs}
    if units == {"samples"} and samples is None:
        return list(runs), "samples"
    if units == {"epochs"}:
        return list(runs), "epochs"
    if samples is None:
        problem = "some runs are in epochs, others in samples or steps"
        raise refusal(
            "calibrate", problem, "--dataset, or --onto MODEL: how many an epoch has", "E103"
        )
    return [
        run if run.unit == "epochs" else replace(run, length=run.length / samples, unit="epochs")
        for run in runs
    ], "epochs"


def _among(lengths: Iterable[Sequence[float]]) -> float | None:
    """Relative 1σ of single runs about their batch's mean, all batches together."""
    repeated = [np.asarray(logs) for logs in lengths if len(logs) > 1]
    if not repeated:
        return None
    squares = sum(float(np.sum((logs - logs.mean()) ** 2)) for logs in repeated)
    return math.sqrt(squares / sum(len(logs) - 1 for logs in repeated))


def text(result: Fitted) -> str:
    """What was fitted, to how much, and how far it can be trusted."""
    entry, unit = result.entry, "epochs" if result.entry.epochs is not None else "samples"
    fewest = entry.epochs if entry.epochs is not None else entry.samples
    critical = "no dependence on the batch" if entry.critical_batch is None else (
        f"critical batch {entry.critical_batch:,.6g}")  # fmt: skip
    among = "no batch ran twice" if result.among is None else f"{result.among:.1%} of one batch's"
    lines = [
        f"{entry.optimizer} to {entry.target}: {fewest:,.6g} {unit} of a small batch, {critical}",
        f"  fitted to {result.runs} runs, {result.batches} batches from {entry.smallest:,} to "
        f"{entry.largest:,}",
        f"  scatter {entry.scatter:.1%}: {result.law.scatter:.1%} about the law, {among}",
    ]
    if result.left:
        off = float(np.mean([abs(error) for _, error in result.left]))
        last = result.left[-1][1]
        lines.append(f"  each batch as the others predict it: {off:.1%} off, "
                     f"the largest {last:+.1%}")  # fmt: skip
    if result.missed:
        misses = ", ".join(f"{batch:,} ({runs})" for batch, runs in result.missed)
        lines.append(f"  did not meet it, and were left out: {misses}")
    return "\n".join(lines)


def block(entries: Sequence[Convergence]) -> str:
    """The `convergence:` block of a model spec."""
    lines = ["convergence:"]
    for entry in entries:
        lines += [f"  - optimizer: {_quoted(entry.optimizer)}",
                  f"    target: {_quoted(entry.target)}"]  # fmt: skip
        for name in ("epochs", "samples", "critical_batch"):
            value = getattr(entry, name)
            lines += [] if value is None else [f"    {name}: {value:.10g}"]
        lines += [f"    smallest: {entry.smallest}", f"    largest: {entry.largest}",
                  f"    scatter: {entry.scatter:g}", f"    origin: {entry.origin}",
                  f"    source: {_quoted(entry.source)}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _quoted(words: str) -> str:
    return json.dumps(plain(words), ensure_ascii=False)


def merged(old: Iterable[Convergence], new: Sequence[Convergence]) -> list[Convergence]:
    """The entries of a model with new ones in place of those of their optimizer and target."""
    fresh = {(entry.optimizer, entry.target) for entry in new}
    return [*new, *(entry for entry in old if (entry.optimizer, entry.target) not in fresh)]
