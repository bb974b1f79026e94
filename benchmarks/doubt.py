"""How sure is it: how often intervals hold, also where kernels, network or software are unknown.

    python -m benchmarks.doubt [--quick] [--json] [--table NAME] [--reference DIR]
    python -m benchmarks.doubt --fit [--reference DIR]

Each published table is judged as it is, then with one kind of knowledge left out: `kernels` (the
device has its datasheet alone), `network` (no collectives measured, no share of a link), `software`
(nobody says what ran it: `plain`). Configurations that a table repeats count once, by the middle
of what was measured. `p` is of a two-sided binomial test of 90 % that takes rows to err one by
one, which rows of one machine and one framework do not; `p shared` takes half of the variance to
be common to a table, as the probability of being the best does. The middle interval may be ± 25 %
where all is known, and a factor of 2 where something is left out or where less than half of the
seconds of the middle configuration (`fitted`) are of kernels that were measured. Scores are
Brier's: the mean square of a probability's distance from what came true; `guess` is that of no
knowledge at all.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import doubt_fit, fidelity
from benchmarks.published import TABLES, Case, rows, tables
from oracle.ask.ties import ALIKE, likeliest
from oracle.kernels.provenance import MEASURED
from oracle.spec import catalogue
from oracle.spec.doubt import NINETY
from oracle.spec.system import System

Array = NDArray[np.float64]
WITHOUT = ("", "kernels", "network", "software")
LEVEL = 0.05  # of the test
KNOWN, UNKNOWN = 0.25, 2.0  # the most that the middle interval may be: ± so much; a factor


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="every fifth row of the long tables")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--table", action="append", choices=sorted(TABLES))
    parser.add_argument("--reference", type=Path, metavar="DIR")
    parser.add_argument("--fit", action="store_true", help="fit widths anew, by all other tables")
    asked = parser.parse_args()
    folder = tables(asked.reference)
    if asked.fit:
        steps = [each for name in TABLES for each in rows_of(folder, name)]
        print(doubt_fit.report(steps, chances))
        return 0
    found = judged(folder, asked.table or list(TABLES), asked.quick)
    print(json.dumps(found, indent=1) if asked.as_json else text(found))
    return 0


def judged(folder: Path, names: Sequence[str], quick: bool = False) -> dict[str, Any]:
    """Every table under everything that is left out, and the scores of both probabilities."""
    lines: list[dict[str, Any]] = []
    best: list[tuple[Array, int]] = []
    fits: list[tuple[Array, Array]] = []
    for name in names:
        for without, held in without_each(folder, name, quick):
            found = held.found
            lines.append({"table": name, "without": without, **held.summary(without)})
            if not without:
                best += held.groups()
                fits.append((found.sure, held.ran.astype(float)))
    return {"rows": lines, "figures": figures(lines, best, fits)}


def without_each(folder: Path, name: str, quick: bool = False) -> Iterator[tuple[str, Held]]:
    """A table as it is and with each kind of knowledge left out."""
    paths = sorted(folder.glob(TABLES[name].file))
    cases = list(TABLES[name].cases([row for path in paths for row in rows(path)]))
    cases = cases[::5] if quick and len(cases) > 100 else cases
    if not cases:
        return
    for without in WITHOUT if cases[0].kind == "seconds" else ("", "software"):
        found = fidelity.predict(
            cases, lambda case, what=without: less(case, what), any_plan=without == "software"
        )
        yield without, Held(cases, found)


def rows_of(folder: Path, name: str) -> Iterator[doubt_fit.Rows]:
    """A table's configurations as widths are fitted to them; none of tables of memory."""
    for without, held in without_each(folder, name):
        if held.cases[0].kind == "seconds":
            rows, measured = zip(*held.distinct(), strict=True)
            work = [held.found.work[row] for row in rows]
            yield doubt_fit.Rows.of(name, without, measured, work)


