"""What is trained in a second, in the units of the field: samples, tokens, FLOP, utilisation.

    MFU = B · FLOP / (T · p · peak)         FLOP that the network needs          [chowdhery2022]
    HFU = B · (FLOP + FLOP made again) / (T · p · peak)          [korthikanti2022]

FLOP are those of matrix products and convolutions, a backward pass twice a forward one. Attention
is counted whole, also where a kernel leaves out what a mask hides, as papers count it.
It names `recompute`, whose work is the hardware's and not the network's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np

from oracle.kernels.curve import precision_on
from oracle.models import masks
from oracle.models.model import Floats, Model
from oracle.plan.plan import Plan
from oracle.plan.strategies.recompute import BEST, recomputed
from oracle.spec.device import Device
from oracle.spec.options import Options

HOUR = 3600.0


@lru_cache(masks.MODELS)
def counted(model: Model, mode: int = 0) -> tuple[float, float]:
    """FLOP of a sample as papers count them, and those made again by a kind of recomputation."""
    forward = 2 * model.repeat * whole(model)
    passes = 1.0 if model.training.forward else 2.0 + model.trained
    again = float(forward @ recomputed(model, [mode])[mode]) if mode else 0.0
    return float(forward @ (passes * np.ones(len(model)))), again


def whole(model: Model) -> Floats:
    """Multiply-accumulates of each row's forward pass, attention with all keys that it is given."""
    return np.array([
        2.0 * row.heads * row.made.extents[0] * row.keys * row.width
        if row.work == "attention" else row.mac for row in model.rows
    ])  # fmt: skip


def computed_in(model: Model, device: Device, options: Options) -> str:
    """The precision that most of a network's FLOP are made in on a device."""
    kernels, flop_by_precision = options.software.kernels, options.precision
    flop_made = whole(model) * model.repeat
    convolved = float(flop_made @ masks.convolutions(model)) > flop_made.sum() / 2
    row_flop = (
        flop_by_precision
        if options.ideal
        else kernels.computed(flop_by_precision, device, convolved)
    )
    return precision_on(device, row_flop)


def tokens(model: Model) -> float:
    """Tokens of a sample, those of an encoder where there is one; 0 of what is no text."""
    return float(model.rows[0].made.extents[0]) if masks.of_words(model) else 0.0


def rates(
    model: Model, peak: float, batch: float, devices: float, seconds: float, plan: Plan | None,
    remade: Floats | None = None,
) -> dict[str, Any]:  # fmt: skip
    """A plan's rates as data; what does not apply to it is None.

    `remade` are shares of its units' passes forward that the room there is has made again.
    """
    mode = 0 if plan is None else int(plan.axis("recompute").mode[0, 0])
    needed, remade_flop = counted(model, mode)
    samples, data = batch / seconds, model.dataset
    if mode == BEST:  # as many units as there is no room for
        more = np.zeros(len(model)) if remade is None else remade @ model.units[0]
        remade_flop = float(2 * more @ whole(model))
    done, trained = samples * needed / devices, samples * tokens(model)
    epoch = None if data is None else data.samples / samples
    return {
        "samples_per_second": samples,
        "samples_per_second_device": samples / devices,
        "tokens_per_second": trained or None,
        "tokens_per_second_device": trained / devices or None,
        "flops_per_device": done,
        "mfu": done / peak,
        "hfu": samples * (needed + remade_flop) / devices / peak,
        "device_hours_per_epoch": None if epoch is None else epoch * devices / HOUR,
        "device_hours_per_billion_tokens": 1e9 / trained * devices / HOUR if trained else None,
    }
