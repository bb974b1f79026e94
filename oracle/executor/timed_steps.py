"""Steps of one plan on one rank, of training or of its messages alone, and what one takes."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.clock import GPUS, timer_of
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.question import AGAIN, Question, differences
from oracle.plan.plan import parse
from oracle.spec.document import refusal
from oracle.spec.files import read_text

if TYPE_CHECKING:
    from torch import Tensor

    from oracle.executor.checkpointing.pieces import TrainingState
    from oracle.executor.loading.reader import SampleReader, Share
    from oracle.executor.rank import Rank
    from oracle.executor.wire import Traffic


def opened(rank: Rank, name: str, job: PlanRun, asked: Question, steps: Steps, count: int) -> None:
    """Say once what the results are of, and how many steps they are to have."""
    if rank.finished(f"{name}/plan"):
        same_machine(rank, rank.records.finished[f"{name}/plan"]["environment"])
        return
    rank.record(
        f"{name}/plan",
        model=steps.title,
        plan=job.plan,
        batch=job.batch,
        steps=count,
        host=rank.hosts[rank.rank],
        takes_part=steps.wire.mesh.taking_part,
        stages=[list(stage) for stage in steps.stages],
        options={"precision": job.precision, "optimizer": job.optimizer, **job.told},
        **({"reading": steps.reading} if steps.reading else {}),
        environment=environment(rank),
        question=asked,
    )


def timed(rank: Rank, steps: Steps, step: int, before: float) -> tuple[dict[str, Any], float]:
    """One step, begun by all ranks at once: what it took, and when it ended."""
    import torch.distributed as dist

    wire, takes_part = steps.wire, steps.wire.mesh.taking_part
    timer = wire.timer
    rank.enter("measure" if step > 0 else "warm-up", steps.job.plan, max(step, 0))
    wire.forget()
    forget_peak()
    timer.begin()
    dist.barrier(group=rank.control)
    first = timer.now()
    waits = steps.step() if takes_part else {}
    last = timer.now()
    timer.settle()
    began, ended, spent = timer.at(first), timer.at(last), wire.seconds()
    read = {"read": steps.read | {"between": began - before}} if steps.read else {}
    said = {what: _as_json(sent, spent.get(what, 0.0)) for what, sent in wire.traffic.items()}
    found = {"seconds": ended - began if takes_part else 0.0,
             "phases": {**timer.seconds(), **waits} if takes_part else {}, "said": said,
             "calls": [[one.what, one.members, *(at - steps.ahead for at in one[2:])]
                       for one in wire.collectives()],
             "memory": peak(rank), **read}  # fmt: skip
    return found, ended


def _as_json(sent: Traffic, seconds: float) -> dict[str, Any]:
    return {"op": sent.op, "group": sent.group, "calls": sent.calls, "bytes": sent.nbytes,
            "seconds": seconds}  # fmt: skip


class Steps:
    """Steps of one plan: of training, or of its messages alone."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        from oracle.executor.graph import graph
        from oracle.executor.mesh import DeviceMesh
        from oracle.executor.wire import Wire

        self.rank, self.job = rank, job
        self.graph = graph(job.model)
        self.title = self.graph.model.name
        self.plan = parse(job.plan, job.batch)
        mesh = DeviceMesh(self.plan, rank.rank, rank.size)
        self.wire = Wire(mesh, timer=timer_of(rank.device), by=job.algorithm)
        self.stages: list[tuple[int, int]] = []
        self.reading: dict[str, Any] = {}  # how samples are read, and what that took once
        self.read: dict[str, float] = {}  # seconds, files and bytes of the last step
        self.ahead = 0.0  # seconds that this rank's clock is ahead of rank 0's

    def begin(self, batches: int = 0) -> None:
        """Get ready for the first step, after so many batches that others had."""

    def step(self) -> dict[str, float]:
        """Run a step; seconds of what the host has waited for in it, by phase."""
        raise NotImplementedError

    def alive(self) -> dict[str, float]:
        """A step with its bytes of tensors counted: those by kind when they are most."""
        return {}

    def close(self) -> None:
        """End what goes on beside steps."""