def less(case: Case, without: str) -> tuple[System, str]:
    """A case's system and software with one kind of knowledge left out."""
    system, software = catalogue.system(case.system), case.software
    if without == "kernels":
        system = replace(system, device=replace(system.device, kernels=()))
    if without == "network":
        bare = tuple(replace(level, share=None) for level in system.levels)
        system = replace(system, collectives=(), library=(), levels=bare)
    return system, "plain" if without == "software" else software


@dataclass(frozen=True)
class Held:
    """The rows of a table, and what was predicted of them."""

    cases: list[Case]
    found: fidelity.Predicted

    @property
    def ran(self) -> NDArray[np.bool_]:
        return np.array([case.ran for case in self.cases])

    def distinct(self) -> list[tuple[int, float]]:
        """(a row, the middle of what was measured) of each configuration that ran."""
        alike: dict[str, list[int]] = defaultdict(list)
        for i, case in enumerate(self.cases):
            if case.ran and np.isfinite(self.found.values[i]):
                what = case.model, case.system, self.found.plans[i], case.batch, case.software
                alike[str((what, sorted(case.options.items())))].append(i)
        return [
            (rows[0], float(np.exp(np.median([np.log(self.cases[i].measured) for i in rows]))))
            for rows in alike.values()
        ]

    def fitted(self, rows: Sequence[int]) -> float:
        """Of the seconds of the middle configuration's kernels, those of measured ones."""
        shares = []
        for each in (self.found.work[row] for row in rows):
            known = each.block.step.uncertainty
            at, passes = known.same[each.row], known.known[:2]
            mine = (one.seconds[kind][at] for one in passes for kind in MEASURED
                    if kind in one.seconds)  # fmt: skip
            shares.append(sum(mine) / sum(one.total[at] for one in passes))
        return float(np.median(shares))

    def summary(self, without: str) -> dict[str, Any]:
        """How often the interval held, how wide it was, and whether that is what it claims."""
        rows, measured = (np.array(column) for column in zip(*self.distinct(), strict=True))
        middle, low, high = (
            each[rows] for each in (self.found.values, self.found.low, self.found.high)
        )
        inside = (low <= measured) & (measured <= high)
        alone, shared = chances(int(inside.sum()), len(rows))
        factor = float(np.median(np.maximum(high / middle, middle / low)))
        half = float(np.median((high - low) / middle) / 2)
        fitted = self.fitted(rows) if self.cases[0].kind == "seconds" else 1.0
        unknown = bool(without) or fitted < 0.5
        verdict = "holds" if alone >= LEVEL else "too narrow" if inside.mean() < 0.9 else "too wide"
        return {
            "n": len(rows), "repeats": int(self.ran.sum()) - len(rows),
            "coverage": float(inside.mean()), "p": alone, "p_shared": shared,
            "half": half, "factor": factor, "fitted": fitted,
            "verdict": verdict, "wide": factor > UNKNOWN if unknown else half > KNOWN,
        }  # fmt: skip

    def groups(self) -> list[tuple[Array, int]]:
        """(probability of being the best, which was) where rows of equal work compete."""
        alike: dict[str, list[int]] = defaultdict(list)
        for i, case in enumerate(self.cases):
            if case.kind == "seconds" and case.ran and np.isfinite(self.found.values[i]):
                alike[str((case.system, case.group))].append(i)
        return [
            (likeliest(self.found.values[rows], self.found.deviation[rows]),
             int(np.argmin([self.cases[i].measured for i in rows])))
            for rows in alike.values() if len(rows) > 2 and np.ptp(self.found.values[rows]) > 0
        ]  # fmt: skip


