"""Predictions held against measurements, part by part: accuracy as 1 − |p − m| / m."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from oracle.models.model import model as load_model
from oracle.predict.defaults import options_for, room_for
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.spec.catalogue import system as load_system
from oracle.spec.tabular import Tabular


@dataclass(frozen=True)
class Comparison(Tabular):
    """Measured plans beside what was predicted of them."""

    predicted: Estimate
    seconds: Any  # measured, (plans,)
    spread: Any  # relative standard deviation over steps
    parts: tuple[dict[str, float], ...]  # measured, by part
    memory: Any

    @property
    def accuracy(self) -> Any:
        return 1 - np.abs(self.predicted.seconds - self.seconds) / self.seconds

    @property
    def covered(self) -> Any:
        """Whether the 90 % interval holds the measurement."""
        low, high = self.predicted.seconds_low, self.predicted.seconds_high
        return (low <= self.seconds) & (self.seconds <= high)

    @property
    def tau(self) -> float:
        """Kendall's τ of the ranking; NaN for fewer than two plans."""
        if len(self.seconds) < 2:
            return float("nan")
        from scipy.stats import kendalltau

        return float(kendalltau(self.predicted.seconds, self.seconds).statistic)

    @property
    def regret(self) -> float:
        """How much slower than the measured best our pick was measured to be."""
        pick = int(np.argmin(self.predicted.seconds))
        return float(self.seconds[pick] / np.min(self.seconds) - 1)

    def to_dict(self) -> dict[str, Any]:
        tau = self.tau
        rows = [
            {"plan": plan, "batch": int(self.predicted.batch[i]),
             "predicted": float(self.predicted.seconds[i]), "measured": float(self.seconds[i]),
             "low": float(self.predicted.seconds_low[i]),
             "high": float(self.predicted.seconds_high[i]),
             "accuracy": float(self.accuracy[i]), "covered": bool(self.covered[i]),
             "spread": float(self.spread[i]), "parts": self.compared(i),
             "memory": {"predicted": float(self.predicted.memory[i]),
                        "measured": float(self.memory[i])}}
            for i, plan in enumerate(self.predicted.plans)
        ]  # fmt: skip
        return {
            "schema": 1, "model": self.predicted.model.name, "system": self.predicted.system.name,
            "accuracy": float(np.mean(self.accuracy)), "coverage": float(np.mean(self.covered)),
            "tau": None if np.isnan(tau) else tau, "regret": self.regret, "plans": rows,
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a plan."""
        found = self.to_dict()
        return [
            {"model": found["model"], "system": found["system"],
             **{name: value for name, value in row.items() if name not in ("parts", "memory")},
             "memory_predicted": row["memory"]["predicted"],
             "memory_measured": row["memory"]["measured"]}
            for row in found["plans"]
        ]  # fmt: skip

    def compared(self, row: int) -> dict[str, dict[str, float]]:
        """Each part predicted and measured, seconds."""
        ours = {part: float(values[row]) for part, values in self.predicted.compute.items()}
        ours["backward"] += ours.pop("recompute")
        for message in self.predicted.exchange[row]:
            ours[message["what"]] = ours.get(message["what"], 0.0) + message["exposed"]
        theirs = self.parts[row]
        return {
            name: {"predicted": ours.get(name, 0.0), "measured": theirs.get(name, 0.0)}
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) or theirs.get(name)
        }


def compare(files: Sequence[str | Path], model: Any, system: Any, **options: Any) -> Comparison:
    """Predict what the measurement files measured, and hold both side by side."""
    from oracle.executor.measured import read

    found = [one for path in files for one in read(Path(path))]
    first = found[0]
    given = {
        "precision": first.options.get("precision"),
        "optimizer": first.options.get("optimizer"),
        "software": "plain",  # the executor is no framework
    }
    options = {**given, **{key: value for key, value in options.items() if value is not None}}
    if options.get("precision") == "fp64":
        options["precision"] = "fp32"
    grow = bool(options.pop("grow", False))
    what, where = load_model(model, options.pop("dataset", None)), load_system(system)
    where = room_for(where, [one.plan for one in found], grow)
    predicted = predict(
        what, where, [one.plan for one in found], [one.batch for one in found],
        options_for(what, where, **options),
    )  # fmt: skip
    parts = tuple(
        {**one.compute, **{f"{said.what}": said.seconds for said in one.exchange}} for one in found
    )
    seconds, spread, memory = (
        np.array([getattr(one, name) for one in found]) for name in ("seconds", "spread", "memory")
    )
    return Comparison(predicted, seconds, spread, parts, memory)
