"""What compressing gradients costs a device: seconds of encoding and decoding, and what is held.

Kernels over the gradients, limited by memory: bytes a weight, counted pass by pass of b bytes, the
width in which gradients are added up.

    16 bits    read b, written 2, and back                                     2b + 4
    int8, fp8  read b, written 1; sums of n/p from p parts; read 1, written b  2b + 4
    onebit     as rest is kept: 3b; norm and signs 2b, rest 2b, back b         8b
    powersgd   rest 3b, two products 2b, made again b, new rest 3b             9b, 6 r FLOP
    topk       rest 3b; radix selection of 4 passes 4b; sums written b         8b
               a threshold that is used again [li2022oktopk, §4.2]: 1 pass    5b
               where software's selection is slower, b/rate in place of its 4 passes; of a
               threshold in one step of 128, as its authors' program does
    and what arrives, read, added and written: 12 bytes an entry

What is left out of a step (`feedback`) is added in the next: a buffer as large as the gradients'.
It names `data`, whose knobs say all that, its `agreement` and `zero_plus`.
"""

from __future__ import annotations

import numpy as np

from oracle import kernels
from oracle.kernels.curve import precision_on
from oracle.models.shard import Array
from oracle.network.collectives.sparse import filled
from oracle.plan.strategies.agreement import OVERLAP, encoded, factors, special
from oracle.plan.strategies.data import Data
from oracle.plan.strategies.zero_plus import fewer, passes
from oracle.predict.workload import Workload
from oracle.spec.device import Device
from oracle.spec.options import Options

# passes of b bytes with and without what is left over, further bytes
PASSES = {"fp16": (2, 2, 4), "bf16": (2, 2, 4), "int8": (2, 2, 4), "fp8": (2, 2, 4),
          "onebit": (8, 4, 0), "powersgd": (9, 4, 0), "topk": (8, 6, 0)}  # fmt: skip
SELECTING = 4  # passes of a selection
KEPT = 128  # steps that a threshold is used for
REUSED = 3  # passes fewer where a threshold of earlier steps is used
ENTRY = 12.0  # bytes that an arriving entry moves
FLOP = 6  # of powersgd, by rank and weight: M Q, Mᵀ P and P Qᵀ


def seconds(load: Workload, device: Device, options: Options) -> Array:
    """Of encoding and decoding on each stage, once a step: (plans, p)."""
    data = load.plan.axis("data")
    silent = not special(data) and not fewer(data)
    if silent or load.shard.ideal or load.shard.model.training.forward:
        return np.zeros(1)
    shard, precision = load.shard, options.precision
    width, learned = options.software.exchange.buffer(precision), shard.learned / shard.slices
    wide = np.asarray(data.degree) > 1
    keeps_rest = data.says("feedback", "on")
    total_seconds: Array = np.zeros(1)
    for word, (with_rest, without, more) in PASSES.items():
        compressing = wide & data.says("compress", word)
        if not compressing.any():
            continue
        bytes_a_weight = np.where(keeps_rest, with_rest, without) * width + more
        if word == "topk":
            rate, reuses = options.software.exchange.selection, data.says("sparse", "oktopk")
            spared = np.where(reuses, REUSED, SELECTING if rate else 0)
            bytes_a_weight = bytes_a_weight - spared * width + ENTRY * _arriving(data)
        nbytes = load.stages.total(learned * bytes_a_weight)
        encoding_seconds = kernels.stream(device, nbytes, queued=True) * (nbytes > 0)
        if word == "topk" and rate:
            selected = load.stages.total(learned * width) / rate
            encoding_seconds = encoding_seconds + selected / np.where(reuses, KEPT, 1)
        if word == "powersgd":
            left, right, _ = factors(shard, learned, np.asarray(data.rank))
            work = load.stages.total(FLOP * data.rank * learned * ((left + right) > 0))
            encoding_seconds = np.maximum(
                encoding_seconds, work / device.peak[precision_on(device, "fp32")]
            )
        total_seconds = total_seconds + encoding_seconds * compressing
    if fewer(data):  # ZeRO++, in every micro-batch
        nbytes = load.stages.total(shard.w * passes(data, shard, width))
        encoding_seconds = kernels.stream(device, nbytes, queued=True) * (nbytes > 0)
        total_seconds = (
            total_seconds + encoding_seconds * (np.asarray(data.degree) > 1) * shard.segments
        )
    return load.kinds.spread(np.atleast_2d(total_seconds))


def _arriving(data: Data) -> Array:
    """Entries that a rank adds up, by weight."""
    density, ranks = np.asarray(data.density), np.asarray(data.degree)
    everybody = data.says("sparse", "allgather") | data.says("sparse", "pairwise")
    rounds = np.where(data.says("sparse", "gtopk"), np.ceil(np.log2(np.maximum(ranks, 2))), 2.0)
    union = np.asarray(filled(density, ranks, OVERLAP))
    sparse_entries = np.where(data.says("sparse", "switching"), union, density * rounds)
    return np.asarray(np.where(everybody, density * ranks, sparse_entries))


def rest_bytes(load: Workload, options: Options) -> Array:
    """Bytes of what was left out, kept until the next step: (plans, p)."""
    data = load.plan.axis("data")
    if not special(data) or load.shard.ideal or load.shard.model.training.forward:
        return np.zeros(1)
    lossy = encoded(data) & ~(data.says("compress", "int8") | data.says("compress", "fp8"))
    width = options.software.exchange.buffer(options.precision)
    keeps_rest = lossy & data.says("feedback", "on")
    rest = load.shard.learned * width / load.shard.slices
    return load.kinds.spread(np.atleast_2d(load.stages.total(rest) * keeps_rest))
