"""Offers of a system, stored in a file for the processes that ask again.

Counting the flows of many thousand devices takes longer than all the rest of a question. A file
holds the offers to groups of one system; its name says what the system is and which code counted,
so that a file of another system or of older code is never read. Files may be deleted at any time.
`ORACLE_COUNTS` names a folder for them, or says `off`.
"""

from __future__ import annotations

import atexit
import json
import os
from contextlib import suppress
from dataclasses import astuple
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from oracle.network.contention.line import CostLine, Offer
from oracle.spec.document import SpecError
from oracle.spec.files import cache_folder, read_json, write
from oracle.spec.system import System

WORTH_STORING = 512  # devices from which counting takes longer than reading a file
FILES, ENTRIES = 64, 50_000  # at most
LARGEST = 2**26  # bytes of a file that is read


class OfferStore:
    """Offers of one system by question: those of its file, and new ones."""

    def __init__(self, place: Path | None) -> None:
        self.place, self.new = place, False
        self.offers: dict[str, Offer] = _read(place) if place else {}

    def get(self, question: str) -> Offer | None:
        return self.offers.get(question)

    def add(self, question: str, offer: Offer) -> None:
        if self.place is None or len(self.offers) >= ENTRIES:
            return
        if not self.new:
            self.new = True
            atexit.register(self.save)
        self.offers[question] = offer

    def save(self) -> None:
        """Write the file anew, with what other processes have added, where that can be."""
        if self.place is None:
            return
        offers = {**_read(self.place), **self.offers}
        text = json.dumps({question: list(map(astuple, offer))
                           for question, offer in offers.items()})  # fmt: skip
        with suppress(OSError):
            self.place.parent.mkdir(parents=True, exist_ok=True)
            write(self.place, text.encode())
            files = sorted(self.place.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for file in files[:-FILES]:
                file.unlink()


def store_of(system: System) -> OfferStore:
    """Return a system's store; one without a file for seats in a job and for joined networks."""
    folder, code = folder_of(), code_digest()
    partial = system.seats is not None or system.whole is not None or system.regions
    if folder is None or not code or partial:
        return OfferStore(None)
    content = f"{code} {system!r} {system.calibrated_on!r}"
    return OfferStore(folder / f"{sha256(content.encode()).hexdigest()[:32]}.json")


def folder_of() -> Path | None:
    """Return the folder for files; None where they are switched off."""
    setting = os.environ.get("ORACLE_COUNTS", "")
    if setting == "off":
        return None
    return Path(setting) if setting else cache_folder()


@cache
def code_digest() -> str:
    """Return what tells the code that counts from any other; empty where it is not in files."""
    package = Path(__file__).parents[2]
    with suppress(OSError):
        code = [*sorted((package / "network").rglob("*.py")), package / "spec" / "doubt.py"]
        stamps = [(str(file.relative_to(package)), *_stamp(file)) for file in code]
        return sha256(repr(stamps).encode()).hexdigest()
    return ""


def _stamp(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_size, status.st_mtime_ns


def _read(place: Path) -> dict[str, Offer]:
    """The offers of a file; none of one that is not there, or that is not as this writes them."""
    try:
        content = read_json(place, "cache", LARGEST, links=False)
        return {question: Offer(map(_line, lines)) for question, lines in content.items()}
    except (SpecError, AttributeError, TypeError, ValueError):
        return {}


def _line(values: list[Any]) -> CostLine:
    """A line of the values of a file; a TypeError of any others."""
    line = CostLine(*(tuple(value) if isinstance(value, list) else value for value in values))  # type: ignore[arg-type]
    words = (line.algorithm, line.origin, *line.full)
    numbers = (line.start, line.per_byte, line.phi, line.uncertainty, line.short, *line.sizes)
    sound = all(isinstance(word, str) for word in words) and isinstance(line.outside, bool)
    if not sound or not all(type(number) in (int, float) for number in numbers):
        raise TypeError(f"{values} are no line")
    return line
