"""Fault injection: ranks killed and stopped at random points, and what the measurement keeps.

    python -m benchmarks.reliability [--quick] [--json] [--kills N] [--stalls N] [--ranks N]

Each trial measures collectives among a few ranks and kills or stops one at a random moment. The
message must name that rank, its phase and its operation, within 10 s of a kill and 5 s after the
time-out of a stall; all processes must be gone 5 s later; what was finished must still be there,
and a second run must go on from it. Then sweeps are killed (benchmarks.sweep_kills): no row may be
lost, none doubled.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import sweep_kills
from oracle.executor.measure.collectives import measure_collectives
from oracle.executor.ranks.heartbeat import last_status
from oracle.executor.ranks.launch import FAILED, Outcome
from oracle.executor.ranks.records import lines, of_all_ranks

SIZES = [2**10, 2**14, 2**18, 2**20]
STALL = 8.0  # seconds without a sign, in these trials; 60 by default
BOUND = {"SIGKILL": 10.0, "SIGSTOP": STALL + 5}  # seconds until the message


@dataclass(frozen=True)
class Trial:
    """One rank killed or stopped once."""

    how: str
    rank: int
    code: int
    noticed: float  # seconds from the signal to the message
    gone: float  # … and until no process was left
    named: bool  # rank, host, phase and operation
    orphans: int
    before: int  # samples that all ranks had finished at the signal
    after: int  # … and that the file has
    message: str

    @property
    def passed(self) -> bool:
        bound = BOUND[self.how]
        whole = self.named and not self.orphans and self.after >= self.before
        return self.code == FAILED and whole and self.noticed <= bound and self.gone <= bound + 5


def inject(how: str, ranks: int, folder: Path, chance: random.Random) -> Trial:
    """Measure, and signal a random rank after a random number of samples."""
    out, victim, when = folder / "out.jsonl", chance.randrange(ranks), chance.randrange(2, 30)
    injection = _Injection(how, victim, folder / "out.jsonl.parts", ranks, chance.uniform(0, 0.2))
    heard = 0

    def say(_: str) -> None:
        nonlocal heard
        heard += 1
        if heard >= when:
            injection.soon()

    outcome = _measure(out, ranks, STALL if how == "SIGSTOP" else 60.0, say)
    ended = time.monotonic()
    while not all(map(_gone, injection.pids)) and time.monotonic() < ended + 20:
        time.sleep(0.05)
    gone = time.monotonic() - injection.at
    message = outcome.message
    named = outcome.fault is not None and outcome.fault.rank == victim
    named = named and outcome.fault is not None and ":" in outcome.fault.activity
    kept = sum(1 for line in lines(out) if "seconds" in line)
    alive = sum(not _gone(pid) for pid in injection.pids)
    return Trial(
        how,
        victim,
        outcome.code,
        ended - injection.at,
        gone,
        named,
        alive,
        injection.finished,
        kept,
        message,
    )


def _measure(out: Path, ranks: int, timeout: float, say: Callable[[str], None]) -> Outcome:
    return measure_collectives(
        out, ranks=ranks, sizes=SIZES, repeats=5, longest=0.5, timeout=timeout, say=say
    )


class _Injection:
    """Sends a signal to one rank once, a moment after it was asked for."""

    def __init__(self, how: str, victim: int, parts: Path, ranks: int, delay: float) -> None:
        self.how, self.victim, self.parts, self.ranks = how, victim, parts, ranks
        self.delay, self.at, self.finished = delay, 0.0, 0
        self.pids: list[int] = []
        self.called = False

    def soon(self) -> None:
        if not self.called:
            self.called = True
            threading.Timer(self.delay, self.send).start()

    def send(self) -> None:
        attempt = sorted(self.parts.glob("attempt-*"))[-1]
        seen = [last_status(attempt, rank) for rank in range(self.ranks)]
        self.pids = [status.pid for status in seen if status]
        self.finished = len(of_all_ranks(self.parts, self.ranks)) - 1  # less the header's
        self.at = time.monotonic()
        status = seen[self.victim]
        if status:
            os.kill(status.pid, getattr(signal, self.how))


def _gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


def trials(how: str, count: int, ranks: int, seed: int) -> list[Trial]:
    found = []
    for number in range(count):
        with tempfile.TemporaryDirectory() as folder:
            found.append(inject(how, ranks, Path(folder), random.Random(seed * 1000 + number)))
        trial = found[-1]
        state = "ok" if trial.passed else "FAILED"
        sys.stderr.write(f"{number + 1}/{count} {how} of rank {trial.rank}: {state}, "
                         f"{trial.noticed:.1f} s\n")  # fmt: skip
    return found


def resumed(ranks: int, kills: int, seed: int) -> tuple[int, int]:
    """One measurement killed again and again, then finished: (samples lost, samples doubled)."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        most = 0
        for _ in range(kills):
            most = max(most, inject("SIGKILL", ranks, path, chance).after)
        outcome = _measure(path / "out.jsonl", ranks, 60.0, lambda _: None)
        assert outcome.complete, outcome.message
        samples = [(s["operation"], s["bytes"], s["note"]) for s in lines(path / "out.jsonl")
                   if "seconds" in s]  # fmt: skip
        keys = [line["key"] for line in lines(path / "out.jsonl.parts" / "rank-00000.jsonl")]
    return max(most - len(samples), 0), len(keys) - len(set(keys))


