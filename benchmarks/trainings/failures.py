"""Goodput: closed forms held against jobs played failure by failure."""

from __future__ import annotations

import numpy as np

from benchmarks.table import Table, figure
from oracle.run.goodput import between_failures, goodput

HOUR, DAY = 3600.0, 86400.0
RUNS, TURNS = 10_000, 100
MACHINES = [  # between failures, checkpoint, restart, safe only after
    (3.09 * HOUR, 60.0, 600.0, 0.0), (3.09 * HOUR, 5.0, 600.0, 300.0), (24 * HOUR, 300.0, 1200.0,
     0.0), (1800.0, 60.0, 300.0, 0.0), (7.9 * HOUR, 300.0, 750.0, 0.0),
]  # fmt: skip


def played(
    between: float, checkpoint: float, restart: float, interval: float, safe_after: float,
    runs: int, turns: int = TURNS,
) -> float:  # fmt: skip
    """The share of progress of so many jobs, played failure by failure."""
    draw = np.random.default_rng(0)
    turn = interval + checkpoint
    now, kept, safe = np.zeros(runs), np.zeros(runs), np.zeros(runs)
    failure = draw.exponential(between, runs)
    at = np.arange(runs)  # jobs under way
    while len(at):
        through = failure[at] > now[at] + turn
        good, bad = at[through], at[~through]
        now[good] += turn
        kept[good] += 1
        safe[good] = now[good] + safe_after
        now[bad] = failure[bad]
        unsafe = bad[now[bad] < safe[bad]]  # the last checkpoint was still on its way
        kept[unsafe] -= 1
        safe[bad] = 0.0
        left = bad
        while len(left):  # a restart may fail too
            next_ = draw.exponential(between, len(left))
            done = next_ > restart
            failure[left] = now[left] + next_
            now[left] += np.where(done, restart, next_)
            left = left[~done]
        at = at[kept[at] < turns]
    return float(np.mean(kept * interval / now))


def table(quick: bool = False) -> Table:
    """Closed forms against jobs that are played, and interruptions that were published."""
    lines, off = [], []
    for between, checkpoint, restart, safe_after in MACHINES:
        found = goodput(between, checkpoint, restart, safe_after=safe_after)
        share = played(between, checkpoint, restart, float(found.interval), safe_after,
                       RUNS // 10 if quick else RUNS)  # fmt: skip
        off.append(abs(float(found.progress) / share - 1))
        lines.append({
            "a failure each": f"{between / HOUR:.3g} h", "checkpoint": f"{checkpoint:g} s",
            "safe after": f"{safe_after:g} s", "restart": f"{restart:g} s",
            "interval": f"{float(found.interval):.0f} s", "closed": f"{float(found.progress):.2%}",
            "played": f"{share:.2%}",
        })  # fmt: skip
    # 419 unexpected interruptions of 16,384 H100 in 54 days [grattafiori2024, Table 5]
    each = between_failures(16384, 54 * DAY * 16384 / 419) / HOUR
    return {
        "title": "goodput: closed form against a simulation of failures", "rows": lines,
        "figures": {"closed_form.worst": figure(max(off), "", "≤ 0.01"),
                    "llama3_405b.hours_between": figure(each, "h", "3.1 published")},
    }  # fmt: skip
