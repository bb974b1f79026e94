"""A batch script for Slurm: one task a node, each starts torchrun."""

from __future__ import annotations

from oracle.writers.exported import Job
from oracle.writers.torchrun import mesh

TITLE = "sbatch script"
STEPS = 1000  # iterations that the time asked for is enough for


def files(job: Job) -> dict[str, str]:
    return {"job.sbatch": script(job), "mesh.py": mesh(job)}


def script(job: Job) -> str:
    """The script; directives hold plain words only, whatever the model is called."""
    minutes = job.minutes(STEPS)
    clock = f"{minutes // 60:02d}:{minutes % 60:02d}:00"
    return f"""\
#!/usr/bin/env bash
#SBATCH --job-name={job.name[:60]}
#SBATCH --nodes={job.nodes}
#SBATCH --ntasks-per-node=1
#SBATCH --gpus-per-node={job.per_node}
#SBATCH --exclusive
#SBATCH --time={clock}
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:TERM@120
#
{chr(10).join(f"# {line}" for line in job.about())}
# The time is that of {STEPS} iterations at the upper end of the interval; see STEPS.
set -euo pipefail

STEPS="${{STEPS:-{STEPS}}}"
export STEPS
JOB_ID="${{SLURM_JOB_ID:?start this with sbatch}}"
MASTER_ADDR="$(scontrol show hostnames "${{SLURM_JOB_NODELIST:?}}" | head -n 1)"
MASTER_PORT="$((20000 + JOB_ID % 20000))"
export MASTER_ADDR MASTER_PORT

trap 'kill -TERM "$step" 2>/dev/null' TERM
srun --kill-on-bad-exit=1 torchrun \\
  --nnodes={job.nodes} --nproc-per-node={job.per_node} \\
  --rdzv-backend=c10d --rdzv-id="$JOB_ID" \\
  --rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" \\
  "${{TRAIN_SCRIPT:-train.py}}" "$@" &
step=$!
wait "$step"
"""