def chances(inside: int, count: int) -> tuple[float, float]:
    """p of so many rows inside where each is so with 90 %: one by one, and erring in part alike.

    Alike: all z = √ALIKE u + √(1 - ALIKE) v with one u a table, and a row is inside where |z| is.
    """
    from scipy.stats import binom, binomtest, norm

    alone = float(binomtest(inside, count, 0.9).pvalue)
    u = np.sqrt(ALIKE) * norm.ppf((np.arange(2000) + 0.5) / 2000)
    own = np.sqrt(1 - ALIKE)
    each = norm.cdf((NINETY - u) / own) - norm.cdf((-NINETY - u) / own)
    sides = binom.cdf(inside, count, each).mean(), binom.sf(inside - 1, count, each).mean()
    return alone, float(min(1.0, 2 * min(sides)))


def figures(
    lines: list[dict[str, Any]], best: list[tuple[Array, int]], fits: list[tuple[Array, Array]]
) -> dict[str, Any]:
    """Coverage by table, the scores, and how many tables fall short of what is claimed."""
    found = {
        ".".join(filter(None, (line["table"], line["without"], "coverage"))):
        {"value": 100 * line["coverage"], "unit": "%", "goal": "90"} for line in lines
    }  # fmt: skip
    for without in WITHOUT:
        mine = [line for line in lines if line["without"] == without]
        for name, count in (("rejected", sum(line["p"] < LEVEL for line in mine)),
                            ("rejected_shared", sum(line["p_shared"] < LEVEL for line in mine)),
                            ("wide", sum(line["wide"] for line in mine))):  # fmt: skip
            key = f"{name}.{without or 'whole'}"
            found[key] = {"value": count, "unit": f"of {len(mine)}", "goal": "0"}
    scores: dict[str, float] = {}
    if best:
        hits = [np.arange(len(likely)) == which for likely, which in best]
        square = [(likely - hit) ** 2 for (likely, _), hit in zip(best, hits, strict=True)]
        guess = [(1 / len(hit) - hit) ** 2 for hit in hits]
        scores["best"], scores["best.guess"] = (
            float(np.mean([each.sum() for each in them])) for them in (square, guess)
        )
    if fits:
        said, true = (np.concatenate(column) for column in zip(*fits, strict=True))
        seen = np.isfinite(said)
        scores["fits"] = float(np.mean((said - true)[seen] ** 2))
        scores["fits.guess"] = float(np.var(true[seen]))
        scores["fits.out_of_memory"] = float(np.max(said[seen & (true < 1)], initial=0.0))
        scores["fits.ran"] = float(np.min(said[seen & (true > 0)], initial=1.0))
    return found | {
        f"brier.{name}" if "." not in name or name.endswith("guess") else name:
        {"value": value, "unit": "", "goal": GOALS.get(name, "")} for name, value in scores.items()
    }  # fmt: skip


# the most that is said to fit of what ran out of memory, the least of what ran
GOALS = {"fits.out_of_memory": "<= 0.5", "fits.ran": ">= 0.05"}


def text(found: dict[str, Any]) -> str:
    """The tables, one line each, and the figures that are not of one table."""
    out = [f"{'table':<18}{'without':<10}{'n':>5}{'in 90 %':>9}{'p':>8}{'p shared':>10}"
           f"{'half':>8}{'factor':>8}{'fitted':>8}  verdict"]  # fmt: skip
    for line in found["rows"]:
        verdict = line["verdict"] + ", wide" * line["wide"]
        out.append(
            f"{line['table']:<18}{line['without'] or '-':<10}{line['n']:>5}"
            f"{line['coverage']:>9.1%}{line['p']:>8.3f}{line['p_shared']:>10.3f}"
            f"{line['half']:>8.1%}{line['factor']:>8.2f}{line['fitted']:>8.0%}  {verdict}"
        )
    for name, each in found["figures"].items():
        goal = f"   (goal {each['goal']})" if each["goal"] else ""
        if not name.endswith(".coverage"):
            out.append(f"{name} = {each['value']:.3g} {each['unit']}{goal}")
    return "\n".join(out)


if __name__ == "__main__":
    sys.exit(main())
