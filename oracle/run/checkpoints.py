"""Checkpoints of a training: their bytes, the seconds that they stop it, and those of loading one.

What is written is the state of each weight that is trained, once: the weight, its master and the
optimizer's numbers, 14 bytes in mixed precision with Adam. Weights that are frozen are not.

    rank0      one rank gathers the parts of all, and writes:  C = gather + copy + T_write(1 node)
    sharded    each rank copies and writes what is its own:    C = copy + T_write(N nodes)
    async      the same from a copy in the host's memory:      C = copy, safe T_write later

What several ranks hold is dealt out among them. What lies on the disks or in the memory of nodes is
sent to another node as well, so that it outlives its own. A restart reads what each rank needs:
every node from the files, or one replica's nodes, which pass it on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from oracle.models.shard import serial
from oracle.network.host import host_line
from oracle.predict.estimate import Estimate
from oracle.predict.reading import machine_of
from oracle.predict.workload import rows_of, slots_of, workload
from oracle.spec.document import refusal
from oracle.spec.options import Options
from oracle.spec.running import Checkpoint
from oracle.spec.system import System
from oracle.spec.units import show
from oracle.storage import Machine, checkpoint

LINK = 3.0  # how far off a host link may be that nobody says: PCIe of four generations
COPIES = 2  # of what lies on nodes: its own, and that of another


@dataclass(frozen=True, slots=True)
class State:
    """What a training has to save under a plan, in bytes."""

    whole: float  # everything once
    held: float  # by the device that holds most of it
    part: float  # that a device writes at most
    devices: float
    parameters: float

    @property
    def each(self) -> float:
        """Bytes that are written for a weight."""
        return self.whole / max(self.parameters, 1.0)


def width_of(options: Options) -> float:
    """Bytes of a weight as it is kept, without 8-bit copies that are made anew from it."""
    return options.software.state.weight(options.precision)


def state_of(shown: Estimate, row: int = 0) -> State:
    """The state of a training under one plan."""
    options, work = shown.options, shown.work[row]
    plan = work.plan
    model = shown.model.under(options.software.kernels)
    width = width_of(options)
    slots = slots_of(model, options)
    load = workload(rows_of(model, shown.system, plan, options), options, work.edges)
    parts = [load.total(w) * share for w, share in load.shares("stored", True)]
    weights, numbers = width * sum(parts, np.zeros(1)), load.weights_of("stated", slots)
    alone = model.repeat * serial(model, plan.batch, options.width).learned
    once, kept = width * float(np.sum(alone)), float(np.sum(alone * slots))
    devices = float(shown.devices[row])
    twice = np.zeros(len(model))
    for axis in () if options.ideal else plan.axes:
        twice = twice + axis.copied(model)[0]
    # of weights and of the rest, how many devices hold the same
    copies = [max(devices * float(np.mean(held)) / max(of + more, 1.0), 1.0)
              for held, of, more in ((weights, once, width * float(np.sum(twice))),
                                     (numbers, kept, float(np.sum(twice * slots))))]  # fmt: skip
    part = float(np.max(weights / copies[0] + numbers / copies[1]))
    held = float(np.max(weights + numbers))
    whole = once + kept
    return State(whole, min(held, whole), min(part, whole), devices, float(np.sum(alone)))


@dataclass(frozen=True)
class Saving:
    """What one way to make checkpoints takes under a plan."""

    system: System
    state: State
    way: Checkpoint
    machine: Machine
    link: float  # B/s of a device to its host

    @classmethod
    def of(cls, system: System, state: State, way: Checkpoint) -> Saving:
        return cls(system, state, way, machine_of(system), 1 / host_line(system).per_byte)

    @property
    def nodes(self) -> float:
        return -(-self.state.devices // self.system.per_host)

    def _of_a_node(self, each: float) -> float:
        """Bytes of a node whose devices have so many each, all of it once at most."""
        return min(min(self.system.per_host, self.state.devices) * each, self.state.whole)

    @property
    def node_bytes(self) -> float:
        """That the fullest node writes."""
        return self._of_a_node(self.state.part)

    @property
    def _sent(self) -> float:
        """Seconds in which each node has sent its part to another."""
        return self.node_bytes / self.machine.ports if self.nodes > 1 else 0.0

    @cached_property
    def unknown(self) -> tuple[str, ...]:
        """Keys of the spec that would tell the seconds."""
        if self.way.to == "shared" and self.machine.shared is None:
            return ("storage.shared",)
        if self.way.to == "local" and self.machine.local is None:
            return ("storage.local",)
        return ()

    @cached_property
    def lacks(self) -> str:
        """What has no room, in words; nothing where everything has."""
        held = self.node_bytes
        if self.way.to != "shared" and self.nodes == 1:
            return "what lies on the only node is lost with it"
        memory, disk = self.machine.host.memory, self.machine.local
        if self.way.to == "local" and disk is not None and disk.capacity is not None:
            held *= COPIES * self.way.keep
            if held > disk.capacity:
                return f"disks of {show(disk.capacity, 'B')} a node lack room for {show(held, 'B')}"
        if self.way.to == "host":
            held *= COPIES * self.way.keep
        elif self.way.how != "async":
            return ""
        if self.way.to == "local":
            held = self.node_bytes
        if held > memory:
            return f"hosts of {show(memory, 'B')} lack room for copies of {show(held, 'B')}"
        return ""

    def _copied(self, each: float) -> float:
        """Seconds of a copy of so many bytes between each device and its host."""
        many = min(self.system.per_host, self.state.devices)
        return max(each / self.link, many * each / (self.machine.host.bandwidth or np.inf))

    @property
    def written(self) -> float:
        """Seconds from a copy in the hosts' memory until it is safe."""
        state, to = self.state, self.way.to
        if to == "host":
            return self._sent
        if to == "local":
            took = checkpoint.seconds(self.machine, COPIES * self.node_bytes, 1.0, to=to)
            return max(float(took or 0.0), self._sent)
        if self.way.how == "rank0":
            took = checkpoint.seconds(self.machine, state.whole, 1.0)
        else:
            took = checkpoint.seconds(self.machine, state.whole, self.nodes, state.devices,
                                      fullest=self.node_bytes)  # fmt: skip
        return float(took or 0.0)

    @property
    def seconds(self) -> float:
        """C, seconds in which training stands still for a checkpoint."""
        if self.way.how == "async":
            return self._copied(self.state.part)
        gathered, part = 0.0, self.state.part
        if self.way.how == "rank0":
            gathered, part = self._from_others(self.state.held), self.state.held
        return gathered + self._copied(part) + self.written

    def _from_others(self, held: float) -> float:
        """Seconds in which one node has what its devices do not hold."""
        missing = self.state.whole - self._of_a_node(held)
        return max(missing, 0.0) / self.machine.ports if self.nodes > 1 else 0.0

    @property
    def safe_after(self) -> float:
        """W, seconds from then until it is safe."""
        return self.written if self.way.how == "async" else 0.0

    @property
    def load(self) -> float:
        """Seconds in which a job that starts anew has all of its state."""
        state, to = self.state, self.way.to
        needed = self._of_a_node(state.held)
        back = self._copied(state.held)
        ports = self.machine.ports
        passed = needed / ports if self.nodes > 1 else 0.0
        if to == "host":
            return passed + back
        if to == "local":  # what failed has it from another
            took = checkpoint.loaded(self.machine, self.node_bytes, 1.0, to=to)
            return max(float(took or 0.0), passed) + back
        if self.way.how == "rank0":
            took = checkpoint.loaded(self.machine, state.whole, 1.0)
            return float(took or 0.0) + passed + back
        one = checkpoint.loaded(self.machine, state.whole, self.nodes, state.devices,
                                fullest=self.node_bytes)  # fmt: skip
        all_of_it = checkpoint.loaded(self.machine, self.nodes * needed, self.nodes, state.devices)
        return min(float(one or 0.0) + passed, float(all_of_it or 0.0)) + back

    def turned(self) -> Iterator[tuple[Saving, Saving]]:
        """The same on better and worse storage, for each number of it that nobody says."""
        for one in self.machine.assumed:
            if not one.key.startswith(("storage.", "host.bandwidth")) or one.key.endswith("open"):
                continue
            if ".shared." in one.key and self.way.to != "shared":
                continue
            better, worse = (replace(self, machine=self.machine.turned(one.key, by))
                             for by in (one.factor, 1 / one.factor))  # fmt: skip
            yield better, worse
        if self._guessed:
            yield replace(self, link=self.link * LINK), replace(self, link=self.link / LINK)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Keys of the spec that nobody says, and that these seconds depend on."""
        found = [one.key for one in self.machine.assumed if self._moves(one.key)]
        if self._guessed:
            found.append("device.host_link")
        return tuple(found)

    @property
    def _guessed(self) -> bool:
        """Whether nobody says how fast devices reach their host."""
        return host_line(self.system).origin == "assumed"

    def _moves(self, key: str) -> bool:
        try:
            other = replace(self, machine=self.machine.turned(key, 0.5))
        except (AttributeError, TypeError):
            return False
        return (other.seconds, other.written, other.load) != (self.seconds, self.written, self.load)


def saving(shown: Estimate, row: int = 0, way: Checkpoint | None = None) -> Saving:
    """Checkpoints of one plan, made as its system says."""
    if shown.options.ideal:
        raise refusal("options", "nothing fails under ideal assumptions", "leave out --ideal")
    way = way or shown.system.checkpoint or Checkpoint()
    return Saving.of(shown.system, state_of(shown, row), way)
