"""The accuracy page's tables, judged anew: `python docs/accuracy.py [--reference DIR]`.

Published measurements are not part of this repository; a table that is not at hand is named and
skipped. ParaDL's bars are in `benchmarks/data`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
REFERENCE = Path(__file__).parents[2] / "shared" / "reference"


def markdown(reference: Path) -> str:
    """Every table that can be judged, one line each; then ParaDL's bars."""
    from benchmarks.fidelity import judge
    from benchmarks.published import TABLES

    head = "| table | rows | MAPE | bias | largest | τ | regret | in 90 % | goal |"
    lines, missing = [head, "|---|" + "---:|" * 7 + "---|"], []
    for name, table in TABLES.items():
        path = reference / "published" / table.file
        if not path.is_file():
            missing.append(f"`{name}`")
            continue
        found = judge(table, path)["summary"]
        if "mape" not in found:
            missing.append(f"`{name}`")
            continue
        tau = f"{found['tau']:.2f} | {found['regret_mean']:.2f} %" if "tau" in found else " | "
        lines.append(
            f"| `{name}` | {found['rows']} | {found['mape']:.1f} % | {found['bias']:+.1f} % | "
            f"{found['max']:.1f} % | {tau} | {found['coverage']:.0f} % | {table.goal} |"
        )
    if missing:
        said = "Not judged here, for want of their measurements: "
        lines += ["", said + ", ".join(missing) + "."]
    if len(lines) > 2 and len(missing) == len(TABLES):
        lines = lines[3:]
    return "\n".join([*lines, "", *bars()])


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
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    print(markdown(parser.parse_args().reference))
    return 0


if __name__ == "__main__":
    sys.exit(main())
