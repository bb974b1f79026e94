"""A batch script for Slurm: one task a node, and each task starts torchrun.

Nodes of several kinds are a heterogeneous job with a component for each kind, in one step that
numbers all its nodes [Slurm, Heterogeneous Job Support].
"""

from __future__ import annotations

from oracle.writers.exported import Job
from oracle.writers.nodes import first_node, ranks_here, slurm_options, step
from oracle.writers.torchrun import mesh

TITLE = "sbatch script"
STEPS = 1000  # iterations that the requested time is enough for


def files(job: Job) -> dict[str, str]:
    return {"job.sbatch": script(job), "mesh.py": mesh(job)}


def script(job: Job) -> str:
    """Return the script; its directives hold plain words only, whatever the model's name."""
    directives = slurm_options(job.kinds, job.minutes(STEPS))
    return f"""\
#!/usr/bin/env bash
#SBATCH --job-name={job.name[:60]}
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:TERM@120
{directives}#
{chr(10).join(f"# {line}" for line in job.about())}
# The time is that of {STEPS} iterations at the upper end of the interval; see STEPS.
set -euo pipefail

STEPS="${{STEPS:-{STEPS}}}"
export STEPS
JOB_ID="${{SLURM_JOB_ID:?start this with sbatch}}"
MASTER_ADDR="$(scontrol show hostnames "${{{first_node(job.kinds)}:?}}" | head -n 1)"
MASTER_PORT="$((20000 + JOB_ID % 20000))"
export MASTER_ADDR MASTER_PORT

trap 'kill -TERM "$step" 2>/dev/null' TERM
{_alike(job) if len(job.kinds) == 1 else _unlike(job)}
step=$!
wait "$step"
"""


def _alike(job: Job) -> str:
    return f"""\
{step(job.kinds)} torchrun \\
  --nnodes={job.nodes} --nproc-per-node={job.per_node} \\
  --rdzv-backend=c10d --rdzv-id="$JOB_ID" \\
  --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\
  "${{TRAIN_SCRIPT:-train.py}}" "$@" &"""


def _unlike(job: Job) -> str:
    """Return a step whose nodes say their number, by which ranks are dealt to partitions."""
    before, ranks_a_node = ranks_here(job.kinds, "SLURM_NODEID")
    indented = "".join(f"  {line}\n" for line in before)
    return f"""\
# shellcheck disable=SC2016  # a node's own number
{step(job.kinds)} bash -c '
{indented}  exec torchrun --nnodes={job.nodes} --nproc-per-node={ranks_a_node} \\
    --node-rank="$SLURM_NODEID" --master-addr="$MASTER_ADDR" --master-port="$MASTER_PORT" "$@"
' node "${{TRAIN_SCRIPT:-train.py}}" "$@" &"""
