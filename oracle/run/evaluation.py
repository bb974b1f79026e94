"""Seconds of evaluating a training on its way: forward passes over samples of their own.

T = ⌊e/every⌋ ⌈V/B⌉ T_forward          once at least, of e epochs
"""

from __future__ import annotations

import math

from oracle.predict.estimate import Estimate


def evaluated(shown: Estimate, row: int, epochs: float | None) -> float | None:
    """Seconds of all evaluations of so many epochs; None where nobody says how it is evaluated.

    A forward pass takes what it does in a step, its share of a pipeline's bubble with it; what it
    waits for messages is left out.
    """
    data = shown.model.dataset
    if data is None or data.evaluation is None or not epochs:
        return None
    said, parts = data.evaluation, {k: float(v[row]) for k, v in shown.compute.items()}
    passes = parts["forward"] + parts["backward"] + parts["recompute"]
    forward = parts["forward"] * (1 + parts["bubble"] / max(passes, 1e-30))
    times = max(1, math.floor(epochs / said.every + 1e-9))
    return times * math.ceil(said.samples / float(shown.batch[row])) * forward
