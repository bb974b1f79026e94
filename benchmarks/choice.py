"""Which plan the oracle would choose, where others ran them all: `python -m benchmarks.choice`.

    python -m benchmarks.choice [--system NAME] [--software NAME] [--json] [--reference DIR]

A question is a model on so many nodes; its plans are those that ran. Of each question: how much
slower the plan ranked first was than the best (regret), the best of the first three, how far down
the best one stands and how much slower it is said to be there, and Kendall's τ. Beside it the same
of choosing by chance, of a rule of thumb (least tensor, then least pipeline, then the largest
micro-batch that is said to fit) and of Megatron's guidance (tensor ranks inside a node as few as
fit, then pipelines, replicas for the rest; NVIDIA/Megatron-LM, docs: parallelism guide). Seconds of
pipelines beside tensor ranks across nodes are known to be off, so those rows are apart.
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

import oracle
from benchmarks.published import Row, nanotron, number, rows, tables
from benchmarks.published.table import BRAIN_ADAM

FILE = "nanotron_h100.csv"
RECOMMENDED = 0.95  # chance to fit from which `recommend` names a plan
SURE = 0.9  # chance to fit from which a plan that crashed was a mistake with confidence
NEAR = 2.0  # times the best of its question: plans that anybody would consider


@dataclass(frozen=True)
class Plan:
    """A plan of the sweep, as it ran and as it is predicted."""

    row: Row
    measured: float  # seconds; NaN where it crashed
    memory: float  # bytes that rank 0 held, NaN likewise
    seconds: float
    low: float
    high: float
    held: float  # on the first stage
    fits: bool
    chance: float  # that it fits

    @property
    def ran(self) -> bool:
        return bool(np.isfinite(self.measured))

    @property
    def micro(self) -> int:
        """Samples of a micro-batch."""
        batch, data, pieces = (self.degree(name) for name in ("global_batch", "dp", "accumulate"))
        return batch // (data * pieces)

    def degree(self, name: str) -> int:
        return number(self.row, name)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--system", default=nanotron.SYSTEM)
    parser.add_argument("--software", default=nanotron.NANOTRON)
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--quick", action="store_true", help="the smaller model alone")
    parser.add_argument("--reference", type=Path, metavar="DIR")
    options = parser.parse_args()
    sweep = rows(tables(options.reference) / FILE)
    if options.quick:
        sweep = [row for row in sweep if row["model"] == sweep[0]["model"]]
    questions = predicted(sweep, options.system, options.software)
    lines = [*nearness(questions), *choices(questions)]
    if options.as_json:
        figures = {
            f"choice.{line['figure']}": {key: line[key] for key in ("value", "unit", "goal")}
            for line in lines
        }
        print(json.dumps({"figures": figures, "rows": regrets(questions)}, indent=1))
        return 0
    for line in lines:
        goal = f"   goal {line['goal']}" if line["goal"] else ""
        print(f"{line['figure']:<58}{line['value']:>9.3g} {line['unit']:<2}{goal}")
    return 0


def predicted(sweep: Sequence[Row], system: str, software: str) -> dict[Any, list[Plan]]:
    """Return the plans of each question, by model and number of nodes."""
    by_question: dict[Any, list[Row]] = defaultdict(list)
    for row in sweep:
        by_question[row["model"], number(row, "nodes")].append(row)
    return {key: _predicted(members, system, software) for key, members in by_question.items()}


def _predicted(members: list[Row], system: str, software: str) -> list[Plan]:
    batches = [number(row, "global_batch") for row in members]
    estimate = oracle.estimate(
        nanotron.llama(members[0]), system, [nanotron.plan_of(row) for row in members], batches,
        software=software, any_plan=True, reading="none", **BRAIN_ADAM,
    )  # fmt: skip
    plans = []
    for i, row in enumerate(members):
        ran = row["status"] == "ran"
        plans.append(Plan(
            row, nanotron.seconds_of(row) if ran else np.nan,
            float(row["memory_gb"]) * 2**30 if ran else np.nan, float(estimate.seconds[i]),
            float(estimate.seconds_low[i]), float(estimate.seconds_high[i]),
            estimate.work[i].first_stage_bytes, bool(estimate.feasible[i]), float(estimate.fits[i]),
        ))  # fmt: skip
    return plans


def nearness(questions: dict[Any, list[Plan]]) -> list[dict[str, Any]]:
    """Return how near seconds and bytes come, and what is said of plans that crashed."""
    every = [plan for plans in questions.values() for plan in plans]
    ran = [plan for plan in every if plan.ran]
    crashed = [plan for plan in every if not plan.ran]
    alone = [plan for plan in ran if plan.degree("pp") == 1]
    best = {key: min(plan.measured for plan in plans if plan.ran and plan.degree("pp") == 1)
            for key, plans in questions.items()
            if any(plan.ran and plan.degree("pp") == 1 for plan in plans)}  # fmt: skip
    near = [plan for key, plans in questions.items() for plan in plans
            if plan.ran and plan.degree("pp") == 1
            and plan.measured <= NEAR * best[key]]  # fmt: skip
    of_memory = np.array([abs(plan.held / plan.memory - 1) for plan in ran])
    inside = np.mean([plan.low <= plan.measured <= plan.high for plan in alone])
    width = np.median([(plan.high - plan.low) / plan.seconds for plan in alone])
    return [
        *_errors("no pipeline, within twice the best", near, "6 / 8 %"),
        *_errors("no pipeline, all", alone, "8 / 15 %"),
        _line("no pipeline: in the 90 % interval", 100 * inside, "%", "85 to 95 %"),
        _line("no pipeline: width of the interval", 100 * width, "%"),
        _line("peak memory: mean error", 100 * of_memory.mean(), "%", "4 %"),
        _line("peak memory: within 10 %", 100 * np.mean(of_memory < 0.1), "%", "95 %"),
        _line("crashed", len(crashed)),
        _line("crashed, said to fit", sum(plan.fits for plan in crashed), goal="≤ 30"),
        _line("crashed, said to fit and surer than 90 %",
              sum(plan.fits and plan.chance > SURE for plan in crashed), goal="≤ 6"),
        _line("ran, said not to fit", sum(not plan.fits for plan in ran), goal="≤ 9"),
    ]  # fmt: skip


def _errors(name: str, plans: list[Plan], goal: str) -> list[dict[str, Any]]:
    errors = 100 * np.array([abs(plan.seconds / plan.measured - 1) for plan in plans])
    return [_line(f"{name}: rows", len(plans)),
            _line(f"{name}: median error", np.median(errors), "%", goal),
            _line(f"{name}: mean error", errors.mean(), "%", goal)]  # fmt: skip


def _line(figure: str, value: float, unit: str = "", goal: str = "") -> dict[str, Any]:
    return {"figure": figure, "value": float(value), "unit": unit, "goal": goal}


KINDS: dict[str, tuple[Callable[[Plan], bool], str, str]] = {  # plans, goals of regret and τ
    "no pipeline": (lambda plan: plan.degree("pp") == 1, "0.5 / 5 %", "0.85"),
    "all but doubtful": (lambda plan: not nanotron.is_doubtful(plan.row), "0.5 / 8 %", ""),
    "all": (lambda plan: True, "", ""),
}


def choices(questions: dict[Any, list[Plan]]) -> list[dict[str, Any]]:
    """Return what choosing costs, over all questions of each kind of plans."""
    lines = []
    for kind, (_, of_regret, of_tau) in KINDS.items():
        answers = [line for line in regrets(questions) if line["kind"] == kind]
        columns = {name: 100 * np.array([answer[name] for answer in answers])
                   for name in ("first", "three", "recommended", "chance", "thumb", "guidance",
                                "behind")}  # fmt: skip
        lines += [
            _line(f"{kind}: questions", len(answers)),
            _line(f"{kind}: regret, median", np.median(columns["first"]), "%", of_regret),
            _line(f"{kind}: regret, mean", columns["first"].mean(), "%", of_regret),
            _line(f"{kind}: regret of the first three, mean", columns["three"].mean(), "%"),
            _line(f"{kind}: places of the best, median",
                  np.median([answer["place"] for answer in answers])),
            _line(f"{kind}: said to lose there, mean", columns["behind"].mean(), "%"),
            _line(f"{kind}: Kendall's τ", np.mean([answer["tau"] for answer in answers]),
                  goal=of_tau),
            *(_line(f"{kind}: regret of {words}, mean", columns[name].mean(), "%")
              for name, words in (("recommended", "the first that fits with 95 %"),
                                  ("chance", "chance"), ("thumb", "a rule of thumb"),
                                  ("guidance", "Megatron's guidance"))),
        ]  # fmt: skip
    return lines


def regrets(questions: dict[Any, list[Plan]]) -> list[dict[str, Any]]:
    """Return what each question's choices cost, relative to the best of its plans that ran."""
    from scipy.stats import kendalltau

    lines = []
    for kind, (belongs, _, _) in KINDS.items():
        for (model, nodes), every in questions.items():
            plans = [plan for plan in every if plan.ran and belongs(plan)]
            if len(plans) < 3:
                continue
            measured = np.array([plan.measured for plan in plans])
            seconds = np.array([plan.seconds for plan in plans])
            loss, order = measured / measured.min() - 1, np.argsort(seconds, kind="stable")
            best, sure = int(measured.argmin()), np.array([plan.chance for plan in plans])
            recommended = np.lexsort((seconds, sure < RECOMMENDED))[0]
            lines.append({
                "kind": kind, "model": model, "nodes": nodes, "plans": len(plans),
                "first": float(loss[order[0]]), "three": float(loss[order[:3]].min()),
                "place": int(np.flatnonzero(order == best)[0]),
                "behind": float(seconds[best] / seconds.min() - 1),
                "tau": float(kendalltau(seconds, measured).statistic),
                "recommended": float(loss[recommended]), "chance": float(loss.mean()),
                "thumb": float(loss[_least(plans, _by_thumb)]),
                "guidance": float(loss[_least(plans, _by_guidance)]),
            })  # fmt: skip
    return lines


def _least(plans: list[Plan], rank: Callable[[Plan], tuple[float, ...]]) -> int:
    return min(range(len(plans)), key=lambda i: rank(plans[i]))


def _by_thumb(plan: Plan) -> tuple[float, ...]:
    return plan.degree("tp"), plan.degree("pp"), -plan.micro, plan.degree("zero")


def _by_guidance(plan: Plan) -> tuple[float, ...]:
    across = plan.degree("tp") > nanotron.DEVICES_PER_NODE
    return (across, plan.degree("pp") * plan.degree("tp"), plan.degree("pp"),
            -plan.degree("zero"), -plan.micro)  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