def figures(found: Sequence[Trial], again: tuple[int, int]) -> dict[str, dict[str, Any]]:
    made: dict[str, dict[str, Any]] = {}
    for how, name in (("SIGKILL", "kill"), ("SIGSTOP", "stall")):
        own = [trial for trial in found if trial.how == how]
        if not own:
            continue
        noticed = [trial.noticed for trial in own]
        made[f"{name}.trials"] = _figure(len(own), "", f">= {200 if how == 'SIGKILL' else 100}")
        made[f"{name}.passed"] = _figure(statistics.mean(t.passed for t in own), "1", "= 1")
        made[f"{name}.named"] = _figure(statistics.mean(t.named for t in own), "1", "= 1")
        made[f"{name}.noticed_median"] = _figure(statistics.median(noticed), "s")
        made[f"{name}.noticed_most"] = _figure(max(noticed), "s", f"<= {BOUND[how]:g}")
        gone = max(trial.gone for trial in own)
        made[f"{name}.gone_most"] = _figure(gone, "s", f"<= {BOUND[how] + 5:g}")
        made[f"{name}.orphans"] = _figure(sum(t.orphans for t in own), "processes", "= 0")
        lost = sum(max(t.before - t.after, 0) for t in own)
        made[f"{name}.samples_lost"] = _figure(lost, "samples", "= 0")
    made["resume.samples_lost"] = _figure(again[0], "samples", "= 0")
    made["resume.samples_doubled"] = _figure(again[1], "samples", "= 0")
    return made


def _figure(value: float, unit: str, goal: str = "") -> dict[str, Any]:
    return {"value": round(float(value), 3), "unit": unit, "goal": goal}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few trials, under a minute")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--stalls", type=int, default=100)
    parser.add_argument("--sweep-kills", type=int, default=300)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    kills, stalls = (4, 1) if given.quick else (given.kills, given.stalls)
    sweeps, writers = (2, (4, 2_000)) if given.quick else (given.sweep_kills, (64, 100_000))
    found = trials("SIGKILL", kills, given.ranks, given.seed)
    found += trials("SIGSTOP", stalls, given.ranks, given.seed)
    made = figures(found, resumed(given.ranks, 2 if given.quick else 8, given.seed))
    made |= sweep_kills.kills(sweeps, given.seed)["figures"]
    made |= sweep_kills.writers(*writers)["figures"]
    if given.json:
        document = {"figures": made, "rows": [asdict(trial) for trial in found]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    for trial in found:
        if not trial.passed:
            sys.stdout.write(f"FAILED {trial}\n")
    for name, figure in made.items():
        sys.stdout.write(f"{name:28} {figure['value']:>10g} {figure['unit']:20} {figure['goal']}\n")


if __name__ == "__main__":
    main()
