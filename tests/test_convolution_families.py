"""Families of convolutions, where channels stand, and curves that devices share, by hand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oracle
from benchmarks import between
from oracle import kernels
from oracle.calibration import shared
from oracle.kernels.algorithms import chosen
from oracle.kernels.box import Box
from oracle.kernels.conv import family_of
from oracle.kernels.curve import curve, fitted, origin
from oracle.kernels.rows import priced
from oracle.kernels.stream import reduction
from oracle.models.shard import serial
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
from oracle.spec import catalogue
from oracle.spec.device import Curve, Device

BY_HAND = {"start": 0.0, "sustained": 1.0, "traffic": 1.0, "tile": 0.0, "prologue": 0.0,
           "ramp": 0.0, "granule": 0.0}  # fmt: skip
V100, RTX = (catalogue.device(name) for name in ("v100-sxm2-16gb", "rtx-3090"))


def bare(*families: str, bandwidth: float = 1e30, **more: float) -> Device:
    """1 TFLOP/s of matrix units, no vector units."""
    curves = tuple(Curve(family, "by hand", **(BY_HAND | more)) for family in families)
    return Device("bare", 16e9, bandwidth, {"fp16": 1e12}, "by hand", kernels=curves,
                  generation="ampere")  # fmt: skip


@pytest.mark.parametrize(
    ("given", "family"),
    [((32, 64, 1, 2), "conv"), ((32, 64, 1, 3), "conv3d"), ((32, 64, 4, 2), "grouped"),
     ((32, 32, 32, 2), "depthwise"), ((32, 64, 32, 3), "depthwise")],
)  # fmt: skip
def test_families_by_groups_and_extents(given: tuple[int, int, int, int], family: str) -> None:
    assert family_of(*given) == family


def test_tensors_with_channels_first_are_turned_for_matrix_units() -> None:
    """2 samples of 4³ points, 8 → 16 channels: 2·64·(8 + 16) elements, read and written, 2 B."""
    device = bare("conv3d", "stream", bandwidth=1e6)
    given = ("fp16", 2, 8, 16, (4, 4, 4), (3, 3, 3))
    last, first = (
        kernels.conv(device, *given, family="conv3d", layout=layout, queued=True)
        for layout in ("last", "first")
    )
    turns = 2 * 2 * 2 * 64 * (8 + 16) / 1e6
    assert first - last == pytest.approx(turns)
    # by the framework too, but for windows of one point
    both = kernels.conv(device, *given, family="conv3d", layout="turned", queued=True)
    assert both - first == pytest.approx(turns)
    one = ("fp16", 2, 8, 16, (4, 4, 4), (1, 1, 1))
    points = [kernels.conv(device, *one, family="conv3d", layout=layout, queued=True)
              for layout in ("turned", "first")]  # fmt: skip
    assert points[0] == points[1]


def test_channels_last_are_taken_sixteen_bytes_at_a_time() -> None:
    """A curve of 32 channels at least prices 1 as √(1 + 32²); standing last, as √(1 + 8²)."""
    device = bare("conv", granule=32.0)
    given = ("fp16", 2, 1, 16, (1, 8, 8), (1, 3, 3))
    flop = 2 * 2 * 64 * 16 * 9
    for layout, least in (("", 32), ("last", 8)):
        seconds = kernels.conv(device, *given, family="conv", layout=layout, queued=True)
        assert seconds == pytest.approx(flop * np.hypot(1, least) / 1e12)


def test_norms_go_down_channels_one_processor_each() -> None:
    """8 blocks on 80 processors: 1e9 elements at 1e9 a second and processor take 1/8 s."""
    device = replace(bare("norm", bandwidth=1e12), processors=80)
    slow = replace(device, kernels=(replace(device.kernels[0], pace=1e9),))
    assert reduction(slow, "norm", 2e9, 1e9, 8) == pytest.approx(1 / 8)
    assert reduction(slow, "norm", 2e9, 1e9, 800) == pytest.approx(1 / 80)
    assert reduction(device, "norm", 2e9, 1e9, 8) == pytest.approx(2e-3)


def test_a_family_that_nobody_measured_says_so() -> None:
    """Matrix units of a V100 on volumes: by the curve of planes, assumed, and what to measure."""
    known = origin(V100, "conv3d", "fp16", "forward")
    assert known.kind == "assumed"
    assert "oracle measure compute" in known.source
    planes = curve(V100, "conv", "fp16", "forward")
    assert curve(V100, "conv3d", "fp16", "forward").sustained == planes.sustained
    assert known.uncertainty > 3 * planes.uncertainty


def convolved(bias: bool) -> dict[str, Any]:
    return {"name": "one", "source": "made up", "input": [8, 16, 16], "layers": [
        {"conv": {"filters": 16, "kernel": 3, "padding": 1, "bias": bias}}]}  # fmt: skip


def test_a_bias_added_by_a_kernel_of_its_own_is_passes() -> None:
    """2 passes over the output forward, one for its gradient; none where the product adds it."""
    device = bare("conv", "stream", bandwidth=1e6)
    moved = 2 * 4 * 16 * 16 * 16
    found = {}
    for software in ("plain", "pytorch-ddp"):
        shards = [
            serial(oracle.model(convolved(bias)), 4.0, 2.0).but(
                software=catalogue.software(software)
            )
            for bias in (False, True)
        ]
        without, within = (priced(shard, device, "fp16") for shard in shards)
        found[software] = (
            float((within.forward - without.forward).sum()),
            float((within.weight - without.weight).sum()),
        )
    assert found["plain"] == pytest.approx((0, 0), abs=1e-12)
    assert found["pytorch-ddp"] == pytest.approx((2 * moved / 1e6, moved / 1e6))


def test_a_scale_reads_and_writes_its_tensor() -> None:
    model = oracle.model({"name": "se", "source": "made up", "input": [8, 4, 4], "layers": [
        {"relu": {"name": "wide"}}, {"pool": {"kernel": "global", "op": "mean"}},
        {"sigmoid": {"name": "gate"}}, {"scale": {"from": ["wide", "gate"]}}]})  # fmt: skip
    row = model.rows[-1]
    assert (row.kind, row.made.channels, row.made.extents) == ("scale", 8, (4, 4))
    assert row.reads == (1, 1)
    # dx reads dy; dy · x is written, and read again to be summed up: six passes in all
    assert row.rereads == (4, 2)


def test_devices_share_a_curve_as_shares_of_their_peaks() -> None:
    """Kernels of a curve that was planted on two devices give it back, halves held out."""
    fast = bare("conv", bandwidth=1e12)
    devices = fast, replace(fast, name="slow", peak={"fp16": 2e11})
    planted = replace(fast.kernels[0], precision="fp16", part="forward", start=1e-5,
                      sustained=0.6, tile=32.0, prologue=20.0, granule=4.0, ramp=0.1)  # fmt: skip
    draw = np.random.default_rng(5)
    pairs = []
    for _ in range(30):
        batch, channels, filters, side = draw.integers((1, 4, 4, 8), (64, 256, 256, 64))
        shape = tuple(map(float, (batch, channels, filters, 1, side, side, 1, 3, 3, 1, 1, 1, 1)))
        pairs += [(Kernel("conv", "fp16", shape, 1.0, "forward"), device) for device in devices]
    seconds = shared.priced(pairs, [planted])
    timed = [(replace(kernel, seconds=float(took)), device)
             for (kernel, device), took in zip(pairs, seconds, strict=True)]  # fmt: skip
    found = shared.fit(timed, replace(planted, sustained=0.9, tile=8.0, start=1e-6))
    assert found.median < 0.02
    assert found.shapes == 30
    assert found.curve.sustained == pytest.approx(0.6, rel=0.1)


def test_layers_of_a_framework_are_read(tmp_path: Path) -> None:
    """A transposed convolution is the data gradient of the other way round."""
    columns = ("op,in_channels,out_channels,kernel,stride,padding,dilation,groups,"
               "input_shape_ncdhw,precision,gpu,pass,time_ms")  # fmt: skip
    rows = (
        "conv3d,3,64,3x3x3,1x1x1,0x0x0,1x1x1,1,16x3x64x64x64,fp32 (TF32 allowed),A100,forward,5.26",
        "conv_transpose3d,32,64,3x3x3,2x2x2,1x1x1,1x1x1,1,16x32x16x32x32,fp32,T4,forward,30.6",
        "conv2d,64,64,3x3,1x1,0x0,1x1,64,16x64x512x512,fp32,T4,forward,3.35",
        "batchnorm,64,,,,,,,16x64x256x256,fp32,T4,forward,4.06",
    )
    path = tmp_path / "layers.csv"
    path.write_text("\n".join((columns, *rows)) + "\n", encoding="utf-8")
    volume, transposed, alone, norm = timings.read(path).kernels
    assert (volume.family, volume.precision, volume.part) == ("conv3d", "tf32", "forward")
    assert volume.shape == (16, 3, 64, 62, 62, 62, 3, 3, 3, 1, 1, 1, 1)
    assert (transposed.part, transposed.shape[:6]) == ("data", (16, 64, 32, 16, 32, 32))
    assert alone.family == "depthwise"
    elements = 3 * 16 * 64 * 256 * 256
    assert (norm.family, norm.shape) == ("norm", (4 * elements, elements, 64))


# rows of DeepBench: device, side of window, stride, channels, filters, batch, side of output
TAKEN = [
    ("p100-pcie", 3, 1, 64, 64, 16, 56, "winograd"),
    ("v100-sxm2-16gb", 3, 1, 256, 256, 16, 14, "apart"),
    ("p100-pcie", 1, 1, 256, 64, 16, 56, "precomputed"),
    ("v100-sxm2-16gb", 1, 1, 256, 64, 16, 56, "implicit"),
    ("p100-pcie", 3, 2, 3, 64, 8, 54, "precomputed"),
]


@pytest.mark.parametrize("row", TAKEN)
def test_the_library_takes_an_algorithm(row: tuple[Any, ...]) -> None:
    """As DeepBench notes; with no workspace neither positions nor tiles are kept."""
    name, side, stride, channels, filters, batch, across, taken = row
    device = catalogue.device(name)
    box = Box("forward", *(np.asarray(float(n)) for n in (
        batch, across**2, channels, filters, side**2, stride**2, 1, side)), 4.0)  # fmt: skip
    assert chosen(device, "fp32", box) == taken
    assert chosen(device, "fp32", box, 0.0) == "implicit"
    assert chosen(device, "fp32", box, matrix=True) == "precomputed"


def test_channels_stand_where_a_software_says() -> None:
    """By precision, and of volumes apart: XLA's heuristic."""
    xla = catalogue.software("tensorflow-xla").convolution
    assert [xla.stands(p, 2) for p in ("fp16", "fp32", "tf32")] == ["last", "first", "first"]
    assert xla.stands("fp16", 3) == "first"
    assert catalogue.software("plain").convolution.stands("fp16", 3) == ""


