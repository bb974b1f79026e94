"""Estimates of one question, one under the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from oracle.predict.estimate import Estimate


def joined(parts: Sequence[Estimate]) -> Estimate:
    """All plans in one estimate; model, system and options are those of the first."""

    def column(values: list[Any]) -> Any:
        first = values[0]
        if isinstance(first, dict):
            return {key: column([one[key] for one in values]) for key in first}
        if isinstance(first, tuple):
            return tuple(item for one in values for item in one)
        return np.concatenate(values) if isinstance(first, np.ndarray) else first

    return replace(parts[0], **{each.name: column([getattr(one, each.name) for one in parts])
                                for each in fields(Estimate) if each.init})  # fmt: skip
