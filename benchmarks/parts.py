"""A benchmark in parts: each is a file of a package, found by itself, that makes one table."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from benchmarks.table import Table, text


def parts(package: ModuleType) -> list[str]:
    """Names of the parts."""
    return [found.name for found in iter_modules(package.__path__)]


def table(package: ModuleType, part: str, quick: bool = False) -> Table:
    """The table of one part."""
    found: Table = import_module(f"{package.__name__}.{part}").table(quick)
    return found


def tables(package: ModuleType, asked: Sequence[str], quick: bool = False) -> dict[str, Table]:
    """The table of each part that is asked for."""
    return {part: table(package, part, quick) for part in asked}


def main(package: ModuleType, about: str | None, quicker: str) -> int:
    """The command of a benchmark: print the tables of its parts."""
    known = parts(package)
    plain = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=about, formatter_class=plain)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(known)}")
    parser.add_argument("--quick", action="store_true", help=quicker)
    parser.add_argument("--json", action="store_true", help="figures for a program")
    asked = parser.parse_args()
    if unknown := set(asked.parts) - set(known):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    found = tables(package, asked.parts or known, asked.quick)
    if asked.json:
        figures = {f"{name}.{key}": value for name, table in found.items()
                   for key, value in table["figures"].items()}  # fmt: skip
        print(json.dumps({"figures": figures, "tables": found}, indent=2))
    else:
        print("\n".join(text(table) for table in found.values()))
    return 0
