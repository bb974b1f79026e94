"""What the executor supports; a plan is refused with all reasons before a rank starts."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from oracle.executor.local.away import Away
from oracle.executor.steps.schedule import micro_batches
from oracle.models.model import Model
from oracle.models.shard import serial
from oracle.plan.plan import Plan
from oracle.plan.strategies import agreement

LAYER_KINDS = (
    "pool", "norm", "activation", "add", "concat", "flatten", "reshape", "dropout", "attention",
    "mlp", "moe", "embedding", "position", "first", "loss",
)  # fmt: skip


class NotSupported(NotImplementedError):
    """A layer or a combination that is priced, and that this executor does not run."""


def unsupported(model: Model, plan: Plan) -> list[str]:
    """Reasons why the executor cannot run a plan of a model; none where it can."""
    return [*_of_plan(plan), *_of_what_is_away(plan), *_of_model(model), *_of_both(model, plan)]


def _splits(plan: Plan, *names: str) -> bool:
    """Whether any of these strategies has more than one device."""
    return any(float(plan.axis(name).degree[0, 0]) > 1 for name in names)


def _of_plan(plan: Plan) -> Iterator[str]:
    for axis in plan.axes:
        yield from axis.unrun()
    if _splits(plan, "tensor") and _splits(plan, "filter", "channel", "spatial"):
        yield "`tensor` is not run together with filter, channel or spatial"
    if _splits(plan, "context") and _splits(plan, "filter", "channel", "spatial"):
        yield "`context` is not run together with filter, channel or spatial"
    if _splits(plan, "sharded") and _splits(plan, "data") and plan.axis("data").zero[0, 0]:
        yield "`sharded` is not run inside `data` with zero above 0"
    data = plan.axis("data")
    if _splits(plan, "data") and _splits(plan, "sharded") and agreement.special(data):
        yield "`sharded` is not run inside replicas that compress, serve or average"
    if agreement.special(data) and plan.axis("offload").active:
        yield "`offload` is not run beside replicas that compress, serve or average"
    pipeline = plan.axis("pipeline")
    stages, segments, chunks = (
        int(knob[0, 0]) for knob in (pipeline.degree, pipeline.segments, pipeline.interleave)
    )
    if stages > 1 and chunks > 1 and segments % stages:
        yield f"interleave={chunks} needs segments that are a multiple of its {stages} stages"


def _of_what_is_away(plan: Plan) -> Iterator[str]:
    away, data = Away.from_plan(plan), plan.axis("data")
    mode = plan.axis("recompute").word("mode")
    several = micro_batches(plan) > 1
    parted = data.zero[0, 0] >= 2 or _splits(plan, "sharded")
    if away.host_update and several and parted and _splits(plan, "spatial"):
        yield "several micro-batches of cut samples are updated on the host with zero=0 or 1 alone"
    if away.activations and mode not in ("none", "best"):
        yield f"recompute:{mode} is not run with activations beside the device"
    if mode == "stage" and (away.weights or data.zero[0, 0] >= 3 or _splits(plan, "sharded")):
        yield "recompute:stage is not run where weights come unit by unit"
    if mode == "operators" and _splits(plan, "tensor", "filter", "channel", "spatial", "context"):
        yield "recompute:operators is not run where layers send messages"


def _of_model(model: Model) -> Iterator[str]:
    kinds = {row.kind for row in model.rows
             if row.work in ("stream", "counted") and row.kind not in LAYER_KINDS}  # fmt: skip
    if counted := kinds & {"opaque", "elementwise"}:
        names = list(dict.fromkeys(row.name for row in model.rows if row.kind in counted))
        listed = ", ".join([*names[:3], *([f"{len(names) - 3} more"] if len(names) > 3 else [])])
        yield f"operators that are counted, not described, are not run: {listed}"
    elif kinds:
        yield f"layers of kind {', '.join(sorted(kinds))} are not run"
    yield from priced_only(model)


def priced_only(model: Model) -> Iterator[str]:
    """Reasons why no engine runs a model, PyTorch's own among them."""
    if not model.training.full:
        yield f"`train: {model.training.text}` is priced but not run"
    if any(row.kind == "attention" and row.takes for row in model.rows):
        yield "latent attention is priced but not run"
    if any(row.kind == "norm" and row.role == "heads" for row in model.rows):
        yield "norms of each head's queries and keys are priced but not run"
    if any(row.work == "attention" and row.weights for row in model.rows):
        yield "sinks of attention are priced but not run"
    if any(row.kind == "embedding" and row.tied for row in model.rows):
        yield "a table that is looked up twice is priced but not run"
    words = [feeds for row, feeds in zip(model.rows, model.feeds, strict=True)
             if row.kind == "embedding"]  # fmt: skip
    if model.rows[0].kind != "embedding" and any(-1 in feeds for feeds in words):
        yield "words beside samples of another kind are priced but not run"
    if any(row.tied and row.role != "vocab" for row in model.rows):
        yield "layers that share their weights are priced but not run"
    attention = [row for row in model.rows if row.work == "attention" and row.kind != "cross"]
    if any(row.keys != row.made.extents[0] for row in attention):
        yield "attention over a window is priced but not run"


