"""GPCNeT: how much other jobs slow a network, as its table of key results says.

The factors (average and 99th percentile) of the bandwidth test with barriers, 128 KiB to random
neighbours while the other nodes run congestors, become the `interference` of the level that joins
so many nodes; without that row, those of the allreduce or of the latency. Those of 8 bytes between
two ranks, and of an allreduce of 8 bytes, are what short messages take. It is what a machine full
of communication does: milder neighbours slow less. The rates themselves are averages over
random neighbours, no one call's time, and are passed over.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.logs import LONGEST_LINE, InputError, LogFault, Reading, number, unprefixed

TITLE = "GPCNeT text"
# the row that is taken, the best first
TESTS = ("RR Two-sided BW+Sync", "Multiple Allreduce", "RR Two-sided Lat", "RR Get Lat")
# the rows of short messages, by the key of a level that they become
SHORT = {"interference_pairs": "RR Two-sided Lat", "interference_collectives": "Multiple Allreduce"}
HIGHEST = 1000.0

_RANKS = re.compile(r"Test with (\d{1,9}) MPI ranks \((\d{1,9}) nodes\)")
_VERSION = re.compile(r"Network(?:Load)? Tests v([\d.]{1,8})")


def recognises(text: str) -> bool:
    """The name of one of its programs, or the title of its last table."""
    if "Congestion Impact Factor" in text:
        return True
    return _VERSION.search(text) is not None and "MPI ranks" in text


def parse(text: str, path: str) -> Reading:
    """The factors of the last table, and how many nodes they are of."""
    machine: dict[str, Any] = {"tool": "GPCNeT"}
    factors: dict[str, tuple[float, float]] = {}
    skipped: list[tuple[int, str]] = []
    nodes, key, last = None, False, 1
    for at, line in enumerate(text.splitlines(), 1):
        line = unprefixed(line[:LONGEST_LINE]).strip()
        if found := _VERSION.search(line):
            machine["tool"] = f"GPCNeT {found[1]}"
        elif found := _RANKS.search(line):
            machine["ranks"], nodes = int(found[1]), int(found[2])
        elif "Congestion Impact Factor" in line:
            key = True
        elif line.startswith("|") and line.endswith("|"):
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            values = [number(cell.removesuffix("X")) for cell in cells[1:3]]
            last = at
            if key and len(cells) == 3 and values[0] and values[1]:
                factors[cells[0]] = values[0], values[1]
            elif len(cells) > 3 and values[0] is not None:
                skipped.append((at, "an average over random neighbours is no one call's time"))
    if not factors and not skipped:
        raise InputError(path, last, "no result is in it", "give the whole log of one run")
    faults = []
    if not factors:
        what = "the table of key results is missing: the run was cut off, or was `network_test`"
        advice = "run network_load_test to its end: congestion is what it measures"
        faults = [LogFault(last, "truncated", what, advice)]
    name = next((name for test in TESTS for name in factors if name.startswith(test)), "")
    interference = within(factors[name]) if name else ()
    short: dict[str, tuple[float, ...]] = {
        key: within(factors[one])
        for key, test in SHORT.items() for one in factors if one.startswith(test)
    }  # fmt: skip
    if name:
        machine["congestion"] = name
    return Reading(path, TITLE, (), machine, tuple(skipped), faults=tuple(faults),
                   interference=interference, short=short, nodes=nodes)  # fmt: skip


def within(factors: tuple[float, float]) -> tuple[float, float]:
    """Two factors as a level takes them: no network is faster for company."""
    half = min(max(1.0, factors[0]), HIGHEST)
    return half, min(max(half, factors[1]), HIGHEST)
