"""Seconds of every row of a shard at its local shape: forward, data and weight gradient.

The GPU works down a queue that the host fills, so a row's seconds are those of its kernels
alone; `kernels` counts what the host must launch for it, and whoever adds up a pass takes the
longer of the two: small layers are as slow as their launches.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from oracle.kernels.attention import attention
from oracle.kernels.convolved import KINDS as CONVOLUTIONS
from oracle.kernels.convolved import convolved
from oracle.kernels.counted import counted, products, recurrent
from oracle.kernels.curve import precision_on
from oracle.kernels.families import At, families
from oracle.kernels.framed import copies
from oracle.kernels.gemm import gemm
from oracle.kernels.passes import Passes
from oracle.kernels.profile.measured import Profile
from oracle.kernels.stream import reduction, stream
from oracle.models import masks
from oracle.models.layers import Row
from oracle.models.model import Floats, Model
from oracle.models.shard import Numbers, Shard, product
from oracle.spec.device import Device
from oracle.spec.precision import NARROW

# what a framework dispatches for one row, forward and backward: a matrix product brings its bias,
# views and casts along; attention through memory is two products, scale, mask, softmax, dropout
# and the copies between them; a loss in fp32 is written out pass by pass
DISPATCHED = {
    "gemm": (3, 4), "conv": (2, 3), "flash": (5, 6), "attention": (12, 16), "stream": (2, 3),
    "counted": (2, 3), "loss": (15, 8),
}  # fmt: skip
BESIDE = dict.fromkeys(NARROW, "bf16")  # what all layers but linear ones compute in
# bytes an element: read in 16 bits, written narrow as it is and turned round; with a scale of the
# whole tensor beside those of blocks it is read for its largest number first
CAST = {"fp8": 4.0, "mxfp8": 2 + 2 * NARROW["mxfp8"], "nvfp4": 4 + 2 * NARROW["nvfp4"]}
# passes over fp32 logits for a loss that is only logged: cast up, then a logarithm of the softmax
# that reads a row three times, since those at work together are more than a cache holds
LOGGED = 1.5 + 4
# products that take an operand of one scale either way round need no copy turned round
# (NVIDIA/TransformerEngine pytorch/csrc/quantizer.cpp: nvte_is_non_tn_fp8_gemm_supported)
EITHER_WAY = {"blackwell": {"fp8": 1.0}}
NARROWED = 6.0  # bytes an element that is cast between 16 and 32 bits
# a score under autocast: softmax writes 32 bits, cast down; back cast up, read twice as wide
SCORED = {"forward": 8.0, "data": 10.0}
# kernels and passes beside an activation's own where it was done in place on a view
# (pytorch/pytorch, torch/csrc/autograd/functions/tensor.cpp: CopySlices, behind as_strided's
# gradient: zeros, copied into, copied, copied again, and copied back)
COPIES, COPIED = 5, 9
MERGED = 10  # bytes to add an element of a part's result to those before it, in fp32


def passes(shard: Shard, device: Device, precision: str, profile: Profile | None = None) -> Passes:
    """Seconds of every row, as a profile has them or else as kernels are priced."""
    if profile is None or shard.ideal:
        return priced(shard, device, precision)
    return profile.passes(shard, device, precision, priced)


def priced(shard: Shard, device: Device, precision: str) -> Passes:
    """Price every row, family by family; (plans, rows) each."""
    model = shard.model
    size = (np.broadcast_shapes(*map(np.shape, (shard.micro, shard.filters, shard.y)))[0]
            if np.ndim(shard.micro) == 2 else 1)  # fmt: skip
    found = {part: np.zeros((size, len(model))) for part in ("forward", "data", "weight")}
    if shard.ideal:
        return _ideal(shard, device, precision, found)
    products = shard.software.kernels.computed(precision, device)
    for family in families(model):
        if family.kind in CONVOLUTIONS:
            continue
        at = At(shard, family)
        for part in found:
            found[part][:, family.columns] = PRICE[family.kind](at, device, products, part)
    rooms, pieces = convolved(shard, device, precision, found)
    if shard.software.convolution.parts == "copied":
        for part, seconds in zip(found, copies(shard, device), strict=True):
            found[part] = found[part] + seconds
    # nobody wants the gradient of the samples
    found["data"] *= ~masks.entries(model) | (masks.embeddings(model) & (model.trained > 0))
    found["weight"] *= model.trained
    if model.training.forward:
        found["data"] *= 0
    again = np.where(masks.attention(model), shard.rounds, 1.0)
    forward, backward = (again * each for each in launches(model))
    if shard.software.kernels.rebased:
        backward = backward + COPIES * masks.after_instance_norms(model)
    backward = backward * (not model.training.forward)
    if pieces is not None:  # each is launched
        forward, backward = forward + pieces[0], backward + pieces[1]
    return Passes(found["forward"], found["data"], found["weight"], (forward, backward),
                  workspace=rooms)  # fmt: skip


def _ideal(shard: Shard, device: Device, precision: str, found: dict[str, Floats]) -> Passes:
    """FLOP over the peak: FW_l, BW_l per sample as the published table has them."""
    rate = device.peak[precision_on(device, precision)]
    forward = shard.micro * shard.work * 2 * shard.model.mac / rate
    for part in found:
        found[part] = found[part] + forward
    none = np.zeros(len(shard.model))
    return Passes(found["forward"], found["data"], found["weight"], (none, none))


@lru_cache(masks.MODELS)
def launches(model: Model) -> tuple[Floats, Floats]:
    """Kernels that the host launches for each row, forward and backward."""
    forward, backward = np.array([_launches(row) for row in model.rows], float).T
    return forward, backward


def _launches(row: Row) -> tuple[int, int]:
    """Kernels that a framework launches for one row, forward and backward."""
    if row.kind in ("flatten", "reshape"):
        return 0, 0
    if row.kind == "loss":
        return DISPATCHED["loss"]
    forward, backward = DISPATCHED["flash" if row.work == "attention" and row.flash else row.work]
    return forward * row.pieces, backward * row.pieces


def _gemm(at: At, device: Device, precision: str, part: str) -> Floats:
    shard = at.shard
    m = at(shard.micro) * product([at(e) for e in shard.made])
    n, k = at(shard.filters), at(shard.channels)
    # a mixture: the tokens at hand are dealt to the experts held here, one product each
    held = np.maximum(at.family.experts / shard.visits, 1.0)
    m = m / held
    shapes = {"forward": (m, n, k), "data": (m, k, n), "weight": (k, n, m)}
    # a gradient of weights is added to those of the micro-batches before, where a product can
    written: Numbers = shard.delta
    if part == "weight":
        written = np.where(at.family.adds, 2 * shard.summed, shard.delta)
    how = {"written": written, "family": at.family.more[0], "queued": True}
    seconds = gemm(device, precision, *shapes[part], held, **how)
    if part == "weight" and shard.software.kernels.biases == "apart":  # summed over all positions
        read = stream(device, shard.delta * m * n * held, queued=True)
        seconds = seconds + np.where(at.family.bias, read, 0.0)
    if precision not in BESIDE:
        return seconds
    if part != "weight":
        moved = _cast(at, device, precision, part, (m, n, k))
        seconds = seconds + stream(device, moved * held, queued=True)
    plain = gemm(device, BESIDE[precision], *shapes[part], held, **how)
    narrow = at.family.narrow | (at.family.vocab & (shard.software.kernels.head == "narrow"))
    return np.where(narrow, seconds, plain)


def _cast(
    at: At, device: Device, precision: str, part: str, sizes: tuple[Floats, Floats, Floats]
) -> Floats:  # fmt: skip
    """Bytes that casts of a product's operands move, and turns of weights that are kept one way.

    What goes in is cast, once for both gradients, weights each time or once a step. Beside frozen
    weights nothing is wanted turned round but the weights themselves (NVIDIA/TransformerEngine,
    v2.8 pytorch/module/linear.py: `backward_needs_input`): each time, where no such copy stays.
    """
    (m, n, k), state, narrow = sizes, at.shard.software.state, NARROW[precision]
    either = EITHER_WAY.get(device.generation, {}).get(precision, 0.0)
    of_each_use, frozen = state.fp8_casts == "use", at.family.frozen
    one_way = np.maximum(either, narrow * frozen)
    if part == "forward":
        weights = (CAST[precision] - either) * k * n * of_each_use
        return np.asarray((CAST[precision] - one_way) * m * k + weights)
    turned = frozen & (not either) & (not of_each_use) & (state.copied(precision, True) < 1)
    return np.asarray((CAST[precision] - one_way) * m * n + 2 * narrow * k * n * turned)


def _attention(at: At, device: Device, precision: str, part: str) -> Floats:
    if part == "weight":
        return np.zeros(1)
    precision = BESIDE.get(precision, precision)
    shard, row = at.shard, at.family.rows[0]
    dropout = not row.flash and row.extra_kept > row.heads * row.made.extents[0] * row.keys
    # in a ring each device meets one part's keys at a time, and merges what it makes of them
    rounds = at(shard.rounds)
    queries, width = at(shard.model.made[0]) / rounds, at.family.width
    keys, kv_heads = at.family.keys / rounds, at(shard.kv_heads) * row.repeated
    blocks = np.maximum(queries / keys, 1.0) if row.apart else 1.0  # each a sequence of its own
    core = attention(
        device, precision, at(shard.micro) * blocks, at(shard.heads), kv_heads,
        queries / blocks, keys, width, row.causal,
        "forward" if part == "forward" else "backward", row.flash, dropout,
        family=row.family or "attention", version=row.version, queued=True,
    )  # fmt: skip
    if shard.software.kernels.autocast and shard.delta < 4 and not row.flash:
        scores = at(shard.micro) * at(shard.heads) * queries * keys
        core = core + stream(device, SCORED[part] * scores, queued=True)
    core = core * rounds**2 / at(shard.long) + _stream(at, device, precision, part)
    made = at(shard.heads) + (2 * kv_heads if part == "data" else 0)  # o; dq, dk, dv
    merged = stream(device, MERGED * at(shard.micro) * queries * width * made, queued=True)
    return core + np.where(rounds > 1, (rounds - 1) * merged, 0.0)


def _stream(at: At, device: Device, precision: str, part: str) -> Floats:
    if part == "weight":
        return np.zeros(1)
    shard = at.shard
    over_x, over_y = at.family.reads if part == "forward" else at.family.rereads
    if part == "forward":  # each time read and written in 16 bits, or read in 32
        over_x = over_x + LOGGED * at.family.loss * shard.software.kernels.logged
    elif shard.software.kernels.rebased:
        over_y = over_y + at(COPIED * masks.after_instance_norms(shard.model).astype(float))
    if shard.software.experts.dispatcher == "alltoall" and at.family.experts.any():
        copied = sorted_by_expert(at, precision)
        over_x = over_x + copied * at.family.returned
        over_y = over_y + copied * at.family.sent
    # a loss is taken in fp32 whatever the precision
    wide, cast = at.family.loss, np.zeros(1)
    if shard.software.kernels.autocast and shard.delta < 4:
        wide = wide | at.family.normed | at.family.summed
        cast = np.where(at.family.normed, NARROWED, 0.0) * at(shard.y)
    if shard.gate < shard.delta:
        cast = np.where(at.family.gates, (shard.delta + shard.gate) * at(shard.x), cast)
    width = np.where(wide, 4.0, shard.delta)
    moved = at(shard.micro) * (width * (over_x * at(shard.x) + over_y * at(shard.y)) + cast)
    chosen = shard.software.kernels
    lost = (chosen.row if part == "forward" else chosen.row_back) / device.processors
    rows = at.family.normed * at(shard.micro) * at(shard.made[0]) * lost if lost else 0.0
    kernels = at.family.more[0] if at.family.kind == "stream" and at.family.more else "stream"
    return np.where(moved > 0, stream(device, moved, family=kernels, queued=True) + rows, 0.0)


def sorted_by_expert(at: At, precision: str) -> Floats:
    """Passes over tokens that several experts of a device were sent by all-to-all, either way.

    They come sorted by the device that sent them: a copy sorts them by expert, and another fills
    each expert's up to whole blocks of narrow formats [NVIDIA/Megatron-LM, core_v0.15.3
    megatron/core/transformer/moe/token_dispatcher.py, sort_chunks_by_idxs; moe/experts.py:859-867].
    """
    visits = np.asarray(at.shard.visits, float)
    several = (visits > 1) & (at.family.experts > visits)
    return np.where(several, 4.0 if precision in NARROW else 2.0, 0.0)


def _reduction(at: At, device: Device, precision: str, part: str) -> Floats:
    """Norms and pools: passes over memory, channel by channel where channels come first."""
    shard = at.shard
    family, spans, rank = at.family.more
    if part == "weight" or shard.software.convolution.stands(precision, rank) != "first":
        return _stream(at, device, precision, part)
    over_x, over_y = at.family.reads if part == "forward" else at.family.rereads
    elements = at(shard.micro) * (over_x * at(shard.x) + over_y * at(shard.y))
    blocks = at(shard.channels) * (1.0 if spans == "batch" else at(shard.micro))
    way = "forward" if part == "forward" else "backward"
    seconds = reduction(device, family, shard.delta * elements, elements, blocks, way)
    return np.where(elements > 0, seconds, 0.0)


def _counted(at: At, device: Device, precision: str, part: str) -> Floats:
    """By FLOP and bytes, as the row's family of kernels takes them."""
    precision, (family,) = BESIDE.get(precision, precision), at.family.more
    shard, own = at.shard, precision_on(device, precision)
    share = at(shard.y) / at(shard.model.y)  # of what it makes, here
    streamed, micro = _stream(at, device, precision, part), at(shard.micro)
    if family == "recurrent":
        steps = np.array([row.pieces for row in at.family.rows], float)
        weights = at(shard.model.mac) * share / steps
        return recurrent(device, precision, part, micro, weights, steps) + streamed
    flop = micro * share * 2 * at(shard.model.mac)
    if family == "products":
        sizes = np.array([row.product for row in at.family.rows], float).T
        return products(device, precision, part, sizes, flop / (2 * sizes.prod(axis=0)))
    return counted(device, family, own, part, flop, streamed)


PRICE = {
    "gemm": _gemm, "attention": _attention, "stream": _stream, "reduction": _reduction,
    "counted": _counted,
}  # fmt: skip
