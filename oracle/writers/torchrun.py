"""A torchrun line, and the device mesh of the plan as Python."""

from __future__ import annotations

from oracle.writers.exported import Job

TITLE = "torchrun line and init_device_mesh snippet"


def files(job: Job) -> dict[str, str]:
    return {"launch.sh": launch(job), "mesh.py": mesh(job)}


def launch(job: Job) -> str:
    """A script that starts one node's ranks; on several nodes it is started on each."""
    head = "\n".join(f"# {line}" for line in job.about())
    several = job.nodes > 1
    where = (
        [
            '  --rdzv-backend=c10d --rdzv-id="${JOB_ID:-oracle}"',
            '  --rdzv-endpoint="${MASTER_ADDR:?the first node}:${MASTER_PORT:-29500}"',
        ]
        if several
        else ["  --standalone"]
    )
    words = [
        "exec torchrun",
        f"  --nnodes={job.nodes} --nproc-per-node={job.per_node}",
        *where,
        '  "${TRAIN_SCRIPT:-train.py}" "$@"',
    ]
    line = " \\\n".join(words)
    return f"#!/usr/bin/env bash\n{head}\nset -euo pipefail\n{line}\n"


def dimensions(job: Job) -> list[tuple[str, int]]:
    """(name, size) of the mesh, outermost first; experts are the inner part of the data axis."""
    expert, found = job.degree("expert"), []
    if expert > 1 and job.degree("tensor") > 1 and job.word("expert", "cut") == "whole":
        raise job.refuse("a mesh of torch", "has experts along one axis only", "cut=tensor")
    for name, degree in job.axes:
        if name == "data" and expert > 1:
            found += [("data", degree // expert), ("expert", expert)]
        else:
            found.append((name, degree))
    return found or [("data", 1)]


def mesh(job: Job) -> str:
    """Python that makes the mesh whose ranks are numbered as the prediction numbers them."""
    sizes = dimensions(job)
    shape = ", ".join(str(size) for _, size in sizes)
    names = ", ".join(f'"{name}"' for name, _ in sizes)
    comma = "," if len(sizes) == 1 else ""
    data = [f'"{n}"' for n, _ in sizes if n in ("data", "expert", "sharded", "context")]
    about = [
        f'PLAN = "{job.text}"  # degrees and knobs, outermost first',
        f"BATCH = {job.batch}  # samples an iteration, all devices",
        f"MICRO_BATCH = {job.micro}  # samples that pass through a kernel at once",
        f"MICRO_BATCHES = {job.segments}  # of one device in one iteration",
        f"ZERO = {job.zero}  # what replicas share out: 1 optimizer, 2 gradients, 3 weights",
        f'PRECISION = "{job.estimate.options.precision}"',
        f'OPTIMIZER = "{job.estimate.options.optimizer}"',
        f'RECOMPUTE = "{job.recompute}"',
    ]
    replicas = f"\nREPLICAS = ({', '.join(data)},)  # these hold the same weights" if data else ""
    return "\n".join(
        [
            f'"""The device mesh of {job.estimate.plans[0]}."""',
            "",
            *(f"# {line}" for line in job.about()),
            "from torch.distributed.device_mesh import DeviceMesh, init_device_mesh",
            "",
            *about,
            f"SHAPE = ({shape}{comma})",
            f"NAMES = ({names}{comma})" + replicas,
            "",
            "",
            'def mesh(device: str = "cuda") -> DeviceMesh:',
            '    """Outermost axis first: the last one joins neighbouring ranks."""',
            "    return init_device_mesh(device, SHAPE, mesh_dim_names=NAMES)",
            "",
        ]
    )
