"""The place of each rank: Open MPI's rankfile, Slurm's and MPICH's host files, torch's mesh.

    mpirun --rankfile rankfile …                                       Open MPI
    SLURM_HOSTFILE=hosts.slurm srun --distribution=arbitrary …         Slurm
    mpiexec -f hosts.mpich …                                           MPICH

Open MPI takes each rank's node and slot, which is one core: widen it to the cores near the device.
Slurm and MPICH take each rank's node, and number the ranks of a node in their order; `devices.txt`
has a rank's place on its node. torchrun numbers its ranks itself, node by node: `mesh.py` deals
those numbers to the plan's mesh.
"""

from __future__ import annotations

from itertools import groupby

import numpy as np

from oracle.plan.laid import devices_of
from oracle.spec.seats import Seats
from oracle.writers.exported import Job
from oracle.writers.torchrun import dimensions

TITLE = "rank files: Open MPI, Slurm, MPICH, torchrun's mesh (--place, --nodes)"


def files(job: Job) -> dict[str, str]:
    """Return the rankfile first, and host files where names of nodes are known."""
    if job.estimate.system.partitions:
        return _dealt(job, *_by_kind(job))
    seats = job.estimate.system.seats or Seats()
    if job.estimate.placed and job.estimate.placed[0].seats is not None:
        seats = job.estimate.placed[0].seats
    system = job.estimate.system.seated(seats)
    slot, per_host = seats.slot_of(np.arange(job.devices), job.devices), system.per_host
    device = devices_of(system, job.plan)
    numbers, local = device // per_host, device % per_host
    return _dealt(job, named(job, numbers), local, started(slot, numbers, local), seats.how)


def _by_kind(job: Job) -> tuple[list[str], np.ndarray, list[int], str]:
    """Return nodes, places and order of ranks that fill partition after partition."""
    has_names = all(kind.names for kind in job.kinds)
    names: list[str] = []
    local: list[int] = []
    for kind in job.kinds:
        for node in range(kind.count):
            name = kind.names[node] if has_names else f"+n{kind.first + node}"
            names += [name] * kind.each
            local += range(kind.each)
    return names, np.array(local), list(range(len(names))), "partition by partition"


def _dealt(
    job: Job, names: list[str], local: np.ndarray, order: list[int], how: str
) -> dict[str, str]:
    """Return the files of ranks, given their nodes, their places, and torchrun's numbers."""
    job.text  # the mesh carries the plan as it is  # noqa: B018
    head = "".join(f"# {line}\n" for line in [*job.about(), f"ranks placed {how}"])
    files_by_name = {"rankfile": head + rankfile(names, local.tolist())}
    if not names[0].startswith("+"):
        files_by_name["hosts.slurm"] = "".join(f"{name}\n" for name in names)
        files_by_name["hosts.mpich"] = "".join(
            f"{name}:{len([*run])}\n" for name, run in groupby(names)
        )
    else:
        note = "its nodes have no names (`nodes:` of the system, --nodes): no host files written"
        job.notes.append(note)
    files_by_name["devices.txt"] = "".join(
        f"{rank} {name} {place}\n"
        for rank, (name, place) in enumerate(zip(names, local.tolist(), strict=True))
    )
    files_by_name["mesh.py"] = mesh(job, order)
    return files_by_name


def named(job: Job, numbers: np.ndarray) -> list[str]:
    """Return the node of each rank, or without names Open MPI's `+n0` for the first node."""
    names = job.estimate.system.node_names
    if names:
        return [names[number] for number in numbers.tolist()]
    order = {number: position for position, number in enumerate(sorted(set(numbers.tolist())))}
    return [f"+n{order[number]}" for number in numbers.tolist()]


def rankfile(names: list[str], local: list[int]) -> str:
    """Return a line a rank, `rank 3=n07 slot=2` [Open MPI, mpirun(1)]."""
    return "".join(
        f"rank {rank}={name} slot={slot}\n"
        for rank, (name, slot) in enumerate(zip(names, local, strict=True))
    )


def started(slot: np.ndarray, numbers: np.ndarray, local: np.ndarray) -> list[int]:
    """Return torchrun's number of the process of each rank: node by node, as listed."""
    order = np.argsort(slot)  # by slot: as nodes were listed
    first = {
        number: position for position, number in enumerate(dict.fromkeys(numbers[order].tolist()))
    }
    node = np.array([first[number] for number in numbers.tolist()])
    place = np.lexsort((local, node))
    numbers_of_rank = np.empty(len(slot), int)
    numbers_of_rank[place] = np.arange(len(slot))
    return [int(number) for number in numbers_of_rank]


def mesh(job: Job, order: list[int]) -> str:
    """Return Python code that makes the plan's mesh of torchrun's processes."""
    sizes = dimensions(job)
    shape = ", ".join(str(size) for _, size in sizes) + ("," if len(sizes) == 1 else "")
    names = ", ".join(f'"{name}"' for name, _ in sizes) + ("," if len(sizes) == 1 else "")
    rows = [order[k : k + 16] for k in range(0, len(order), 16)]
    return "\n".join([
        f'"""The device mesh of {job.estimate.plans[0]}, its ranks where they were placed."""',
        "",
        "import torch",
        "from torch.distributed.device_mesh import DeviceMesh",
        "",
        "# torchrun's number of each process of the plan, outermost axis first",
        "ORDER = [",
        *(f"    {', '.join(map(str, row))}," for row in rows),
        "]",
        f"SHAPE = ({shape})",
        f"NAMES = ({names})",
        "",
        "",
        'def mesh(device: str = "cuda") -> DeviceMesh:',
        '    """Outermost axis first."""',
        "    return DeviceMesh(device, torch.tensor(ORDER).reshape(SHAPE), mesh_dim_names=NAMES)",
        "",
    ])  # fmt: skip
