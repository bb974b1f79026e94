"""Laws of the kernel model: monotone, within the roofline, local shape decides, units are right."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

import oracle
from benchmarks import attention as benchmark
from oracle import kernels
from oracle.calibration.kernels import STREAMED
from oracle.kernels.curve import ASSUMED
from oracle.kernels.rows import priced
from oracle.kernels.slowest import slowest
from oracle.kernels.waves import whole
from oracle.models.shard import serial
from oracle.spec import catalogue
from oracle.spec.device import Curve, Device

TOY = Device(
    "toy", 16e9, 900e9, {"fp32": 15e12, "fp16": 120e12, "bf16": 120e12}, "made up",
    processors=80, launch=4e-6,
)  # fmt: skip
NAMES = sorted(catalogue.shipped("devices"))
DEVICES = [TOY, *map(catalogue.device, NAMES)]
IDS = ["toy", *NAMES]
extent = st.integers(1, 1 << 17)
small = st.integers(1, 512)
devices = st.sampled_from(DEVICES)
precisions = st.sampled_from(("fp32", "tf32", "fp16", "bf16", "fp8"))
parts = st.sampled_from(("forward", "data", "weight"))
ULP = 1 + 1e-12


def convolution(device: Device, precision: str, part: str, shape: tuple[int, ...]) -> float:
    batch, channels, filters, height, width, window, stride = shape
    return float(kernels.conv(
        device, precision, batch, channels, filters, (1, height, width),
        (1, window, window), (1, stride, stride), part=part, queued=True,
    ))  # fmt: skip


@given(devices, precisions, st.tuples(extent, extent, extent, small), st.integers(0, 3),
       st.floats(1, 8))  # fmt: skip
def test_a_larger_product_is_never_faster(device, precision, shape, which, factor):
    grown = list(map(float, shape))
    grown[which] *= factor
    before = kernels.gemm(device, precision, *shape)
    assert kernels.gemm(device, precision, *grown) * ULP >= before


@given(devices, precisions, parts,
       st.tuples(small, small, small, small, small, st.sampled_from((1, 3, 5, 7)),
                 st.sampled_from((1, 2))),
       st.integers(0, 4), st.integers(2, 5))  # fmt: skip
def test_a_larger_convolution_is_never_faster(device, precision, part, shape, which, factor):
    grown = list(shape)
    grown[which] *= factor
    before = convolution(device, precision, part, shape)
    assert convolution(device, precision, part, tuple(grown)) * ULP >= before


@given(devices, st.sampled_from(("forward", "backward")), st.booleans(), st.booleans(),
       st.tuples(small, small, small, extent, extent, small), st.integers(0, 5),
       st.integers(2, 5))  # fmt: skip
def test_more_attention_is_never_faster(device, part, causal, flash, shape, which, factor):
    shape = (*shape[:5], 8 * shape[5])  # of a width that matrix units can load, or see below
    grown = list(shape)
    # under a causal mask tokens are added as queries and as keys: one more query of the same keys
    # looks at fewer of them
    for at in (3, 4) if causal and which in (3, 4) else (which,):
        grown[at] *= factor
    before = kernels.attention(device, "bf16", *shape, causal, part, flash)
    assert kernels.attention(device, "bf16", *grown, causal, part, flash) * ULP >= before


@given(st.tuples(extent, extent, extent), st.floats(1, 10), precisions)
def test_a_faster_device_is_never_slower(shape, factor, precision):
    before = kernels.gemm(TOY, precision, *shape)
    quicker = (
        replace(TOY, memory_bandwidth=TOY.memory_bandwidth * factor),
        replace(TOY, peak={name: rate * factor for name, rate in TOY.peak.items()}),
        replace(TOY, launch=TOY.launch / factor),
    )
    for device in quicker:
        assert kernels.gemm(device, precision, *shape) <= before * ULP


@given(devices, st.tuples(extent, extent, extent), precisions)
@example(catalogue.device("h100-sxm5-80gb"), (1 << 16, 1 << 16, 1), "bf16")  # much is written
def test_no_product_beats_the_peak_or_the_memory(device, shape, precision):
    m, n, k = map(float, shape)
    seconds = kernels.gemm(device, precision, m, n, k)
    width = {"fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1}[precision]
    rate = device.peak[kernels.curve.precision_on(device, precision)]
    assert seconds >= 2 * m * n * k / rate
    assert seconds >= width * (m * k + k * n + m * n) / device.memory_bandwidth
    assert seconds >= device.launch


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
@pytest.mark.parametrize("part", ["forward", "data", "weight"])
def test_no_convolution_beats_its_products(device, part):
    """Winograd saves 4 of 4 products of a 3×3 window at most; nothing saves any of a 1×1."""
    for window, saving in ((1, 1.0), (3, 4.0)):
        seconds = convolution(device, "fp32", part, (64, 256, 256, 28, 28, window, 1))
        flop = 2 * 64 * 256 * 256 * 28 * 28 * window**2
        rate = device.peak[kernels.curve.precision_on(device, "fp32")]
        assert seconds >= flop / rate / saving


@pytest.mark.parametrize("device", DEVICES, ids=IDS)
def test_a_part_of_a_product_takes_more_than_its_share(device):
    """The reason that splitting filters stops paying: n/p columns take longer than time/p.

    In whole waves of tiles the parts may fit better than the whole: they save at most what its
    last wave leaves idle.
    """
    p = np.array([2, 4, 8, 16, 32, 64])
    whole = kernels.gemm(device, "bf16", 2048, 4096, 4096, queued=True)
    share = kernels.gemm(device, "bf16", 2048, 4096 / p, 4096, queued=True)
    waste = share * p / whole - 1
    steps = any(curve.family == "gemm" and curve.waves for curve in device.kernels)
    tiles = 2048 * 4096 / (256 * 128) / device.processors
    idle = 1 - tiles / math.ceil(tiles) if steps else 0.0
    assert np.all(waste > -idle - 1e-12)  # none as long as power limits both
    assert share[-1] * 64 > 1.05 * whole
    if not steps:
        assert np.all(np.diff(waste) > -1e-12)  # it grows with p,
        assert np.all(np.diff(waste)[2:] > 0)  # and strictly so once the units are not filled


def test_filter_parallel_resnet_layer_stops_scaling():
    device = catalogue.device("v100-sxm2-16gb")
    p = np.array([1, 2, 4, 8, 16, 32, 64])
    for part in ("forward", "data", "weight"):
        seconds = kernels.conv(
            device, "fp32", 32, 256, 256 / p, (1, 14, 14), (1, 3, 3), part=part, queued=True
        )
        assert np.all(np.diff(seconds) < 0)
        assert seconds[0] / seconds[-1] < 16  # of 64


def test_one_call_prices_a_table_of_plans_as_its_rows():
    m, n = np.array([[128.0], [1000.0], [8192.0]]), np.array([64.0, 4096.0])
    table = kernels.gemm(TOY, "fp16", m, n, 512)
    assert table.shape == (3, 2)
    rows = [[float(kernels.gemm(TOY, "fp16", a, b, 512)) for b in n] for a in m[:, 0]]
    np.testing.assert_array_equal(table, rows)


def test_large_a100_products_reach_what_megatron_sees():
    """Whole steps reach 130-175 of 312 TFLOP/s, so products alone must be well above, and no
    kernel that was measured is above 290.
    """
    device = catalogue.device("a100-sxm4-80gb")
    for shape in ((16384, 12288, 12288), (2048, 49152 // 8, 12288), (8192, 4096, 4096)):
        rate = 2 * np.prod(shape) / kernels.gemm(device, "fp16", *shape)
        assert 220e12 < rate < 290e12
    skinny = 2 * 16 * 4096**2 / kernels.gemm(device, "fp16", 16, 4096, 4096)
    assert skinny < 40e12


def test_a_product_takes_whole_waves_of_whole_tiles():
    """108 processors: 8192×768 is 192 large tiles, 8192×1024 is 256 and so takes a third wave,
    in which 8192×1280 finds room too. Measured, k of 4096: 207 us for 768 columns, 308 for 1024,
    623 for 2560 [aiconfigurator].
    """
    device = replace(catalogue.device("a100-sxm4-80gb"), loaded=1.0)
    two, three, full, six = (
        float(kernels.gemm(device, "bf16", 8192, n, 4096)) for n in (768, 1024, 1280, 2560)
    )
    assert two == pytest.approx(207e-6, rel=0.05)
    assert three == pytest.approx(308e-6, rel=0.05)
    assert six == pytest.approx(623e-6, rel=0.05)
    assert three / two == pytest.approx(1.5, rel=0.05)
    assert full / three < 1.02
    smooth = catalogue.device("h100-sxm5-80gb")
    assert not any(curve.waves for curve in smooth.kernels)


@given(st.floats(0.01, 40))
def test_steps_rise_and_do_not_jump(parts):
    """Whole numbers are themselves, and a hundredth more is never a whole step more."""
    assert whole(math.ceil(parts)) == math.ceil(parts)
    assert max(parts, 1.0) <= whole(parts) <= max(math.ceil(parts), 1.0) + 1e-9
    assert 0 <= whole(parts + 0.01) - whole(parts) <= 0.11


def test_who_works_in_step_waits_for_the_slowest():
    """The mean of the greatest of p normal numbers, as drawn; and only where a clock sets it."""
    device = replace(TOY, variation=0.02)
    draw = np.random.default_rng(5)
    for p in (1, 2, 8, 64, 512):
        greatest = draw.standard_normal((4000, p)).max(axis=1).mean()
        assert float(slowest(device, p)) - 1 == pytest.approx(0.02 * greatest, abs=0.0015)
    one, eight = (
        oracle.estimate("gpt2", "dgx-a100", f"data:{p}" if p > 1 else "serial", 4 * p)
        for p in (1, 8)
    )
    assert 1.005 < eight.compute["forward"][0] / one.compute["forward"][0] < 1.022
    assert slowest(TOY, 64) == 1.0


def test_flash_attention_leaves_out_the_scores():
    shape = (1, 32, 32, 4096, 4096, 128)
    device = catalogue.device("a100-sxm4-80gb")
    flash = kernels.attention(device, "bf16", *shape, True, queued=True)
    assert flash < kernels.attention(device, "bf16", *shape, True, flash=False, queued=True) / 2
    full = kernels.attention(device, "bf16", *shape, False, queued=True)
    assert 1.6 < full / kernels.attention(device, "bf16", *shape, True, queued=True) < 2
    backward = kernels.attention(device, "bf16", *shape, True, "backward", queued=True)
    assert 2 < backward / flash < 3.5


def test_a_ring_is_more_and_smaller_kernels_than_one_over_whole_sequences():
    """The same pairs of queries and keys either way: rounds cost starts, tails and merges."""
    took = {
        text: oracle.estimate("llama3-8b", "dgx-h100", text, 8)
        for text in ("context:8", "context:8,kind=alltoall")
    }
    ring, turned = (one.compute["forward"][0] for one in took.values())
    assert turned < ring < 1.5 * turned
    # and the longer the sequence, the less of it
    long = {**yaml.safe_load(catalogue.find("llama3-8b", "models").read_text(encoding="utf-8"))}
    long["transformer"] = {**long["transformer"], "sequence": 131072}
    far, near = (oracle.estimate(long, "dgx-h100", text, 1).compute["forward"][0] for text in took)
    assert near < far < ring / turned * near


def test_an_older_attention_is_as_fast_as_its_authors_measured():
    """Both passes together, on an A100 and an H100; the first reached 35 % backward [dao2023]."""
    for version, line in benchmark.summary(list(benchmark.bars())).items():
        assert line["mean"] < {"flash1": 0.045, "flash2": 0.01}[version]
        assert line["worst"] < {"flash1": 0.125, "flash2": 0.035}[version]
    device, shape = catalogue.device("a100-sxm4-80gb"), (8, 32, 32, 16384, 16384, 64, False)
    first, second = (
        float(kernels.attention(device, "bf16", *shape, "backward", version=version))
        for version in (1, 2)
    )
    assert first > 1.5 * second
    assert 10 * 8 * 32 * 16384 * 16384 * 64 / first < 0.35 * device.peak["bf16"]
    spec = yaml.safe_load(catalogue.find("llama3-8b", "models").read_text(encoding="utf-8"))
    spec["transformer"]["flash_version"] = 2
    found = [oracle.estimate(m, "dgx-h100", "data:8", 8).seconds[0] for m in (spec, "llama3-8b")]
    assert found[0] > found[1]


def test_training_on_ampere_takes_flash_attention_2_where_nothing_is_said():
    shape = (8, 32, 32, 4096, 4096, 128)

    def took(name: str, precision: str, version: int = 0, queued: bool = True) -> float:
        device = catalogue.device(name)
        return float(kernels.attention(device, precision, *shape, version=version, queued=queued))

    for precision in ("bf16", "fp16"):
        assert took("a100-sxm4-80gb", precision) == took("a100-sxm4-80gb", precision, 2)
        assert took("h100-sxm5-80gb", precision) < took("h100-sxm5-80gb", precision, 2)
    # as a kernel alone it is what was measured on the device
    assert took("a100-sxm4-80gb", "bf16", queued=False) > took("a100-sxm4-80gb", "bf16")


def test_in_fp8_linear_layers_alone_are_faster():
    """Attention, norms and the vocabulary stay in 16 bits; casts eat part of what is won."""
    model, device = oracle.model("llama3-8b"), catalogue.device("h100-sxm5-80gb")
    shard = serial(model, 2, 2.0)
    bf16, fp8 = (priced(shard, device, precision) for precision in ("bf16", "fp8"))
    for i, row in enumerate(model.rows):
        before, after = (
            sum(float(np.broadcast_to(getattr(one, part), (1, len(model)))[0, i])
                for part in ("forward", "data", "weight"))
            for one in (bf16, fp8)
        )  # fmt: skip
        if row.work == "gemm" and row.role != "vocab":
            assert 0.5 * before < after < before
        else:
            assert after == before


def test_dropout_on_scores_costs_a_pass():
    shape = (4, 16, 16, 1024, 1024, 64)
    plain = kernels.attention(TOY, "fp16", *shape, flash=False, queued=True)
    dropped = kernels.attention(TOY, "fp16", *shape, flash=False, dropout=True, queued=True)
    passed = kernels.stream(TOY, 4 * 16 * 1024 * 1024 * 5, queued=True)
    assert dropped - plain == pytest.approx(float(passed))


def test_depthwise_convolution_is_priced_by_its_bytes():
    """One filter a channel would waste a tile of a matrix product; a direct kernel does not."""
    channels = 512
    seconds = kernels.conv(
        TOY, "fp32", 32, channels, channels, (1, 28, 28), (1, 3, 3), groups=channels, queued=True
    )
    moved = 4 * 32 * channels * 28 * 28 * 2
    assert seconds < 4 * kernels.stream(TOY, moved)


def test_a_volume_costs_as_its_slices():
    """A 3-D window of depth 1 is the 2-D convolution of every slice."""
    flat = kernels.conv(TOY, "fp32", 4 * 16, 32, 64, (1, 32, 32), (1, 5, 5), queued=True)
    deep = kernels.conv(TOY, "fp32", 4, 32, 64, (16, 32, 32), (1, 5, 5), queued=True)
    assert flat == pytest.approx(deep)
    line = kernels.conv(TOY, "fp32", 4, 32, 64, (1, 1, 4096), (1, 1, 9), queued=True)
    assert line > 0


def test_a_strided_data_gradient_multiplies_some_zeros():
    curve = replace(ASSUMED["conv"], precision="fp32", part="data")
    skips = replace(TOY, kernels=(replace(curve, zeros=0.0),))
    multiplies = replace(TOY, kernels=(replace(curve, zeros=1.0),))
    strided = [convolution(d, "fp32", "data", (64, 512, 512, 14, 14, 1, 2))
               for d in (skips, multiplies)]  # fmt: skip
    dense = [convolution(d, "fp32", "data", (64, 512, 512, 14, 14, 1, 1))
             for d in (skips, multiplies)]  # fmt: skip
    assert strided[0] < strided[1]
    assert dense[0] == dense[1]


@pytest.mark.parametrize("optimizer", ["sgd", "momentum", "adam", "lars", "lamb"])
def test_updates_are_memory_bound(optimizer):
    weights = 25.6e6
    fused = kernels.update(TOY, "fp32", optimizer, weights, 161)
    plain = kernels.update(TOY, "fp32", optimizer, weights, 161, fused=False)
    assert fused >= 3 * 4 * weights / TOY.memory_bandwidth
    assert plain > fused
    assert kernels.update(TOY, "fp32", "adam", weights) > kernels.update(
        TOY, "fp32", "momentum", weights
    )


def test_small_kernels_wait_for_the_host_unless_it_runs_ahead():
    slow = replace(TOY, launch=50e-6)
    assert kernels.stream(slow, 4096) == slow.launch
    assert kernels.stream(slow, 4096, queued=True) < 5e-6
    assert kernels.gemm(slow, "fp16", 64, 64, 64) == slow.launch


def test_power_slows_what_fills_the_units_and_nothing_else():
    """989 TFLOP/s at 700 W: what a short benchmark shows is not what lasts."""
    device = catalogue.device("h100-sxm5-80gb")
    full = 2 * 8192**3
    short = full / (device.peak["bf16"] * kernels.curve.REACHED)
    lasting = kernels.curve.powered(device, "bf16", short, full, queued=True)
    assert lasting == pytest.approx(full / (device.peak["bf16"] * device.loaded))
    assert kernels.curve.powered(device, "bf16", short, full, queued=False) == short
    slow = kernels.curve.powered(device, "bf16", 3 * short, full, queued=True)
    assert slow == 3 * short  # a third of the rate draws less than the budget
    cold = replace(device, loaded=1.0)
    for shape, slower in (((8192, 8192, 8192), True), ((256, 512, 1024), False)):
        warm, cool = (kernels.gemm(d, "bf16", *shape, queued=True) for d in (device, cold))
        assert (warm > cool) == slower
        assert warm <= cool * kernels.curve.REACHED / device.loaded * 1.01


def test_heads_of_an_odd_width_go_without_matrix_units():
    """Heads of 108 halves are no multiple of 16 bytes: 112 is more work and several times faster.

    BLOOM's engineers met it (bloom_a100.csv): 13,824 channels in 128 heads took 163 s a step,
    in 96 heads 125 s.
    """
    device, scores = catalogue.device("a100-sxm4-80gb"), (4, 16, 16, 2048, 2048)
    odd, even = (
        kernels.attention(device, "fp16", *scores, width, True, "forward", False)
        for width in (108, 112)
    )
    assert odd > 2.5 * even
    fused = [
        kernels.attention(device, "fp16", *scores, width, True, "forward", True)
        for width in (108, 112)
    ]
    assert fused[0] < fused[1]
    mixed = kernels.attention(
        device, "fp16", *scores, np.array([108.0, 112.0]), True, "forward", False
    )
    assert mixed == pytest.approx([odd, even])


def test_a_device_without_fits_says_so():
    assert kernels.origin(TOY, "gemm", "fp16").kind == "assumed"
    assert kernels.origin(TOY, "gemm", "fp16").outside


def test_a_fit_says_its_file_and_its_reach():
    device = catalogue.device("a100-sxm4-80gb")
    inside = kernels.origin(device, "gemm", "bf16", flop=1e12)
    assert (inside.kind, inside.outside) == ("fitted", False)
    assert inside.source.endswith(".csv")
    assert kernels.origin(device, "gemm", "bf16", flop=1e6).outside
    # fp16 runs on the same units; tf32 does not
    assert kernels.origin(device, "gemm", "fp16").kind == "fitted"
    assert kernels.origin(device, "gemm", "tf32").kind == "assumed"


def test_a_device_without_the_precision_computes_in_another():
    device = catalogue.device("v100-sxm2-16gb")
    shape = (4096, 4096, 4096)
    assert kernels.gemm(device, "bf16", *shape) > 5 * kernels.gemm(device, "fp16", *shape)
    assert kernels.gemm(device, "fp8", *shape) < 2 * kernels.gemm(device, "fp16", *shape)


@pytest.mark.parametrize("name", NAMES)
def test_every_shipped_number_has_a_source(name):
    device = catalogue.device(name)
    assert len(device.source) > 20
    assert device.kernels
    for curve in device.kernels:
        assert curve.source
        assert curve.uncertainty > 0
        # work of a fit's kernels, FLOP; what memory sets the pace of has none
        assert (curve.origin == "fitted") <= bool(curve.reach or curve.family in STREAMED)


def test_quantities_give_seconds():
    """The equation of `duration`, run on physical quantities."""
    pint = pytest.importorskip("pint")
    units = pint.UnitRegistry()
    units.define("FLOP = [operation]")
    second, byte, flop = units.second, units.byte, units.FLOP
    curve = Curve("gemm", "made up", start=2e-6)
    m, n, k = 512.0, 256.0, 1024.0
    area = np.sqrt(m * m + curve.tile**2) * np.sqrt(n * n + curve.tile**2)
    idle = curve.ramp * 128**2 * TOY.processors
    math = 2 * flop * (area + idle) * (k + curve.prologue) / (
        TOY.peak["fp32"] * flop / second * curve.sustained
    )  # fmt: skip
    traffic = 1e6 * byte / (TOY.memory_bandwidth * byte / second * curve.traffic)
    seconds = curve.start * second + np.sqrt(math**2 + traffic**2)
    assert seconds.check("[time]")
    bare = kernels.curve.duration(curve, TOY, TOY.peak["fp32"], m, n, k, 1, 1e6)
    assert seconds.to("second").magnitude == pytest.approx(float(bare))


@settings(deadline=None)
@given(st.floats(1e3, 1e12), st.floats(1, 100))
def test_streams_are_a_start_and_a_slope(nbytes, factor):
    one, more = (kernels.stream(TOY, size, queued=True) for size in (nbytes, nbytes * factor))
    used = ASSUMED["stream"]
    slope = nbytes * (factor - 1) / (TOY.memory_bandwidth * used.traffic)
    assert float(more - one) == pytest.approx(slope, rel=1e-6, abs=1e-12)


# --- by hand: a device without limits but arithmetic, and without starts, ramps and tiles ----


def arithmetic(*families: str, **more: float) -> Device:
    """1 TFLOP/s and no end of memory bandwidth."""
    bare = {"start": 0.0, "sustained": 1.0, "traffic": 1.0, "tile": 0.0, "prologue": 0.0,
            "ramp": 0.0, "granule": 0.0, **more}  # fmt: skip
    curves = tuple(Curve(family, "by hand", **bare) for family in families)
    return Device("bare", 16e9, 1e30, {"fp32": 1e12}, "by hand", kernels=curves)


def test_flash_attention_is_two_products_forward_and_five_back():
    """2 sequences, 4 heads, 256 queries and keys of 64: 2 · 2 · 8 · 256² · 64 FLOP; back 5/2."""
    shape, flop = (2, 4, 4, 256, 256, 64), 2 * 2 * 8 * 256**2 * 64
    device = arithmetic("attention")
    assert kernels.attention(device, "fp32", *shape, False, queued=True) == pytest.approx(
        flop / 1e12
    )
    # a mask of what comes later leaves half of the keys
    for part, times in (("forward", 0.5), ("backward", 0.5 * 5 / 2 * 73 / 63)):
        took = kernels.attention(device, "fp32", *shape, True, part, queued=True)
        assert took == pytest.approx(times * flop / 1e12)


@pytest.mark.parametrize(("side", "saving"), [(3, 4), (5, 25 / 9)])
def test_winograd_saves_products(side, saving):
    """A tile of 6 × 6 products makes 4 × 4 outputs of 3² taps each, or 2 × 2 of 5²."""
    device = arithmetic("conv", "winograd")
    plain = arithmetic("conv")
    given = ("fp32", 2, 8, 16, (1, 14, 14), (1, side, side))
    slow, fast = (kernels.conv(each, *given, queued=True) for each in (plain, device))
    assert slow == pytest.approx(2 * 2 * 196 * 8 * 16 * side**2 / 1e12)
    assert slow / fast == pytest.approx(saving)
    strided = (*given, (1, 2, 2))  # has no such tiles
    assert kernels.conv(device, *strided, queued=True) == pytest.approx(slow)


def test_nobody_wants_the_gradient_of_the_samples():
    """Of two matrices the first has the gradient of its weights alone."""
    layers = [{"dense": {"filters": 64, "bias": False}}, {"dense": {"filters": 32, "bias": False}}]
    model = oracle.model({"name": "m", "source": "here", "input": [16], "layers": layers})
    times = priced(serial(model, 8.0, 4.0), arithmetic("gemm"), "fp32")
    flop = np.array([[2 * 8 * 16 * 64, 2 * 8 * 64 * 32]])
    assert times.forward == pytest.approx(flop / 1e12)
    assert times.weight == pytest.approx(flop / 1e12)
    assert times.data == pytest.approx(flop * [0, 1] / 1e12)


def test_each_expert_sees_its_share_of_the_tokens():
    """4 · 32 tokens visit 2 of 8 experts each: 32 a product; 8 of them do 256 visits' FLOP."""
    family = {"layers": 1, "hidden": 64, "heads": 4, "vocab": 100, "sequence": 32, "ffn": 128,
              "gated": False, "experts": 8, "active": 2}  # fmt: skip
    model = oracle.model({"name": "m", "source": "here", "transformer": family})
    times = priced(serial(model, 4.0, 4.0), arithmetic("gemm", "stream", "attention"), "fp32")
    took = dict(zip((row.name for row in model.rows), times.forward[0], strict=True))
    (up,) = (seconds for name, seconds in took.items() if name.endswith("mlp.up"))
    assert up == pytest.approx(2 * 256 * 64 * 128 / 1e12)
