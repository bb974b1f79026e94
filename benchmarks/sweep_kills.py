"""Kill a sweep at random moments until it is done: nothing lost, nothing doubled.

    python -m benchmarks.sweep_kills [--kills 300] [--quick] [--json]

A sweep runs with two workers; at a random moment either everything, the parent alone or one
worker is killed with SIGKILL, and the same command runs again. When a sweep is done its result
is held against that of an unbroken run, byte by byte, and the next one begins.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HOME = Path(__file__).parents[1]
NAMES = ("kills", "working", "lost", "doubled", "unequal", "torn", "again")
ASKED = [
    "resnet50",
    "abci",
    "--devices",
    "1..40:all",
    "--batch-per-device",
    "1,2,4,8,16",
    "--plan",
    "data:*",
    "--plan",
    "spatial:*",
    "--what-if",
    "network=2",
    "--quiet",
]


def command(folder: Path, jobs: int) -> list[str]:
    return [sys.executable, "-m", "oracle", "sweep", *ASKED, "--jobs", str(jobs),
            "--out", str(folder)]  # fmt: skip


def kept(folder: Path) -> list[int]:
    """Points of whole lines in the files of all processes, doubles and all."""
    found = []
    for place in (folder / "rows").glob("*.jsonl"):
        for line in place.read_bytes().split(b"\n")[:-1]:
            found.append(int(json.loads(line)[0]))
    return found


def torn(folder: Path) -> int:
    """Files whose last line a kill has cut off."""
    places = [place.read_bytes() for place in (folder / "rows").glob("*.jsonl")]
    return sum(bool(content) and not content.endswith(b"\n") for content in places)


def children(pid: int) -> list[int]:
    try:
        return [int(word) for word in
                Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]  # fmt: skip
    except OSError:
        return []


def strike(process: subprocess.Popen[bytes], rng: random.Random) -> str:
    """Kill everything, the parent, or one worker."""
    below = children(process.pid)
    what = rng.choice(["all", "parent", "worker"] if below else ["all", "parent"])
    if what == "worker":
        for pid in [rng.choice(below)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return "missed"
    elif what == "parent":
        process.kill()
    else:
        os.killpg(process.pid, signal.SIGKILL)
    return what


def kills(count: int = 300, seed: int = 0, jobs: int = 2, longest: float = 2.0) -> dict[str, Any]:
    """Figures of `count` kills."""
    rng = random.Random(seed)
    rows: list[dict[str, Any]] = []
    found = dict.fromkeys(("sweeps", *NAMES), 0)
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        whole = Path(scratch) / "unbroken"
        subprocess.run(command(whole, 1), cwd=HOME, check=True, stdout=subprocess.DEVNULL)
        want = (whole / "result.csv").read_bytes()
        points = want.count(b"\n") - 1
        while found["kills"] < count:
            folder = Path(scratch) / f"sweep{found['sweeps']}"
            one = _until_done(folder, rng, jobs, longest, count - found["kills"])
            found["sweeps"] += 1
            have = (folder / "result.csv").read_bytes()
            numbers = [int(line.split(b",")[0]) for line in have.splitlines()[1:]]
            one["doubled"] = len(numbers) - len(set(numbers))
            one["lost"] += points - len(set(numbers))
            one["unequal"] = int(have != want)
            one["again"] = len(kept(folder)) - points
            one["torn"] = torn(folder)
            rows.append(one)
            for name in NAMES:
                found[name] += one[name]
    goals = {"kills": "≥ 300", "lost": "0", "doubled": "0", "unequal": "0"}
    units = {
        "working": "after rows were kept", "lost": "rows", "doubled": "rows", "unequal": "files",
        "torn": "files", "again": "rows computed twice",
    }  # fmt: skip
    figures = {f"sweep_kills.{name}": {"value": float(value), "unit": units.get(name, ""),
                                       "goal": goals.get(name, "")}
               for name, value in found.items()}  # fmt: skip
    figures["sweep_kills.points"] = {"value": float(points), "unit": "rows a sweep", "goal": ""}
    seconds = time.monotonic() - begin
    figures["sweep_kills.seconds"] = {"value": round(seconds, 1), "unit": "s", "goal": ""}
    return {"figures": figures, "rows": rows}


WRITE = """
import sys
from oracle.ask.sweep import Grid, Ledger
folder, first, step, rows = sys.argv[1], *map(int, sys.argv[2:])
grid = Grid(("resnet50",), ("abci",), tuple(range(1, rows + 1)), (1.0,))
ledger = Ledger(folder, grid)
for number in range(first, rows, step):
    ledger.append(number, {"point": number, "why": "x" * (number % 200)})
