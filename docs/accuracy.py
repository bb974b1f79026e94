"""The accuracy page's tables, judged anew: `python docs/accuracy.py [--reference DIR]`.

Tables are those of `benchmarks/data` where no folder is named; one that is not in a named folder is
skipped and said to be.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))


def judged(reference: Path | None) -> list[dict[str, Any]]:
    """What the fidelity command says of each table; without a `mape` where it was not at hand."""
    command = [sys.executable, "-m", "benchmarks.fidelity", "--json"]
    command += ["--reference", str(reference)] if reference else []
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    rows: list[dict[str, Any]] = json.loads(said)["rows"]
    return rows


def markdown(reference: Path | None) -> str:
    """Every table that can be judged, one line each; then ParaDL's bars."""
    head = "| table | rows | MAPE | bias | largest | τ | regret | in 90 % | goal |"
    lines, missing = [], []
    for found in judged(reference):
        if "mape" not in found:
            missing.append(f"`{found['table']}`")
            continue
        tau = f"{found['tau']:.2f} | {found['regret_mean']:.2f} %" if "tau" in found else " | "
        lines.append(
            f"| `{found['table']}` | {found['rows']} | {found['mape']:.1f} % | "
            f"{found['bias']:+.1f} % | {found['max']:.1f} % | {tau} | {found['coverage']:.0f} % | "
            f"{found['goal']} |"
        )
    if lines:
        lines = [head, "|---|" + "---:|" * 7 + "---|", *lines, ""]
    if missing:
        lines += ["Not judged here, for want of their measurements: " + ", ".join(missing) + "."]
    return "\n".join([*lines, "", *bars()])


def sure(reference: Path | None) -> str:
    """How often the 90 % interval holds, as tables are and with a kind of knowledge left out."""
    from benchmarks.doubt import WITHOUT, judged
    from benchmarks.published import TABLES, tables

    found = judged(tables(reference), list(TABLES))
    cells = {(line["table"], line["without"]): f"{line['coverage']:.0%} ± {line['half']:.0%}"
             + {"holds": ""}.get(line["verdict"], f", {line['verdict']}")
             for line in found["rows"]}  # fmt: skip
    sizes = {line["table"]: line["n"] for line in found["rows"]}
    heads = ["as it is", *(f"no {what}" for what in WITHOUT[1:])]
    lines = [f"| table | configurations | {' | '.join(heads)} |", "|---|" + "---:|" * 5]
    lines += [f"| `{table}` | {size} | "
              + " | ".join(cells.get((table, without), "") for without in WITHOUT) + " |"
              for table, size in sizes.items()]  # fmt: skip
    inside = {without: [line for line in found["rows"] if line["without"] == without]
              for without in WITHOUT}  # fmt: skip
    every = ["| what is known | configurations | in 90 % | half as wide | tables rejected | "
             "erring in part alike |", "|---|" + "---:|" * 5]  # fmt: skip
    for without, head in zip(WITHOUT, heads, strict=True):
        some = inside[without]
        size = sum(line["n"] for line in some)
        held = sum(line["n"] * line["coverage"] for line in some) / size
        half = sorted(line["half"] for line in some)[len(some) // 2]
        alone, shared = (found["figures"][f"{name}.{without or 'whole'}"]["value"]
                         for name in ("rejected", "rejected_shared"))  # fmt: skip
        every.append(f"| {head} | {size:,} | {held:.0%} | ± {half:.0%} | "
                     f"{alone} of {len(some)} | {shared} |")  # fmt: skip
    scores = {name: found["figures"].get(f"brier.{name}", {"value": float("nan")})["value"]
              for name in ("best", "best.guess", "fits", "fits.guess")}  # fmt: skip
    return "\n".join([*every, "", *lines, "", (
        f"Brier's score of the probability to be the best is {scores['best']:.2f} "
        f"({scores['best.guess']:.2f} by guessing), of the probability to fit "
        f"{scores['fits']:.4f} ({scores['fits.guess']:.4f}).")])  # fmt: skip


def bars() -> list[str]:
    """Mean accuracy on ParaDL's bars, by strategy."""
    from benchmarks.paradl import PREDICTIONS, figures, predicted

    found = figures(predicted())
    lines = ["| ParaDL's bars | " + " | ".join(PREDICTIONS) + " |", "|---|" + "---:|" * 5]
    for key in dict.fromkeys(name.split(".")[0] for name in found):
        means = (found[f"{key}.{p.replace(' ', '_')}"]["value"] for p in PREDICTIONS)
        cells = [f"{mean:.1f} %" for mean in means]
        lines.append(f"| {key.removeprefix('paradl_')} | {' | '.join(cells)} |")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, metavar="DIR")
    print(markdown(parser.parse_args().reference))
    return 0


if __name__ == "__main__":
    sys.exit(main())
