"""What a case, a table and the software behind it are, and how cells are read."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from oracle.spec import catalogue

Row = dict[str, str]
CARRIED = Path(__file__).parents[1] / "data" / "published"
RUNS = CARRIED.parent / "runs"  # of whole trainings: hours, failures, power


@dataclass(frozen=True)
class Case:
    """One measured step: what was run, and what came out."""

    group: tuple[Any, ...]  # cases of equal work, to be ranked against each other
    model: Any  # a shipped name, or a spec
    system: Any
    plan: str
    batch: int
    measured: float  # seconds per iteration, or bytes; infinite where it ran out of memory
    options: dict[str, Any] = field(default_factory=dict)
    # or "memory", "allocated": tensors alone, or "first": what rank 0's allocator holds
    kind: str = "seconds"
    others: tuple[str, ...] = ()  # where the source leaves the plan open: the fastest that fits
    software: str = ""  # what ran it, by the name of its spec

    @property
    def ran(self) -> bool:
        """Whether it fitted into memory."""
        return math.isfinite(self.measured)


@dataclass(frozen=True)
class Table:
    """A published table: where it is, how to read it, what is to be reached, what peers reach."""

    name: str
    file: str  # a pattern: all files that match are read
    cases: Callable[[list[Row]], Iterator[Case]]
    goal: str
    peers: str = ""


TABLES: dict[str, Table] = {}
HALF_ADAM = {"precision": "fp16", "optimizer": "adam"}
BRAIN_ADAM = {"precision": "bf16", "optimizer": "adam"}
EIGHT_ADAM = {"precision": "fp8", "optimizer": "adam"}


def table(name: str, file: str, goal: str, peers: str = "") -> Callable[[Any], Any]:
    """Register a table's reader under its name."""

    def add(cases: Any) -> Any:
        TABLES[name] = Table(name, file, cases, goal, peers)
        return cases

    return add


def rows(path: Path) -> list[Row]:
    """The rows of a CSV file as text; a comment in line one is the source of all of them."""
    with path.open(newline="", encoding="utf-8") as file:
        first = file.readline()
        if not first.startswith("#"):
            file.seek(0)
            return list(csv.DictReader(file))
        return [{**row, "source": first[1:].strip()} for row in csv.DictReader(file)]


def tables(reference: Path | None) -> Path:
    """The folder of tables below one that was named; else the small tables that come along."""
    return reference / "published" if reference else CARRIED


def number(row: Row, key: str, default: float = 0) -> int:
    """A whole number of a cell, or the default where the cell is empty."""
    text = (row.get(key) or "").strip()
    return round(float(text)) if text else round(default)


def written(name: str, kind: str = "models") -> dict[str, Any]:
    """A shipped spec as its file has it."""
    found: dict[str, Any] = yaml.safe_load(catalogue.find(name, kind).read_text(encoding="utf-8"))
    return found
