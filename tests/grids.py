"""Part of a grid of cases runs always, the rest among the tests marked `slow`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest


def rest_slow(cases: Sequence[Any], quick: Sequence[Any]) -> list[Any]:
    """Return the cases as parameters of one argument, those that are not `quick` marked `slow`."""
    return [pytest.param(case, marks=() if case in quick else pytest.mark.slow) for case in cases]
