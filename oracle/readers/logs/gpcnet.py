"""GPCNeT: the slowdown of a network by other jobs, from its table of key results.

The factors (average and 99th percentile) of the bandwidth test with barriers, 128 KiB to random
neighbours while the other nodes run congestors, become the `interference` of the level that joins
all nodes of the test; without that row, the factors of the allreduce or of the latency do. The
factors of 8 bytes between two ranks, and of an allreduce of 8 bytes, hold for short messages. They
are those of a machine full of communication: milder neighbours slow less. The rates themselves are
averages over random neighbours, no single call's time, and are skipped.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.logs import LONGEST_LINE, InputError, LogFault, Reading, number, unprefixed

TITLE = "GPCNeT text"
# the rows that may be used, the best first
TESTS = ("RR Two-sided BW+Sync", "Multiple Allreduce", "RR Two-sided Lat", "RR Get Lat")
# the rows of short messages, by their key in a level
SHORT = {"interference_pairs": "RR Two-sided Lat", "interference_collectives": "Multiple Allreduce"}
HIGHEST = 1000.0

_RANKS = re.compile(r"Test with (\d{1,9}) MPI ranks \((\d{1,9}) nodes\)")
_VERSION = re.compile(r"Network(?:Load)? Tests v([\d.]{1,8})")


def recognises(text: str) -> bool:
    """Return whether a text has a name of its programs, or the title of its last table."""
    if "Congestion Impact Factor" in text:
        return True
    return _VERSION.search(text) is not None and "MPI ranks" in text


def parse(text: str, path: str) -> Reading:
    """Return the factors of the last table, and the number of its nodes."""
    machine: dict[str, Any] = {"tool": "GPCNeT"}
    factors: dict[str, tuple[float, float]] = {}
    skipped: list[tuple[int, str]] = []
    nodes, key, last = None, False, 1
    for line_number, line in enumerate(text.splitlines(), 1):
        line = unprefixed(line[:LONGEST_LINE]).strip()
        if match := _VERSION.search(line):
            machine["tool"] = f"GPCNeT {match[1]}"
        elif match := _RANKS.search(line):
            machine["ranks"], nodes = int(match[1]), int(match[2])
        elif "Congestion Impact Factor" in line:
            key = True
        elif line.startswith("|") and line.endswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            values = [number(cell.removesuffix("X")) for cell in cells[1:3]]
            last = line_number
            if key and len(cells) == 3 and values[0] and values[1]:
                factors[cells[0]] = values[0], values[1]
            elif len(cells) > 3 and values[0] is not None:
                skipped.append(
                    (line_number, "an average over random neighbours is no one call's time")
                )
    if not factors and not skipped:
        raise InputError(path, last, "no result is in it", "give the whole log of one run")
    faults = []
    if not factors:
        complaint = (
            "the table of key results is missing: the run was cut off, or was `network_test`"
        )
        advice = "run network_load_test to its end: congestion is what it measures"
        faults = [LogFault(last, "truncated", complaint, advice)]
    name = next((name for test in TESTS for name in factors if name.startswith(test)), "")
    interference = within(factors[name]) if name else ()
    short: dict[str, tuple[float, ...]] = {
        key: within(factors[row_name])
        for key, test in SHORT.items() for row_name in factors if row_name.startswith(test)
    }  # fmt: skip
    if name:
        machine["congestion"] = name
    return Reading(path, TITLE, (), machine, tuple(skipped), faults=tuple(faults),
                   interference=interference, short=short, nodes=nodes)  # fmt: skip


def within(factors: tuple[float, float]) -> tuple[float, float]:
    """Return two factors in the bounds of a level: no network is faster among other jobs."""
    half = min(max(1.0, factors[0]), HIGHEST)
    return half, min(max(half, factors[1]), HIGHEST)
