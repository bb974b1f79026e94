"""Time this machine, its kernels, collectives or storage, or the layers of a plan.

    oracle measure machine -o my-machine        # a device and a system that `recommend` takes
    oracle measure kernels -o kernels.csv       # one device's, for `calibrate compute`
    torchrun … oracle measure collectives -o collectives.jsonl
    oracle measure collectives --local 4 -o collectives.jsonl
    oracle measure storage --data FOLDER -o storage.jsonl   # files/s by threads, cold and warm
    oracle measure compute --local 1 --model resnet50 --plan serial --batch 32 -o profile.jsonl

Under torchrun, srun or mpirun every process joins; `--local N` starts N of them here. A run that
was cut short is taken up where it stopped.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oracle.commands import machine, reading
from oracle.commands.arguments import either, lasting, names, result_arguments, whole_number
from oracle.commands.launching import (
    ended,
    launch_arguments,
    launched,
    need_torch,
    written_answer,
)
from oracle.commands.parser import Answer
from oracle.spec.document import refusal
from oracle.spec.options import RUN

EXECUTED = ["fp32", "fp64", "bf16", "fp16"]


def arguments(parser: argparse.ArgumentParser) -> None:
    subjects = ["machine", "kernels", "collectives", "compute", "storage"]
    parser.add_argument("what", choices=subjects, metavar="|".join(subjects), help="what to time")
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="where to write: a folder for `machine`, else a file")  # fmt: skip
    machine.arguments(parser)
    parser.add_argument("--operations", type=names, metavar="A,B", help="of collectives; all")
    parser.add_argument("--sizes", type=names, metavar="N,M", help="bytes of a message")
    parser.add_argument("--repeats", type=whole_number, default=7, metavar="K", help="of each size")
    parser.add_argument("--model", type=lasting, metavar="MODEL", help="whose layers, for compute")
    parser.add_argument("--plan", action="append", metavar="PLAN", help="whose local shapes")
    parser.add_argument(
        "--batch", type=whole_number, metavar="B", help="samples per iteration, all devices"
    )
    reading.data_argument(parser)
    parser.add_argument("--dataset", type=lasting, metavar="DATASET",
                        help="files of its sizes, made in --data FOLDER, for storage")  # fmt: skip
    parser.add_argument("--threads", type=names, metavar="1,2,4", help="of a rank, for storage")
    executed_arguments(parser)
    launch_arguments(parser)
    parser.set_defaults(backend=None)
    result_arguments(parser, file=False)


def executed_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the precisions and optimizers that the executor can run."""
    parser.add_argument("--precision", choices=EXECUTED, default="fp32", metavar="P",
                        help=either(EXECUTED))  # fmt: skip
    parser.add_argument("--optimizer", choices=RUN, default="momentum", metavar="O",
                        help=either(RUN))  # fmt: skip


def run(args: argparse.Namespace) -> Answer:
    need_torch()
    if args.what in ("machine", "kernels"):
        return machine.machine(args) if args.what == "machine" else machine.kernels(args)
    if args.what == "compute":
        return compute(args)
    if args.what == "storage":
        return storage(args)
    from oracle.executor.measure.collectives import OPERATIONS, SIZES, measure_collectives

    sizes = [int(size) for size in args.sizes] if args.sizes else SIZES
    outcome = measure_collectives(
        Path(args.output), operations=args.operations or OPERATIONS, sizes=sizes,
        repeats=args.repeats, **launched(args),
    )  # fmt: skip
    note = f"wrote {args.output}; next: oracle calibrate {args.output} --onto …"
    return measured(args, outcome, note)


def storage(args: argparse.Namespace) -> Answer:
    """Measure files a second of a folder, or of files made with a data set's sizes."""
    from oracle.executor.loading.measure import measure_storage
    from oracle.spec.units import show

    if not args.data:
        hint = "a folder of samples, or with --dataset one to make files in"
        raise refusal("measure", "`measure storage` needs --data", hint, "E103")
    folder, synthetic_set = reading.measured_files(args)
    counts = [int(word) for word in args.threads or [] if word.isdecimal() and 0 < int(word) < 1e4]
    if len(counts) != len(args.threads or []):
        raise refusal("options", "--threads are whole numbers", "--threads 1,2,4")
    outcome, samples = measure_storage(
        Path(args.output), folder, seconds=float(args.seconds), threads=sorted(counts),
        made=synthetic_set, played=reading.played(args.throttle) if args.throttle else None,
        **launched(args),
    )  # fmt: skip
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    lines = [
        f"{row['operation']:5} {show(row['size'], 'B'):>9}  {row['threads']:4} threads, "
        f"{row['nodes']} nodes  {row['per_second']:9.4g}/s  "
        f"{show(row['size'] * row['per_second'], 'B/s'):>10}{'  from memory' * row['cached']}"
        for row in samples
    ]
    note = f"wrote {args.output}; next: oracle calibrate {args.output} --onto SYSTEM -o …"
    return written_answer(args, {"samples": samples}, samples, note, "\n".join(lines))


def compute(args: argparse.Namespace) -> Answer:
    """Measure the rows of a model, each at the local shapes of the plans."""
    if not args.model or not args.plan or not args.batch:
        hint = "e.g. --model resnet50 --plan serial --batch 32"
        complaint = "`measure compute` needs --model, --plan and --batch"
        raise refusal("measure", complaint, hint, "E103")
    need_runnable(args.model, args.plan, args.batch)
    from oracle.executor.measure.profile import measure_compute
    from oracle.executor.plan_run import PlanRun

    jobs = [
        PlanRun(args.model, plan, args.batch, optimizer=args.optimizer, precision=args.precision)
        for plan in args.plan
    ]
    outcome = measure_compute(jobs, Path(args.output), **launched(args))
    note = f"wrote {args.output}; next: oracle estimate … --profile {args.output}"
    return measured(args, outcome, note)


def measured(args: argparse.Namespace, outcome: Any, note: str) -> Answer:
    """Return the answer of a complete measurement, or which rank failed at what."""
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    return written_answer(args, {}, [{"output": args.output}], note)


def need_runnable(model: str, plans: list[str], batch: int) -> None:
    """Refuse plans that the executor does not run, once, with all reasons, not by every rank."""
    from oracle.executor.supported import unsupported
    from oracle.models.model import model as read
    from oracle.plan.plan import parse
    from oracle.spec.document import Fault, Place, SpecError

    net, hint = read(model), "oracle estimate predicts it"
    faults = [
        Fault("E109", f"{plan}: {why}", Place(), hint)
        for plan in plans
        for why in unsupported(net, parse(plan, batch))
    ]
    if faults:
        raise SpecError("the executor", faults)
