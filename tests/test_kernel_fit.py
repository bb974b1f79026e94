"""Fits recover what was planted, hold out honestly, and readers recognise tables by columns."""

from __future__ import annotations

import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from grids import rest_slow
from hypothesis import given
from hypothesis import strategies as st

from oracle import kernels
from oracle.calibration import kernels as kernel_fit
from oracle.kernels.curve import ASSUMED
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
from oracle.show.calibration import kernels_text
from oracle.spec import catalogue
from oracle.spec.device import Curve, Device
from oracle.spec.document import SpecError

TOY = Device(
    "toy", 16e9, 900e9, {"fp32": 15e12, "fp16": 120e12, "bf16": 120e12}, "made up", processors=80
)
PLANTED = {
    "gemm": Curve("gemm", "planted", precision="fp16", start=6e-6, sustained=0.71, traffic=0.66,
                  tile=48, prologue=150, ramp=0.08),
    "conv": Curve("conv", "planted", precision="fp16", part="data", start=9e-6, sustained=0.6,
                  traffic=0.7, tile=40, prologue=30, ramp=0.5, granule=20, zeros=0.5),
    "attention": Curve("attention", "planted", precision="bf16", start=8e-6, sustained=0.55,
                       traffic=0.4, tile=60, prologue=150, ramp=1.0),
    "stream": Curve("stream", "planted", start=4e-6, traffic=0.77),
}  # fmt: skip


def shapes(family: str, count: int, seed: int = 3) -> np.ndarray:
    draw = np.random.default_rng(seed)

    def log(low: float, high: float) -> np.ndarray:
        return np.rint(np.exp(draw.uniform(np.log(low), np.log(high), count)))

    one = np.ones(count)
    if family == "gemm":
        return np.array([log(16, 20000), log(16, 20000), log(16, 20000), one])
    if family == "conv":
        window, stride = draw.choice([1, 3, 5, 7], count), draw.choice([1, 2], count)
        return np.array([
            log(1, 64), log(8, 1024), log(8, 1024), one, log(7, 112), log(7, 112),
            one, window, window, one, stride, stride, one,
        ])  # fmt: skip
    if family == "attention":
        length, heads = log(16, 16384), log(1, 64)
        return np.array([log(1, 32), heads, heads, length, length, one * 128, one])
    return np.array([log(1e3, 1e9)])


def measured(
    family: str, count: int = 400, noise: float = 0.03, outliers: float = 0.0, seed: int = 3,
    known: Curve | None = None,
) -> list[Kernel]:  # fmt: skip
    known = known or PLANTED[family]
    device = replace(TOY, kernels=(known,))
    precision, part = known.precision or "fp32", known.part or "forward"
    given = shapes(family, count, seed)
    seconds = kernel_fit.seconds_of(device, family, precision, part, given)
    draw = np.random.default_rng(seed + 1)
    seconds = seconds * np.exp(noise * draw.standard_normal(count))
    seconds = np.where(draw.random(count) < outliers, 8 * seconds, seconds)
    part = part if family in ("conv", "attention") else ""
    return [
        Kernel(family, precision, tuple(map(float, shape)), float(t), part, "toy", f"made.csv:{i}")
        for i, (shape, t) in enumerate(zip(given.T, seconds, strict=True))
    ]


@pytest.mark.parametrize("family", rest_slow(list(PLANTED), [f for f in PLANTED if f != "conv"]))
def test_a_fit_recovers_what_was_planted(family):
    kernels = measured(family, 160 if family == "conv" else 400, noise=0.01)
    found = kernel_fit.fit(kernels, TOY, everything=True)
    curve = next(curve for curve in found.kernels if curve.family == family)
    assert found.held_out < 0.02
    for name in ("start", "sustained", "traffic"):
        if family == "stream" and name == "sustained":
            continue
        assert getattr(curve, name) == pytest.approx(getattr(PLANTED[family], name), rel=0.15)
    assert curve.origin == "fitted"
    assert curve.source == "made.csv"


def test_a_tenth_of_wild_kernels_does_not_turn_the_fit():
    found = kernel_fit.fit(measured("gemm", outliers=0.1), TOY)
    curve = found.kernels[0]
    assert curve.sustained == pytest.approx(PLANTED["gemm"].sustained, rel=0.1)
    assert found.held_out < 0.06
    assert found.residuals[0].p90 > found.residuals[0].median


def test_the_stated_spread_is_that_of_kernels_not_seen():
    for noise in (0.05, 0.2):
        (row,) = kernel_fit.fit(measured("gemm", noise=noise), TOY).residuals
        assert row.spread == pytest.approx(noise, rel=0.35)