def test_autocast_keeps_norms_of_tokens_in_32_bits() -> None:
    """x read and y written in 4 bytes instead of 2, and 6 to cast y, forward and back."""
    layers = [{"reshape": {"to": [64, 16], "tokens": True}}, {"norm": {"op": "layer"}}]
    model = oracle.model({"name": "m", "source": "here", "input": [64, 4, 4], "layers": layers})
    device = bare("stream", bandwidth=1e6)
    plain = catalogue.software("plain")
    auto = plain.but(kernels=replace(plain.kernels, autocast=True))
    before, after = (
        priced(serial(model, 2.0, 2.0).but(software=said), device, "fp16") for said in (plain, auto)
    )
    elements = 2 * 64 * 16
    assert float((after.forward - before.forward).sum()) == pytest.approx(
        elements * (2 * 2 + 6) / 1e6
    )
    exact = priced(serial(model, 2.0, 4.0).but(software=auto), device, "fp32")
    assert exact.forward == pytest.approx(
        priced(serial(model, 2.0, 4.0).but(software=plain), device, "fp32").forward
    )


def test_an_activation_reads_again_what_it_kept() -> None:
    """Backward: what was kept, what comes back, what goes on; three passes whichever it keeps."""
    for op, passes in (("relu", (1, 2)), ("silu", (2, 1))):
        model = oracle.model(
            {"name": "one", "source": "here", "input": [8, 4, 4], "layers": [op, "loss"]}
        )
        assert model.rows[0].rereads == passes


