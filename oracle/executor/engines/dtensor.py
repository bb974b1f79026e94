"""Tensor and sequence parallelism by DTensor, inside replicas or shards by FSDP2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from oracle.executor.engines.fsdp2 import Fsdp2

if TYPE_CHECKING:
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.pytorch.setting import Setting
    from oracle.executor.pytorch.training import Training
    from oracle.models.model import Model
    from oracle.plan.plan import Plan


class Dtensor(Fsdp2):
    """Matrices cut over ranks by `parallelize_module`; batches are cut by `fully_shard`."""

    name = "dtensor"
    software = "torchtitan"
    runs: ClassVar = {**Fsdp2.runs, "tensor": ("sequence", "overlap")}

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        yield from super().unsupported(job, model, plan)
        p = int(plan.axis("tensor").degree[0, 0])
        if p > 1:
            yield from _uneven(model, p, bool(plan.axis("tensor").sequence[0, 0]))

    def build(self, setting: Setting, rate: float) -> Training:
        from oracle.executor.pytorch.replicas import optimizer_of, remake, sharded
        from oracle.executor.pytorch.tensors import split
        from oracle.executor.pytorch.training import Training

        network = setting.network()
        split(setting, network)
        remake(network, setting.remade)
        accounts = sharded(setting, network) if setting.degree("data", "sharded") > 1 else []
        return Training(setting, [network], network, optimizer_of(setting, network, rate), accounts)


def _uneven(model: Model, p: int, sequence: bool) -> Iterator[str]:
    """What DTensor cannot cut into p alike parts."""
    if not model.tokens.all():
        yield "`tensor` is run for models whose rows are all of tokens"
        return
    rows = model.rows
    if any(row.role == "heads" and row.heads and (row.heads % p or row.kv_heads % p)
           for row in rows):  # fmt: skip
        yield f"heads are not {p} times as many each"
    if any(row.role == "column" and row.made.channels % (2 * p) for row in rows):
        yield f"columns of a matrix are not {p} times as many each"
    if any(row.role == "vocab" and row.made.channels % p for row in rows):
        yield f"words are not {p} times as many each"
    if sequence and any(row.made.extents[0] % p for row in rows):
        yield f"tokens are not {p} times as many each"
    if sequence and any(row.kind in ("position", "first") for row in rows):
        yield "positions of a layer of their own, and first tokens, are not run with sequence=on"
