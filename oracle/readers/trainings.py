"""CSV of complete trainings: a batch a row, and the length until a target was met.

    batch, epochs | samples | steps [, optimizer] [, target] [, met]

Other columns (a seed, a rate, who ran it) are not read, but named in the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.files import LOG, csv_of, read_text

LENGTHS = ("epochs", "samples", "steps")
WORDS = ("optimizer", "target", "met")
MET = {"": True, "yes": True, "true": True, "1": True, "no": False, "false": False, "0": False}
LONGEST = 1e18


@dataclass(frozen=True, slots=True)
class Run:
    """One training: its batch, its length as the file has it, and whether the target was met."""

    batch: int
    length: float
    unit: str  # epochs, or samples
    optimizer: str = ""
    target: str = ""
    met: bool = True


@dataclass(frozen=True, slots=True)
class Trainings:
    """The runs of a file, and the columns that were not read."""

    runs: tuple[Run, ...]
    unread: tuple[str, ...]


def read(path: str | Path) -> Trainings:
    """Return the runs of a file; raise a SpecError with every fault of it."""
    return parse(read_text(path, "table of trainings", LOG), Path(path).name)


def parse(text: str, name: str = "runs.csv") -> Trainings:
    """Return the runs of CSV text."""
    names, rows = csv_of(text, name)
    columns = [column.strip().lower() for column in names]
    faults = [Fault("E130", complaint, Place(1, 1), hint) for complaint, hint in _columns(columns)]
    runs: list[Run] = []
    for line, row in rows if not faults else ():
        cells = {key.strip().lower(): value.strip() for key, value in row.items()}
        wrong = list(_wrong(cells))
        faults += [Fault("E130", complaint, Place(line, 1), hint) for complaint, hint in wrong]
        if not wrong and any(cells.values()):
            runs.append(_run(cells))
    if not faults and not runs:
        faults.append(Fault("E130", "no run", Place(1, 1), "a row for each training"))
    if faults:
        raise SpecError(name, faults, text)
    unread = [column for column in columns if column not in ("batch", *LENGTHS, *WORDS)]
    return Trainings(tuple(runs), tuple(unread))


def _columns(columns: list[str]) -> Iterator[tuple[str, str]]:
    """Yield each fault of the header, with a hint."""
    if "batch" not in columns:
        yield "no column `batch`", "the first line names the columns: batch,epochs"
    if not set(LENGTHS) & set(columns):
        yield "no column says how long a run took", "epochs, samples or steps"
    for column in dict.fromkeys(columns):
        if columns.count(column) > 1:
            yield f"the column `{column[:40]}` stands there twice", "one of them"


def _wrong(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield each fault of a row, with a hint."""
    if not any(cells.values()):
        return
    batch = _number(cells.get("batch", ""))
    if not (1 <= batch < 2**53 and batch == int(batch)):
        yield f"a batch of `{cells.get('batch', '')[:20]}`", "a whole number from 1 on"
    lengths = [unit for unit in LENGTHS if cells.get(unit)]
    if len(lengths) != 1:
        complaint = (
            f"{' and '.join(lengths)} of one run" if lengths else "nothing says how long it took"
        )
        yield complaint, "one of epochs, samples, steps"
    for unit in lengths:
        if not 0 < _number(cells[unit]) < LONGEST:
            yield f"{unit} of `{cells[unit][:20]}`", "a number above zero"
    if cells.get("met", "").lower() not in MET:
        yield f"`{cells['met'][:20]}` under `met`", "yes or no"


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return -1.0
    return value if math.isfinite(value) else -1.0


def _run(cells: Mapping[str, str]) -> Run:
    batch, unit = (
        int(float(cells["batch"])),
        next(column for column in LENGTHS if cells.get(column)),
    )
    length = float(cells[unit]) * (batch if unit == "steps" else 1)
    words = (cells.get("optimizer", ""), cells.get("target", ""))
    return Run(batch, length, "epochs" if unit == "epochs" else "samples", *words,
               MET[cells.get("met", "").lower()])  # fmt: skip
