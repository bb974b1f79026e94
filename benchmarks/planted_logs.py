"""Timings of known cost: how near fits come to it, and how often their intervals hold it."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.calibration import fit
from oracle.calibration.pools import pooled
from oracle.readers.logs import Sample


def plant(seed: int, protocols: int) -> tuple[list[Sample], dict[str, float]]:
    """A ring allreduce of known cost, with 5 % noise and 5 % outliers (1.5 to 4 times slower)."""
    dice = np.random.default_rng(seed)
    base, latency = dice.uniform(5e-6, 20e-6), np.exp(dice.uniform(np.log(1e-6), np.log(1e-5)))
    bandwidth = np.exp(dice.uniform(np.log(5e9), np.log(200e9)))
    samples = []
    for ranks in (2, 4, 8, 16, 32):
        for size in 2.0 ** np.arange(10, 29):
            steps, wire = 2 * (ranks - 1), 2 * (ranks - 1) / ranks * size
            times = [base + steps * latency * 4**k + wire / (bandwidth * 3**k)
                     for k in range(protocols)]  # fmt: skip
            seconds = min(times) * np.exp(dice.normal(0, 0.05))
            seconds *= dice.uniform(1.5, 4) if dice.random() < 0.05 else 1.0
            samples.append(Sample("allreduce", float(size), float(seconds), ranks, 1, ranks))
    slope = 1 / (bandwidth * 3 ** (protocols - 1))
    return samples, {"latency": float(latency), "slope": float(slope), "base": float(base)}


def planted(seeds: int, protocols: int) -> dict[str, Any]:
    """How near the fits come to the truth, and how often their 90 % intervals hold it."""
    errors: dict[str, list[float]] = {"latency": [], "slope": [], "base": []}
    holds: dict[str, list[bool]] = {"latency": [], "slope": [], "base": []}
    right = 0
    for seed in range(seeds):
        samples, truth = plant(seed, protocols)
        pool = pooled("allreduce", "node", samples)
        found = pool.fitted()
        first = min(found.lines, key=lambda line: float(line.values[1]))
        last = min(found.lines, key=lambda line: float(line.values[2]))
        names = {pool.forms[line.form].algorithm for line in found.lines}
        right += names == {"ring"} and len(found.lines) == protocols and not found.factors
        for name, line, k in (("latency", first, 1), ("slope", last, 2), ("base", first, 0)):
            off = float(line.values[k]) - truth[name]
            errors[name].append(abs(off) / truth[name])
            holds[name].append(abs(off) <= fit.NORMAL90 * float(line.sigma[k]))
    return {
        "protocols": protocols,
        "seeds": seeds,
        "structure found": right / seeds,
        **{f"{name} error": float(np.median(errors[name])) for name in errors},
        **{f"{name} covered": float(np.mean(holds[name])) for name in holds},
    }
