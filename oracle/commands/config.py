"""Show the value of every option and where it is set.

oracle config show                 the value of every option that may be set
oracle config show --origin        and where it comes from
oracle config files                the files that are looked for, the strongest first

A flag beats `ORACLE_PRECISION` and its like, these beat the project's `oracle.toml`, it beats
`~/.config/oracle/config.toml`, and that beats `/etc/xdg/oracle/config.toml`.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from oracle.commands.arguments import result_arguments
from oracle.commands.parser import Answer, formatted


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=["show", "files"], metavar="show|files", help="what to list"
    )
    parser.add_argument("--origin", action="store_true", help="where each value comes from")
    result_arguments(parser)


def run(args: argparse.Namespace) -> Answer:
    from oracle.commands import settings

    if args.what == "files":
        places = reversed(settings.files(os.environ, Path.cwd()))
        rows = [
            {"file": str(path), "there": "yes" if os.path.isfile(path) else "no"} for path in places
        ]
        return _table(args, "files", rows)
    rows = settings.settings_table()
    if not args.origin:
        rows = [{k: v for k, v in row.items() if k != "origin"} for row in rows]
    return _table(args, "settings", rows)


def _table(args: argparse.Namespace, title: str, rows: list[dict[str, str]]) -> Answer:
    return formatted(args, lambda: _columns(rows), lambda: {"schema": 1, title: rows}, lambda: rows)


def _columns(rows: list[dict[str, str]]) -> str:
    widths = {name: max(len(row[name] or "-") for row in rows) for name in rows[0]}
    lines = [
        "  ".join(f"{value or ('' if name == 'verbs' else '-'):<{widths[name]}}"
                  for name, value in row.items())
        for row in rows
    ]  # fmt: skip
    return "\n".join(line.rstrip() for line in lines)
