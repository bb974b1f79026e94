"""A folder that a sweep grows in: nothing finished is lost, nothing is counted twice.

Each process appends whole lines to a file of its own and touches no other: no lock, no index.
A line that a kill has torn ends without a line feed and is computed again. The result is put
together from all lines, by the number of the point, and written beside its place before it
takes it.

    DIR/sweep.json          the grid and what its specs held
    DIR/rows/*.jsonl        one file a process
    DIR/result.csv          when every point is there
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from oracle.ask.sweep.grid import Grid
from oracle.spec.document import refusal
from oracle.spec.files import LOG, read_lines, read_text, write
from oracle.spec.strict_json import loads

FORM, OTHER = 1, "another --out folder"
ODD = 1000  # lines of a file that are passed over, at most
SYNC = 1.0  # seconds between two requests to the disk; the kernel keeps a line once written


class Ledger:
    """The rows of one sweep, on disk."""

    def __init__(self, folder: str | os.PathLike[str], grid: Grid) -> None:
        from oracle.spec.version import __version__

        self.folder = Path(folder)
        self.rows = self.folder / "rows"
        self.rows.mkdir(parents=True, exist_ok=True)
        if self.rows.is_symlink():
            raise refusal(str(self.rows), "this leads out of the sweep's folder", OTHER)
        head = {"form": FORM, "oracle": __version__, "grid": grid.to_dict(),
                "specs": grid.fingerprint()}  # fmt: skip
        place = self.folder / "sweep.json"
        if place.exists() or place.is_symlink():
            self._same(place, head)
        else:
            write(place, json.dumps(head, indent=1).encode())
        self.grid = grid
        self.key = hashlib.sha256(json.dumps(head, sort_keys=True).encode()).hexdigest()[:16]
        self._file: int | None = None
        self._synced = 0.0

    def _same(self, place: Path, head: dict[str, Any]) -> None:
        text = read_text(place, "sweep's head", LOG, links=False)
        try:
            there = loads(text)
            flat = {**there["grid"], **there["specs"], "oracle": there["oracle"]}
        except (ValueError, TypeError, KeyError):
            raise refusal("sweep", f"{place} is not a sweep's", OTHER) from None
        wanted = {**head["grid"], **head["specs"], "oracle": head["oracle"]}
        if set(there["grid"]) != set(head["grid"]):  # whatever its version calls itself
            what = f"{self.folder} holds a sweep of another version, of other options"
            raise refusal("sweep", what, f"{OTHER} asks anew; `--rows {place.parent}/result.csv` "
                          "draws what is there")  # fmt: skip
        for name in (*wanted, *flat):
            if flat.get(name) != wanted.get(name):
                what = (f"{self.folder} holds another sweep: {name} is {_short(flat.get(name))} "
                        f"there, {_short(wanted.get(name))} here")  # fmt: skip
                raise refusal("sweep", what, OTHER)

    def append(self, number: int, row: dict[str, Any]) -> None:
        """Keep one row: a single write of a whole line, to a file nobody else writes to."""
        if self._file is None:
            name = f"{socket.gethostname()[:40]}-{os.getpid()}-{os.urandom(4).hex()}.jsonl"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            self._file = os.open(self.rows / name, flags, 0o644)
        text = json.dumps([number, row, self.key], separators=(",", ":"), allow_nan=False)
        line = text.encode() + b"\n"
        try:
            while line:  # a full disk or a signal may take only part of it
                line = line[os.write(self._file, line) :]
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.rows)) from None
        if time.monotonic() - self._synced > SYNC:
            self.sync()

    def sync(self) -> None:
        """Ask the disk to keep what was appended."""
        if self._file is not None:
            os.fsync(self._file)
            self._synced = time.monotonic()

    def close(self) -> None:
        """No more rows from this process."""
        if self._file is not None:
            self.sync()
            os.close(self._file)
            self._file = None

    def lines(self) -> Iterator[tuple[int, bytes]]:
        """(point, row as written) of every whole line of every process."""
        for place in sorted(self.rows.glob("*.jsonl")):
            odd = 0
            for line in read_lines(place, "file of rows", links=False):
                if not line.endswith(b"\n"):
                    continue  # torn by a kill; computed again
                try:
                    number, row, *key = loads(line.decode())
                    sound = 0 <= number < len(self.grid) and row["point"] == number
                except (ValueError, TypeError, KeyError):
                    sound = False
                if not sound:
                    odd += 1
                    if odd > ODD:
                        raise refusal(str(place), f"more than {ODD} lines are no rows", OTHER)
                    continue
                if key != [self.key] and (why := self._foreign(number, row, bool(key))):
                    raise refusal(
                        str(place), f"{place.name} has a row of another sweep: {why}", OTHER
                    )
                yield number, line

    def _foreign(self, number: int, row: Mapping[str, Any], signed: bool) -> str:
        """How a row differs from what is asked; one of before rows were signed may be ours."""
        for name, value in self.grid.point(number)._asdict().items():
            if name in row and row[name] != value:
                return f"{name} is {_short(row[name])} there, {_short(value)} here"
        return "its specs, options or version are others" if signed else ""

    def done(self) -> set[int]:
        """Points whose row is there."""
        return {number for number, _ in self.lines()}

    def merged(self) -> list[dict[str, Any]]:
        """The rows that are there, in the order of the grid, each once.

        Where two processes have answered one point their lines are the same; should two
        versions of a library have rounded differently, the lesser text stands.
        """
        best: dict[int, bytes] = {}
        for number, line in self.lines():
            if number not in best or line < best[number]:
                best[number] = line
        return [loads(best[number].decode())[1] for number in sorted(best)]


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "…"
