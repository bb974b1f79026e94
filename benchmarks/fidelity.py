"""How near predictions come to published measurements, table by table.

    python -m benchmarks.fidelity [--quick] [--json] [--table NAME] [--rows] [--reference DIR]
    python -m benchmarks.fidelity --record

Tables are read from DIR/published, else from `benchmarks/data/published`. `--record` writes what
is reached today into `benchmarks/data/fidelity.json`; a test holds the next change to it.
`misfits` are rows that ran and whose plan is called infeasible, by memory or by a rule;
`oom_fitting`, of `oom` rows that ran out of memory, those whose plan is said to fit.
No constant belongs to a table or a row; systems may be calibrated on kernels and collectives.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oracle
from benchmarks.published import CARRIED, TABLES, Case, Table, rows, tables

RECORD = CARRIED.parent / "fidelity.json"
Array = NDArray[np.float64]
COUNTS = ("misfits", "oom_fitting")


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="every fifth row of the long tables")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--table", action="append", choices=sorted(TABLES))
    parser.add_argument("--rows", action="store_true", help="every row, predicted and measured")
    parser.add_argument("--reference", type=Path, metavar="DIR")
    parser.add_argument("--record", action="store_true", help="keep what is reached for the tests")
    asked = parser.parse_args()
    if asked.record:
        RECORD.write_text(json.dumps(recorded(), indent=1) + "\n", encoding="utf-8")
        return 0
    found, lines = {}, []
    for name, table in TABLES.items():
        if asked.table and name not in asked.table:
            continue
        folder = tables(asked.reference)
        paths = sorted(folder.glob(table.file))
        if not paths:
            missing = f"no {folder.name}/{table.file} under {folder.parent.name}"
            lines.append({"table": name, "skipped": f"skipped: {missing}"})
            continue
        result = judge(table, paths, quick=asked.quick)
        lines.append({"table": name, "goal": table.goal, "peers": table.peers, **result["summary"]})
        found[name] = result
    figures = {
        f"{line['table']}.{key}": {"value": value, "unit": unit(key), "goal": line.get("goal", "")}
        for line in lines for key, value in line.items()
        if isinstance(value, float | int) and not isinstance(value, bool)
    }  # fmt: skip
    if asked.as_json:
        every = [row for name, result in found.items() for row in result["rows"]]
        print(
            json.dumps(
                {"figures": figures, "rows": [*lines, *(every if asked.rows else [])]}, indent=1
            )
        )
    else:
        print(text(lines))
        if asked.rows:
            for result in found.values():
                print("\n".join(map(spoken, result["rows"])))
    return 0


def spoken(row: dict[str, Any]) -> str:
    """A row as a line; what ran out of memory has no error, and a misfit says so."""
    error = "" if row["error"] is None else f"{row['error']:+.1%}"
    measured = "out of memory" if row["measured"] is None else f"{row['measured']:.5g}"
    fault = " misfit" * (row["error"] is not None and not row["fits"])
    return (f"{error:>7} {row['predicted']:12.5g} {measured:>13}  "
            f"{row['group']}  {row['plan']}  B={row['batch']}{fault}")  # fmt: skip


def reached(name: str) -> dict[str, Any]:
    """What is recorded of a table that comes along: rows, mean error in percent, misfits."""
    table = TABLES[name]
    summary = judge(table, sorted(CARRIED.glob(table.file)))["summary"]
    counts = {key: summary[key] for key in COUNTS if key in summary}
    return {"rows": summary["rows"], "mape": round(summary["mape"], 2), **counts}


def recorded() -> dict[str, Any]:
    """The same of every table."""
    return {name: reached(name) for name in TABLES}


def unit(key: str) -> str:
    """What a figure is counted in."""
    return "" if key in ("rows", "refused", "groups", "tau", "oom", *COUNTS) else "%"


def judge(table: Table, paths: Sequence[Path], quick: bool = False) -> dict[str, Any]:
    """Predict every row of a table and sum up how near it comes."""
    cases = list(table.cases([row for path in paths for row in rows(path)]))
    if quick and len(cases) > 100:
        cases = cases[::5]
    found = predict(cases)
    predicted, low, high, fits = found.values, found.low, found.high, found.fits
    measured = np.array([case.measured for case in cases])
    ran = np.array([case.ran for case in cases], bool)
    with np.errstate(invalid="ignore"):
        error = np.where(ran, predicted / measured - 1, np.nan)
    known, seen = np.isfinite(error), np.isfinite(predicted)
    groups: dict[Any, list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        if known[i]:
            groups[(str(case.system), *case.group)].append(i)
    # where all predictions are one there is nothing to choose between
    chosen = [g for g in groups.values() if len(g) > 2 and np.ptp(predicted[g]) > 0]
    ranks = [ranking(predicted[g], measured[g]) for g in chosen]
    summary: dict[str, Any] = {
        "rows": int(seen.sum()), "refused": found.refused, "misfits": int((known & ~fits).sum()),
    }  # fmt: skip
    if not ran.all():
        out = seen & ~ran
        summary |= {"oom": int(out.sum()), "oom_fitting": int((out & fits).sum())}
    if known.any():
        summary |= {
            "mape": 100 * float(np.abs(error[known]).mean()),
            "median": 100 * float(np.median(np.abs(error[known]))),
            "bias": 100 * float(error[known].mean()),
            "max": 100 * float(np.abs(error[known]).max()),
            "coverage": 100 * float(((low <= measured) & (measured <= high))[known].mean()),
            "width": 100 * float(np.median((high - low)[known] / predicted[known])),
        }
    if ranks and cases[0].kind == "seconds":
        taus, picks, regrets = (np.array(column) for column in zip(*ranks, strict=True))
        summary |= {
            "groups": len(ranks), "tau": float(np.nanmean(taus)),
            "best_pick": 100 * float(picks.mean()), "regret_mean": 100 * float(regrets.mean()),
            "regret_max": 100 * float(regrets.max()),
        }  # fmt: skip
    lines = [
        {"table": table.name, "group": "/".join(map(str, case.group)), "plan": found.plans[i],
         "batch": case.batch, "measured": case.measured if ran[i] else None,
         "predicted": float(predicted[i]), "low": float(low[i]), "high": float(high[i]),
         "error": float(error[i]) if ran[i] else None, "fits": bool(fits[i])}
        for i, case in enumerate(cases) if seen[i]
    ]  # fmt: skip
    return {"summary": summary, "rows": lines}


@dataclass
class Predicted:
    """Seconds or bytes of each case, their interval, whether and under which plan it fits."""

    values: Array
    low: Array
    high: Array
    fits: NDArray[np.bool_]
    plans: list[str]  # the fastest where the source leaves it open
    deviation: Array  # 1σ
    sure: Array  # the probability that its memory fits
    work: list[Any]  # what each step was priced from
    refused: int = 0  # cases whose spec cannot be read; their values are NaN


def predict(
    cases: list[Case], known: Callable[[Case], tuple[Any, str]] | None = None, **options: Any
) -> Predicted:
    """Predict every case, those of one model, system and options together.

    `known` says under which system and software; those of the case if it is not given.
    """
    values, low, high, deviation, sure = (np.full(len(cases), np.nan) for _ in range(5))
    out = Predicted(values, low, high, np.zeros(len(cases), bool), [case.plan for case in cases],
                    deviation, sure, [None] * len(cases))  # fmt: skip
    together: dict[Any, list[int]] = defaultdict(list)
    for i, case in enumerate(cases):
        question = case.model, case.system, case.software, sorted(case.options.items())
        together[str(question)].append(i)
    for members in together.values():
        one = cases[members[0]]
        system, software = known(one) if known else (one.system, one.software)
        plans = [(i, plan) for i in members for plan in (cases[i].plan, *cases[i].others)]
        try:
            found = oracle.estimate(
                one.model, system, [plan for _, plan in plans],
                [cases[i].batch for i, _ in plans], software=software or None, reading="none",
                **one.options, **options,
            )  # fmt: skip
        except oracle.SpecError as error:
            print(f"refused: {error}", file=sys.stderr)
            out.refused += len(members)
            continue
        best = fastest([i for i, _ in plans], found)
        found = found.take(best)
        out.fits[members], sure[members] = found.feasible, found.fits
        for i, row, work in zip(members, best, found.work, strict=True):
            out.plans[i], out.work[i] = plans[row][1], work
        if one.kind != "seconds":
            tensors = one.kind == "allocated"
            held = found.memory - tensors * found.memory_kinds["reserve"]
            if (
                one.kind == "memory"
            ):  # a device shows what its allocator keeps, up to all that it has
                most = np.maximum(held, found.system.device.memory)
                held = np.minimum(held + found.cached, most)
            if one.kind == "first":
                held = np.array([work.first_stage_bytes for work in found.work])
            values[members] = held
            wide = found.memory_high - found.memory
            low[members], high[members] = held - wide, held + wide
            deviation[members] = found.memory_deviation
        else:
            values[members] = found.seconds
            low[members], high[members] = found.seconds_low, found.seconds_high
            deviation[members] = found.deviation
    return out


def fastest(owners: list[int], found: Any) -> list[int]:
    """Of each case's plans the fastest that fits, in order: most cases have but one."""
    best: dict[int, int] = {}
    for row, owner in enumerate(owners):
        if owner not in best or (
            (not found.feasible[row], found.seconds[row])
            < (not found.feasible[best[owner]], found.seconds[best[owner]])
        ):
            best[owner] = row
    return list(best.values())