def test_every_kernel_is_held_out_once_and_the_split_is_fixed():
    folds = [kernel_fit.split(103, fifth, 7) for fifth in range(kernel_fit.FOLDS)]
    assert sorted(np.concatenate([held for held, _ in folds]).tolist()) == list(range(103))
    for held, seen in folds:
        assert not set(held) & set(seen)
        assert len(held) in (20, 21)
    again = kernel_fit.split(103, 0, 7)[0]
    assert again.tolist() == folds[0][0].tolist()


def test_the_same_kernels_give_the_same_fit():
    kernels = measured("gemm", 120)
    assert kernel_fit.fit(kernels, TOY) == kernel_fit.fit(kernels, TOY)


@pytest.mark.slow
def test_winograd_is_fitted_where_the_data_show_it_and_not_elsewhere():
    plain = measured("conv", 110)
    assert {c.family for c in kernel_fit.fit(plain, TOY).kernels} == {"conv"}
    quick = [
        replace(each, seconds=each.seconds / 2.5)
        if each.shape[7] >= 3 and each.shape[11] == 1 and each.seconds > 1e-4 else each
        for each in plain
    ]  # fmt: skip
    assert {c.family for c in kernel_fit.fit(quick, TOY).kernels} == {"conv", "winograd"}


def test_waves_are_fitted_where_the_data_show_them_and_not_elsewhere():
    """Steps drawn from a stepped device are found again; a smooth one stays smooth."""
    for waves in (True, False):
        known = replace(PLANTED["gemm"], waves=waves, tile=14.0)
        (found,) = kernel_fit.fit(measured("gemm", known=known), TOY).kernels
        assert found.waves is waves
        assert found.sustained == pytest.approx(known.sustained, rel=0.1)


def test_too_few_kernels_or_no_peak_are_said_not_fitted():
    few = kernel_fit.fit(measured("gemm", 5), TOY)
    assert few.kernels == ()
    assert "5 kernels" in few.skipped[0]
    unknown = [replace(each, precision="fp8") for each in measured("gemm", 40)]
    assert "no peak for fp8" in kernel_fit.fit(unknown, TOY).skipped[0]
    assert "too few kernels, 15 are needed: gemm" in kernels_text(few)


def test_the_report_names_the_worst_and_the_reach():
    kernels = measured("gemm", 60)
    kernels[17] = replace(kernels[17], seconds=kernels[17].seconds * 30)
    text = kernels_text(kernel_fit.fit(kernels, TOY), verbose=True)
    assert "made.csv:17 -9" in text
    assert "FLOP" in text


@pytest.mark.slow
def test_entries_of_a_device_file_are_read_back():
    found = kernel_fit.fit(measured("gemm", 60) + measured("conv", 60), TOY)
    entry = {
        "name": "toy", "memory": "16 GB", "memory_bandwidth": "900 GB/s", "source": "made up",
        "peak": {"fp32": "15 TFLOP/s"}, "kernels": kernel_fit.entries(found.kernels),
    }  # fmt: skip
    back = catalogue.device(entry).kernels
    assert len(back) == len(found.kernels)
    for known, again in zip(found.kernels, back, strict=True):
        for name, value in asdict(known).items():
            if isinstance(value, float) and name in kernel_fit.NUMBERS:
                applies = kernel_fit.applies(name, known)
                assert not applies or getattr(again, name) == pytest.approx(value, rel=1e-3)
        assert (again.family, again.part, again.source) == (known.family, known.part, known.source)


def test_new_curves_stand_beside_what_they_do_not_replace():
    device = catalogue.device("v100-sxm2-16gb")
    fresh = [Curve("conv", "new", precision="fp32", part="data")]
    merged = kernel_fit.onto(device, fresh)
    keys = [(c.family, c.precision, c.part) for c in merged.kernels]
    assert ("winograd", "fp32", "data") not in keys  # it belonged to the old fit
    assert keys.count(("conv", "fp32", "data")) == 1
    assert ("conv", "fp32", "forward") in keys
    assert merged.peak == device.peak


def test_sizes_are_the_textbook_flop():
    assert kernel_fit.size("gemm", np.array([[2.0], [3.0], [5.0], [7.0]])) == 2 * 2 * 3 * 5 * 7
    conv = np.array([[8, 4, 6, 1, 10, 12, 1, 3, 3, 1, 2, 2, 2]], float).T
    assert kernel_fit.size("conv", conv) == 2 * 8 * 4 * 6 * 10 * 12 * 9 / 2
    scores = np.array([[2, 4, 4, 100, 100, 64, 1]], float).T
    assert kernel_fit.size("attention", scores) == 4 * 2 * 4 * 100 * 100 * 64 / 2


@pytest.mark.parametrize("name", ["v100-sxm2-16gb", "p100-pcie", "a100-sxm4-80gb"])
def test_shipped_curves_price_near_their_assumed_cousins(name):
    """A fit that ran away (a sustained rate of a tenth, say) would show here."""
    device = catalogue.device(name)
    bare = replace(device, kernels=())
    for shape in ((4096, 4096, 4096), (8192, 1024, 4096), (512, 512, 8192)):
        ratio = kernels.gemm(device, "fp32", *shape) / kernels.gemm(bare, "fp32", *shape)
        assert 0.5 < ratio < 2


