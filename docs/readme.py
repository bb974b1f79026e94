"""README's session and table of accuracy, said anew: `python docs/readme.py [--reference DIR]`.

Every `$ oracle …` line of its console block is run again; the table is what
`benchmarks.fidelity` prints today. A named folder without tables leaves it as it is.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from accuracy import ROOT, judged

COLUMNS = ("table", "rows", "MAPE", "median", "bias", "τ", "our pick is best", "mean regret",
           "in 90 %", "best peer")  # fmt: skip


def said(*words: str) -> str:
    """What a module of ours prints, 80 columns wide and without colour."""
    plain = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", *words]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, env=plain)
    return ran.stdout.rstrip()


def session(block: re.Match[str]) -> str:
    """The console block with each command's output as it is now."""
    commands = [line[2:] for line in block.group(1).split("\n") if line.startswith("$ oracle ")]
    spoken = (f"$ {line}\n{said(*shlex.split(line))}" for line in commands)
    return "```console\n" + "\n\n".join(spoken) + "\n```"


def table(reference: Path | None) -> str | None:
    """The table of accuracy; None where nothing can be judged."""
    found = [row for row in judged(reference) if "mape" in row]
    if not found:
        return None
    head = f"| {' | '.join(COLUMNS)} |\n|---|{'---:|' * 8}---|"
    return "\n".join([head, *map(line, found)])


def line(row: dict[str, Any]) -> str:
    """One table of measurements as a line."""

    def cell(key: str, form: str = "{:.1f} %") -> str:
        return form.format(row[key]) if key in row else ""

    cells = (
        row["table"], str(row["rows"]), cell("mape"), cell("median"), cell("bias", "{:+.1f} %"),
        cell("tau", "{:.2f}"), cell("best_pick", "{:.0f} %"), cell("regret_mean"),
        cell("coverage", "{:.0f} %"), row["peers"],
    )  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--reference", type=Path, metavar="DIR")
    asked = parser.parse_args()
    path = ROOT / "README.md"
    text = re.sub(r"```console\n(.*?)\n```", session, path.read_text(encoding="utf-8"), flags=re.S)
    if (anew := table(asked.reference)) is not None:
        text = re.sub(r"\| table \|.*?(?=\n\n)", lambda _: anew, text, count=1, flags=re.S)
    path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
