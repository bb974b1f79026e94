"""From a step to a training, held against what runs took: a table for each part.

    python -m benchmarks.run [PART …] [--quick] [--json]

Parts are the files of `benchmarks/trainings`. Nothing is fitted to the hours of a run.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules

from benchmarks import trainings
from benchmarks.table import Table, text

PARTS = [found.name for found in iter_modules(trainings.__path__)]


def tables(parts: Sequence[str] = PARTS, quick: bool = False) -> dict[str, Table]:
    """The table of each part."""
    return {part: import_module(f"{trainings.__name__}.{part}").table(quick) for part in parts}


def main() -> int:
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=plain)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}")
    parser.add_argument("--quick", action="store_true", help="fewer simulated jobs")
    parser.add_argument("--json", action="store_true", help="figures for a program")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(PARTS)}")
    found = tables(asked.parts or PARTS, asked.quick)
    if asked.json:
        figures = {f"{name}.{key}": value for name, table in found.items()
                   for key, value in table["figures"].items()}  # fmt: skip
        print(json.dumps({"figures": figures, "tables": found}, indent=2))
    else:
        print("\n".join(text(table) for table in found.values()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
