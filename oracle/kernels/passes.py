"""Seconds of the forward and backward pass of every row, priced or measured."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oracle.models.model import Floats


@dataclass(frozen=True, slots=True)
class Passes:
    """Per row and micro-batch: seconds of each pass, and how many kernels they are."""

    forward: Floats
    data: Floats  # gradient of the input
    weight: Floats  # gradient of the weights
    kernels: tuple[Floats, Floats]  # forward, backward
    # 2 at a shape that was measured, 1 scaled from others of the layer
    measured: NDArray[np.int8] | int = 0
    spread: Floats | float = 0.0  # relative 1σ of what was measured
    # bytes of convolutions' workspace, forward and backward; None where there is none of them
    workspace: tuple[Floats, Floats] | None = None
