"""Types of numbers and arrays, over which everything here is worked out at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Number: TypeAlias = float | Floats
# seconds by what they are spent on: bandwidth, metadata, latency, memory, network, decode
Terms: TypeAlias = Mapping[str, Number]


def longest(terms: Terms) -> Floats:
    """Seconds of what goes on at once."""
    seconds: Floats = np.maximum.reduce(np.broadcast_arrays(*map(np.asarray, terms.values())))
    return seconds
