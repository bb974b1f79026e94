"""Collectives through switches that reduce, held against what was published of them."""

from __future__ import annotations

from dataclasses import replace

from benchmarks.table import Table, figure, rounded
from oracle.network.contention import lines
from oracle.spec import catalogue

GB = 1e9
# (system, devices, algorithm, bytes, seconds or bus bandwidth measured, where that stands)
CASES: tuple[tuple[str, int, str | None, float, float, str], ...] = (
    ("dgx-h100", 8, "nvls", 16 * GB, 476 * GB, "NVIDIA/nccl-tests, eight H100, large messages"),
    ("azure-nd-h100-v5", 128, "sharp", 16 * GB, 450 * GB,
     "Azure/ai-infrastructure-on-azure@a01b073, SKILL.md, line 34; 16 nodes assumed"),
    ("gb200-nvl72", 72, None, 8589934592, 20.299e-3, "coreweave/nccl-tests@cb86553, NCCL 2.26.2"),
    ("gb200-nvl72", 72, None, 4294967296, 10.094e-3, "likewise"),
    ("gb200-nvl72", 72, None, 2147483648, 5.5891e-3, "likewise"),
    ("gb200-nvl72", 72, None, 1073741824, 3.1088e-3, "likewise"),
    ("gb200-nvl72", 72, None, 536870912, 1.8067e-3, "likewise"),
    ("dgx-h100", 64, None, 8589934592, 43.98e-3, "coreweave/nccl-tests@cb86553, 64 H100, NDR"),
    ("dgx-h100", 64, None, 536870912, 2.9846e-3, "likewise"),
)  # fmt: skip


def table(quick: bool = False) -> Table:
    """Allreduce, measured against what NCCL's constants and volumes by hand come to."""
    del quick
    rows, figures = [], {}
    errors: dict[str, list[float]] = {"switches": [], "rings and trees": []}
    for name, p, algorithm, nbytes, measured, source in CASES:
        system = catalogue.system(name)
        seconds = measured if measured < 1 else 2 * (p - 1) / p * nbytes / measured
        plain = replace(system, levels=tuple(replace(x, reduces="") for x in system.levels))
        cells = {}
        for software, on, by in (("switches", system, algorithm), ("rings and trees", plain, None)):
            offer = lines(on, "allreduce", ((p, 1),), p, by)
            best = min(offer, key=lambda line: line.start + line.per_byte * nbytes)
            error = (best.start + best.per_byte * nbytes) / seconds - 1
            cells[software] = f"{error:+.0%} {best.algorithm}"
            errors[software].append(abs(error))
        rows.append({
            "system": name, "ranks": p, "bytes": f"{nbytes:.3g}",
            "measured ms": rounded(seconds * 1e3), **cells, "source": source,
        })  # fmt: skip
    for software, software_errors in errors.items():
        key = software.replace(" ", "_")
        figures[f"{key}.mean_error"] = figure(sum(software_errors) / len(software_errors), "", "")
    title = "Switches that reduce: allreduce, seconds predicted over measured"
    notes = ["nothing is fitted to these rows; Blackwell's share is of eight B200"]
    return {"title": title, "rows": rows, "figures": figures, "notes": notes}
