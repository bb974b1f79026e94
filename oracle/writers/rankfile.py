"""Where each rank is started: Open MPI's rankfile, Slurm's and MPICH's host files, torch's mesh.

    mpirun --rankfile rankfile …                                       Open MPI
    SLURM_HOSTFILE=hosts.slurm srun --distribution=arbitrary …         Slurm
    mpiexec -f hosts.mpich …                                           MPICH

Open MPI is told each rank's node and slot, which is a core to it: widen it to those beside the
device, as the node numbers them. Slurm and MPICH are told each rank's node, and number
the ranks of a node as they come; a rank's place on its node is then `devices.txt`'s. torchrun
numbers its ranks itself, node by node: `mesh.py` deals those numbers to the plan's mesh.
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
    """The rankfile comes first; host files where names are known."""
    if job.estimate.system.partitions:
        return _dealt(job, *_by_kind(job))
    seats = job.estimate.system.seats or Seats()
    if job.estimate.placed and job.estimate.placed[0].seats is not None:
        seats = job.estimate.placed[0].seats
    system = job.estimate.system.seated(seats)
    slot, each = seats.slot_of(np.arange(job.devices), job.devices), system.per_host
    device = devices_of(system, job.plan)
    numbers, local = device // each, device % each
    return _dealt(job, named(job, numbers), local, started(slot, numbers, local), seats.how)


def _by_kind(job: Job) -> tuple[list[str], np.ndarray, list[int], str]:
    """Names and places of ranks that fill one partition after the other, node by node."""
    known = all(kind.names for kind in job.kinds)
    names: list[str] = []
    local: list[int] = []
    for kind in job.kinds:
        for node in range(kind.count):
            name = kind.names[node] if known else f"+n{kind.first + node}"
            names += [name] * kind.each
            local += range(kind.each)
    return names, np.array(local), list(range(len(names))), "partition by partition"


def _dealt(
    job: Job, names: list[str], local: np.ndarray, order: list[int], how: str
) -> dict[str, str]:
    """Files of ranks on nodes by name, each at its place there, as torchrun numbers them."""
    job.text  # the mesh carries the plan as it is  # noqa: B018
    head = "".join(f"# {line}\n" for line in [*job.about(), f"ranks placed {how}"])
    found = {"rankfile": head + rankfile(names, local.tolist())}
    if not names[0].startswith("+"):
        found["hosts.slurm"] = "".join(f"{name}\n" for name in names)
        found["hosts.mpich"] = "".join(f"{name}:{len([*run])}\n" for name, run in groupby(names))
    else:
        said = "its nodes have no names (`nodes:` of the system, --nodes): no host files written"
        job.notes.append(said)
    found["devices.txt"] = "".join(
        f"{rank} {name} {place}\n"
        for rank, (name, place) in enumerate(zip(names, local.tolist(), strict=True))
    )
    found["mesh.py"] = mesh(job, order)
    return found


def named(job: Job, numbers: np.ndarray) -> list[str]:
    """The node of each rank; where nobody knows names, Open MPI's `+n0` for the first given."""
    known = job.estimate.system.node_names
    if known:
        return [known[number] for number in numbers.tolist()]
    order = {number: at for at, number in enumerate(sorted(set(numbers.tolist())))}
    return [f"+n{order[number]}" for number in numbers.tolist()]


def rankfile(names: list[str], local: list[int]) -> str:
    """`rank 3=n07 slot=2`, a line a rank [Open MPI, mpirun(1)]."""
    return "".join(
        f"rank {rank}={name} slot={slot}\n"
        for rank, (name, slot) in enumerate(zip(names, local, strict=True))
    )


def started(slot: np.ndarray, numbers: np.ndarray, local: np.ndarray) -> list[int]:
    """torchrun's number of the process that each rank of the plan is: node by node, as given."""
    order = np.argsort(slot)  # by slot: as nodes were listed
    first = {number: at for at, number in enumerate(dict.fromkeys(numbers[order].tolist()))}
    node = np.array([first[number] for number in numbers.tolist()])
    place = np.lexsort((local, node))
    found = np.empty(len(slot), int)
    found[place] = np.arange(len(slot))
    return [int(one) for one in found]


def mesh(job: Job, order: list[int]) -> str:
    """Python that makes the plan's mesh of torchrun's processes."""
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
