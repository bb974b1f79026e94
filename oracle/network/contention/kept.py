"""What was counted of a system, kept in a file for the processes that ask again.

Counting the flows of many thousand devices takes longer than all the rest of a question. A file
holds what the groups of one system came to; its name says what the system is and which code
counted, so that a file of another system or of older code is never read. Files may be deleted at
any time. `ORACLE_COUNTS` names a folder for them, or says `off`.
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

FROM = 512  # devices from which counting takes longer than reading a file
FILES, ENTRIES = 64, 50_000  # that are kept, at most
LARGEST = 2**26  # bytes of a file that is read


class Kept:
    """Offers of one system by what was asked, those of its file and new ones."""

    def __init__(self, place: Path | None) -> None:
        self.place, self.new = place, False
        self.offers: dict[str, Offer] = _read(place) if place else {}

    def get(self, asked: str) -> Offer | None:
        return self.offers.get(asked)

    def put(self, asked: str, offer: Offer) -> None:
        if self.place is None or len(self.offers) >= ENTRIES:
            return
        if not self.new:
            self.new = True
            atexit.register(self.save)
        self.offers[asked] = offer

    def save(self) -> None:
        """Write the file anew, with what other processes have added, where that can be."""
        if self.place is None:
            return
        offers = {**_read(self.place), **self.offers}
        text = json.dumps({asked: list(map(astuple, offer)) for asked, offer in offers.items()})
        with suppress(OSError):
            self.place.parent.mkdir(parents=True, exist_ok=True)
            write(self.place, text.encode())
            others = sorted(self.place.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
            for file in others[:-FILES]:
                file.unlink()


def kept_of(system: System) -> Kept:
    """What is kept of a system; of places in a job, and of joined networks, nothing is."""
    folder, code = folder_of(), code_digest()
    apart = system.seats is not None or system.whole is not None or system.regions
    if folder is None or not code or apart:
        return Kept(None)
    content = f"{code} {system!r} {system.calibrated_on!r}"
    return Kept(folder / f"{sha256(content.encode()).hexdigest()[:32]}.json")


def folder_of() -> Path | None:
    """The folder for files; none where they are switched off."""
    said = os.environ.get("ORACLE_COUNTS", "")
    if said == "off":
        return None
    return Path(said) if said else cache_folder()


@cache
def code_digest() -> str:
    """What tells the code that counts from any other; nothing where that is not in files."""
    package = Path(__file__).parents[2]
    with suppress(OSError):
        code = [*sorted((package / "network").rglob("*.py")), package / "spec" / "doubt.py"]
        stamps = [(str(file.relative_to(package)), *_stamp(file)) for file in code]
        return sha256(repr(stamps).encode()).hexdigest()
    return ""


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _read(place: Path) -> dict[str, Offer]:
    """The offers of a file; none of one that is not there, or that is not as this writes them."""
    try:
        found = read_json(place, "cache", LARGEST, links=False)
        return {asked: Offer(map(_line, lines)) for asked, lines in found.items()}
    except (SpecError, AttributeError, TypeError, ValueError):
        return {}


def _line(values: list[Any]) -> CostLine:
    """A line of the values of a file; a TypeError of any others."""
    line = CostLine(*(tuple(each) if isinstance(each, list) else each for each in values))  # type: ignore[arg-type]
    words = (line.algorithm, line.origin, *line.full)
    numbers = (line.start, line.per_byte, line.phi, line.uncertainty, line.short, *line.sizes)
    sound = all(isinstance(word, str) for word in words) and isinstance(line.outside, bool)
    if not sound or not all(type(number) in (int, float) for number in numbers):
        raise TypeError(f"{values} are no line")
    return line
