"""Tensor, sequence and context parallelism by DTensor, inside replicas or shards by FSDP2."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from oracle.executor.engines.fsdp2 import Fsdp2

if TYPE_CHECKING:
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.pytorch.setting import Setting
    from oracle.executor.pytorch.training import Training
    from oracle.models.model import Model
    from oracle.plan.plan import Plan

RING = "distributed/tensor/experimental/_context_parallel"  # where PyTorch has it, as of 2.13


class Dtensor(Fsdp2):
    """Matrices and attention cut by `parallelize_module`; batches are cut by `fully_shard`."""

    name = "dtensor"
    software = "torchtitan"
    runs: ClassVar = {**Fsdp2.runs, "tensor": ("sequence", "overlap"), "context": ("kind=ring",)}

    def unsupported(self, job: PlanRun, model: Model, plan: Plan) -> Iterator[str]:
        yield from super().unsupported(job, model, plan)
        p, parts = (int(plan.axis(name).degree[0, 0]) for name in ("tensor", "context"))
        if p > 1:
            yield from _uneven(model, p, bool(plan.axis("tensor").sequence[0, 0]), parts)
        if parts > 1:
            yield from _uncut(model, parts)

    def build(self, setting: Setting, rate: float) -> Training:
        from oracle.executor.pytorch.replicas import optimizer_of, remake, sharded
        from oracle.executor.pytorch.tensors import split
        from oracle.executor.pytorch.training import Training

        network = setting.network()
        split(setting, network)
        remake(network, setting.remade)
        shards = setting.degree("data", "sharded", "context") > 1
        accounts = sharded(setting, network) if shards else []
        return Training(setting, [network], network, optimizer_of(setting, network, rate), accounts)


def _uneven(model: Model, p: int, sequence: bool, parts: int) -> Iterator[str]:
    """Rows that DTensor cannot cut into p equal parts, tokens being cut into `parts` already."""
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
    if sequence and any(row.made.extents[0] % (p * parts) for row in rows):
        yield f"tokens are not {p * parts} times as many each"
    if sequence and any(row.kind in ("position", "first") for row in rows):
        yield "positions of a layer of their own, and first tokens, are not run with sequence=on"


def _uncut(model: Model, p: int) -> Iterator[str]:
    """Reasons why PyTorch's ring cannot run tokens that are cut over p devices."""
    torch_spec = find_spec("torch")
    if torch_spec and torch_spec.origin and not (Path(torch_spec.origin).parent / RING).is_dir():
        yield "`context` is run by PyTorch 2.13's ring attention, which the one here has not got"
    rows = model.rows
    if not model.tokens.all() or not (rows[0].given.tokens or rows[0].kind == "embedding"):
        yield "`context` is run for models whose rows are all of tokens"
        return
    if len({n for row in rows for n in (*row.given.extents, *row.made.extents)}) > 1:
        yield "`context` is run for models whose rows all have the same tokens"
    elif rows[0].made.extents[0] % (2 * p):
        yield f"tokens are not {2 * p} chunks alike, two for each device of `context`"
    elif rows[0].made.extents[0] == 2 * p:  # PyTorch's kernel for processors died on such chunks
        yield "`context` is run in chunks of two tokens or more"
    if len({row.causal for row in rows if row.work == "attention"}) > 1:
        yield "`context` is run where all attention is causal, or none"
    if names := [row.name for row in rows if row.spans or row.window or row.kind == "reshape"]:
        yield f"`context` is run where attention alone sees several tokens, not {names[0]}"
    if rows[-1].kind != "loss":
        yield "`context` is run for models that end with a loss"
