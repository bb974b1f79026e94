"""Seconds of evaluations during a training: forward passes over samples of their own.

T = ⌊e/every⌋ ⌈V/B⌉ T_forward          once at least, of e epochs
"""

from __future__ import annotations

import math

from oracle.predict.estimate import Estimate


def evaluated(predicted: Estimate, row: int, epochs: float | None) -> float | None:
    """Return the seconds of all evaluations in the epochs; None where the data set has none.

    A forward pass takes as long as in a step, with its share of a pipeline's bubble and without
    waiting for messages.
    """
    data = predicted.model.dataset
    if data is None or data.evaluation is None or not epochs:
        return None
    evaluation, parts = data.evaluation, {k: float(v[row]) for k, v in predicted.compute.items()}
    passes = parts["forward"] + parts["backward"] + parts["recompute"]
    forward = parts["forward"] * (1 + parts["bubble"] / max(passes, 1e-30))
    times = max(1, math.floor(epochs / evaluation.every + 1e-9))
    return times * math.ceil(evaluation.samples / float(predicted.batch[row])) * forward
