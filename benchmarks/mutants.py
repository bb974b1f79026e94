"""Small bugs put into the code on purpose: each must make the tests of its room fail.

    python -m benchmarks.mutants [--quick] [--third K] [--only NAME] [--json]

A mutant is one change of one place, made in a copy of the repository in which its tests then run.
It is killed when a test fails, and survives when none does: then a test is missing. One whose
place is no longer there exactly once, or whose tests cannot run, is stale. A defect that was
mended joins the list with the test that would have found it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from benchmarks.planted_bugs import MUTANTS, Mutant
from benchmarks.table import Table, figure, text

HOME = Path(__file__).parents[1]
PARTS = ("oracle", "tests", "specs", "benchmarks", "pyproject.toml")
JOBS = 2
PATIENCE = 240  # seconds for the tests of one mutant
QUICK = 7  # every so manyth mutant, about a dozen
KILLED, SURVIVED, STALE = "killed", "survived", "stale"


@dataclass(frozen=True)
class Verdict:
    """What became of one mutant."""

    mutant: Mutant
    fate: str
    seconds: float
    by: str  # the test that failed, or why there is none


def copied(folder: Path) -> Path:
    """A copy of what the tests need; its bytecode is trusted by content, not by time."""
    for part in PARTS:
        source = HOME / part
        if source.is_dir():
            shutil.copytree(source, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder)
    subprocess.run([sys.executable, "-m", "compileall", "-q", "--invalidation-mode",
                    "checked-hash", folder / "oracle"], check=True)  # fmt: skip
    return folder


def tested(folder: Path, tests: Sequence[str]) -> tuple[int, str]:
    """Exit code of tests run in a copy, and what they printed."""
    beside = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
              "OPENBLAS_NUM_THREADS": "1"}  # fmt: skip
    line = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=line", "-p", "no:cacheprovider",
            "-p", "no:randomly", "-m", "", *tests]  # fmt: skip
    try:
        done = subprocess.run(line, cwd=folder, env=os.environ | beside, text=True,
                              capture_output=True, timeout=PATIENCE)  # fmt: skip
    except subprocess.TimeoutExpired:
        return -1, f"longer than {PATIENCE} s"
    return done.returncode, done.stdout + done.stderr


def judged(mutant: Mutant, folder: Path) -> Verdict:
    """Put a mutant into a copy, run its tests, and take it out again."""
    begin, place = time.monotonic(), folder / mutant.file
    sound = place.read_text(encoding="utf-8") if place.is_file() else ""
    if (count := sound.count(mutant.old)) != 1:
        return Verdict(mutant, STALE, 0.0, f"its place is there {count} times")
    place.write_text(sound.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        code, printed = tested(folder, mutant.tests)
    finally:
        place.write_text(sound, encoding="utf-8")
    fate = {0: SURVIVED, 1: KILLED}.get(code, STALE)
    failed = [line for line in printed.splitlines() if line.startswith(("FAILED", "ERROR"))]
    last = [*printed.split("\n")[-3:], ""][0] if fate == STALE else ""
    by = failed[0].split(" - ")[0].partition(" ")[2] if failed else last
    return Verdict(mutant, fate, time.monotonic() - begin, by)


def measured(mutants: Sequence[Mutant]) -> Table:
    """Judge mutants, two at a time, where their tests pass without any of them."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(JOBS) as pool:
        copies: queue.Queue[Path] = queue.Queue()
        for number in range(JOBS):
            copies.put(copied(Path(scratch) / str(number)))

        def one(mutant: Mutant) -> Verdict:
            folder = copies.get()
            try:
                return judged(mutant, folder)
            finally:
                copies.put(folder)

        def sound(tests: Sequence[str]) -> tuple[int, str]:
            folder = copies.get()
            try:
                return tested(folder, tests)
            finally:
                copies.put(folder)

        asked = sorted({test for mutant in mutants for test in mutant.tests})
        for code, printed in pool.map(
            sound, [asked[k::JOBS] for k in range(JOBS) if asked[k::JOBS]]
        ):
            if code:
                raise RuntimeError(f"tests fail without any mutant:\n{printed}")
        verdicts = list(pool.map(one, mutants))
    fates = [each.fate for each in verdicts]
    rows = [{"mutant": each.mutant.name, "fate": each.fate, "s": round(each.seconds, 1),
             "by": each.by} for each in verdicts]  # fmt: skip
    figures = {
        "mutants.killed": figure(fates.count(KILLED), f"of {len(fates)}", ""),
        "mutants.survived": figure(fates.count(SURVIVED), "", "0"),
        "mutants.stale": figure(fates.count(STALE), "", "0"),
        "mutants.seconds": figure(time.monotonic() - begin, "s", ""),
    }
    return {"title": "Mutants and the tests that kill them", "rows": rows, "figures": figures}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="about a dozen of them")
    parser.add_argument("--third", type=int, help="every third, beginning with this one")
    parser.add_argument("--only", help="those whose name has this in it")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    chosen = [mutant for mutant in MUTANTS if (asked.only or "") in mutant.name]
    if asked.third is not None:
        chosen = chosen[asked.third % 3 :: 3]
    if asked.quick:
        chosen = chosen[::QUICK]
    if not chosen:
        parser.error(f"no mutant has `{asked.only}` in its name")
    found = measured(chosen)
    print(json.dumps(found, indent=1) if asked.json else text(found))
    figures = found["figures"]
    return int(figures["mutants.survived"]["value"] + figures["mutants.stale"]["value"] > 0)


if __name__ == "__main__":
    sys.exit(main())
