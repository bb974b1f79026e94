"""Types of numbers and arrays in this package."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]
ShortInts: TypeAlias = NDArray[np.int16]  # numbers of a short list
LinkNumbers: TypeAlias = NDArray[np.int32]  # of links
Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]
Number: TypeAlias = float | NDArray[np.floating[Any]]  # equations take either