def test_units_between_two_that_were_measured() -> None:
    """0.87 TFLOP/s a processor lies between V100's 0.2 and 1.6; T4's are as fast as V100's."""
    assert between.weight(catalogue.device("t4"), V100) == 1
    assert between.weight(RTX, V100) == pytest.approx(
        np.log(71 / 82 * 80 / 15.7) / np.log(125 / 15.7)
    )
    fast, slow, made = (
        fitted(each, "conv", precision, "forward")
        for each, precision in ((V100, "fp16"), (V100, "fp32"), (RTX, "fp16"))
    )
    assert fast.sustained < made.sustained < slow.sustained
    assert fast.tile > made.tile > slow.tile
    # 256 images of 512 channels at 14×14: longer than the peak allows, by less than V100
    shapes = np.array([[256, 512, 512, 1, 14, 14, 1, 3, 3, 1, 1, 1, 1]], float).T
    box = between.boxed(shapes, "forward")
    times = [float(between.longer(c, d, box)[0]) for c, d in ((fast, V100), (made, RTX))]
    assert times[0] > times[1] > 1


def test_groups_that_matrix_units_have_no_kernels_for_run_as_depthwise_ones() -> None:
    """128 filters of 3×3 a point: 16 channels a group on matrix units, 64 on vector units."""
    device = replace(bare("grouped", "depthwise"), peak={"fp16": 1e12, "fp32": 1e10}, processors=1)
    points, groups = 1e6, np.array([8.0, 2.0])
    found = kernels.conv(
        device, "fp16", 1.0, 128.0, 128.0, (1, points, 1), (1, 3, 3), groups=groups,
        family="grouped", layout="last", queued=True,
    )  # fmt: skip
    # multiplications and additions; channels that are taken at a time, 8 of 16, as a hypotenuse
    matrix = 2 * points * 128 * np.hypot(16, 8) * 9 / 1e12
    assert found == pytest.approx([matrix, 2 * points * 128 * 64 * 9 / 1e10], rel=0.2)
    first = kernels.conv(
        device, "fp16", 1.0, 128.0, 128.0, (1, points, 1), (1, 3, 3), groups=groups,
        family="grouped", layout="", queued=True,
    )  # fmt: skip
    assert first[1] < found[1] / 50


