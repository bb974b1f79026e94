"""A complete job: a script, the framework's own files, README.md, check.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.plan.launchable import instead, rules, unshipped
from oracle.spec.units import show
from oracle.writers.export import formats, writer
from oracle.writers.exported import Job, Start, filled
from oracle.writers.nodes import first_node, slurm_options, step
from oracle.writers.torchrun import numbered

TITLE = "one job to start, of the software that was predicted (--software)"
STEPS = 1000  # iterations that the time asked of a queue is enough for


def files(job: Job) -> dict[str, str]:
    """Return the files, the script first: it is printed where no folder is named."""
    check_rules(job)
    if len({kind.system.device.host for kind in job.kinds}) > 1:
        raise job.refuse("a job", "runs one program, on processors or beside GPUs, not on both",
                         "the torchrun or slurm format, with your script")  # fmt: skip
    start = module(job).start(job)
    files_by_name = {"start.sh": script(job, start)}
    if job.nodes > 1:
        files_by_name["job.sbatch"] = batch(job)
    files_by_name |= start.files
    files_by_name["README.md"] = readme(job, start)
    files_by_name["check.py"] = check(job)
    return files_by_name


def module(job: Job) -> Any:
    """Return the writer that the software names."""
    run = job.estimate.options.software
    if run.name == "plain":
        names = "megatron-core, nemo, torchtitan, deepspeed, pytorch-fsdp, pytorch-ddp or executor"
        raise job.refuse("a job", "is that of some software", f"--software {names}")
    named_writer = writer(run.launch.writer) if run.launch.writer in formats() else None
    if not hasattr(named_writer, "start"):
        complaint = f"nobody writes jobs of {run.name}, which has its own scripts: {run.source}"
        raise job.refuse("oracle:", complaint, "the slurm or the torchrun format, with your script")
    return named_writer


def check_rules(job: Job) -> None:
    """Refuse a plan that breaks a rule of the software."""
    run, model = job.estimate.options.software, job.estimate.model
    if unshipped(run, model):
        raise job.refuse(run.name, f"ships no {job.name}", instead(run))
    broken = [
        rule.says(float(rule.wanted[0]), float(rule.allowed[0]))
        for rule in rules(run, model, job.plan)
        if np.any(rule.wanted > rule.allowed)
    ]
    if broken:
        hint = (f"`oracle recommend {job.name} {job.system} --devices {job.devices} --batch "
                f"{job.batch} --software {run.name}` names plans that it takes")  # fmt: skip
        raise job.refuse(run.name, f"cannot be told this plan: {'; '.join(broken)}", hint)


def script(job: Job, start: Start) -> str:
    """Return the script that starts the ranks of one node; the batch script starts it on each."""
    before: list[str] = []
    ranks_a_node, rank = (
        str(job.kinds[0].each),
        "${NODE_RANK:-${SLURM_NODEID:?the number of this node}}",
    )
    if len(job.kinds) > 1:
        before, ranks_a_node = numbered(job.kinds)
        rank = "$NODE_RANK"
    rendezvous = (
        [f'--node-rank="{rank}"', '--master-addr="${MASTER_ADDR:?the first node}" '
         '--master-port="${MASTER_PORT:-29500}"']
        if job.nodes > 1 else ["--standalone"]
    )  # fmt: skip
    words = [f"exec torchrun --nnodes={job.nodes} --nproc-per-node={ranks_a_node}", *rendezvous,
             " ".join(start.command) + ' "$@"']  # fmt: skip
    folder = ['HERE="$(cd "$(dirname "$0")" && pwd)"', "export HERE"]
    folder += [f'cd "${{{start.folder}:?{start.needs}}}"'] if start.folder else ['cd "$HERE"']
    return "\n".join([
        "#!/usr/bin/env bash",
        *(f"# {line}" for line in job.about()),
        f"# needs: {start.needs}",
        "set -euo pipefail",
        'export STEPS="${STEPS:-20}"',
        *folder, *start.prelude, *before,
        " \\\n  ".join(words),
    ]) + "\n"  # fmt: skip


def batch(job: Job) -> str:
    """Return the batch script: one task a node; its directives hold plain words only."""
    return f"""\
#!/usr/bin/env bash
#SBATCH --job-name={job.name[:60]}
#SBATCH --output=%x-%j.out
{slurm_options(job.kinds, job.minutes(STEPS))}#
{chr(10).join(f"# {line}" for line in job.about())}
set -euo pipefail
JOB_ID="${{SLURM_JOB_ID:?start this with sbatch, in its folder}}"
MASTER_ADDR="$(scontrol show hostnames "${{{first_node(job.kinds)}:?}}" | head -n 1)"
MASTER_PORT="$((20000 + JOB_ID % 20000))"
export MASTER_ADDR MASTER_PORT
{step(job.kinds)} bash start.sh "$@"
"""


def readme(job: Job, start: Start) -> str:
    """Return the README: how to start the job, what to expect, how it differs from the plan."""
    low, high = interval(job)
    rate = f"{show(job.batch * tokens(job) / job.seconds, '')} {unit(job)}/s"
    capacity = float(job.estimate.capacity[0])
    how = "`sbatch job.sbatch`, in this folder" if job.nodes > 1 else "`bash start.sh`"
    run = job.estimate.options.software
    place = f"{job.devices} devices of {job.system}"
    lines = [
        f"# {job.name} on {place}, {run.label} {run.version}".rstrip(),
        f"Plan: `{job.estimate.plans[0]}`, batch {job.batch}, micro-batches of {job.micro}.",
        f"Start: {how}; STEPS=20 says how many iterations. It needs {start.needs}.",
        f"Expect: {show(job.seconds, 's')} an iteration ({show(low, 's')} to {show(high, 's')}), "
        f"{rate}, {float(job.estimate.memory[0]) / 2**30:.1f} of {capacity / 2**30:.1f} GiB "
        "on the fullest device.",
        *([start.more] if start.more else []),
        f"Compare: `python check.py LOG`, where LOG is all that the job printed{_log(job)}.",
        f"Ranks, outermost first: {start.order}.",
        *(f"Differs: {note}." for note in dict.fromkeys(job.notes)),
    ]  # fmt: skip
    return "\n\n".join(lines) + "\n"


def _log(job: Job) -> str:
    """Return where the printed log is: several frameworks log to the error stream."""
    return ": Slurm's file has both streams" if job.nodes > 1 else (
        ", errors too: `bash start.sh 2>&1 | tee LOG`")  # fmt: skip


def check(job: Job) -> str:
    """Return a program that reads the job's log and prints measured over predicted."""
    low, high = interval(job)
    return filled("check.py", {
        "SECONDS": job.seconds, "LOW": low, "HIGH": high, "BATCH": job.batch,
        "DEVICES": job.devices, "TOKENS": tokens(job),
    })  # fmt: skip


def interval(job: Job) -> tuple[float, float]:
    return float(job.estimate.seconds_low[0]), float(job.estimate.seconds_high[0])


def tokens(job: Job) -> int:
    """Return the tokens of a sample; an image is one."""
    return job.transformer.sequence if job.transformer else 1


def unit(job: Job) -> str:
    return "tokens" if job.transformer else "samples"
