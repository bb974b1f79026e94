"""mdtest: operations a second on files, all tasks together; the mean of its iterations.

`File read` opens, reads the bytes of `-e` (by default none) and closes. Directories, trees and the
table of times are skipped.
"""

from __future__ import annotations

import re

from oracle.readers.logs import LogFault, Reading, lines_of, number, unprefixed
from oracle.readers.storage_samples import StorageSample, usable

TITLE = "mdtest"
NAMES = {"creation": "create", "stat": "stat", "read": "open", "removal": "remove"}

_LAUNCHED = re.compile(r"mdtest-(\S{1,40}) was launched with (\d{1,9}) total task\(s\) on (\d{1,9})"
                       r" node")  # fmt: skip
_TASKS = re.compile(r"(\d{1,9}) tasks, \d{1,18} files")
_ROW = re.compile(r"\s*File (creation|stat|read|removal)\s*:?((?:\s+[\d.]{1,30}){4,8})\s*$")
_BYTES = re.compile(r"'?-([ew])'?[ =]?'?(\d{1,15})\b")


def recognises(text: str) -> bool:
    """Return whether a text has the tool's first line, or its table of rates."""
    return "mdtest-" in text and ("was launched with" in text or "File stat" in text)


def parse(text: str, path: str) -> Reading:
    """Return a sample for each row of each table of rates."""
    samples: list[StorageSample] = []
    skipped: list[tuple[int, str]] = []
    tool, nodes, tasks, size, rates, ended = "mdtest", 0, 0, 0, False, False
    for line_number, raw in lines_of(text, skipped):
        line = unprefixed(raw)
        if launched := _LAUNCHED.search(line):
            tool, tasks, nodes = f"mdtest {launched[1]}", int(launched[2]), int(launched[3])
            ended = False
        elif line.startswith("Command line used"):
            size = max((int(match[2]) for match in _BYTES.finditer(line) if match[1] == "e"),
                       default=0)  # fmt: skip
        elif counted := _TASKS.match(line):
            tasks = int(counted[1])
        elif line.startswith("SUMMARY"):
            rates = not line.startswith("SUMMARY time")
        elif row := _ROW.match(line):
            cells = [number(cell) for cell in row[2].split()]
            if not rates:
                skipped.append((line_number, "of a table of times"))
                continue
            reads_files = row[1] == "read" and size > 0
            sample = StorageSample(
                "files" if reads_files else NAMES[row[1]], cells[-2] or 0.0,
                float(size) * reads_files, max(1, tasks // nodes) if nodes and tasks else None,
                nodes or None, None, cached=reads_files, where=f"{path}:{line_number}",
            )  # fmt: skip
            if usable(sample):
                samples.append(sample)
            else:
                skipped.append((line_number, "no usable rate"))
        elif "finished at" in line:
            ended = True
        elif line.lstrip().startswith(("Directory", "Tree")):
            skipped.append((line_number, "of directories"))
    last = len(text.splitlines())
    cut = LogFault(last, "truncated", "no closing line of mdtest", "run it again")
    faults = [] if ended or not samples else [cut]
    return Reading(path, TITLE, machine={"tool": tool}, skipped=tuple(skipped),
                   faults=tuple(faults), storage=tuple(samples))  # fmt: skip