ledger.close()
"""


def writers(count: int = 64, rows: int = 100_000) -> dict[str, Any]:
    """Processes that write to one folder at once, with no lock: what the merge finds."""
    sys.path.insert(0, str(HOME))
    from oracle.ask.sweep import Grid, Ledger

    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        crew = [
            subprocess.Popen([sys.executable, "-c", WRITE, scratch, str(i), str(count), str(rows)],
                             cwd=HOME) for i in range(count)
        ]  # fmt: skip
        codes = [process.wait() for process in crew]
        grid = Grid(("resnet50",), ("abci",), tuple(range(1, rows + 1)), (1.0,))
        merged = Ledger(scratch, grid).merged()
    whole = [row["point"] for row in merged] == list(range(rows)) and all(
        len(row["why"]) == row["point"] % 200 for row in merged
    )
    values = {"processes": count, "rows": len(merged), "failed": sum(map(bool, codes)),
              "lost": rows - len(merged), "whole": whole,
              "seconds": round(time.monotonic() - begin, 1)}  # fmt: skip
    goals = {"lost": "0", "failed": "0", "whole": "1", "rows": "100000"}
    return {"figures": {f"sweep_writers.{name}": {"value": float(value), "unit": "",
                                                  "goal": goals.get(name, "")}
                        for name, value in values.items()}, "rows": []}  # fmt: skip


def _until_done(
    folder: Path, rng: random.Random, jobs: int, longest: float, most: int
) -> dict[str, Any]:
    """Run, kill, run again; the last run is let be."""
    one: dict[str, Any] = dict.fromkeys(("kills", "working", "lost", "all", "parent", "worker"), 0)
    before: set[int] = set()
    while True:
        process = subprocess.Popen(command(folder, jobs), cwd=HOME, start_new_session=True,
                                   stdout=subprocess.DEVNULL)  # fmt: skip
        delay = rng.uniform(0.05, longest) if one["kills"] < most else 600.0
        try:
            code = process.wait(timeout=delay)
        except subprocess.TimeoutExpired:
            what = strike(process, rng)
            if what in one:
                one["kills"] += 1
                one[what] += 1
            # a sweep whose worker was killed hires another and may go on to its end
            try:
                code = process.wait(timeout=rng.uniform(0.05, longest))
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                code = process.wait()
                one["kills"] += 1
                one["all"] += 1
        now = set(kept(folder)) if (folder / "rows").is_dir() else set()
        one["lost"] += len(before - now)
        one["working"] += code < 0 and len(now) > len(before)
        before = now
        if code == 0:
            return one
        if code > 0:
            raise RuntimeError(f"the sweep ended by itself with {code}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--quick", action="store_true", help="20 kills")
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = kills(20 if asked.quick else asked.kills, asked.seed)
    found["figures"] |= writers(*(8, 8_000) if asked.quick else (64, 100_000))["figures"]
    if asked.json:
        print(json.dumps(found, indent=1))
    else:
        for name, figure in found["figures"].items():
            goal = f"   goal {figure['goal']}" if figure["goal"] else ""
            print(f"{name:<24} {figure['value']:>10g} {figure['unit']}{goal}")
    bad = found["figures"]["sweep_writers.lost"]["value"] + sum(
        found["figures"][f"sweep_kills.{n}"]["value"] for n in ("lost", "doubled", "unequal")
    )
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
