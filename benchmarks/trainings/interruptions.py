"""Interruptions of published trainings, and their goodput where what it takes is stated.

Each figure is worked out of stated inputs and printed beside what was stated; nothing is fitted.
Where an input is not stated, what the stated goodput implies of it is printed instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from statistics import stdev

from benchmarks.published import RUNS, rows
from benchmarks.table import Table, figure
from oracle.run.goodput import best_interval, goodput
from oracle.spec.doubt import NINETY
from oracle.spec.running import Reliability

MINUTE, HOUR, DAY, NODE = 60.0, 3600.0, 86400.0, 8
STARTS = (5 * MINUTE, 20 * MINUTE)  # restarts on Meta's RSC (fail046)
Line = tuple[str, str, str, str]  # the run, what, from its inputs, as it was stated


class Stated(dict[str, str]):
    """Values of the table of failures, by their id."""

    def number(self, name: str) -> float:
        return float(self[name].strip("~>=+ ").split()[0])


def table(quick: bool = False) -> Table:
    """What was stated, and what follows from it."""
    known = Stated((row["id"], row["value"]) for row in rows(RUNS / "failures.csv"))
    parts = (llama, clusters, bloom, implied)
    lines = [
        dict(zip(("run", "figure", "from its inputs", "stated"), line, strict=True))
        for part in parts for line in part(known)
    ]  # fmt: skip
    each, spread = per_device(known), apart(known)
    devices, projected = 16384, known.number("fail050")
    found = {
        "llama3_405b.hours_between": (hours_between(known), "h", "3.1 published"),
        "llama3_405b.goodput": (shares_of_llama(known)[0], "", "> 0.9 published"),
        "rsc.hours_between": (rsc(known, devices) / HOUR, "h", f"{projected:g} published"),
        "machines.factor_90": (spread, "", ""),
    }
    return {
        "title": "interruptions of published trainings", "rows": lines,
        "figures": {name: figure(*one) for name, one in found.items()},
        "notes": [f"hours between failures of a device on six machines: "
                  f"{', '.join(f'{one / 1000:.3g} k' for one in sorted(each))}: by one of them "
                  f"another is within a factor of {spread:.2g}, 90 % of the time"],
    }  # fmt: skip


def per_device(known: Stated) -> list[float]:
    """Hours between two failures of a device, of each machine that was counted on."""
    opt = known.number("fail026") + known.number("fail027")  # by hand and by themselves
    return [
        54 * 24 * 16384 / known.number("fail020"),  # Llama 3
        24 * NODE / known.number("fail048"),  # nodes of RSC-1
        1024 * known.number("fail049"),  # jobs of RSC
        60 * 24 * 992 / opt,
        7 * 24 * 384.0,  # BLOOM, one a week
        122 * 24 * 1600 / known.number("fail104"),  # Crusoe
    ]


def apart(known: Stated) -> float:
    """How far off one machine may be by another, either way, 90 % of the time."""
    return math.exp(NINETY * math.sqrt(2) * stdev(math.log(one) for one in per_device(known)))


def hours_between(known: Stated) -> float:
    """Of Llama 3's failures, from those of a device as a system says them."""
    mtbf = per_device(known)[0] * HOUR
    return 1 / (Reliability("", mtbf=mtbf).rate(16384, NODE) or 1e-30) / HOUR


def shares_of_llama(known: Stated) -> list[float]:
    """5.67 TB to a store of 2 TB/s (chec003), started again as jobs on Meta's RSC are."""
    between, writing = hours_between(known) * HOUR, 14 * 405e9 / 2e12
    return [float(goodput(between, writing, start).progress) for start in STARTS]


def llama(known: Stated) -> Iterator[Line]:
    between = hours_between(known)
    yield "Llama 3 405B", "hours between failures", f"{between:.3g}", known["fail023"]
    shares = " to ".join(f"{share:.1%}" for share in reversed(shares_of_llama(known)))
    stated = f"{known['fail021']} %"
    yield "", "goodput, restarts of 20 to 5 min as on RSC (its own not stated)", shares, stated


def rsc(known: Stated, devices: int) -> float:
    """Seconds between failures on RSC-1."""
    said = Reliability("", per_1000_node_days=1000 * known.number("fail048"))
    return 1 / (said.rate(devices, NODE) or 1e-30)


def clusters(known: Stated) -> Iterator[Line]:
    """Meta's RSC: what its failures of nodes say of jobs, and of their goodput."""
    for name, devices in (("fail049", 1024), ("fail050", 16384), ("fail051", 131072)):
        hours = rsc(known, devices) / HOUR
        yield f"RSC-1, {devices:,} A100", "hours between failures", f"{hours:.3g}", known[name]
    write, every = known.number("fail045") * MINUTE, known.number("fail047") * HOUR
    for nodes in (128, 512, 2048):
        between = DAY / (known.number("fail044") * nodes)
        shares = [float(goodput(between, write, start, every).progress) for start in STARTS]
        best = float(best_interval(write, between)) / MINUTE
        own = [float(goodput(between, write, start).progress) for start in STARTS]
        text = (
            f"{shares[1]:.1%} to {shares[0]:.1%}; {own[1]:.1%} to {own[0]:.1%} each {best:.0f} min"
        )
        yield f"RSC, {nodes} nodes", "goodput, a checkpoint an hour; at best", text, ""


def bloom(known: Stated) -> Iterator[Line]:
    """BLOOM: 100 iterations of 105 s between checkpoints of 40 s, a failure a week."""
    every, write, between = 100 * 105.0, 40.0, 7 * DAY
    most = (every + write) / HOUR
    yield "BLOOM", "hours lost by a failure at most", f"{most:.2f}", known["fail036"]
    found = goodput(between, write, 0.0, every)
    share = float(found.progress)
    stated = known["fail125"]
    yield "", "goodput, restarts (not stated) aside", f"{share:.1%}", stated
    longer = (1 / known.number("fail125") - 1 / share) * between / HOUR
    yield "", "hours of restarts and hangs that the rest implies, each week", f"{longer:.3g}", ""


def implied(known: Stated) -> Iterator[Line]:
    """What stated goodputs imply of inputs that nobody states."""
    count = known.number("fail029")
    lost = (1 - known.number("fail033")) * 56 * 24 / count
    name = "OPT-175B, 90 restarts in 56 days"
    yield name, "hours that each costs, implied", f"{lost:.3g}", ""
    opt = known.number("fail026") + known.number("fail027")
    each = known.number("fail034") / 992 / opt
    yield "", "the same by the hours wasted (178,000)", f"{each:.3g}", ""
    yield "Gemini Ultra", "goodput (inputs not stated)", "", f"{known['fail097']} %"
    before, after = (float(word) / 100 for word in known["fail097"].split(" -> "))
    fewer = (1 / before - 1) / (1 / after - 1)
    yield "", "overhead that replicas in memory take away, implied", f"{fewer:.2g} times", ""
    yield "AWS HLAT", "goodput (inputs not stated)", "", f"{known['fail100']} %"
    own, hand = (known.number(one) / 100 for one in ("fail100", "fail101"))
    fewer = (1 / hand - 1) / (1 / own - 1)
    yield "", "overhead that restarts by themselves take away, implied", f"{fewer:.2g} times", ""
