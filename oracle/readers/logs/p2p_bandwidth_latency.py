"""p2pBandwidthLatencyTest of the CUDA samples: matrices of all pairs of a node's devices.

Copies between devices with peer access are `put` (writes) or `get` (reads), back to back, of a
size that the log does not say: the tool's own, large enough that only the rate matters. The
bidirectional matrix is the sum of both ways. Copies through the host without peer access, copies
within a device and the CPU's own times are skipped.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.logs import LogFault, Reading, Sample, unknown_line, usable
from oracle.readers.matrices import matrix

TITLE = "p2pBandwidthLatencyTest text"
SIZE = 4e7 * 4  # bytes of a copy: 40 million integers (10 million in old versions)
REPEATS = 5  # copies back to back
SMALL = 16.0  # bytes of a copy whose latency is measured: four integers

_BANDWIDTH = re.compile(
    r"(Uni|Bi)directional P2P=(Enabled|Disabled) Bandwidth(?: \(P2P (Writes|Reads)\))?"
)
_LATENCY = re.compile(r"P2P=(Enabled|Disabled) Latency(?: \(P2P (Writes|Reads)\))?")
_DEVICE = re.compile(r"Device: (\d{1,4}), (.{1,80}?), pciBusID")
_CANNOT = re.compile(r"Device=(\d{1,4}) CANNOT Access Peer Device=(\d{1,4})")


def recognises(text: str) -> bool:
    """Return whether a text has a heading of one of its matrices."""
    return "P2P=Enabled" in text or "P2P=Disabled" in text or "P2P (Peer-to-Peer) GPU" in text


def parse(text: str, path: str) -> Reading:
    """Return a sample of every pair in every matrix that has peer access."""
    lines = text.splitlines()
    machine: dict[str, Any] = {"tool": "p2pBandwidthLatencyTest"}
    devices: dict[str, int] = {}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    faults: list[LogFault] = []
    without_access: set[tuple[int, int]] = set()  # pairs without peer access
    title, line_number = "", 0
    while line_number < len(lines):
        line = lines[line_number][:4096]
        line_number += 1
        if "D\\D" in line or line.split()[:1] in (["GPU"], ["CPU"]):
            table = matrix(lines, line_number - 1, ("D\\D", "GPU", "CPU"))
            if table is None:
                skipped.append((line_number, unknown_line(line)))
                continue
            line_number = table.end
            if len(table.rows) < (table.columns if title != "connectivity" else 0):
                complaint = f"a matrix of {table.columns} devices ends after {len(table.rows)} rows"
                faults.append(
                    LogFault(line_number, "truncated", complaint, "run it again to its end")
                )
            heading = "" if line.split()[0] == "CPU" else title
            for row, i, j, value in table.pairs():
                why = "there is no peer access: it goes through the host"
                if (i, j) not in without_access:
                    why = _sample(heading, value, (i, j), f"{path}:{row}", samples)
                if why:
                    skipped.append((row, why))
        elif _BANDWIDTH.search(line) or _LATENCY.search(line) or "Connectivity Matrix" in line:
            title = "connectivity" if "Connectivity" in line else line
        elif match := _DEVICE.search(line):
            devices.setdefault(match[2], line_number)
            machine.setdefault("device", match[2])
        elif match := _CANNOT.search(line):
            without_access.add((int(match[1]), int(match[2])))
    if devices and "P2P=Enabled Latency" not in text and not faults:
        complaint = "the run ended before its last matrix, of latencies"
        faults.append(LogFault(len(lines), "truncated", complaint, "run it again to its end"))
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(faults),
                   devices=tuple(devices.items()))  # fmt: skip


def _sample(
    title: str, value: float, pair: tuple[int, int], place: str, samples: list[Sample]
) -> str:
    """Add the sample of a pair, or return why there is none."""
    rate, delay = _BANDWIDTH.search(title), _LATENCY.search(title)
    if rate is None and delay is None:
        return "" if title == "connectivity" else "the CPU's own time, not that of the copy"
    access = rate[2] if rate else delay[1] if delay else ""
    kind = rate[3] if rate else delay[2] if delay else ""
    if access == "Disabled":
        return "peer access was turned off: it goes through the host"
    ways = 2 if rate and rate[1] == "Bi" else 1
    seconds = SIZE * ways / (value * 1e9) if rate else value * 1e-6
    if not usable(seconds):
        return "no usable time"
    samples.append(Sample(
        "get" if kind == "Reads" else "put", SIZE if rate else SMALL, seconds, 2, 1, 2,
        window=REPEATS if rate else 1, library="cuda", memory="device", where=place,
        direction="both ways" if ways == 2 else "one way", pair=pair,
    ))  # fmt: skip
    return ""
