"""How much work an answer takes, counted: the same in every run, whatever else the machine does.

    python -m benchmarks.work QUESTION

This process answers one question of `benchmarks.questions` and prints, as JSON,

    calls     that the functions of `oracle` make, of functions and methods of any library
    plans     that were priced
    blocks    in which they were priced: each costs the same calls, however few its plans
    modules   of `oracle` that were imported

`python -m benchmarks.speed --counts` prints the counts of all questions, and with `--record` keeps
them in `benchmarks/data/work.json`, to which a test compares them. Python 3.12 and newer make fewer
calls than 3.11, since comprehensions are no functions there.
"""

from __future__ import annotations

import argparse
import contextlib
import cProfile
import io
import json
import os
import shlex
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import CodeType
from typing import Any

from benchmarks.questions import COMMANDS, TABLES

ROOT = Path(__file__).parents[1]
PACKAGE = str(ROOT / "oracle")
RECORD = ROOT / "benchmarks" / "data" / "work.json"
ROOM = 1.1  # a count may grow by so much before a test fails
PLANS = 20_000  # of a table
QUESTIONS = (*COMMANDS, *TABLES)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", choices=QUESTIONS)
    print(json.dumps(counts_here(parser.parse_args().question)))
    return 0


def counted(question: str) -> dict[str, int]:
    """Return the counts of a question that a process of its own answers."""
    # sets are in one order, and nothing is there that another process has counted
    environment = os.environ | {"PYTHONHASHSEED": "0", "ORACLE_COUNTS": "off"}
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.work", question],
        check=True, capture_output=True, text=True, cwd=ROOT, env=environment,
    )  # fmt: skip
    counts: dict[str, int] = json.loads(done.stdout)
    return counts


def counts_here(question: str) -> dict[str, int]:
    """Answer a question in this process and return its counts."""
    profile, priced = cProfile.Profile(), Counter[str]()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.ExitStack() as counting:
        if question != "help":  # which must not import what it never needs
            counting.enter_context(blocks_counted(priced))
        counting.enter_context(profile)
        answer(question)
    modules = sum(name.partition(".")[0] == "oracle" for name in sys.modules)
    return {"calls": calls_of_the_package(profile), **priced, "modules": modules}


def answer(question: str) -> None:
    """Run the command line of a question, or price its table of plans."""
    if question in TABLES:
        from benchmarks.speed import many

        many(*TABLES[question], PLANS)
        return
    from oracle.commands.cli import main as command_line

    if code := command_line(shlex.split(COMMANDS[question])):
        raise SystemExit(f"`oracle {COMMANDS[question]}` ended with exit code {code}")


def calls_of_the_package(profile: cProfile.Profile) -> int:
    """Return how many calls the functions of `oracle` made."""
    return sum(
        call.callcount
        for entry in profile.getstats()
        if isinstance(entry.code, CodeType) and entry.code.co_filename.startswith(PACKAGE)
        for call in entry.calls or ()
    )


@contextlib.contextmanager
def blocks_counted(priced: Counter[str]) -> Iterator[None]:
    """Count the plans and the blocks that are priced meanwhile."""
    from oracle.predict import evaluate

    price = evaluate.blocks

    def counting(*question: Any, **options: Any) -> Iterator[Any]:
        for rows, block in price(*question, **options):
            priced.update(plans=len(rows), blocks=1)
            yield rows, block

    evaluate.blocks = counting
    try:
        yield
    finally:
        evaluate.blocks = price


if __name__ == "__main__":
    sys.exit(main())