def test_norms_of_tokens_lose_time_to_each_row() -> None:
    """Published times on an A100, µs: what does not double with the bytes, of 108 processors."""
    after = {2: (145.7 / 0.88, 186.1 / 0.89), 4: (236.6 / 0.95, 307.8 / 0.95)}  # 6,144, 8,192 rows
    half, full = ((more - less) / 2048 for less, more in after.values())
    said = catalogue.software("pytorch-channels-first")
    assert said.kernels.row_back == pytest.approx((2 * half - full) * 1e-6 * 108, rel=0.03)
    model = oracle.model({"name": "m", "source": "made up", "transformer": {
        "layers": 1, "hidden": 64, "heads": 4, "vocab": 32, "sequence": 128}})  # fmt: skip
    rows = [i for i, row in enumerate(model.rows) if row.kind == "norm"]
    device = bare("gemm", "attention", "stream", "conv")
    found = {}
    for more in (0.0, 1e-6):
        chosen = replace(said.kernels, row=2 * more, row_back=more)
        shard = serial(model, 8.0, 2.0).but(software=said.but(kernels=chosen))
        times = priced(shard, device, "fp16")
        found[more] = times.forward[0, rows], times.data[0, rows]
    each = 8 * 128 / device.processors * 1e-6
    for k, (before, now) in enumerate(zip(found[0.0], found[1e-6], strict=True)):
        assert now - before == pytest.approx([(2 - k) * each] * len(rows), rel=1e-6)


@pytest.mark.parametrize(("window", "stride", "vector"), [(3, 2, True), (2, 2, False),
                                                          (3, 1, False)])  # fmt: skip
def test_strided_windows_of_volumes_had_no_kernel_on_matrix_units(
    window: int, stride: int, vector: bool
) -> None:
    """8³ points of 16 to 32 channels: the data gradient, 1 TFLOP/s of matrix units, 0.1 beside."""
    device = replace(bare("conv3d", "stream"), peak={"fp16": 1e12, "fp32": 1e11})
    three = ((8,) * 3, (window,) * 3, (stride,) * 3)
    for part, strided, slow in (("data", "vector", vector), ("data", "matrix", False),
                                ("forward", "vector", False)):  # fmt: skip
        seconds = kernels.conv(
            device, "fp16", 1, 16, 32, *three, part=part, family="conv3d", layout="first",
            strided=strided, queued=True,
        )  # fmt: skip
        flop = 2 * 8**3 * 16 * 32 * window**3
        assert seconds == pytest.approx(flop / (1e11 if slow else 1e12), rel=1e-6)
