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


def run(args: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.ask.beside import beside, other_jobs
    from oracle.ask.largest import cut_to_fit
    from oracle.run.target import length, training
    from oracle.show.beside import beside_text
    from oracle.show.provenance import signed
    from oracle.show.rates import rate_text
    from oracle.show.text import cut_text, estimate_text
    from oracle.spec.document import refusal

    as_runs_did(args)
    jobs = None if args.beside is None else other_jobs(args.beside)
    if jobs is not None and jobs.nodes:
        if args.nodes not in (None, jobs.nodes):
            complaint = f"nodes {args.nodes:.40}, and {jobs.nodes:.40} in {args.beside}"
            raise refusal("--nodes", complaint, "them once", "E110")
        args.nodes = jobs.nodes
    need_room(args, args.plan)

    def predict(plans: list[str], batch: Any) -> Estimate:
        predicted = api.estimate(args.model, args.system, plans, batch, **prediction_options(args),
                                 **placement_options(args))  # fmt: skip
        return replace(predicted, system=running(args, predicted.system))

    if scheduling.asked_for(args):
        return scheduling.estimated(args, lambda plan, batch: predict([plan], batch))
    if args.batch is None and args.batch_per_device is None:
        raise Usage("one of the arguments --batch --batch-per-device is required")
    batch = args.batch or [batch_of(args, plan) for plan in args.plan]
    estimate = predict(args.plan, batch)
    ends = [length(estimate, row, **length_options(args)) for row in range(len(estimate))]
    trainings = [None if end is None else training(estimate, row, end)
                 for row, end in enumerate(ends)]  # fmt: skip

    near_jobs = (
        [] if jobs is None else [beside(estimate, row, jobs) for row in range(len(estimate))]
    )

    def text(row: int) -> str:
        rate = f"\n{rate_text(estimate, row)}" if args.batch == "max" else ""
        near = f"\n\n{beside_text(near_jobs[row])}" if near_jobs else ""
        cut = None if estimate.feasible[row] else cut_to_fit(estimate, row)
        if cut is not None:
            rate += f"\n\n  this plan does not fit as it is:\n{cut_text(cut)}"
        return estimate_text(estimate, row, trainings[row]) + rate + near

    def data() -> dict[str, Any]:
        answer = estimate.to_dict()
        for plan, training_ in zip(answer["plans"], trainings, strict=True):
            if training_ is not None:
                plan["training"] = training_.to_dict()
        for plan, near in zip(answer["plans"], near_jobs, strict=False):
            plan["beside"] = near.to_dict()
        return signed(answer, args)

    return formatted(
        args, lambda: "\n\n".join(map(text, range(len(estimate)))),
        data, estimate.rows, 0 if estimate.feasible.any() else 1,
        brief=BRIEF,
    )  # fmt: skip
