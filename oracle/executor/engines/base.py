"""An engine: what runs the steps of a plan, and which plans it can run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from oracle.executor.measure.timed_steps import Steps
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.pytorch.setting import Setting
    from oracle.executor.pytorch.training import Training
    from oracle.executor.ranks.rank import Rank
    from oracle.models.model import Model
    from oracle.plan.plan import Plan
    from oracle.plan.strategies import Strategy


class Engine(ABC):
    """What runs the steps of a plan.

    It names itself and says, before any rank starts, all that it cannot run of a plan.
    """

    name: ClassVar[str]
    software: ClassVar[str]  # compared with this software's prediction, if none is named
    needs: ClassVar[tuple[str, ...]] = ("torch",)  # modules
    spares: ClassVar[bool] = True  # there may be more ranks than the plan uses

    def refuses(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        """Reasons why it cannot run this job; none where it can."""
        for module in self.needs:
            if find_spec(module) is None:
                yield f"{module} is not installed: `pip install {module}`"
        yield from self.unsupported(job, model, plan)

    @abstractmethod
    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        """What of a plan or a model it cannot run."""

    @abstractmethod
    def steps(self, rank: Rank, job: PlanRun) -> Steps:
        """The steps of a plan on one rank."""


# rows that are run as modules of PyTorch, beside convolutions, products and attention
KINDS = ("pool", "norm", "activation", "add", "concat", "flatten", "reshape", "dropout",
         "attention", "mlp", "embedding", "position", "first", "loss")  # fmt: skip


WHY = {  # why no engine of PyTorch's runs a strategy
    "expert": "PyTorch has no class that deals experts out; native does it",
}


class PyTorchEngine(Engine):
    """An engine that wraps the model, as plain modules, in PyTorch's own classes."""

    # what it runs of each strategy: knobs, or words of a knob such as `zero=3`
    runs: ClassVar[Mapping[str, tuple[str, ...]]]
    optimizers: ClassVar[tuple[str, ...]] = ("sgd", "momentum", "adam")
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "fp64", "bf16")

    @abstractmethod
    def build(self, setting: Setting, rate: float) -> Training:
        """Wrap the model of a setting, and make its optimizer."""

    def steps(self, rank: Rank, job: PlanRun) -> Steps:
        from oracle.executor.pytorch.engine_steps import EngineSteps

        return EngineSteps(rank, replace(job, software=job.software or self.software), self.build)

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        for axis in plan.axes:
            yield from self._of_axis(axis)
        if job.optimizer not in self.optimizers:
            yield f"{job.optimizer} is no optimizer of PyTorch's; {', '.join(self.optimizers)} are"
        if job.precision not in self.precisions:
            yield f"{job.precision} is not run; {', '.join(self.precisions)} are"
        if job.checkpoint:
            yield from _of_checkpoints(job, plan)
        yield from _of_software(job, self.software, plan)
        yield from _of_model(model)
        yield from _of_batch(plan)
        if any(row.tied for row in model.rows) and _degree(plan, "pipeline") > 1:
            yield "a table in two uses is not run in a pipeline"

    def _of_axis(self, axis: Strategy) -> Iterator[str]:
        if not axis.active:
            return
        if axis.name not in self.runs:
            why = WHY.get(axis.name, "")
            yield f"the engine {self.name} has no `{axis.name}` parallelism{why and f': {why}'}"
            return
        yield from axis.unrun_of(self.runs[axis.name], f"by {self.name}")


def _degree(plan: Plan, *names: str) -> float:
    """The product of the degrees of some strategies."""
    product = 1.0
    for name in names:
        product *= float(plan.axis(name).degree[0, 0])
    return product


def _of_software(job: PlanRun, usual: str, plan: Plan) -> Iterator[str]:
    """Reasons why a software's settings, though priced, cannot be run here."""
    from oracle.plan.launchable import software

    words = software(job.software or usual)
    if words.host.graphs != "none":
        yield f"graphs={words.host.graphs} is priced but not run: kernels are launched one by one"
    if words.kernels.norms == "fused":
        yield "norms=fused is priced but not run: batch norms are kernels of their own"
    if words.kernels.attention == "unfused" and _degree(plan, "context") > 1:
        yield "attention=unfused is not run with `context`, whose ring is of fused kernels"
    stands = [words.convolution.stands(job.precision, extents) for extents in (2, 3)]
    if "turned" in stands:
        yield "layout=turned is priced but not run: channels stand first, or last, in all layers"
    if "last" in stands and _degree(plan, "pipeline") > 1:
        yield "layout=last is not run in a pipeline, whose stages send tensors as they lie"
    if job.checkpoint and "last" in stands:
        yield "--checkpoint of weights whose channels stand last is for the native engine"


def _of_checkpoints(job: PlanRun, plan: Plan) -> Iterator[str]:
    if _degree(plan, "tensor") > 1:
        yield "--checkpoint of tensors that `tensor` cuts is for the native engine"
    if job.precision == "fp16":
        yield "--checkpoint keeps no scale of a loss, which fp16 has; bf16 and fp32 have none"


def _of_model(model: Model) -> Iterator[str]:
    """Reasons why a model cannot be made of PyTorch's modules."""
    from oracle.executor.supported import priced_only

    rows = model.rows
    kinds = {r.kind for r in rows if r.work in ("stream", "counted") and r.kind not in KINDS}
    if kinds:
        yield f"layers of kind {', '.join(sorted(kinds))} are not run"
    native = {"mixtures of experts are": any(row.experts for row in rows),
              "attention to another sequence is": any(row.kind == "cross" for row in rows),
              "several losses are": sum(row.kind == "loss" for row in rows) > 1}  # fmt: skip
    for subject in (subject for subject, present in native.items() if present):
        yield f"{subject} run by the native engine at most"
    yield from priced_only(model)


def _of_batch(plan: Plan) -> Iterator[str]:
    """Why replicas, whose gradients are averaged, would have unequal micro-batches."""
    replicas = _degree(plan, "data", "sharded")
    from oracle.executor.steps.schedule import micro_batches

    pieces = micro_batches(plan)
    batch = float(plan.batch[0, 0])
    if batch % (replicas * pieces):
        yield f"{batch:g} samples are not {replicas * pieces:g} alike micro-batches"
