"""A data set: how many samples, and how large one is."""

from __future__ import annotations

from dataclasses import dataclass

from oracle.spec.schema import Count
from oracle.spec.units import Bytes


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set: how many samples, and how large one is."""

    name: str
    samples: Count
    source: str
    sample: tuple[Count, ...] = ()  # channels, then extents
    size: Bytes | None = None  # on disk, all of it
    files: Count | None = None
    title: str = ""
