"""Whether anything beats what `recommend` finds: enumerations, neighbours, walks, random questions.

    python -m benchmarks.search [--quick] [--json] [--part NAME] [--seed N] [--questions N]
                                [--seconds S]

exhaustive  small questions: every plan of the space (benchmarks.plan_space) is evaluated
neighbours  large questions: every change of one or two things of the fastest plan found (a knob,
            the micro-batch, a factor of one axis' degree moved to another); where one is faster,
            on from there until none is
walks       large questions: from random plans to the best neighbour until none is faster
random      random questions, each with plans drawn from its space, and one such walk

The gap is (seconds of the fastest plan of the ranking) / (seconds of the fastest feasible plan
found beside it) - 1; what is ranked first for being plainer does not count, and both sides take
the same risk of running out of memory: what `recommend` takes if nobody says, of random questions
half of them even odds. The gap is below zero where the other side found less.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # one core, as the command line

import numpy as np

import oracle
from benchmarks.plan_space import ROUNDING, Found, Space
from oracle.ask.ranking import Ranking
from oracle.predict.defaults import options_for
from oracle.spec.document import SpecError

PARTS = {"exhaustive": "0", "neighbours": "<= 0.01", "walks": "<= 0.01", "random": "<= 0.01"}
SEED = 1
RISKS = (0.05, 0.5)  # of running out of memory: that of `recommend` if nobody says, and even odds
DRAWN = 300  # plans drawn for a random question, and for each start of a walk
STARTS = 4  # walks of a large question
SPECS = Path(__file__).parents[1] / "specs"


@dataclass(frozen=True)
class Question:
    """What is asked of `recommend`."""

    model: str
    system: str
    devices: int
    batch: int
    only: tuple[str, ...] = ()
    precision: str | None = None
    risk: float = RISKS[0]  # that both sides take: neither prefers safer plans

    def __str__(self) -> str:
        """The command line that asks it."""
        words = f"{self.model} {self.system} --devices {self.devices} --batch {self.batch}"
        words += f" --precision {self.precision}" if self.precision else ""
        words += f" --risk {self.risk:g}" if self.risk != RISKS[0] else ""
        return words + (f" --only {','.join(self.only)}" if self.only else "")


# What a question leaves out keeps its enumeration to about two million plans.
MATRICES = ("pipeline", "data", "tensor", "recompute")
TOKENS = ("data", "context", "filter", "tensor", "expert", "recompute")
PICTURES = ("data", "spatial", "filter", "channel", "recompute")
SMALL = [
    Question("resnet50", "abci", 32, 512),
    Question("resnet50", "v100-ib100", 256, 2048, PICTURES),
    Question("vgg16", "abci", 16, 64),
    Question("vgg16", "v100-ib100", 32, 128),
    Question("alexnet", "dgx-a100", 64, 128),
    Question("alexnet", "piz-daint", 256, 1024, PICTURES),
    Question("cosmoflow-256", "abci", 256, 16),
    Question("unet3d-kits19", "dgx-a100", 128, 16),
    Question("deepcam", "dgx-a100", 64, 64),
    Question("gpt2", "v100-ib100", 16, 64),
    Question("gpt2", "dgx-a100", 256, 256, MATRICES),
    Question("gpt2-xl", "dgx-a100", 16, 64),
    Question("gpt2-xl", "v100-ib100", 64, 128, MATRICES),
    Question("bert-large", "abci", 16, 128),
    Question("bert-large", "dgx-a100", 64, 256, TOKENS),
    Question("llama2-7b", "dgx-a100", 16, 32),
    Question("llama2-7b", "dgx-a100", 64, 128, MATRICES),
    Question("llama2-7b", "v100-ib100", 128, 128, MATRICES),
    Question("llama2-7b", "dgx-h100", 128, 64, TOKENS),
    Question("mixtral-8x7b", "dgx-h100", 64, 64, (*MATRICES, "expert")),
    Question("mixtral-8x7b", "dgx-a100", 256, 256, TOKENS),
]
LARGE = [
    Question("resnet50", "abci", 1024, 65536),
    Question("vgg16", "abci", 1024, 1024),
    Question("cosmoflow-256", "abci", 1024, 256),
    Question("cosmoflow-512", "summit", 4096, 512),
    Question("deepcam", "perlmutter", 2048, 1024),
    Question("vit-l16", "perlmutter", 1024, 4096),
    Question("bert-large", "summit", 1536, 8192),
    Question("gpt3-175b", "dgx-a100", 512, 512),
    Question("gpt3-175b", "dgx-a100", 1024, 1536),
    Question("gpt3-175b", "dgx-h100", 4096, 2048),
    Question("llama2-7b", "dgx-a100", 1024, 1024),
    Question("llama3-70b", "dgx-h100", 2048, 1024),
    Question("llama3-405b", "h100-96gb", 16384, 2048),
    Question("mt-nlg-530b", "dgx-a100", 2240, 1920),
    Question("bloom-176b", "dgx-a100", 384, 2048),
    Question("mixtral-8x7b", "dgx-h100", 256, 1024),
    Question("mixtral-8x7b", "dgx-h100", 4096, 4096),
    Question("megatron-1008b", "dgx-a100", 3072, 3072),
    Question("gpt2-xl", "summit", 16384, 16384),
]
QUICK_SMALL = [
    Question("vgg16", "abci", 16, 64, ("pipeline", "data", "filter", "recompute")),
    Question("cosmoflow-256", "abci", 64, 16, PICTURES),
    Question("bert-large", "abci", 8, 32, MATRICES),
    Question("mixtral-8x7b", "dgx-a100", 64, 64, TOKENS),
]
QUICK_LARGE = [Question("gpt3-175b", "dgx-a100", 512, 512)]


@dataclass(frozen=True)
class Row:
    """What a question was answered, and the best that was found beside it."""

    part: str
    question: str
    ours: float | None  # seconds; None: nothing fits
    our_plan: str | None
    theirs: float | None
    their_plan: str | None
    gap: float | None
    plans: int
    fitting: int
    faster: int
    answer_cpu: float  # CPU seconds of the answer
    search_cpu: float  # … and of what was evaluated beside it

    @property
    def beaten(self) -> bool:
        return self.gap is not None and self.gap > ROUNDING

    @property
    def falsely_nothing(self) -> bool:
        return self.ours is None and self.theirs is not None


def first(ranking: Ranking) -> tuple[float | None, str | None]:
    """The fastest plan of a ranking, whatever it is ranked by."""
    found = getattr(ranking, "fastest", None)
    found = ranking.estimate if found is None else found
    if not len(found):
        return None, None
    row = int(np.argmin(found.seconds))
    return float(found.seconds[row]), found.plans[row]


def asked(part: str, question: Question, chance: np.random.Generator) -> Row:
    """Ask a question, and look for what beats the answer."""
    model, system = oracle.model(question.model), oracle.system(question.system)
    options = replace(options_for(model, system, question.precision), risk=question.risk)
    begin = time.process_time()
    ours, plan = first(
        oracle.recommend(
            model, system, question.devices, question.batch,
            only=question.only, precision=question.precision, risk=question.risk,
            reading="none",
        )
    )  # fmt: skip
    answered = time.process_time()
    space = Space(model, system, question.devices, question.batch, options, question.only)
    best = beside(part, space, plan, ours, chance)
    theirs = best.seconds if best.plan else None
    gap = ours / theirs - 1 if ours and theirs else None
    if ours is None or (gap or 0.0) > ROUNDING:
        best = space.plainest(best)
    return Row(
        part, str(question), ours, plan, theirs, best.plan, gap, best.plans, best.fitting,
        best.faster, answered - begin, time.process_time() - answered,
    )  # fmt: skip


def beside(
    part: str, space: Space, plan: str | None, ours: float | None, chance: np.random.Generator
) -> Found:
    """The best plan that is found without the search."""
    if part == "exhaustive":
        return space.fastest(space.all(), ours)
    if part == "neighbours" and plan is not None:
        start = space.fastest(space.neighbours(plan, 2), ours)
        return space.walk(start, 2, ours) if start.faster else start
    best = space.walk(space.fastest(space.draw(DRAWN, chance), ours), 1, ours)
    for _ in range(STARTS - 1 if part == "walks" else 0):
        again = space.walk(space.fastest(space.draw(DRAWN, chance), ours), 1, ours)
        best = best.joined(again)
    return space.walk(best, 2, ours) if part == "walks" else best


def drawn(chance: np.random.Generator) -> Question:
    """A random question about what is shipped: few devices most of the time."""
    models = sorted(path.stem for path in (SPECS / "models").glob("*.yaml"))
    systems = sorted(path.stem for path in (SPECS / "systems").glob("*.yaml"))
    name, where = (str(chance.choice(known)) for known in (models, systems))
    system = oracle.system(where)
    most = min(system.devices, 2 ** int(chance.choice([3, 5, 6, 8, 10])))
    devices = 2 ** int(chance.integers(int(np.log2(most)) + 1))
    if chance.random() < 0.2:  # the odd ones too
        devices = int(chance.integers(1, most + 1))
    batch = max(1, round(devices * 2.0 ** int(chance.integers(-3, 8))))
    if chance.random() < 0.2:
        batch = int(chance.integers(1, 2 * batch + 1))
    precision = str(chance.choice(sorted(system.device.peak)))
    risk = float(chance.choice(RISKS))
    return Question(name, where, devices, batch, precision=precision, risk=risk)


def every(
    parts: Sequence[str], quick: bool, questions: int, seed: int, seconds: float
) -> Iterator[Row]:
    """A row a question; a random one that is refused has none."""
    small, large = (QUICK_SMALL, QUICK_LARGE) if quick else (SMALL, LARGE)
    for part, some in (("exhaustive", small), ("neighbours", large), ("walks", large)):
        for number, question in enumerate(some if part in parts else ()):
            yield asked(part, question, np.random.default_rng([seed, number]))
    end = time.monotonic() + seconds
    for number in range(questions if "random" in parts else 0):
        chance = np.random.default_rng([seed, number])
        if time.monotonic() > end:
            return
        try:
            yield asked("random", drawn(chance), chance)
        except SpecError as refused:
            sys.stderr.write(f"refused: {refused}\n")


def figures(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    """What the rows come to."""
    made: dict[str, dict[str, Any]] = {}
    for part, goal in PARTS.items():
        own = [row for row in rows if row.part == part]
        if own:
            made[f"{part}.questions"] = figure(len(own), "questions")
            made[f"{part}.plans"] = figure(sum(row.plans for row in own), "plans")
            made[f"{part}.beaten"] = figure(sum(row.beaten for row in own), "questions", "0")
            most = max(0.0, *(row.gap or 0.0 for row in own))
            made[f"{part}.gap_max"] = figure(most, "1", goal)
    answers, others = sum(row.answer_cpu for row in rows), sum(row.search_cpu for row in rows)
    made["beaten"] = figure(sum(row.beaten for row in rows), "questions", "0")
    made["false_nothing_fits"] = figure(sum(r.falsely_nothing for r in rows), "questions", "0")
    made["answer.cpu_seconds_max"] = figure(max(row.answer_cpu for row in rows), "s")
    made["cpu_seconds"] = figure(answers + others, "s")
    made["plans_per_cpu_second"] = figure(sum(row.plans for row in rows) / others, "1/s")
    return made


def figure(value: float, unit: str, goal: str = "") -> dict[str, Any]:
    return {"value": round(float(value), 6), "unit": unit, "goal": goal}


def told(row: Row) -> str:
    """A row as text: the plans are shown where one beats the other."""
    times = [f"{'nothing fits' if s is None else f'{s:.4g} s':>12}" for s in (row.ours, row.theirs)]
    gap = f"{'' if row.gap is None else f'{row.gap:.2%}':>9}"
    lines = [f"{gap}{' '.join(times)}{row.plans:>9}{row.faster:>8}  {row.part}: {row.question}"]
    if row.beaten or row.falsely_nothing:
        lines += [f"{'ours':>14}  {row.our_plan}", f"{'theirs':>14}  {row.their_plan}"]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="a few questions, under a minute")
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--part", choices=[*PARTS], action="append", help="these alone")
    parser.add_argument("--seed", type=int, default=SEED)
    parser.add_argument("--questions", type=int, help="random ones (10,000; with --quick 100)")
    parser.add_argument("--seconds", type=float, default=np.inf, help="to spend on random ones")
    given = parser.parse_args()
    count = given.questions or (100 if given.quick else 10_000)
    rows = []
    for row in every(given.part or [*PARTS], given.quick, count, given.seed, given.seconds):
        rows.append(row)
        sys.stderr.write(told(row) + "\n")
    made = {"seed": figure(given.seed, "")} | figures(rows)
    if given.as_json:
        document = {"figures": made, "rows": [asdict(row) for row in rows]}
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    sys.stdout.write(f"{'gap':>9}{'ours':>12} {'theirs':>12}{'plans':>9}{'faster':>8}  question\n")
    for row in sorted(rows, key=lambda row: -(row.gap or 0.0)):
        if row.part != "random" or row.beaten or row.falsely_nothing:
            sys.stdout.write(told(row) + "\n")
    for name, each in made.items():
        value = f"{each['value']:,.6g}"
        sys.stdout.write(f"{name:28}{value:>12} {each['unit']:10} {each['goal']}\n")


if __name__ == "__main__":
    main()
