"""Steps of one plan on one rank, of training or of its messages alone, and their times."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.measure.clock import GPUS, timer_of
from oracle.executor.plan_run import DTYPES, PlanRun
from oracle.executor.question import AGAIN, PACKAGE, Question, differences, installed
from oracle.plan.plan import parse
from oracle.spec.document import refusal
from oracle.spec.files import read_text

if TYPE_CHECKING:
    from torch import Tensor

    from oracle.executor.checkpointing.pieces import TrainingState
    from oracle.executor.loading.reader import SampleReader, Share
    from oracle.executor.messages.wire import Traffic
    from oracle.executor.ranks.rank import Rank


def opened(
    rank: Rank, name: str, job: PlanRun, question: Question, steps: Steps, count: int
) -> None:
    """Record once which question the results answer, and how many steps they are to have."""
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
        options={"precision": job.precision, "optimizer": job.optimizer, **job.engine_options},
        **({"reading": steps.reading} if steps.reading else {}),
        environment=environment(rank),
        question=question,
    )


def timed(rank: Rank, steps: Steps, step: int, before: float) -> tuple[dict[str, Any], float]:
    """Run one step that all ranks begin at once: what it took, and when it ended."""
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
    began, ended, spent = timer.seconds_at(first), timer.seconds_at(last), wire.seconds()
    read = {"read": steps.read | {"between": began - before}} if steps.read else {}
    traffic = {label: _as_json(sent, spent.get(label, 0.0)) for label, sent in wire.traffic.items()}
    sample = {"seconds": ended - began if takes_part else 0.0,
              "phases": {**timer.seconds(), **waits} if takes_part else {}, "said": traffic,
              "calls": [[call.label, call.members, *(moment - steps.ahead for moment in call[2:])]
                        for call in wire.collectives()],
             "memory": peak(rank), **read}  # fmt: skip
    return sample, ended


def _as_json(sent: Traffic, seconds: float) -> dict[str, Any]:
    return {"op": sent.op, "group": sent.group, "calls": sent.calls, "bytes": sent.nbytes,
            "seconds": seconds}  # fmt: skip


class Steps:
    """Runs steps of one plan: of training, or of its messages alone."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        from oracle.executor.local.graph import graph
        from oracle.executor.messages.mesh import DeviceMesh
        from oracle.executor.messages.wire import Wire

        self.rank, self.job = rank, job
        self.graph = graph(job.model)
        self.title = self.graph.model.name
        self.plan = parse(job.plan, job.batch)
        mesh = DeviceMesh(self.plan, rank.rank, rank.size)
        self.wire = Wire(mesh, timer=timer_of(rank.device), by=job.algorithm)
        self.stages: list[tuple[int, int]] = []
        self.reading: dict[str, Any] = {}  # how samples are read, and what preparing took
        self.read: dict[str, float] = {}  # seconds, files and bytes of the last step
        self.ahead = 0.0  # seconds that this rank's clock is ahead of rank 0's

    def begin(self, batches: int = 0) -> None:
        """Get ready for the first step, after so many batches of an earlier run."""

    def step(self) -> dict[str, float]:
        """Run a step; the seconds that the host waited in it, by phase."""
        raise NotImplementedError

    def alive(self) -> dict[str, float]:
        """Bytes of tensors alive, by kind, when they are most in a step."""
        return {}

    def close(self) -> None:
        """End what runs beside the steps."""


class TrainingSteps(Steps):
    """Runs steps that train, on samples that may be read."""

    x: Tensor  # the samples of the batch, where samples are read
    state: TrainingState | None = None  # the state that a checkpoint keeps

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
        files = self.reader.found
        self.reading = data.question_fields | {
            "samples": len(files), "bytes": files.nbytes, "files": files.files,
            "readers": len(self.reader.readers), "staging": self.reader.staging}  # fmt: skip

    def waited(self) -> float:
        """Read the samples of the next step, if any are read; the seconds until they are here."""
        if not self.reader:
            return 0.0
        self.rank.enter("reading", self.job.plan)
        self.read = self.reader.load()
        return self.read["seconds"]

    def close(self) -> None:
        if self.reader:
            self.reader.close()


class NativeSteps(TrainingSteps):
    """Runs training steps by the executor itself."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        import torch

        from oracle.executor.checkpointing.pieces import NativeState
        from oracle.executor.local.batch import inputs
        from oracle.executor.local.local_model import LocalModel
        from oracle.executor.steps.host_link import HostLink
        from oracle.executor.steps.optimizer import Optimizer
        from oracle.executor.steps.trainer import Trainer

        super().__init__(rank, job)
        dtype = getattr(torch, DTYPES[job.precision])
        edges = list(job.stages) or None
        local = LocalModel(self.graph, self.plan, self.wire, dtype=dtype, device=rank.device,
                           seed=job.seed, edges=edges, units=job.units,
                           link=HostLink(self.wire, job.link), routing=job.routing)  # fmt: skip
        self.stages = local.stages
        self.x, self.target = inputs(self.graph, job.batch, job.seed, dtype)
        if rank.device.type in GPUS:  # pinned, copies wait for nothing
            self.x, self.target = self.x.pin_memory(), self.target.pin_memory()
        self.local = local
        takes_part = self.wire.mesh.taking_part
        self.trainer = Trainer(local, Optimizer(job.optimizer, rate=1e-4)) if takes_part else None
        self.state = NativeState(self.trainer) if self.trainer else None

    def share(self) -> Share:
        from oracle.executor.loading.reader import Share

        return Share.of_local_model(self.local)

    def step(self) -> dict[str, float]:
        waited = self.waited()
        assert self.trainer
        self.trainer.step(self.x, self.target)
        return {"reading": waited}

    def alive(self) -> dict[str, float]:
        from oracle.executor.measure.memory_count import counted

        peak_bytes = counted(self.trainer, self.x, self.target).peak if self.trainer else {}
        return {kind: float(nbytes) for kind, nbytes in peak_bytes.items()}

    def close(self) -> None:
        self.local.link.close()
        super().close()


class ReplayedSteps(Steps):
    """Runs steps of a plan's messages alone."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        import torch

        from oracle.executor.local.cuts import stages_of
        from oracle.executor.messages.replay import messages_of

        super().__init__(rank, job)
        self.stages = stages_of(self.graph, self.plan, list(job.stages) or None)
        width = getattr(torch, DTYPES[job.precision]).itemsize
        self.messages = messages_of(self.graph, self.plan, self.stages, self.wire.mesh, width)

    def step(self) -> dict[str, float]:
        from oracle.executor.messages.replay import send_all

        with self.wire.timer.phase("exchange"):
            send_all(self.messages, self.wire, self.rank.device)
        return {}


def environment(rank: Rank) -> dict[str, Any]:
    """Versions and hardware, without paths and variables."""
    import torch

    from oracle.executor.measure.collectives import facts

    return facts(rank) | {
        "oracle": installed(PACKAGE),
        "python": platform.python_version(),
        "threads": torch.get_num_threads(),
    }


def same_machine(rank: Rank, before: Mapping[str, Any]) -> None:
    """Refuse to mix the steps of two machines, or of two versions."""
    now = environment(rank)
    compared = ("ranks", "nodes", "backend", "device", "torch", "oracle")
    earlier, current = ({name: facts.get(name) for name in compared} for facts in (before, now))
    if changed := differences(earlier, current):
        problem = f"the results left here are of another machine: {'; '.join(changed)}"
        raise refusal(str(rank.attempt.parent), problem, AGAIN)


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
