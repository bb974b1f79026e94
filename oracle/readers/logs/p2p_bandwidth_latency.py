"""p2pBandwidthLatencyTest of the CUDA samples: matrices of all pairs of a node's devices.

Copies between devices with peer access are `put` (writes) or `get` (reads), back to back, of a
size that the log does not say: the tool's own, large enough that only the rate matters. The
bidirectional matrix is the sum of both ways. What goes through the host for want of peer access,
copies within a device and the CPU's own times are passed over.
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
    """A heading of one of its matrices."""
    return "P2P=Enabled" in text or "P2P=Disabled" in text or "P2P (Peer-to-Peer) GPU" in text


def parse(text: str, path: str) -> Reading:
    """A sample of every pair in every matrix that has peer access."""
    lines = text.splitlines()
    machine: dict[str, Any] = {"tool": "p2pBandwidthLatencyTest"}
    devices: dict[str, int] = {}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    faults: list[LogFault] = []
    apart: set[tuple[int, int]] = set()  # pairs without peer access
    title, at = "", 0
    while at < len(lines):
        line = lines[at][:4096]
        at += 1
        if "D\\D" in line or line.split()[:1] in (["GPU"], ["CPU"]):
            found = matrix(lines, at - 1, ("D\\D", "GPU", "CPU"))
            if found is None:
                skipped.append((at, unknown_line(line)))
                continue
            at = found.end
            if len(found.rows) < (found.columns if title != "connectivity" else 0):
                what = f"a matrix of {found.columns} devices ends after {len(found.rows)} rows"
                faults.append(LogFault(at, "truncated", what, "run it again to its end"))
            known = "" if line.split()[0] == "CPU" else title
            for row, i, j, value in found.pairs():
                why = "there is no peer access: it goes through the host"
                if (i, j) not in apart:
                    why = _sample(known, value, (i, j), f"{path}:{row}", samples)
                if why:
                    skipped.append((row, why))
        elif _BANDWIDTH.search(line) or _LATENCY.search(line) or "Connectivity Matrix" in line:
            title = "connectivity" if "Connectivity" in line else line
        elif match := _DEVICE.search(line):
            devices.setdefault(match[2], at)
            machine.setdefault("device", match[2])
        elif match := _CANNOT.search(line):
            apart.add((int(match[1]), int(match[2])))
    if devices and "P2P=Enabled Latency" not in text and not faults:
        what = "the run ended before its last matrix, of latencies"
        faults.append(LogFault(len(lines), "truncated", what, "run it again to its end"))
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(faults),
                   devices=tuple(devices.items()))  # fmt: skip


def _sample(
    title: str, value: float, pair: tuple[int, int], where: str, samples: list[Sample]
) -> str:
    """Add the sample of a pair, or say why there is none."""
    rate, delay = _BANDWIDTH.search(title), _LATENCY.search(title)
    if rate is None and delay is None:
        return "" if title == "connectivity" else "the CPU's own time, not that of the copy"
    access = rate[2] if rate else delay[1] if delay else ""
    kind = rate[3] if rate else delay[2] if delay else ""
    if access == "Disabled":
        return "peer access was turned off: it goes through the host"
    both = 2 if rate and rate[1] == "Bi" else 1
    seconds = SIZE * both / (value * 1e9) if rate else value * 1e-6
    if not usable(seconds):
        return "no usable time"
    samples.append(Sample(
        "get" if kind == "Reads" else "put", SIZE if rate else SMALL, seconds, 2, 1, 2,
        window=REPEATS if rate else 1, library="cuda", memory="device", where=where,
        direction="both ways" if both == 2 else "one way", pair=pair,
    ))  # fmt: skip
    return ""
