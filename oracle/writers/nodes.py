"""Nodes that a job is started on, kind by kind, in the order of its ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from oracle.plan.laid import as_used
from oracle.plan.plan import Plan
from oracle.predict.sides import parts_of
from oracle.readers.spec_text import plain_name
from oracle.spec.system import System
from oracle.writers.export import ExportError


@dataclass(frozen=True, eq=False)
class Nodes:
    """Nodes of one kind, each of which starts the same number of ranks."""

    partition: str  # name in the system, as a word of a shell; empty where it has none
    system: System  # of these nodes
    count: int
    each: int  # ranks on one
    first: int  # number of the first among the job's nodes
    names: tuple[str, ...]  # of all nodes of the partition, where known


def nodes_of(system: System, plan: Plan) -> tuple[Nodes, ...]:
    """Return the nodes of a plan's ranks, which fill one partition after the other."""
    devices = int(plan.devices[0, 0])
    if not system.partitions:
        return (_filled("", as_used(system, plan), devices, 0, system.node_names),)
    kinds: list[Nodes] = []
    for part in parts_of(system, plan):
        partition = system.partitions[part.number - 1]
        before = sum(earlier.nodes for earlier in system.partitions[: part.number - 1]
                     if earlier.system is partition.system)  # fmt: skip
        names = partition.system.node_names[before : before + partition.nodes]
        devices_here = min(part.devices, devices - part.first)
        first = sum(kind.count for kind in kinds)
        kinds.append(
            _filled(
                plain_name(partition.name, f"part{part.number}"), partition.system, devices_here,
                first, names,
            )
        )  # fmt: skip
    return tuple(kinds)


def _filled(
    partition: str, system: System, devices: int, first: int, names: tuple[str, ...]
) -> Nodes:
    node = system.per_host
    ranks_a_node = min(devices, node)
    if devices % ranks_a_node:
        place = f" of {partition}" if partition else ""
        complaint = f"{devices} devices{place} do not fill nodes of {node}"
        raise ExportError("export", complaint, f"a multiple of {node}, or fewer than {node}")
    return Nodes(partition, system, devices // ranks_a_node, ranks_a_node, first, names)


def ranks_here(kinds: Sequence[Nodes], node: str) -> tuple[list[str], str]:
    """Return lines of bash, and the word that then holds the ranks of a numbered node."""
    if len({kind.each for kind in kinds}) == 1:
        return [], str(kinds[0].each)
    lines = [f"PER_NODE={kinds[-1].each}"]
    for kind in reversed(kinds[:-1]):
        lines.append(f"if (({node} < {kind.first + kind.count})); then PER_NODE={kind.each}; fi")
    return lines, '"$PER_NODE"'


def slurm_options(every: Sequence[Nodes], minutes: int) -> str:
    """Return the Slurm options of a job with a component for each kind of nodes.

    A partition of the system is assumed to have the name of its queue.
    """
    components = []
    for kind in every:
        lines = [f"--partition={kind.partition}"] if kind.partition else []
        lines += [f"--nodes={kind.count}", "--ntasks-per-node=1"]
        lines += [] if kind.system.device.host else [f"--gpus-per-node={kind.each}"]
        if segment := segment_of(kind):
            lines.append(f"--segment={segment}")
        lines += ["--exclusive", f"--time={minutes // 60:02d}:{minutes % 60:02d}:00"]
        components.append("".join(f"#SBATCH {line}\n" for line in lines))
    return "#SBATCH hetjob\n".join(components)


def segment_of(kind: Nodes) -> int:
    """Return the nodes that Slurm takes together of a block, where they are hosts of a larger unit.

    [Slurm, sbatch, `--segment`, with topology/block]
    """
    system = kind.system
    hosts = system.node // system.per_host
    return min(kind.count, hosts) if hosts > 1 and kind.count % min(kind.count, hosts) == 0 else 0


def first_node(every: Sequence[Nodes]) -> str:
    """Return the variable of a batch script that holds the nodes of the first ranks."""
    return "SLURM_JOB_NODELIST" + "_HET_GROUP_0" * (len(every) > 1)


def step(every: Sequence[Nodes]) -> str:
    """Return the `srun` of one step on all nodes of the job."""
    groups = ",".join(map(str, range(len(every))))
    return "srun --kill-on-bad-exit=1" + f" --het-group={groups}" * (len(every) > 1)
