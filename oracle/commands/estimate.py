"""Predict one plan or several: seconds with their interval, parts, exchanges, memory.

oracle estimate resnet50 abci --plan "data:16 filter:4" --batch 1024
oracle estimate gpt3-175b dgx-a100 --batch 1536 \\
    --plan "pipeline:8,segments=96 data:16 tensor:8,sequence=on recompute:selective"
oracle estimate resnet50 abci --plan "filter:4 data:16" --batch 1024 --place best
oracle estimate gpt2 dgx-a100 --plan data:8 --batch max     the largest micro-batches that fit
oracle estimate vgg16 abci --plan data:256 --batch 8192 --beside jobs.yaml   other jobs' exchanges
oracle estimate resnet50 abci --plan data:512 --batch 32768 --optimizer lars --to-target
oracle estimate llama3-8b dgx-h100 --plan data:512,zero=1 --batch 1024 --tokens 15T \\
    --failures "50 kh,restart=10 min" --checkpoint async
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oracle.commands import scheduling
from oracle.commands.arguments import (
    BRIEF,
    as_runs_did,
    batch_arguments,
    batch_of,
    length_arguments,
    length_options,
    placement_arguments,
    placement_options,
    prediction_arguments,
    prediction_options,
    result_arguments,
    running,
    what_if_argument,
)
from oracle.commands.lacking import need_room
from oracle.commands.parser import Answer, Usage, formatted

if TYPE_CHECKING:
    from oracle.predict.estimate import Estimate


def arguments(parser: argparse.ArgumentParser) -> None:
    prediction_arguments(parser)
    placement_arguments(parser)
    what_if_argument(parser)
    parser.add_argument("--plan", action="append", required=True, metavar="PLAN",
                        help='e.g. "data:16 filter:4"; may be given several times')  # fmt: skip
    batch_arguments(parser, largest=True, needed=False)
    length_arguments(parser)
    scheduling.argument(parser)
    parser.add_argument("--beside", metavar="FILE",
                        help="other jobs on the same network: their plans and nodes")  # fmt: skip
    result_arguments(parser)


def run(asked: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.ask.beside import beside, other_jobs
    from oracle.ask.largest import cut_to_fit
    from oracle.run.target import length, training
    from oracle.show.beside import beside_text
    from oracle.show.provenance import signed
    from oracle.show.rates import rate_text
    from oracle.show.text import cut_text, estimate_text
    from oracle.spec.document import refusal

    as_runs_did(asked)
    jobs = None if asked.beside is None else other_jobs(asked.beside)
    if jobs is not None and jobs.nodes:
        if asked.nodes not in (None, jobs.nodes):
            what = f"nodes {asked.nodes:.40}, and {jobs.nodes:.40} in {asked.beside}"
            raise refusal("--nodes", what, "them once", "E110")
        asked.nodes = jobs.nodes
    need_room(asked, asked.plan)

    def predict(plans: list[str], batch: Any) -> Estimate:
        one = api.estimate(asked.model, asked.system, plans, batch, **prediction_options(asked),
                           **placement_options(asked))  # fmt: skip
        return replace(one, system=running(asked, one.system))

    if scheduling.asked_for(asked):
        return scheduling.estimated(asked, lambda plan, batch: predict([plan], batch))
    if asked.batch is None and asked.batch_per_device is None:
        raise Usage("one of the arguments --batch --batch-per-device is required")
    batch = asked.batch or [batch_of(asked, plan) for plan in asked.plan]
    found = predict(asked.plan, batch)
    ends = [length(found, row, **length_options(asked)) for row in range(len(found))]
    trainings = [None if end is None else training(found, row, end)
                 for row, end in enumerate(ends)]  # fmt: skip

    others = [] if jobs is None else [beside(found, row, jobs) for row in range(len(found))]

    def text(row: int) -> str:
        rate = f"\n{rate_text(found, row)}" if asked.batch == "max" else ""
        near = f"\n\n{beside_text(others[row])}" if others else ""
        cut = None if found.feasible[row] else cut_to_fit(found, row)
        if cut is not None:
            rate += f"\n\n  this plan does not fit as it is:\n{cut_text(cut)}"
        return estimate_text(found, row, trainings[row]) + rate + near

    def data() -> dict[str, Any]:
        said = found.to_dict()
        for plan, one in zip(said["plans"], trainings, strict=True):
            if one is not None:
                plan["training"] = one.to_dict()
        for plan, near in zip(said["plans"], others, strict=False):
            plan["beside"] = near.to_dict()
        return signed(said, asked)

    return formatted(
        asked, lambda: "\n\n".join(map(text, range(len(found)))),
        data, found.rows, 0 if found.feasible.any() else 1,
        brief=BRIEF,
    )  # fmt: skip
