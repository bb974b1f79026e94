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
    """Nodes of one kind, that as many ranks are started on each of."""

    partition: str  # of the system, as a word of a shell; nothing where it has none
    system: System  # that they are of
    count: int
    each: int  # ranks on one
    first: int  # of them among the job's nodes
    names: tuple[str, ...]  # of all of the partition, where they are known


def nodes_of(system: System, plan: Plan) -> tuple[Nodes, ...]:
    """The nodes of a plan's ranks, which fill one partition after the other."""
    devices = int(plan.devices[0, 0])
    if not system.partitions:
        return (_filled("", as_used(system, plan), devices, 0, system.node_names),)
    found: list[Nodes] = []
    for one in parts_of(system, plan):
        mine = system.partitions[one.number - 1]
        before = sum(other.nodes for other in system.partitions[: one.number - 1]
                     if other.system is mine.system)  # fmt: skip
        names = mine.system.node_names[before : before + mine.nodes]
        here = min(one.devices, devices - one.first)
        first = sum(other.count for other in found)
        found.append(
            _filled(plain_name(mine.name, f"part{one.number}"), mine.system, here, first, names)
        )
    return tuple(found)


def _filled(
    partition: str, system: System, devices: int, first: int, names: tuple[str, ...]
) -> Nodes:
    node = system.per_host
    each = min(devices, node)
    if devices % each:
        where = f" of {partition}" if partition else ""
        what = f"{devices} devices{where} do not fill nodes of {node}"
        raise ExportError("export", what, f"a multiple of {node}, or fewer than {node}")
    return Nodes(partition, system, devices // each, each, first, names)


def ranks_here(every: Sequence[Nodes], node: str) -> tuple[list[str], str]:
    """Lines of bash, and the word that then says how many ranks the node of a number starts."""
    if len({kind.each for kind in every}) == 1:
        return [], str(every[0].each)
    lines = [f"PER_NODE={every[-1].each}"]
    for kind in reversed(every[:-1]):
        lines.append(f"if (({node} < {kind.first + kind.count})); then PER_NODE={kind.each}; fi")
    return lines, '"$PER_NODE"'


def asked(every: Sequence[Nodes], minutes: int) -> str:
    """What Slurm is asked for: a job of as many components as there are kinds of nodes.

    A partition of the system is taken to be the queue's, of the same name.
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
    """Nodes that Slurm shall take together of each block, where nodes are hosts of a larger unit.

    [Slurm, sbatch, `--segment`, with topology/block]
    """
    system = kind.system
    hosts = system.node // system.per_host
    return min(kind.count, hosts) if hosts > 1 and kind.count % min(kind.count, hosts) == 0 else 0


def first_node(every: Sequence[Nodes]) -> str:
    """The variable of a batch script that holds the nodes of the first ranks."""
    return "SLURM_JOB_NODELIST" + "_HET_GROUP_0" * (len(every) > 1)


def step(every: Sequence[Nodes]) -> str:
    """`srun` of one step on all nodes of the job."""
    groups = ",".join(map(str, range(len(every))))
    return "srun --kill-on-bad-exit=1" + f" --het-group={groups}" * (len(every) > 1)
