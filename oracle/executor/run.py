"""Run plans for real: warm-up, timed steps, seconds of each phase and each exchange."""

from __future__ import annotations

import os
import platform
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor import measured
from oracle.executor.launch import TIMEOUT, Host, Outcome, Say, launch, silent
from oracle.executor.question import AGAIN, Question, differences, digest, question, same
from oracle.executor.supported import NotSupported, unsupported
from oracle.executor.world import recognise
from oracle.models.model import model
from oracle.plan.plan import parse
from oracle.spec.document import refusal
from oracle.spec.files import read_text

if TYPE_CHECKING:
    from oracle.executor.rank import Rank
    from oracle.executor.wire import Traffic

DTYPES = {"fp32": "float32", "fp64": "float64", "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class PlanRun:
    """One plan to run, of one model."""

    model: Any  # a shipped name, a path, or the same content as a dict
    plan: str
    batch: int
    steps: int = 8
    warm_up: int = 2
    optimizer: str = "momentum"
    precision: str = "fp32"
    stages: tuple[int, ...] = ()  # edges of the pipeline's stages, in units; () to decide here
    seed: int = 0
    data: Mapping[str, Any] | None = None  # fields of `loading.reader.Data`; None: nothing is read

    def question(self, ranks: int, backend: str, replay: bool = False) -> Question:
        """What its results belong to; how many steps are timed is no part of it."""
        options = {"precision": self.precision, "optimizer": self.optimizer, "seed": self.seed,
                   "stages": list(self.stages), "replay": replay}  # fmt: skip
        if self.data:
            options["data"] = {k: v for k, v in self.data.items() if k not in ("folder", "stage")}
        return question(self.model, self.plan, self.batch, options, ranks, backend)


def run(
    jobs: PlanRun | Sequence[PlanRun],
    out: Path,
    *,
    ranks: int | None = None,
    replay: bool = False,
    timeout: float = TIMEOUT,
    backend: str = "gloo",
    say: Say = silent,
    host: Host | None = None,
) -> tuple[Outcome, list[measured.Measurement]]:
    """Run plans one after the other and write `out`; steps finished by an earlier run are kept.

    With `replay` only the messages are sent, in the order and at the sizes of the prediction.
    """
    wanted = [jobs] if isinstance(jobs, PlanRun) else list(jobs)
    parts = out.with_name(out.name + ".parts")
    refuse(wanted)
    world = recognise(os.environ) if ranks is None else None
    size = ranks or (world.size if world else 1)
    asked = [job.question(size, backend, replay) for job in wanted]
    same(parts, asked)
    enough(wanted, size)
    arguments = {"jobs": [asdict(job) for job in wanted], "replay": replay, "asked": asked}
    outcome = launch(
        "oracle.executor.run:task", arguments, parts, ranks=ranks, timeout=timeout, say=say,
        host=host, backend=backend,
    )  # fmt: skip
    found = list(measured.join(parts, size, outcome.complete)) if outcome.leads else []
    if outcome.leads and found:
        measured.write(out, found)
    return outcome, found


def refuse(jobs: Sequence[PlanRun]) -> None:
    """Raise for all plans at once what the executor does not support, before anything starts."""
    found: dict[str, None] = {}
    for job in jobs:
        if job.precision not in DTYPES:
            found[f"{job.precision} is not run; {', '.join(DTYPES)} are"] = None
        for why in unsupported(model(job.model), parse(job.plan, job.batch)):
            found[f"{job.plan}: {why}"] = None
    if found:
        raise NotSupported("; ".join(found))


def enough(jobs: Sequence[PlanRun], ranks: int) -> None:
    """Refuse plans of more devices than there are ranks, before any starts."""
    for job in jobs:
        devices = int(parse(job.plan, job.batch).devices[0, 0])
        if devices > ranks:
            what = f"`{job.plan}` is for {devices} devices, and there are {ranks} ranks"
            raise refusal("options", what, f"--local {devices}, or a launcher that starts as many")


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Run all plans that are not finished; called on each rank."""
    with made(rank, arguments["jobs"]):
        _all(rank, arguments)


def _all(rank: Rank, arguments: Mapping[str, Any]) -> None:
    for number, entry in enumerate(arguments["jobs"]):
        job, asked = PlanRun(**entry), arguments["asked"][number]
        if not rank.go_on():
            return
        name = f"{digest(asked)} {job.plan}"
        if rank.finished(f"{name}/plan") and rank.finished(f"{name}/step {job.steps}"):
            continue
        rank.say(f"{number + 1}/{len(arguments['jobs'])} {job.plan}, batch {job.batch}")
        steps = (_ReplayedSteps if arguments["replay"] else _TrainingSteps)(rank, job)
        done = _timed(rank, name, job, asked, steps)
        steps.close()
        if not done:
            return


def _timed(rank: Rank, name: str, job: PlanRun, asked: Question, steps: _Steps) -> bool:
    """Warm up, then the timed steps that are not done yet; False when asked to stop."""
    import torch.distributed as dist

    wire, takes_part = steps.wire, steps.wire.mesh.taking_part
    if not rank.finished(f"{name}/plan"):
        rank.record(
            f"{name}/plan",
            model=steps.title,
            plan=job.plan,
            batch=job.batch,
            steps=job.steps,
            host=rank.hosts[rank.rank],
            takes_part=takes_part,
            stages=[list(stage) for stage in steps.stages],
            options={"precision": job.precision, "optimizer": job.optimizer},
            **({"reading": steps.reading} if steps.reading else {}),
            environment=environment(rank),
            question=asked,
        )
    else:
        same_machine(rank, rank.records.finished[f"{name}/plan"]["environment"])
    ended = time.perf_counter()
    for step in range(1 - job.warm_up, job.steps + 1):
        if step > 0 and rank.finished(f"{name}/step {step}"):
            continue
        if not rank.go_on():
            return False
        wire.enter = lambda phase, what, step=step: rank.enter(phase, what, max(step, 0))  # type: ignore[misc]
        rank.enter("measure" if step > 0 else "warm-up", job.plan, max(step, 0))
        wire.traffic, wire.seconds = {}, 0.0
        forget_peak()
        dist.barrier(group=rank.control)
        began = time.perf_counter()
        phases = steps.step() if takes_part else {}
        read = {"read": steps.read | {"between": began - ended}} if steps.read else {}
        wire.synchronise()
        ended = time.perf_counter()
        seconds = ended - began
        if step > 0:
            said = {what: _as_json(sent) for what, sent in wire.traffic.items()}
            rank.record(
                f"{name}/step {step}", seconds=seconds if takes_part else 0.0, phases=phases,
                said=said, memory=peak(rank), **read,
            )  # fmt: skip
    return True


def _as_json(sent: Traffic) -> dict[str, Any]:
    return {"op": sent.op, "group": sent.group, "calls": sent.calls, "bytes": sent.nbytes,
            "seconds": sent.seconds}  # fmt: skip


class _Steps:
    """Steps of one plan: of training, or of its messages alone."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        import torch

        from oracle.executor.graph import graph
        from oracle.executor.mesh import DeviceMesh
        from oracle.executor.wire import Wire

        self.rank, self.job = rank, job
        self.graph = graph(job.model)
        self.title = self.graph.model.name
        self.plan = parse(job.plan, job.batch)
        on_gpu = rank.backend == "nccl"
        synchronise = torch.cuda.synchronize if on_gpu else lambda: None
        self.wire = Wire(DeviceMesh(self.plan, rank.rank, rank.size), synchronise=synchronise)
        self.stages: list[tuple[int, int]] = []
        self.reading: dict[str, Any] = {}  # how samples are read, and what that took once
        self.read: dict[str, float] = {}  # seconds, files and bytes of the last step

    def step(self) -> dict[str, float]:
        raise NotImplementedError

    def close(self) -> None:
        """End what goes on beside steps."""


class _TrainingSteps(_Steps):
    """Training steps."""

    def __init__(self, rank: Rank, job: PlanRun) -> None:
        import torch

        from oracle.executor.local_model import LocalModel
        from oracle.executor.optimizer import Optimizer
        from oracle.executor.steps import Trainer, inputs

        super().__init__(rank, job)
        dtype = getattr(torch, DTYPES[job.precision])
        edges = list(job.stages) or None
        local = LocalModel(self.graph, self.plan, self.wire, dtype=dtype, device=rank.device,
                           seed=job.seed, edges=edges)  # fmt: skip
        self.stages = local.stages
        self.x, self.target = inputs(self.graph, job.batch, job.seed, dtype)
        if self.wire.mesh.taking_part:
            self.trainer = Trainer(local, Optimizer(job.optimizer, rate=1e-4))
        self.reader = None
        if job.data:
            from oracle.executor.loading.reader import Data, SampleReader

            data = Data(**job.data)
            self.reader = SampleReader(rank, data, local, self.x, job.seed)
            found = self.reader.found
            self.reading = data.said | {
                "samples": len(found), "bytes": found.nbytes, "files": found.files,
                "readers": len(self.reader.readers), "staging": self.reader.staging}  # fmt: skip

    def step(self) -> dict[str, float]:
        waited = 0.0
        if self.reader:
            self.rank.enter("reading", self.job.plan)
            self.read = self.reader.load()
            waited = self.read["seconds"]
        self.trainer.step(self.x, self.target)
        return {**self.trainer.clock.seconds, "reading": waited}

    def close(self) -> None:
        if self.reader:
            self.reader.close()


class _ReplayedSteps(_Steps):
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

        began = time.perf_counter()
        send_all(self.messages, self.wire, self.rank.device)
        spent = time.perf_counter() - began
        return {"forward": 0.0, "backward": 0.0, "update": 0.0, "exchange": spent}


@contextmanager
def made(rank: Rank, jobs: Sequence[Mapping[str, Any]]) -> Iterator[None]:
    """Data sets that are made for this run, and gone after it."""
    from oracle.executor.loading import samples
    from oracle.executor.loading.samples import Made

    wanted = {job["data"]["folder"]: job for job in jobs if (job["data"] or {}).get("made")}
    try:
        for folder, job in wanted.items():
            if rank.rank == 0:
                rank.enter("start", "making samples")
                shutil.rmtree(folder, ignore_errors=True)
                what = Made(**job["data"]["made"])
                samples.make(Path(folder), what, () if what.size else input_shape(job["model"]))
            rank.agree(0)
        yield
        rank.agree(0)
    finally:
        for folder in wanted:
            if rank.rank == 0:
                shutil.rmtree(folder, ignore_errors=True)


def input_shape(what: Any) -> tuple[int, ...]:
    """Channels and extents of a model's sample."""
    from oracle.executor.graph import graph
    from oracle.models.layers import Embedding

    first = graph(what).operations[0]
    given = first.shape.given
    if isinstance(first.layer, Embedding):
        return given.extents
    return (*given.extents, given.channels) if given.tokens else (given.channels, *given.extents)


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