def ranking(predicted: Any, measured: Any) -> tuple[float, bool, float]:
    """(Kendall τ, whether our pick is the measured best, its regret) of a group."""
    from scipy.stats import kendalltau

    tau = float(kendalltau(predicted, measured).statistic)
    pick = int(np.argmin(predicted))
    regret = float(measured[pick] / measured.min() - 1)
    return tau, regret < 1e-9, regret


COLUMNS = {
    "rows": "rows", "mape": "MAPE", "median": "median", "bias": "bias", "max": "max", "tau": "τ",
    "best_pick": "best", "regret_mean": "regret", "coverage": "in 90 %", "width": "width",
    "misfits": "misfits", "oom_fitting": "oom fit",
}  # fmt: skip


def cell(key: str, line: dict[str, Any]) -> str:
    """A figure of the summary as text; empty where a table has no groups to rank."""
    if key not in line:
        return ""
    value = line[key]
    if not unit(key):
        return f"{value:.2f}" if key == "tau" else str(value)
    return f"{value:+.1f}%" if key == "bias" else f"{value:.1f}%"


def text(lines: list[dict[str, Any]]) -> str:
    """The summary as a table."""
    out = [f"{'table':<18}" + "".join(f"{head:>9}" for head in COLUMNS.values()) + "  goal"]
    for line in lines:
        if "mape" not in line:
            out.append(f"{line['table']:<18} {line.get('skipped', 'no row could be predicted')}")
            continue
        cells = "".join(f"{cell(key, line):>9}" for key in COLUMNS)
        out.append(f"{line['table']:<18}{cells}  {line['goal']}")
        if line["peers"]:
            out.append(f"{'':<20}peers: {line['peers']}")
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main())
