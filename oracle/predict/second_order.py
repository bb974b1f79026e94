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
    own = a > 0
    if not own.any() or model.training.forward:
        return np.zeros(1)
    rows, spread = np.flatnonzero(own), load.kinds.spread
    a, g = a[rows], g[rows]
    points = (shard.micro * product(shard.made))[..., rows]
    given = (shard.micro * shard.x)[..., rows]
    built = kernels.factors(device, options.precision, a, g, points, given, shard.delta)
    built = np.broadcast_to(built, (len(load.plan), len(rows)))
    solved = kernels.solved(device, a, eigen) + kernels.solved(device, g, eigen)
    applied = kernels.applied(device, a, g, eigen)
    p = load.plan.axis("data").degree
    share = holders(kfac, p) / p

    def dealt(each: Array, parts: Array) -> Array:
        """The device with most of a stage's layers: at least the longest, or an even part."""
        whole = np.broadcast_to(each, (len(p), len(rows)))
        return spread(np.maximum(stages.largest(whole, rows), stages.total(whole, rows) * parts))

    found = spread(stages.total(built, rows)) * load.state.segments / kfac.factors
    return np.asarray(found + dealt(solved, 1 / p) / kfac.inverse + dealt(applied, share))


def held(load: Workload, options: Options) -> Array:
    """Bytes of the factors, and of the inverses that a device of each stage has: (plans, p)."""
    model, kfac, p = load.shard.model, options.kfac, load.plan.axis("data").degree
    rows = np.flatnonzero(masks.factored(model))
    if not len(rows) or model.training.forward:
        return np.zeros(1)
    each = np.broadcast_to(HELD * elements(model, kfac)[rows], (len(p), len(rows)))
    whole = load.stages.total(each, rows)
    kept = np.maximum(load.stages.largest(each, rows), whole * holders(kfac, p) / p)
    return load.kinds.spread(whole + kept)


def unfolded(load: Workload) -> Array:
    """Bytes of a stage's largest input as factors want it, and of its gradient: (plans, p)."""
    shard = load.shard
    rows = np.flatnonzero(masks.factored(shard.model))
    if not len(rows) or shard.model.training.forward:
        return np.zeros(1)
    a, g = sizes(shard.model)
    points = (shard.micro * product(shard.made))[..., rows]
    each = np.broadcast_to(shard.delta * points * np.maximum(a, g)[rows],
                           (len(load.plan), len(rows)))  # fmt: skip
    return load.kinds.spread(load.stages.largest(each, rows))