# readers

DEEPBENCH = """device,phase,precision,M,N,K,transA,transB,time_ms,app
NV_V100,train,Float,1760,16,1760,N,N,0.055,
NV_V100,train,"16 bit inputs, 32 bit multiplication, 32 bit addition",1760,32,1760,N,N,0.044,
NV_V100,inference,Float,1760,32,1760,N,N,0.044,
NV_V100,train,Float,1760,zero,1760,N,N,0.044,
NV_V100,train,Float,1760,16,1760,N,N,-1,
NV_P100,train,Float,1760,16,1760,N,N,0.1,
"""
CONVOLUTIONS = """device,phase,precision,W,H,C,N,K,S_filter_w,R_filter_h,pad_w,pad_h,\
stride_w,stride_h,fwd_ms,bwd_inputs_ms,bwd_weights_ms
NV_V100,train,Float,700,161,1,4,32,20,5,0,0,2,2,0.142,0.482,0.301
NV_V100,train,Float,56,56,64,8,64,3,3,1,1,1,1,0.1,0.2,
NV_V100,train,Float,7,7,2048,8,512,1,1,3,3,2,2,0.1,0.2,0.3
"""
ATTENTION = """device,batch,seq,heads,kv_heads,head_dim,latency_ms
A100,4,1024,32,8,128,0.5
A100,4,1024,32,8,128,nan
"""


def test_deepbench_products_without_inference_and_broken_rows():
    reading = timings.parse(DEEPBENCH, "db.csv", "v100")
    assert [(k.family, k.precision) for k in reading.kernels] == [
        ("gemm", "fp32"),
        ("gemm", "fp16"),
    ]
    assert reading.kernels[0].shape == (1760, 16, 1760, 1)
    assert reading.kernels[0].seconds == pytest.approx(55e-6)
    assert reading.kernels[0].where == "db.csv:2"
    reasons = dict(reading.skipped)
    assert "inference" in reasons[4]
    assert "zero" in reasons[5]
    assert "time_ms" in reasons[6]


def test_deepbench_convolutions_compute_their_own_outputs():
    reading = timings.parse(CONVOLUTIONS, "db.csv")
    speech, face = reading.kernels[:2], reading.kernels[2:]
    # (700 - 20) / 2 + 1 across, (161 - 5) / 2 + 1 down; nobody wants the sound's gradient
    assert [k.part for k in speech] == ["forward", "weight"]
    shape = dict(zip(timings.SHAPES["conv"], speech[0].shape, strict=True))
    assert (shape["out_width"], shape["out_height"], shape["window_width"]) == (341, 79, 20)
    assert [k.part for k in face] == ["forward", "data"]
    assert "padding" in reading.skipped[0][1]


def test_attention_tables():
    reading = timings.parse(ATTENTION)
    assert reading.kernels[0].shape == (4, 32, 8, 1024, 1024, 128, 1)
    assert len(reading.skipped) == 1


def test_a_table_of_nothing_known_is_refused():
    with pytest.raises(SpecError, match="columns"):
        timings.parse("a,b\n1,2\n")
    with pytest.raises(SpecError, match="no such file"):
        timings.read("/nowhere/at/all.csv")


@given(st.sampled_from(sorted(timings.SHAPES)), st.data())
def test_our_own_format_says_the_same_again(family, data):
    number = st.integers(1, 1 << 40).map(float)
    shape = tuple(data.draw(number) for _ in timings.SHAPES[family])
    kernel = Kernel(
        family, data.draw(st.sampled_from(("fp32", "bf16"))), shape,
        data.draw(st.floats(1e-9, 1e3)), data.draw(st.sampled_from(timings.PARTS[family])), "a100",
    )  # fmt: skip
    (again,) = timings.parse(timings.text([kernel])).kernels
    assert replace(again, where="") == kernel


def test_our_own_format_fills_what_is_usual_and_refuses_what_is_unknown():
    head = "family,precision,shape,seconds\n"
    (gemm,) = timings.parse(head + "gemm,bf16,m=1 n=2 k=3,1e-5\n").kernels
    assert gemm.shape == (1, 2, 3, 1)
    rows = ("gemm,bf16,m=1 n=2,1e-5", "gemm,bf16,m=1 n=2 k=3 q=4,1e-5", "gem,bf16,m=1,1e-5",
            "gemm,int4,m=1 n=2 k=3,1e-5", "gemm,bf16,m=1 n=2 k=3,inf")  # fmt: skip
    reading = timings.parse(head + "\n".join(rows))
    assert not reading.kernels
    assert len(reading.skipped) == len(rows)
    assert math.isfinite(ASSUMED["gemm"].start)
