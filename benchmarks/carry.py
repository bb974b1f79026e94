"""Write the small tables of `benchmarks/data` from a folder of published measurements.

    python -m benchmarks.carry DIR

Of each table in DIR/published the rows that become a case of `benchmarks.published`, with the
columns that are read to make it; of those in DIR/runs every row, without remarks. The same tables
give the same files, and what was written gives itself again.
"""

from __future__ import annotations

import argparse
import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path

from benchmarks.published import CARRIED, RUNS, TABLES, Row, rows
from benchmarks.trainings.time_to_train import entry

# tables that no case is made of, and the columns that are read of them
WHOLE = {"epochs_vs_batch.csv": ["round", "benchmark", "global_batch", "optimizer", "n_runs",
                                 "epochs_mean", "epochs_min", "epochs_max", "source"]}  # fmt: skip
# of a table, the rows that are read and their columns, under another name
PARTS = {"time_to_train.csv": ("cnn_data_parallel.csv", entry, [
    "gpu", "gpus", "system", "global_batch", "optimizer", "framework",
    "epochs_to_target", "ttt_min", "source"])}  # fmt: skip

REMARKS = {"notes"}  # columns of a run that no program reads


class Watched(dict[str, str]):
    """A row that keeps a list of the columns somebody read."""

    def __init__(self, row: Row) -> None:
        super().__init__(row)
        self.read: set[str] = set()

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)

    def get(self, key: str, default: str = "") -> str:  # type: ignore[override]
        """The cell, noted as read."""
        self.read.add(key)
        return super().get(key, default)


def carried(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of every small table that the tables of a folder give."""
    for pattern in dict.fromkeys(table.file for table in TABLES.values()):
        for path in sorted(folder.glob(pattern)):
            if text := small(pattern, rows(path)):
                yield path.name, text
    for name, columns in WHOLE.items():
        if (folder / name).is_file():
            yield name, written(rows(folder / name), columns)
    for name, (whole, kept, columns) in PARTS.items():  # of what was carried: the part itself
        path = next(path for path in (folder / name, folder / whole) if path.is_file())
        yield name, written([row for row in rows(path) if kept(row)], columns)


def runs(folder: Path) -> Iterator[tuple[str, str]]:
    """(name, text) of what whole trainings took."""
    for path in sorted(folder.glob("*.csv")):
        found = rows(path)
        yield path.name, written(found, [key for key in found[0] if key not in REMARKS])


def small(pattern: str, found: list[Row]) -> str:
    """What is read of one file, with its source in line one where it has but one; or nothing."""
    readers = [table.cases for table in TABLES.values() if table.file == pattern]
    kept, read = [], {"source"}
    for row in found:
        watched = Watched(row)
        if [case for cases in readers for case in cases([watched])]:
            kept.append(row)
            read |= watched.read
    if not kept:
        return ""
    return written(kept, [key for key in kept[0] if key in read])


def written(kept: list[Row], columns: list[str]) -> str:
    """These columns as CSV, with the source of each row, or in line one where it is one for all."""
    sources = {row.get("source", "") for row in kept}
    out = io.StringIO()
    if len(sources) == 1:
        out.write("".join(f"# {source}\n" for source in sources if source))
        columns = [key for key in columns if key != "source"]
    table = csv.DictWriter(out, columns, extrasaction="ignore", lineterminator="\n")
    table.writeheader()
    table.writerows(kept)
    return out.getvalue()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, metavar="DIR")
    folder = parser.parse_args().folder / "published"
    if not folder.is_dir():
        parser.error(f"no folder {folder}")
    both = ((CARRIED, carried(folder)), (RUNS, runs(folder.parent / "runs")))
    for into, tables in both:
        into.mkdir(exist_ok=True)
        for name, text in tables:
            (into / name).write_text(text, encoding="utf-8")
            print(f"{len(text):>8} bytes  {into.name}/{name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