class TrainingSteps(Steps):
    """Steps that train, on samples that may be read."""

    x: Tensor  # of the whole batch, where samples are read
    state: TrainingState | None = None  # what a checkpoint keeps of it

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        super().__init__(rank, job)
        self.reader: SampleReader | None = None

    def share(self) -> Share:
        """The samples of this rank."""
        raise NotImplementedError

    def begin(self, batches: int = 0) -> None:
        if not self.job.data:
            return
        from oracle.executor.loading.reader import Data, SampleReader

        data, seed = Data(**self.job.data), self.job.seed
        self.reader = SampleReader(self.rank, data, self.share(), self.x, seed, batches)
        found = self.reader.found
        self.reading = data.said | {
            "samples": len(found), "bytes": found.nbytes, "files": found.files,
            "readers": len(self.reader.readers), "staging": self.reader.staging}  # fmt: skip

    def waited(self) -> float:
        """Read the samples of the next step, where they are read; seconds until they are here."""
        if not self.reader:
            return 0.0
        self.rank.enter("reading", self.job.plan)
        self.read = self.reader.load()
        return self.read["seconds"]

    def close(self) -> None:
        if self.reader:
            self.reader.close()


class NativeSteps(TrainingSteps):
    """Training steps by the executor itself."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        import torch

        from oracle.executor.batch import inputs
        from oracle.executor.checkpointing.pieces import NativeState
        from oracle.executor.host_link import HostLink
        from oracle.executor.local_model import LocalModel
        from oracle.executor.optimizer import Optimizer
        from oracle.executor.steps import Trainer

        super().__init__(rank, job)
        dtype = getattr(torch, DTYPES[job.precision])
        edges = list(job.stages) or None
        local = LocalModel(self.graph, self.plan, self.wire, dtype=dtype, device=rank.device,
                           seed=job.seed, edges=edges, units=job.units,
                           link=HostLink(self.wire, job.link), routing=job.routing)  # fmt: skip
        self.stages = local.stages
        self.x, self.target = inputs(self.graph, job.batch, job.seed, dtype)
        if rank.device.type in GPUS:  # whence copies wait for nothing
            self.x, self.target = self.x.pin_memory(), self.target.pin_memory()
        self.local = local
        here = self.wire.mesh.taking_part
        self.trainer = Trainer(local, Optimizer(job.optimizer, rate=1e-4)) if here else None
        self.state = NativeState(self.trainer) if self.trainer else None

    def share(self) -> Share:
        from oracle.executor.loading.reader import Share

        return Share.of(self.local)

    def step(self) -> dict[str, float]:
        waited = self.waited()
        assert self.trainer
        self.trainer.step(self.x, self.target)
        return {"reading": waited}

    def alive(self) -> dict[str, float]:
        from oracle.executor.memory_count import counted

        found = counted(self.trainer, self.x, self.target).peak if self.trainer else {}
        return {kind: float(nbytes) for kind, nbytes in found.items()}

    def close(self) -> None:
        self.local.link.close()
        super().close()


class ReplayedSteps(Steps):
    """Steps of a plan's messages alone."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        import torch

        from oracle.executor.cuts import stages_of
        from oracle.executor.replay import messages_of

        super().__init__(rank, job)
        self.stages = stages_of(self.graph, self.plan, list(job.stages) or None)
        width = getattr(torch, DTYPES[job.precision]).itemsize
        self.messages = messages_of(self.graph, self.plan, self.stages, self.wire.mesh, width)

    def step(self) -> dict[str, float]:
        from oracle.executor.replay import send_all

        with self.wire.timer.phase("exchange"):
            send_all(self.messages, self.wire, self.rank.device)
        return {}


def environment(rank: Rank) -> dict[str, Any]:
    """Versions and hardware, without paths and variables."""
    import torch

    from oracle.executor.collectives import facts, oracle_version

    return facts(rank) | {
        "oracle": oracle_version(),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


def same_machine(rank: Rank, before: Mapping[str, Any]) -> None:
    """Refuse to mix the steps of two machines, or of two versions."""
    now = environment(rank)
    kept = ("ranks", "nodes", "backend", "device", "torch", "oracle")
    if changed := differences(*({name: one.get(name) for name in kept} for one in (before, now))):
        what = f"the results left here are of another machine: {'; '.join(changed)}"
        raise refusal(str(rank.attempt.parent), what, AGAIN)


def forget_peak() -> None:
    """Reset the peak of memory."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
        return
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return


def peak(rank: Rank) -> float:
    """Peak bytes of memory: of the device where there is one, else of the process."""
    import torch

    if rank.backend == "nccl":
        return float(torch.cuda.max_memory_reserved())
    for line in read_text("/proc/self/status").splitlines():
        if line.startswith("VmHWM:"):
            return float(line.split()[1]) * 1024
    return 0.0
