"""Time collectives, or the layers of a plan, on the machine at hand.

    torchrun … oracle measure collectives -o collectives.jsonl
    oracle measure collectives --local 4 -o collectives.jsonl
    oracle measure compute --local 1 --model resnet50 --plan serial --batch 32 -o profile.jsonl

Under torchrun, srun or mpirun every process joins; `--local N` starts N of them here. A run that
was cut short is taken up where it stopped.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from oracle.commands.arguments import either, lasting, names, whole
from oracle.commands.parser import Answer
from oracle.spec.document import refusal
from oracle.spec.options import RUN

EXECUTED = ["fp32", "fp64", "bf16", "fp16"]


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["collectives", "compute"],
                        metavar="collectives|compute", help="what to time")  # fmt: skip
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="where to write; taken up if it is there")  # fmt: skip
    parser.add_argument("--operations", type=names, metavar="A,B", help="of collectives; all")
    parser.add_argument("--sizes", type=names, metavar="N,M", help="bytes of a message")
    parser.add_argument("--repeats", type=whole, default=7, metavar="K", help="of each size")
    parser.add_argument("--model", type=lasting, metavar="MODEL", help="whose layers, for compute")
    parser.add_argument("--plan", action="append", metavar="PLAN", help="whose local shapes")
    parser.add_argument(
        "--batch", type=whole, metavar="B", help="samples per iteration, all devices"
    )
    executed_arguments(parser)
    launch_arguments(parser)


def executed_arguments(parser: argparse.ArgumentParser) -> None:
    """What the executor can run."""
    parser.add_argument("--precision", choices=EXECUTED, default="fp32", metavar="P",
                        help=either(EXECUTED))  # fmt: skip
    parser.add_argument("--optimizer", choices=RUN, default="momentum", metavar="O",
                        help=either(RUN))  # fmt: skip


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    """How ranks are started and watched."""
    parser.add_argument("--local", type=whole, metavar="N", help="start N ranks on this machine")
    parser.add_argument("--backend", default="gloo", metavar="B", help="gloo, nccl or mpi")
    parser.add_argument("--timeout", type=float, default=60.0, metavar="S",
                        help="seconds after which a silent rank is called stalled")  # fmt: skip


def launched(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of the executor's functions."""
    return {"ranks": asked.local, "backend": asked.backend, "timeout": asked.timeout,
            "say": teller(asked.quiet)}  # fmt: skip


def teller(quiet: bool) -> Any:
    """Progress to standard error, one line each."""
    return (lambda text: None) if quiet else (lambda text: sys.stderr.write(f"{text}\n"))


def ended(outcome: Any, what: str) -> Answer:
    """The answer of a launch: what was written, or which rank failed at what."""
    note = outcome.message if outcome.speaks else ""
    done = what if outcome.complete and outcome.leads else ""
    return Answer("", outcome.code, "\n".join(part for part in (done, note) if part))


def run(asked: argparse.Namespace) -> Answer:
    need_torch()
    if asked.what == "compute":
        return compute(asked)
    from oracle.executor.collectives import OPERATIONS, SIZES, measure_collectives

    sizes = [int(size) for size in asked.sizes] if asked.sizes else SIZES
    outcome = measure_collectives(
        Path(asked.output), operations=asked.operations or OPERATIONS, sizes=sizes,
        repeats=asked.repeats, **launched(asked),
    )  # fmt: skip
    return ended(outcome, f"wrote {asked.output}; next: oracle calibrate {asked.output} --onto …")


def compute(asked: argparse.Namespace) -> Answer:
    """Rows of a model, each at the local shape of the plans."""
    if not asked.model or not asked.plan or not asked.batch:
        hint = "e.g. --model resnet50 --plan serial --batch 32"
        what = "`measure compute` needs --model, --plan and --batch"
        raise refusal("measure", what, hint, "E103")
    need_runnable(asked.model, asked.plan, asked.batch)
    from oracle.executor.profile import measure_compute
    from oracle.executor.run import PlanRun

    jobs = [
        PlanRun(
            asked.model, plan, asked.batch, optimizer=asked.optimizer, precision=asked.precision
        )
        for plan in asked.plan
    ]
    outcome = measure_compute(jobs, Path(asked.output), **launched(asked))
    return ended(outcome, f"wrote {asked.output}; next: oracle estimate … --profile {asked.output}")


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


def need_torch() -> None:
    """PyTorch is an extra: say how to get it."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        hint = "pip install 'oracle-training[run]'"
        what = "PyTorch is not installed; measuring and running need it"
        raise refusal("torch", what, hint, "E100")
