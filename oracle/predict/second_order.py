"""K-FAC in a step: seconds of factors, inverses and preconditioned gradients, and their bytes.

It names `data`, whose replicas a stage's layers are dealt to.
"""

from __future__ import annotations

import numpy as np

from oracle.kernels import factors as kernels
from oracle.models import masks
from oracle.models.shard import Array, product
from oracle.plan.curvature import HELD, elements, holders, sizes
from oracle.predict.workload import Workload
from oracle.spec.device import Device
from oracle.spec.options import Options


def seconds(load: Workload, device: Device, options: Options) -> Array:
    """What K-FAC adds to a step of each stage's devices, messages apart: (plans, p)."""
    shard, stages, kfac = load.shard, load.stages, options.kfac
    model, eigen = shard.model, kfac.solve == "eigen"
    a, g = sizes(model)
    has_factors = a > 0
    if not has_factors.any() or model.training.forward:
        return np.zeros(1)
    rows, spread = np.flatnonzero(has_factors), load.kinds.spread
    a, g = a[rows], g[rows]
    points = (shard.micro * product(shard.made))[..., rows]
    input_elements = (shard.micro * shard.x)[..., rows]
    built = kernels.factors(device, options.precision, a, g, points, input_elements, shard.delta)
    built = np.broadcast_to(built, (len(load.plan), len(rows)))
    solved = kernels.solved(device, a, eigen) + kernels.solved(device, g, eigen)
    applied = kernels.applied(device, a, g, eigen)
    p = load.plan.axis("data").degree
    share = holders(kfac, p) / p

    def dealt(row_seconds: Array, parts: Array) -> Array:
        """The device with most of a stage's layers: at least the longest, or an even part."""
        wide_seconds = np.broadcast_to(row_seconds, (len(p), len(rows)))
        return spread(
            np.maximum(stages.largest(wide_seconds, rows), stages.total(wide_seconds, rows) * parts)
        )

    total_seconds = spread(stages.total(built, rows)) * load.state.segments / kfac.factors
    return np.asarray(total_seconds + dealt(solved, 1 / p) / kfac.inverse + dealt(applied, share))


def factor_bytes(load: Workload, options: Options) -> Array:
    """Bytes of the factors, and of the inverses that a device of each stage has: (plans, p)."""
    model, kfac, p = load.shard.model, options.kfac, load.plan.axis("data").degree
    rows = np.flatnonzero(masks.factored(model))
    if not len(rows) or model.training.forward:
        return np.zeros(1)
    factor_bytes = np.broadcast_to(HELD * elements(model, kfac)[rows], (len(p), len(rows)))
    stage_bytes = load.stages.total(factor_bytes, rows)
    held_bytes = np.maximum(
        load.stages.largest(factor_bytes, rows), stage_bytes * holders(kfac, p) / p
    )
    return load.kinds.spread(stage_bytes + held_bytes)


def unfolded(load: Workload) -> Array:
    """Bytes of a stage's largest input as factors want it, and of its gradient: (plans, p)."""
    shard = load.shard
    rows = np.flatnonzero(masks.factored(shard.model))
    if not len(rows) or shard.model.training.forward:
        return np.zeros(1)
    a, g = sizes(shard.model)
    points = (shard.micro * product(shard.made))[..., rows]
    input_bytes = np.broadcast_to(shard.delta * points * np.maximum(a, g)[rows],
                           (len(load.plan), len(rows)))  # fmt: skip
    return load.kinds.spread(load.stages.largest(input_bytes, rows))
