"""FLOP and bytes of memory that a plan's own work takes of a device, row by row.

Bytes are counted once for every operand of a kernel, however often a kernel really moves them.
"""

from __future__ import annotations

import numpy as np

from oracle.models.shard import Array
from oracle.predict.estimate import Estimate
from oracle.predict.workload import Workload, rows_of, workload


def local(load: Workload) -> tuple[Array, Array, Array]:
    """Seconds, FLOP and bytes through memory of each row in an iteration, on its device."""
    shard, times, model = load.shard, load.times, load.shard.model
    ahead, data, weight = (np.broadcast_to(part, (1, len(model)))[0]
                           for part in (times.forward, times.data, times.weight))  # fmt: skip
    micro, S = float(np.max(shard.micro)), float(np.max(load.state.segments))
    weighted = np.asarray(model.weighted, bool)
    # a row without weights has both its products' gradients in the one of its input
    passes = 1.0 + np.where(weighted, (data > 0) * 1.0 + (weight > 0), 2.0 * (data > 0))
    work = np.broadcast_to(shard.work, (1, len(model)))[0] * model.mac
    flop = 2 * work * micro * S * passes
    x, y, w = (
        np.broadcast_to(seconds_each, (1, len(model)))[0]
        for seconds_each in (shard.x, shard.y, shard.w)
    )
    through = shard.delta * (micro * (x + y) + w)
    times_moved = (ahead > 0) * 1.0 + (data > 0) + (weight > 0)
    return S * (ahead + data + weight), flop, S * through * times_moved


def amounts(estimate: Estimate, row: int = 0) -> tuple[float, float]:
    """FLOP and bytes through memory of a device, of the stage that sets the pace of one plan."""
    work, options = estimate.work[row], estimate.options
    model = estimate.model.under(options.software.kernels)
    load = workload(
        rows_of(model, estimate.machine("its own work", row), work.plan, options),
        options,
        work.edges,
    )
    stage = int(work.block.step.stage[work.row])
    _, flop, moved = local(load)
    return tuple(
        float(load.stages.total(row_amounts[None])[0, stage]) for row_amounts in (flop, moved)
    )  # type: ignore[return-value]
