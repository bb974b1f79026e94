"""Commands of this package's own executor: run the plan, measure the machine, test it."""

from __future__ import annotations

import shlex

from oracle.executor.plan_run import DTYPES
from oracle.executor.supported import unsupported
from oracle.spec import catalogue
from oracle.spec.options import RUN
from oracle.writers.exported import Job, Start

TITLE = "runs of this package's own executor"
NEEDS = "oracle-training[run] on every node, and a folder that all nodes see"

MORE = (
    "Its one result is `run.json`; with the word `measure` behind it the same script times "
    "collectives (`collectives.jsonl`), with `selftest` it proves the nodes. A job that was cut "
    "short goes on where it ended: start it again. BACKEND=nccl is for devices of NVIDIA and, as "
    "RCCL, of AMD; BACKEND=gloo for processors."
)


def files(job: Job) -> dict[str, str]:
    steps = 'STEPS="${STEPS:-20}"'
    return {
        "run.sh": "\n".join(["#!/usr/bin/env bash", steps, *verbs(job), 'exec oracle "$@"', ""])
    }


def start(job: Job) -> Start:
    """Return the complete job, whose torchrun ranks are the executor's; finished plans are kept."""
    order = ", ".join(name for name, _ in job.axes) or "data"
    return Start({}, ("--no-python", "oracle"), NEEDS, order, tuple(verbs(job)), more=MORE)


def verbs(job: Job) -> list[str]:
    """Return lines of shell that make a complete command of `run`, `measure` or `selftest`."""
    options, title = job.estimate.options, "the executor"
    if why := unsupported(job.estimate.model, job.plan):
        raise job.refuse(title, f"does not run this plan: {'; '.join(why)}", "oracle estimate")
    if options.precision not in DTYPES or options.optimizer not in RUN:
        lacking = options.precision if options.precision not in DTYPES else options.optimizer
        raise job.refuse(title, f"has no `{lacking}`", "--precision fp32 --optimizer adam")
    shipped = job.name in catalogue.shipped("models")
    model = job.name if shipped else '"${MODEL:?the file of the model}"'
    system = ["--system", job.system] if job.system in catalogue.shipped("systems") else []
    plan = ["--plan", job.text, "--batch", str(job.batch), "--precision", options.precision,
            "--optimizer", options.optimizer, *system]  # fmt: skip
    devices = [kind.system.device for kind in job.kinds]
    usual = "nccl" if all(device.library == "nccl" for device in devices) else ""
    usual = "gloo" if all(device.host for device in devices) else usual
    backend = f"-{usual}" if usual else "?nccl for devices of NVIDIA and AMD, gloo for processors"
    return [
        f'BACKEND="${{BACKEND:{backend}}}"',
        'case "${1:-run}" in',
        f'  run) set -- run {model} {shlex.join(plan)} --steps "$STEPS" -o run.json ;;',
        "  measure) set -- measure collectives -o collectives.jsonl ;;",
        f"  selftest) set -- {shlex.join(['selftest', *system])} ;;",
        '  *) echo "run, measure or selftest, not $1" >&2; exit 2 ;;',
        "esac",
        'set -- "$@" --backend "$BACKEND"',
    ]
