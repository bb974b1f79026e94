"""`nvidia-smi topo -m`: the NVLinks between devices of a node, and its network ports.

The matrix gives kinds and numbers of links, not speeds: bandwidth and latency of the level are left
to the datasheet or a calibration. If every pair shows n links and that is more than one device has
in all (18), the n links of each device must end at a switch; else pairs are joined directly.
"""

from __future__ import annotations

import re
from typing import Any

from oracle.readers.logs import LONGEST_LINE, InputError, Reading, unknown_line
from oracle.readers.node_levels import node_levels

TITLE = "nvidia-smi topo -m"
PRECEDENCE = 3
CELLS = frozenset(("X", "SYS", "NODE", "PHB", "PXB", "PIX", "PSB", "SOC", "N/A", "OK"))
NEAR = frozenset(("NODE", "PHB", "PXB", "PIX", "PSB"))  # of one socket
MOST_LINKS = 18  # NVLinks of one device, to date

_ANSI = re.compile(r"\x1b\[[0-9;]{0,12}m")
_NVLINK = re.compile(r"NV\d{1,3}")
_DEVICE = re.compile(r"(?:GPU|NIC|mlx|hfi|bnxt|irdma|efa|rdmap|ib)\w*")
_MOST_DEVICES = 128


def recognises(text: str) -> bool:
    """Return whether a text has a header line that starts with GPU0, and its row."""
    head = _ANSI.sub("", text[:65536])
    starts = [line.split()[:1] for line in head.splitlines() if "GPU0" in line]
    return ["GPU0"] in starts and (" X " in head or "\tX" in head or "NV" in head)


def parse(text: str, path: str) -> Reading:
    """Return the graph of a node, and its levels as far as the matrix tells them."""
    skipped: list[tuple[int, str]] = []
    names: list[str] = []
    rows: dict[str, list[str]] = {}
    aliases: dict[str, str] = {}
    for line_number, raw in enumerate(text.splitlines(), 1):
        if len(raw) > LONGEST_LINE:
            skipped.append((line_number, f"a line of more than {LONGEST_LINE} characters"))
            continue
        fields = _ANSI.sub("", raw).split()
        if not fields:
            continue
        if not names and fields[0] == "GPU0" and (len(fields) < 2 or fields[1] not in CELLS):
            names = _names(fields)
        elif fields[0] in names and fields[0] not in rows and len(fields) > 1:
            cells = fields[1 : len(names) + 1]
            if len(cells) < len(names) or not all(
                c in CELLS or _NVLINK.fullmatch(c) for c in cells
            ):
                skipped.append((line_number, f"the row of {fields[0][:20]} is not whole"))
            else:
                rows[fields[0]] = cells
        elif fields[0].startswith("NIC") and fields[0].endswith(":") and len(fields) == 2:
            aliases[fields[0][:-1]] = fields[1][:40]
        elif "=" not in raw and not fields[0].startswith(("Legend", "NIC")):
            skipped.append((line_number, unknown_line(raw)))
    gpus = [name for name in names if name.startswith("GPU") and name in rows]
    if not gpus:
        raise InputError(
            path, 1, "the matrix has no whole row", "write it again: nvidia-smi topo -m"
        )
    links = [
        (name, peer, cell)
        for name, cells in rows.items()
        for peer, cell in zip(names, cells, strict=False)
        if name < peer and cell != "X"
    ]
    machine: dict[str, Any] = {"tool": "nvidia-smi topo -m", "devices": len(gpus)}
    nics = [aliases.get(name, name) for name in names if not name.startswith("GPU")]
    if nics:
        machine["network ports"] = len(nics)
    source = f"{TITLE}, {path.rpartition('/')[2]}"
    levels = _levels(gpus, names, rows, source)
    if nics:
        levels.append({"name": "network", "ports": len(nics), "source": source})
    return Reading(path, TITLE, (), machine, tuple(skipped), tuple(levels), tuple(links))


def _names(fields: list[str]) -> list[str]:
    names = []
    for word in fields[:_MOST_DEVICES]:
        if not _DEVICE.fullmatch(word) or word in names:
            break
        names.append(word)
    return names


def _levels(
    gpus: list[str], names: list[str], rows: dict[str, list[str]], source: str
) -> list[dict[str, Any]]:
    cells = {(g, peer): cell for g in gpus for peer, cell in zip(names, rows[g], strict=False)
             if peer in gpus and peer != g}  # fmt: skip
    nvlinks = {(a, b): int(cell[2:]) for (a, b), cell in cells.items()
               if a < b and _NVLINK.fullmatch(cell)}  # fmt: skip
    totals = [sum(links for pair, links in nvlinks.items() if gpu in pair) for gpu in gpus]
    even = len(set(nvlinks.values())) == 1 and 2 * len(nvlinks) == len(gpus) * (len(gpus) - 1)
    switched = {}
    if even and min(totals) > MOST_LINKS:
        switched, nvlinks = dict.fromkeys(gpus, next(iter(nvlinks.values()))), {}
    sockets: dict[str, str] = {}
    for gpu in gpus:  # of the first device that it reaches without the way between sockets
        near = (a for a in gpus if a in sockets and cells[gpu, a] in NEAR)
        sockets[gpu] = sockets.get(next(near, ""), gpu)
    levels = node_levels(gpus, nvlinks, switched, sockets, source)
    for level in levels:
        if level.get("note") == "no NVLink":
            level["note"] += f": {', '.join(sorted(set(cells.values())))}"
    return levels
