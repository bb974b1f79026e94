"""Result files: one append-only JSON-lines file a rank, merged atomically."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from oracle.spec import strict_json
from oracle.spec.document import refusal
from oracle.spec.files import read_lines, write

Record = dict[str, Any]
ODD = 1000  # lines of a file that are passed over, at most


class Records:
    """One rank's finished samples, on disk as soon as each is finished.

    A line is one `write`, so a kill leaves whole lines and at most one torn tail, which is cut
    off when the file is opened again.
    """

    def __init__(self, path: Path) -> None:
        self.finished = {record["key"]: record for record in lines(path) if "key" in record}
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.ftruncate(self._file, sum(map(len, _complete_lines(path))))

    def append(self, record: Mapping[str, Any]) -> None:
        line = json.dumps(record, allow_nan=False, sort_keys=True) + "\n"
        os.write(self._file, line.encode())
        self.finished[record["key"]] = dict(record)

    def close(self) -> None:
        os.fsync(self._file)
        os.close(self._file)


def lines(path: Path) -> Iterator[Record]:
    """The complete records of a file, without a torn last line and a few lines that are none."""
    if not path.is_file():
        return
    odd = 0
    for line in _complete_lines(path):
        try:
            record = strict_json.loads(line.decode())
        except ValueError:
            record = None
        if isinstance(record, dict):
            yield record
            continue
        odd += 1
        if odd > ODD:
            raise refusal(str(path), f"more than {ODD} lines are no results", "delete the file")


def _complete_lines(path: Path) -> Iterator[bytes]:
    return (line for line in read_lines(path, "file of results") if line.endswith(b"\n"))


def of_all_ranks(folder: Path, size: int) -> dict[str, list[Record]]:
    """Records of all ranks by key, of the samples that every rank finished."""
    ranks = [
        {record["key"]: record for record in lines(folder / f"rank-{rank:05d}.jsonl")}
        for rank in range(size)
    ]
    return {
        key: [finished[key] for finished in ranks]
        for key in ranks[0]
        if all(key in finished for finished in ranks)
    }


def write_lines(path: Path, records: Iterable[Mapping[str, Any]]) -> None:
    """Write JSON lines atomically: the old file stays whole until the new one is."""
    text = "".join(json.dumps(r, allow_nan=False, sort_keys=True) + "\n" for r in records)
    write_whole(path, text)


def write_whole(path: Path, text: str) -> None:
    """Replace a file in one step: temporary file, fsync, rename, fsync of the folder."""
    write(path.absolute(), text.encode())
