"""Rank and size of the world, read from the variables of the launcher."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass

# launcher -> (rank, size, rank on this host, ranks on this host), first match wins: torchrun may
# run inside srun, and mpirun inside a Slurm job. Size under Slurm is that of the step: a batch
# script is "rank 0 of N" by SLURM_NTASKS although nobody started the other ranks.
LAUNCHERS = {
    "torchrun": ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
    "mpirun (Open MPI)": (
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_RANK",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
    ),
    "srun": ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""),
    "mpiexec (PMI)": ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"),
}
_NO_STEP = 0xFFFFFFF0  # Slurm numbers batch and external "steps" from here on


class WorldError(Exception):
    """The variables of a launcher contradict each other."""


@dataclass(frozen=True, slots=True)
class World:
    """One rank among `size`."""

    rank: int = 0
    size: int = 1
    local: int = 0  # rank among those on this host
    launcher: str = ""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.size:
            raise WorldError(f"{self.launcher} calls this rank {self.rank} of {self.size}")


def recognise(environment: Mapping[str, str]) -> World | None:
    """The world that a launcher put this process into, or None when nobody did.

    >>> recognise({"RANK": "3", "WORLD_SIZE": "8"})
    World(rank=3, size=8, local=3, launcher='torchrun')
    >>> recognise({"SLURM_PROCID": "0", "SLURM_NTASKS": "8"}) is None  # a batch script
    True
    """
    for launcher, (rank, size, local, _) in LAUNCHERS.items():
        if rank not in environment or size not in environment:
            continue
        if launcher == "srun" and int(environment.get("SLURM_STEP_ID", 0)) >= _NO_STEP:
            continue
        try:
            me, all_of_us = int(environment[rank]), int(environment[size])
            local_rank = int(environment.get(local, me))
        except ValueError:
            values = f"{rank}={environment[rank]!r}, {size}={environment[size]!r}"
            raise WorldError(f"{launcher} set {values}: not numbers") from None
        return World(me, all_of_us, local_rank, launcher)
    return None


def rank_count(ranks: int | None, environment: Mapping[str, str]) -> int:
    """How many ranks a run has: those to be started, or those of the launcher, or one."""
    return ranks or (recognise(environment) or World()).size


def host_name(environment: Mapping[str, str]) -> str:
    """Name of this host in messages; ORACLE_HOST overrides it where hosts share a name."""
    name = environment.get("ORACLE_HOST") or environment.get("SLURMD_NODENAME")
    return name or socket.gethostname()
