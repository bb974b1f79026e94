"""Write a plan for its launcher or viewer.

oracle export job llama3-8b dgx-h100 --plan "data:64,zero=1" --batch 512 --software nemo -o job/
oracle export slurm resnet50 abci --plan data:64 --batch 4096 -o job/
oracle export megatron gpt3-175b dgx-a100 --batch 1536 \\
    --plan "pipeline:8,segments=96 data:16 tensor:8,sequence=on recompute:selective"
oracle export rankfile resnet50 abci --plan "filter:4 data:16" --batch 1024 --place best -o job/
oracle export trace gpt2 dgx-a100 --plan "pipeline:4,segments=8" --batch 32 -o trace/
"""

from __future__ import annotations

import argparse
from pathlib import Path

from oracle.commands.arguments import (
    batch_arguments,
    batch_of,
    placement_arguments,
    placement_options,
    prediction_arguments,
    prediction_options,
)
from oracle.commands.lacking import lacks, need_room
from oracle.commands.parser import Answer, as_json


def arguments(parser: argparse.ArgumentParser) -> None:
    from oracle.writers.export import formats

    parser.add_argument("format", metavar="FORMAT", help=", ".join(formats()))
    prediction_arguments(parser)
    placement_arguments(parser)
    parser.add_argument("--plan", required=True, metavar="PLAN", help='e.g. "data:16 filter:4"')
    batch_arguments(parser)
    parser.add_argument("-o", "--output", metavar="DIR", help="where to write; else it is printed")
    parser.add_argument("--json", action="store_true", dest="as_json", help="all files as JSON")
    parser.add_argument("--force", action="store_true", help="write over files that are there")


def run(args: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.plan.plan import parse
    from oracle.writers.export import put, writer
    from oracle.writers.exported import Job, block_of

    need_room(args, [args.plan])
    batch = batch_of(args, args.plan)
    module = writer(args.format)
    estimate = api.estimate(
        args.model, args.system, [args.plan], batch, **prediction_options(args),
        **placement_options(args),
    )  # fmt: skip
    job = Job(estimate, parse(args.plan, float(batch)), block_of(estimate.model))
    files = module.files(job)
    job.check_read(str(module.TITLE))
    code = 0 if estimate.feasible[0] else 1
    warning = lacks(args, [args.system])
    warning += [f"differs from the prediction: {note}" for note in dict.fromkeys(job.notes)]
    warning += [f"this plan does not work: {'; '.join(estimate.broken[0])}"] if code else []
    if args.as_json:
        return Answer(as_json({"files": files, "broken": list(estimate.broken[0])}), code)
    if args.output is None:
        _name, text = next(iter(files.items()))
        remaining = [f"{', '.join(list(files)[1:])}: written with -o DIR"] if len(files) > 1 else []
        return Answer(text.rstrip("\n"), code, "\n".join([*warning, *remaining]))
    folder = Path(args.output)
    put({str(folder / name): text for name, text in files.items()}, force=args.force)
    written = ", ".join(str(folder / name) for name in files)
    return Answer("", code, "\n".join([*warning, f"written: {written}"]))