def _of_mixtures(model: Model, plan: Plan) -> Iterator[str]:
    mixed = [row for row in model.rows if row.experts]
    if not mixed:
        return
    if not all(row.given.tokens for row in mixed):
        yield "mixtures of experts are run for tokens"
    if any(row.role == "combine" and not row.needs for row in mixed):
        yield "a router's weights that multiply inside experts are priced but not run"
    if _splits(plan, "filter", "channel"):
        yield "mixtures of experts are not run under filter or channel"
    if plan.axis("recompute").word("mode") == "operators":
        yield "recompute:operators is not run through mixtures of experts"
    if agreement.special(plan.axis("data")):
        yield "experts are not run in replicas that compress, serve or average"


def _of_turned_heads(model: Model, plan: Plan) -> Iterator[str]:
    """Reasons by all-to-all attention, which turns equal parts of tokens into whole heads."""
    context = plan.axis("context")
    if context.uneven(model, plan.axis("tensor").degree).any():
        tokens = next(row.made.extents[0] for row in model.rows if row.work == "attention")
        heads = min(row.kv_heads for row in model.rows if row.work == "attention")
        counts = (
            f"{heads // plan.axis('tensor').degree[0, 0]:g} key-value heads and {tokens:g} tokens"
        )
        yield f"kind=alltoall deals both evenly, not {counts} over {context.degree[0, 0]:g} devices"


def _of_lone_values(model: Model, plan: Plan) -> Iterator[str]:
    """Reasons by a norm whose statistics would be over one value: PyTorch makes none."""
    spatial, shard = plan.axis("spatial"), serial(model, plan.batch, 4.0)
    cut = np.broadcast_to(spatial.cut(shard), (1, len(model)))[0] & _splits(plan, "spatial")
    grid = [int(np.ravel(q)[0]) for q in spatial.parts(shard)]
    for row, parted in zip(model.rows, cut, strict=True):
        if row.spans in ("batch", "instance"):
            parts = grid if parted else [1] * len(grid)
            values = math.prod(n // q for n, q in zip(row.made.extents, parts, strict=False))
            values *= _samples(plan) // micro_batches(plan) if row.spans == "batch" else 1
            if values <= 1:
                yield f"{row.name} takes its statistics over one value of each channel on a device"
                return


def _samples(plan: Plan) -> int:
    """Samples of a step on the device that has fewest."""
    samples = int(plan.batch[0, 0])
    for name in ("data", "sharded"):
        samples //= int(plan.axis(name).degree[0, 0])
    return samples


def _scored_whole(model: Model, row: int) -> bool:
    """Whether a row is the loss of many tokens, whose scores tensor ranks do not cut."""
    loss, scores = model.rows[row], model.rows[model.feeds[row][0]]
    return loss.kind == "loss" and math.prod(loss.given.extents) > 1 and scores.role != "vocab"


def _of_both(model: Model, plan: Plan) -> Iterator[str]:
    yield from _of_mixtures(model, plan)
    yield from _of_lone_values(model, plan)
    if _splits(plan, "context") and not np.all(model.tokens):
        yield "`context` is run for models whose rows are all of tokens"
    yield from _of_turned_heads(model, plan)
    crossed = any(row.kind == "cross" for row in model.rows)
    if crossed and _splits(plan, "context", "filter", "channel", "spatial"):
        yield "attention to another sequence is not run under context, filter, channel or spatial"
    mixed = np.any(model.tokens) or any(row.kind == "concat" for row in model.rows)
    if _splits(plan, "filter") and plan.axis("filter").back[0, 0] and mixed:
        yield "back=scatter is not run through tokens or concat, which mix channels"
    transposed = [row for row in model.rows if row.kind == "deconv"]
    if _splits(plan, "spatial") and any(
        k > s for row in transposed for k, s in zip(row.window, row.stride, strict=True)
    ):
        yield "transposed convolutions whose windows overlap are not run under spatial"
    if _splits(plan, "filter", "channel") and any(row.groups > 1 for row in transposed):
        yield "transposed convolutions of groups are not run under filter or channel"
    along_tokens = _splits(plan, "tensor") and plan.axis("tensor").says("sequence", "on")[0, 0]
    if along_tokens and model.rows[0].kind != "embedding":
        yield "sequence=on is run where tokens come from an embedding"
    if along_tokens and any(_scored_whole(model, i) for i in range(len(model))):
        yield "sequence=on is run where scores of words are cut: `role: vocab`"
    if any(row.tied for row in model.rows):
        by_unit = plan.axis("data").zero[0, 0] >= 3 and _splits(plan, "data")
        if by_unit or _splits(plan, "sharded") or Away.from_plan(plan).optimizer:
            yield "a table in two uses is not run where weights are exchanged unit by unit"
        if _splits(plan, "pipeline") and plan.axis("data").zero[0, 0] == 2:
            yield "a table that two stages hold is not run with zero=2"
    samples, pieces = _samples(plan), micro_batches(plan)
    if samples < pieces:
        yield f"{samples} samples on a device cannot be cut into {pieces} segments"
