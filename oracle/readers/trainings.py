"""CSV of whole trainings: a batch a row, and how long it took until a target was met.

    batch, epochs | samples | steps [, optimizer] [, target] [, met]

Other columns (a seed, a rate, who ran it) are passed over, and said.
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
MOST = 1e18


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
    """The runs of a file, and the columns that nobody read."""

    runs: tuple[Run, ...]
    unread: tuple[str, ...]


def read(path: str | Path) -> Trainings:
    """The runs of a file; a SpecError with every fault of it."""
    return parse(read_text(path, "table of trainings", LOG), Path(path).name)


def parse(text: str, name: str = "runs.csv") -> Trainings:
    """The runs in CSV text."""
    names, rows = csv_of(text, name)
    columns = [column.strip().lower() for column in names]
    faults = [Fault("E130", what, Place(1, 1), hint) for what, hint in _columns(columns)]
    runs: list[Run] = []
    for line, row in rows if not faults else ():
        cells = {key.strip().lower(): value.strip() for key, value in row.items()}
        wrong = list(_wrong(cells))
        faults += [Fault("E130", what, Place(line, 1), hint) for what, hint in wrong]
        if not wrong and any(cells.values()):
            runs.append(_run(cells))
    if not faults and not runs:
        faults.append(Fault("E130", "no run", Place(1, 1), "a row for each training"))
    if faults:
        raise SpecError(name, faults, text)
    unread = [each for each in columns if each not in ("batch", *LENGTHS, *WORDS)]
    return Trainings(tuple(runs), tuple(unread))


def _columns(columns: list[str]) -> Iterator[tuple[str, str]]:
    """What is wrong with the header, and what to write."""
    if "batch" not in columns:
        yield "no column `batch`", "the first line names the columns: batch,epochs"
    if not set(LENGTHS) & set(columns):
        yield "no column says how long a run took", "epochs, samples or steps"
    for each in dict.fromkeys(columns):
        if columns.count(each) > 1:
            yield f"the column `{each[:40]}` stands there twice", "one of them"


def _wrong(cells: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """What is wrong with a row, and what to write."""
    if not any(cells.values()):
        return
    batch = _number(cells.get("batch", ""))
    if not (1 <= batch < 2**53 and batch == int(batch)):
        yield f"a batch of `{cells.get('batch', '')[:20]}`", "a whole number from 1 on"
    said = [each for each in LENGTHS if cells.get(each)]
    if len(said) != 1:
        what = f"{' and '.join(said)} of one run" if said else "nothing says how long it took"
        yield what, "one of epochs, samples, steps"
    for each in said:
        if not 0 < _number(cells[each]) < MOST:
            yield f"{each} of `{cells[each][:20]}`", "a number above zero"
    if cells.get("met", "").lower() not in MET:
        yield f"`{cells['met'][:20]}` under `met`", "yes or no"


def _number(text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        return -1.0
    return found if math.isfinite(found) else -1.0


def _run(cells: Mapping[str, str]) -> Run:
    batch, unit = int(float(cells["batch"])), next(each for each in LENGTHS if cells.get(each))
    length = float(cells[unit]) * (batch if unit == "steps" else 1)
    words = (cells.get("optimizer", ""), cells.get("target", ""))
    return Run(batch, length, "epochs" if unit == "epochs" else "samples", *words,
               MET[cells.get("met", "").lower()])  # fmt: skip
