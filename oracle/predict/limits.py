"""What a plan may not exceed, each rule in words with what is wanted and what is allowed."""

from __future__ import annotations

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.plan import Plan
from oracle.predict.memory import Held
from oracle.spec.options import Options
from oracle.spec.system import System

FULL = 0.9  # of a device's memory, from where fragmentation is to be feared


def limits(
    plan: Plan, model: Model, system: System, held: Held, options: Options
) -> dict[str, tuple[Array, Array]]:
    """Rule in words -> (what the plan wants, what is allowed), (plans,) each."""
    found: dict[str, tuple[Array, Array]] = {}
    batch = plan.batch
    for axis in plan.axes:
        if axis.degrees:
            allowed = np.broadcast_to(axis.limit(model, batch), batch.shape)
            found[f"{axis.name} degree: {axis.bound}"] = (axis.degree[:, 0], allowed[:, 0])
    data, sharded = plan.axis("data"), plan.axis("sharded")
    pipeline = plan.axis("pipeline")
    replicas = data.degree * sharded.degree
    found["replicas: samples in the batch"] = (replicas[:, 0], batch[:, 0])
    pieces = replicas * pipeline.segments * data.accumulate
    found["micro-batches: samples of a device"] = (pieces[:, 0], np.maximum(batch, replicas)[:, 0])
    found["experts: devices of the data axis"] = (
        plan.axis("expert").degree[:, 0],
        data.degree[:, 0],
    )
    uneven = (data.degree % plan.axis("expert").degree != 0) * 1.0
    found["experts: a divisor of the data axis"] = (uneven[:, 0], np.zeros(len(plan)))
    ragged = ((pipeline.interleave > 1) & (pipeline.segments % pipeline.degree != 0)) * 1.0
    found["interleave: segments a multiple of the stages"] = (ragged[:, 0], np.zeros(len(plan)))
    found["devices of the system"] = (plan.devices[:, 0], np.full(len(plan), float(system.devices)))
    capacity = options.max_memory or system.device.memory
    found["memory"] = (held.total, np.full(len(plan), float(capacity)))
    return found
