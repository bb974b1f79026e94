"""`convergence:` of a model, fitted to a user's own trainings: the law, its scatter, its text."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.calibration.spec_block import plain
from oracle.readers.trainings import Run
from oracle.run.convergence import LEAST, Law, fit, left_out
from oracle.spec.convergence import Convergence
from oracle.spec.document import refusal


@dataclass(frozen=True)
class Fitted:
    """The law of one optimizer's runs to one target, and how far it can be trusted."""

    entry: Convergence
    law: Law
    runs: int
    batches: int
    among: float | None  # relative, 1σ, of runs of one batch; None: no batch ran twice
    left: tuple[tuple[float, float], ...]  # (batch, error) of each as the others predict it
    missed: tuple[tuple[int, int], ...]  # (batch, runs) that did not meet the target

    def to_dict(self) -> dict[str, Any]:
        one = self.entry
        return {
            "optimizer": one.optimizer, "target": one.target, "epochs": one.epochs,
            "samples": one.samples, "critical_batch": one.critical_batch,
            "smallest": one.smallest, "largest": one.largest, "scatter": one.scatter,
            "runs": self.runs, "batches": self.batches, "among": self.among,
            "left_out": [{"batch": batch, "error": error} for batch, error in self.left],
            "missed": [{"batch": batch, "runs": runs} for batch, runs in self.missed],
        }  # fmt: skip


def fitted(
    runs: Iterable[Run], source: str, optimizer: str = "", target: str = "",
    samples: float | None = None,
) -> list[Fitted]:  # fmt: skip
    """A law for each optimizer and target of some runs.

    `optimizer` and `target` are of runs that say none, `samples` of an epoch where some runs are
    in epochs and others are not.
    """
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        said = run.optimizer or optimizer, run.target or target
        groups.setdefault(said, []).append(run)
    for name, goal in groups:
        if not name or not goal:
            what = "the optimizer" if not name else "the target"
            hint = f"a column, or --{what.split()[1]}"
            raise refusal("calibrate", f"nobody says {what} of these runs", hint, "E103")
    return [_fitted(group, *said, source, samples) for said, group in groups.items()]


def _fitted(
    runs: Sequence[Run], optimizer: str, target: str, source: str, samples: float | None
) -> Fitted:
    """The law through the mean of each batch; what single runs add to its scatter."""
    runs, unit = _in_one_unit(runs, samples)
    met = [run for run in runs if run.met]
    if not met:
        what = f"no run of {optimizer} met {target}"
        raise refusal("calibrate", what, "a law needs runs that did", "E130")
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
    if len(batches) < LEAST and among is None:
        scatter = max(scatter, 0.42)  # a single batch, or two, tell no scatter: a factor of 2
    entry = Convergence(
        optimizer, target, source,
        epochs=_short(law.epochs) if unit == "epochs" else None,
        samples=_short(law.epochs) if unit == "samples" else None,
        critical_batch=None if math.isinf(law.critical) else _short(law.critical),
        smallest=min(batches), largest=max(batches), scatter=_short(scatter, 3), origin="fitted",
    )  # fmt: skip
    left = tuple(left_out(batches, means)) if len(batches) > LEAST else ()
    return Fitted(entry, law, len(met), len(batches), among, left,
                  tuple(sorted((b, n) for b, n in missed.items() if n)))  # fmt: skip


def _in_one_unit(runs: Sequence[Run], samples: float | None) -> tuple[list[Run], str]:
    """Runs in epochs, or all in samples where none is in epochs."""
    units = {run.unit for run in runs}
    if units == {"samples"} and samples is None:
        return list(runs), "samples"
    if units == {"epochs"}:
        return list(runs), "epochs"
    if samples is None:
        what = "some runs are in epochs, others in samples or steps"
        raise refusal(
            "calibrate", what, "--dataset, or --onto MODEL: how many an epoch has", "E103"
        )
    return [
        run if run.unit == "epochs" else replace(run, length=run.length / samples, unit="epochs")
        for run in runs
    ], "epochs"


def _among(lengths: Iterable[Sequence[float]]) -> float | None:
    """Relative 1σ of single runs about their batch's mean, all batches together."""
    again = [np.asarray(each) for each in lengths if len(each) > 1]
    if not again:
        return None
    squares = sum(float(np.sum((each - each.mean()) ** 2)) for each in again)
    return math.sqrt(squares / sum(len(each) - 1 for each in again))


def _short(value: float, digits: int = 4) -> float:
    return float(f"{value:.{digits}g}")


def text(found: Fitted) -> str:
    """What was fitted, to how much, and how far it can be trusted."""
    one, unit = found.entry, "epochs" if found.entry.epochs is not None else "samples"
    least = one.epochs if one.epochs is not None else one.samples
    critical = "no dependence on the batch" if one.critical_batch is None else (
        f"critical batch {one.critical_batch:,.6g}")  # fmt: skip
    again = "no batch ran twice" if found.among is None else f"{found.among:.1%} of one batch's"
    lines = [
        f"{one.optimizer} to {one.target}: {found.runs} runs, {found.batches} batches from "
        f"{one.smallest:,} to {one.largest:,}",
        f"  {least:,.6g} {unit} of a small batch, {critical}",
        f"  scatter {one.scatter:.1%}: {found.law.scatter:.1%} about the law, {again}",
    ]
    if found.left:
        off = float(np.mean([abs(error) for _, error in found.left]))
        last = found.left[-1][1]
        lines.append(f"  each batch as the others predict it: {off:.1%} off, "
                     f"the largest {last:+.1%}")  # fmt: skip
    if found.missed:
        each = ", ".join(f"{batch:,} ({runs})" for batch, runs in found.missed)
        lines.append(f"  did not meet it, and were left out: {each}")
    return "\n".join(lines)


def block(entries: Sequence[Convergence]) -> str:
    """The `convergence:` block of a model spec."""
    lines = ["convergence:"]
    for one in entries:
        lines += [f"  - optimizer: {_quoted(one.optimizer)}",
                  f"    target: {_quoted(one.target)}"]  # fmt: skip
        for name in ("epochs", "samples", "critical_batch"):
            value = getattr(one, name)
            lines += [] if value is None else [f"    {name}: {value:.10g}"]
        lines += [f"    smallest: {one.smallest}", f"    largest: {one.largest}",
                  f"    scatter: {one.scatter:g}", f"    origin: {one.origin}",
                  f"    source: {_quoted(one.source)}"]  # fmt: skip
    return "\n".join(lines) + "\n"


def _quoted(words: str) -> str:
    return json.dumps(plain(words), ensure_ascii=False)


def beside(old: Iterable[Convergence], new: Sequence[Convergence]) -> list[Convergence]:
    """Entries of a model with new ones in the place of those of their optimizer and target."""
    fresh = {(one.optimizer, one.target) for one in new}
    return [*new, *(one for one in old if (one.optimizer, one.target) not in fresh)]
