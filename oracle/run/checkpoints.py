"""Checkpoints of a training: their bytes, and the seconds of saving and of loading one.

A checkpoint holds the state of each trained weight once: the weight, its master and the optimizer's
numbers, 14 bytes in mixed precision with Adam. It holds no frozen weights.

    rank0      one rank gathers the parts of all, and writes:  C = gather + copy + T_write(1 node)
    sharded    each rank copies and writes its own part:       C = copy + T_write(N nodes)
    async      the same from a copy in the host's memory:      C = copy, safe T_write later

State that several ranks hold is dealt out among them. State on the disks or in the memory of nodes
is sent to another node as well, so that it outlives its node. A restart reads the state of each
rank: every node reads it from the files, or one replica's nodes read it and pass it on.
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

LINK = 3.0  # factor by which an unknown host link may be off: PCIe of four generations
COPIES = 2  # of state on nodes: a node's own, and that of another


@dataclass(frozen=True, slots=True)
class State:
    """The bytes of state that a training saves under a plan."""

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
    """Return the bytes of a stored weight, without 8-bit copies that are made from it."""
    return options.software.state.weight(options.precision)


def state_of(predicted: Estimate, row: int = 0) -> State:
    """Return the state of a training under one plan."""
    options, work = predicted.options, predicted.work[row]
    plan = work.plan
    model = predicted.model.under(options.software.kernels)
    width = width_of(options)
    slots = slots_of(model, options)
    load = workload(rows_of(model, predicted.system, plan, options), options, work.edges)
    parts = [load.total(w) * share for w, share in load.shares("stored", True)]
    weights, numbers = width * sum(parts, np.zeros(1)), load.weights_of("stated", slots)
    learned = model.repeat * serial(model, plan.batch, options.width).learned
    once, numbers_once = width * float(np.sum(learned)), float(np.sum(learned * slots))
    devices = float(predicted.devices[row])
    copied_share = np.zeros(len(model))
    for axis in () if options.ideal else plan.axes:
        copied_share = copied_share + axis.copied(model)[0]
    # the number of devices that hold the same, of weights and of the other numbers
    copies = [
        max(devices * float(np.mean(held_elements)) / max(elements_once + copied, 1.0), 1.0)
        for held_elements, elements_once, copied in (
            (weights, once, width * float(np.sum(copied_share))),
            (numbers, numbers_once, float(np.sum(copied_share * slots))),
        )
    ]
    part = float(np.max(weights / copies[0] + numbers / copies[1]))
    held = float(np.max(weights + numbers))
    whole = once + numbers_once
    return State(whole, min(held, whole), min(part, whole), devices, float(np.sum(learned)))


@dataclass(frozen=True)
class Saving:
    """One way to make checkpoints under a plan, with its seconds."""

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

    def _of_a_node(self, device_bytes: float) -> float:
        """Return the bytes of a node, given those of a device; at most the state once."""
        return min(min(self.system.per_host, self.state.devices) * device_bytes, self.state.whole)

    @property
    def node_bytes(self) -> float:
        """Bytes that the fullest node writes."""
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
        """Why the state has no room, in words; empty where it has room."""
        needed = self.node_bytes
        if self.way.to != "shared" and self.nodes == 1:
            return "what lies on the only node is lost with it"
        memory, disk = self.machine.host.memory, self.machine.local
        if self.way.to == "local" and disk is not None and disk.capacity is not None:
            needed *= COPIES * self.way.keep
            if needed > disk.capacity:
                return (
                    f"disks of {show(disk.capacity, 'B')} a node lack room for {show(needed, 'B')}"
                )
        if self.way.to == "host":
            needed *= COPIES * self.way.keep
        elif self.way.how != "async":
            return ""
        if self.way.to == "local":
            needed = self.node_bytes
        if needed > memory:
            return f"hosts of {show(memory, 'B')} lack room for copies of {show(needed, 'B')}"
        return ""

    def _copied(self, device_bytes: float) -> float:
        """Return the seconds of a copy between each device and its host."""
        devices = min(self.system.per_host, self.state.devices)
        return max(
            device_bytes / self.link,
            devices * device_bytes / (self.machine.host.bandwidth or np.inf),
        )

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

    def _from_others(self, device_bytes: float) -> float:
        """Return the seconds in which one node gets the state that its devices lack."""
        missing = self.state.whole - self._of_a_node(device_bytes)
        return max(missing, 0.0) / self.machine.ports if self.nodes > 1 else 0.0

    @property
    def safe_after(self) -> float:
        """W, seconds from the end of C until the checkpoint is safe."""
        return self.written if self.way.how == "async" else 0.0

    @property
    def load(self) -> float:
        """Seconds in which a job that starts again gets all of its state."""
        state, to = self.state, self.way.to
        needed = self._of_a_node(state.held)
        back = self._copied(state.held)
        ports = self.machine.ports
        passed = needed / ports if self.nodes > 1 else 0.0
        if to == "host":
            return passed + back
        if to == "local":  # a node that failed gets it from another
            took = checkpoint.loaded(self.machine, self.node_bytes, 1.0, to=to)
            return max(float(took or 0.0), passed) + back
        if self.way.how == "rank0":
            took = checkpoint.loaded(self.machine, state.whole, 1.0)
            return float(took or 0.0) + passed + back
        once = checkpoint.loaded(self.machine, state.whole, self.nodes, state.devices,
                                 fullest=self.node_bytes)  # fmt: skip
        all_of_it = checkpoint.loaded(self.machine, self.nodes * needed, self.nodes, state.devices)
        return min(float(once or 0.0) + passed, float(all_of_it or 0.0)) + back

    def turned(self) -> Iterator[tuple[Saving, Saving]]:
        """Yield copies on better and on worse storage, for each unknown number of the storage."""
        for assumed in self.machine.assumed:
            if not assumed.key.startswith(("storage.", "host.bandwidth")) or assumed.key.endswith(
                "open"
            ):
                continue
            if ".shared." in assumed.key and self.way.to != "shared":
                continue
            better, worse = (replace(self, machine=self.machine.turned(assumed.key, by))
                             for by in (assumed.factor, 1 / assumed.factor))  # fmt: skip
            yield better, worse
        if self._guessed:
            yield replace(self, link=self.link * LINK), replace(self, link=self.link / LINK)

    @property
    def assumed(self) -> tuple[str, ...]:
        """Keys that the spec leaves out and that these seconds depend on."""
        keys = [number.key for number in self.machine.assumed if self._moves(number.key)]
        if self._guessed:
            keys.append("device.host_link")
        return tuple(keys)

    @property
    def _guessed(self) -> bool:
        """Whether the speed of the host link is unknown."""
        return host_line(self.system).origin == "assumed"

    def _moves(self, key: str) -> bool:
        try:
            changed = replace(self, machine=self.machine.turned(key, 0.5))
        except (AttributeError, TypeError):
            return False
        return (changed.seconds, changed.written, changed.load) != (
            self.seconds,
            self.written,
            self.load,
        )


def saving(predicted: Estimate, row: int = 0, way: Checkpoint | None = None) -> Saving:
    """Return the checkpoints of one plan, made in the way of its system."""
    if predicted.options.ideal:
        raise refusal("options", "nothing fails under ideal assumptions", "leave out --ideal")
    way = way or predicted.system.checkpoint or Checkpoint()
    return Saving.of(predicted.system, state_of(predicted, row), way)
