"""Time what is at hand: the machine, its kernels, its collectives, or the layers of a plan.

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
from oracle.commands.arguments import either, lasting, names, result_arguments, whole
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
    known = ["machine", "kernels", "collectives", "compute", "storage"]
    parser.add_argument("what", choices=known, metavar="|".join(known), help="what to time")
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="where to write: a folder for `machine`, else a file")  # fmt: skip
    machine.arguments(parser)
    parser.add_argument("--operations", type=names, metavar="A,B", help="of collectives; all")
    parser.add_argument("--sizes", type=names, metavar="N,M", help="bytes of a message")
    parser.add_argument("--repeats", type=whole, default=7, metavar="K", help="of each size")
    parser.add_argument("--model", type=lasting, metavar="MODEL", help="whose layers, for compute")
    parser.add_argument("--plan", action="append", metavar="PLAN", help="whose local shapes")
    parser.add_argument(
        "--batch", type=whole, metavar="B", help="samples per iteration, all devices"
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
    """What the executor can run."""
    parser.add_argument("--precision", choices=EXECUTED, default="fp32", metavar="P",
                        help=either(EXECUTED))  # fmt: skip
    parser.add_argument("--optimizer", choices=RUN, default="momentum", metavar="O",
                        help=either(RUN))  # fmt: skip


def run(asked: argparse.Namespace) -> Answer:
    need_torch()
    if asked.what in ("machine", "kernels"):
        return machine.machine(asked) if asked.what == "machine" else machine.kernels(asked)
    if asked.what == "compute":
        return compute(asked)
    if asked.what == "storage":
        return storage(asked)
    from oracle.executor.measure.collectives import OPERATIONS, SIZES, measure_collectives

    sizes = [int(size) for size in asked.sizes] if asked.sizes else SIZES
    outcome = measure_collectives(
        Path(asked.output), operations=asked.operations or OPERATIONS, sizes=sizes,
        repeats=asked.repeats, **launched(asked),
    )  # fmt: skip
    note = f"wrote {asked.output}; next: oracle calibrate {asked.output} --onto …"
    return measured(asked, outcome, note)


def storage(asked: argparse.Namespace) -> Answer:
    """Files a second of a folder, or of files that are made as a data set has them."""
    from oracle.executor.loading.measure import measure_storage
    from oracle.spec.units import show

    if not asked.data:
        hint = "a folder of samples, or with --dataset one to make files in"
        raise refusal("measure", "`measure storage` needs --data", hint, "E103")
    folder, made = reading.measured_files(asked)
    counts = [int(each) for each in asked.threads or [] if each.isdecimal() and 0 < int(each) < 1e4]
    if len(counts) != len(asked.threads or []):
        raise refusal("options", "--threads are whole numbers", "--threads 1,2,4")
    outcome, found = measure_storage(
        Path(asked.output), folder, seconds=float(asked.seconds), threads=sorted(counts), made=made,
        played=reading.played(asked.throttle) if asked.throttle else None, **launched(asked),
    )  # fmt: skip
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    lines = [
        f"{one['operation']:5} {show(one['size'], 'B'):>9}  {one['threads']:4} threads, "
        f"{one['nodes']} nodes  {one['per_second']:9.4g}/s  "
        f"{show(one['size'] * one['per_second'], 'B/s'):>10}{'  from memory' * one['cached']}"
        for one in found
    ]
    note = f"wrote {asked.output}; next: oracle calibrate {asked.output} --onto SYSTEM -o …"
    return written_answer(asked, {"samples": found}, found, note, "\n".join(lines))


def compute(asked: argparse.Namespace) -> Answer:
    """Rows of a model, each at the local shape of the plans."""
    if not asked.model or not asked.plan or not asked.batch:
        hint = "e.g. --model resnet50 --plan serial --batch 32"
        what = "`measure compute` needs --model, --plan and --batch"
        raise refusal("measure", what, hint, "E103")
    need_runnable(asked.model, asked.plan, asked.batch)
    from oracle.executor.measure.profile import measure_compute
    from oracle.executor.plan_run import PlanRun

    jobs = [
        PlanRun(
            asked.model, plan, asked.batch, optimizer=asked.optimizer, precision=asked.precision
        )
        for plan in asked.plan
    ]
    outcome = measure_compute(jobs, Path(asked.output), **launched(asked))
    note = f"wrote {asked.output}; next: oracle estimate … --profile {asked.output}"
    return measured(asked, outcome, note)


def measured(asked: argparse.Namespace, outcome: Any, note: str) -> Answer:
    """What was written, where it was; else which rank failed at what."""
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    return written_answer(asked, {}, [{"output": asked.output}], note)


def need_runnable(model: str, plans: list[str], batch: int) -> None:
    """What the executor does not run is said here, once and all of it, not by every rank."""
    from oracle.executor.supported import unsupported
    from oracle.models.model import model as read
    from oracle.plan.plan import parse
    from oracle.spec.document import Fault, Place, SpecError

    what, hint = read(model), "oracle estimate predicts it"
    faults = [
        Fault("E109", f"{plan}: {why}", Place(), hint)
        for plan in plans
        for why in unsupported(what, parse(plan, batch))
    ]
    if faults:
        raise SpecError("the executor", faults)
