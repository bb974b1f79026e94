"""Kernels of servers of models are read, believed or not, and told from what is beside them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from oracle import kernels
from oracle.calibration import kernels as kernel_fit
from oracle.calibration import timed
from oracle.calibration.power import kept_up
from oracle.kernels.attention import BACKWARD, SLOWER_BACK
from oracle.kernels.curve import OPERAND_BYTES
from oracle.kernels.provenance import Provenance, _modelled, origin
from oracle.readers import kernels as timings
from oracle.readers.kernels import Kernel
from oracle.spec import catalogue
from oracle.spec.device import Curve, Device

TOY = Device(
    "toy", 16e9, 4e12, {"bf16": 1e15, "fp8": 2e15}, "made up", processors=100,
    kernels=(Curve("stream", "planted", start=1e-6, traffic=0.5),),
)  # fmt: skip
PRODUCT = Curve("gemm", "planted", start=2e-6, sustained=0.9, traffic=1.0, tile=8, prologue=64,
                ramp=0.05)  # fmt: skip


def rows(header: str, *lines: str) -> list[Kernel]:
    reading = timings.parse("\n".join(["# a remark", header, *lines]))
    assert not reading.skipped
    return list(reading.kernels)


def test_columns_of_servers_are_told_apart_and_lines_are_counted_from_the_first() -> None:
    plain, narrow = rows("device,dtype,m,n,k,ms", "x,bfloat16,1,2,3,0.5", "x,fp8_block,1,2,3,0.5")
    assert (plain.family, plain.precision, plain.shape) == ("gemm", "bf16", (1, 2, 3, 1))
    assert (narrow.family, narrow.precision, narrow.where) == ("linear", "mxfp8", "kernels.csv:4")
    assert narrow.seconds == pytest.approx(5e-4)
    (core,) = rows("device,attn_dtype,batch_size,isl,num_heads,num_key_value_heads,head_dim,ms",
                   "x,fp8,2,1024,8,4,128,1")  # fmt: skip
    assert (core.family, core.shape) == ("attention", (2, 8, 4, 1024, 1024, 128, 1))
    (latent,) = rows("device,mla_dtype,num_heads,batch_size,isl,ms", "x,bfloat16,16,2,512,1")
    assert (latent.family, latent.shape) == ("latent", (2, 16, 16, 512, 512, 160, 1))
    gated, square = rows(
        "device,moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_ep_size,ms",
        "x,nvfp4,512,7168,2048,8,256,32,1", "x,fp8,512,2688,1856,6,128,2,1",
    )  # fmt: skip
    assert gated.shape == (512, 7168, 2048, 8, 256, 32, 1)
    assert square.shape[-1] == 0


def test_mamba_kernels_are_a_scan_and_a_convolution_of_all_that_goes_in() -> None:
    """64 heads of 64 channels and 2 · 8 · 128 of states, read and written: 6,144 · 4 bytes."""
    header = ("device,kernel_source,batch_size,seq_len,d_model,d_state,nheads,head_dim,n_groups,"
              "chunk_size,ms")  # fmt: skip
    shape = "2,1024,2688,128,64,64,8,128,1"
    before, core = rows(header, f"x,causal_conv1d_fn,{shape}",
                        f"x,mamba_chunk_scan_combined,{shape}")  # fmt: skip
    assert (before.family, before.shape) == ("conv1d", (2 * 1024 * 6144 * 4,))
    within = 128 * 128 * 8 + 128 * 4096 / 2
    flop = 2 * 2048 * (within + 2 * 128 * 4096)
    assert kernel_fit.size("scan", np.array([core.shape]).T)[0] == flop
    known = Curve("scan", "planted", sustained=1.0, traffic=0.25)
    device = replace(TOY, kernels=(*TOY.kernels, known))
    seconds = kernel_fit.seconds_of(device, "scan", "bf16", "", np.array([core.shape]).T)
    # 3 + 8 numbers a channel inside, at a quarter of 4 TB/s: twice as long as copies take
    assert seconds[0] == pytest.approx(2 * (1e-6 + 2 * 2048 * 4096 * 11 / 2e12))
    known = Curve("conv1d", "planted", start=0.0, traffic=0.25)
    device = replace(TOY, kernels=(*TOY.kernels, known))
    seconds = kernel_fit.seconds_of(device, "conv1d", "bf16", "", np.array([before.shape]).T)
    assert seconds[0] == pytest.approx(before.shape[0] / 1e12)


def test_windows_and_latents_of_eight_bits_are_passed_over_with_a_word() -> None:
    header = (
        "device,attn_dtype,batch_size,isl,num_heads,num_key_value_heads,head_dim,window_size,ms"
    )
    reading = timings.parse(f"{header}\nx,fp8,2,1024,8,4,128,128,1\nx,fp8,2,1024,8,4,128,0,1")
    assert len(reading.kernels) == 1
    assert "window" in reading.skipped[0][1]
    reading = timings.parse("mla_dtype,num_heads,batch_size,isl,ms\nfp8_block,16,2,512,1")
    assert reading.skipped[0][0] == 2


def test_a_cast_product_is_its_cast_and_its_product() -> None:
    """3 bytes an element of A at half of 4 TB/s, after 1 us; the product reads 1 byte, writes 2."""
    device = replace(TOY, kernels=(*TOY.kernels, PRODUCT))
    m, n, k = 4096.0, 2048.0, 1024.0
    cast = 1e-6 + 3 * m * k / 2e12
    product = float(kernels.gemm(device, "fp8", m, n, k, written=2.0, queued=True))
    seconds = float(timed.linear(device, "fp8", *map(np.asarray, (m, n, k, 1.0))))
    assert seconds == pytest.approx(cast + product)


def test_experts_are_two_products_of_what_each_is_dealt_and_the_copies_between() -> None:
    device = replace(TOY, kernels=(*TOY.kernels, replace(PRODUCT, family="experts")))
    shape = (512.0, 1024.0, 256.0, 8.0, 64.0, 4.0, 1.0)  # 1,024 visits here, 64 for each of 16
    up, down = (
        float(kernels.gemm(device, "bf16", 64, n, k, 16, family="experts", written=2.0,
                           queued=True))
        for n, k in ((512, 1024), (256 * 4, 256))
    )  # fmt: skip
    copied = 512 * 1024 * 2 + 1024 * (1024 * (2 * 2 + 2) + 2 * 512 + 2 * 256)
    seconds = float(timed.experts(device, "bf16", *map(np.asarray, shape)))
    assert seconds == pytest.approx(up + down + 1e-6 + copied / 2e12, rel=1e-3)
    assert kernel_fit.size("experts", np.array([shape]).T)[0] == 6 * 1024 * 1024 * 256


def test_kernels_faster_than_the_device_are_not_believed() -> None:
    """A thousand heads' scores in 1 us: with one in ten so, none of the width is taken."""
    core = (1.0, 32.0, 32.0, 8192.0, 8192.0, 128.0, 1.0)
    flop = 4 * 32 * 8192**2 * 128 / 2
    good = [Kernel("attention", "bf16", core, flop / 5e14, "forward", where=f"a:{i}")
            for i in range(20)]  # fmt: skip
    bad = Kernel("attention", "bf16", core, flop / 2e15, "forward", where="a:99")
    narrow = replace(good[0], shape=(*core[:5], 64.0, 1.0))
    believed, refused = timed.believable([*good, bad, narrow], TOY, kernel_fit.size)
    assert believed == [narrow]
    assert "heads of 128: 1 of 21" in refused[0]
    product = Kernel("gemm", "bf16", (8192, 8192, 8192, 1), 2e-3)
    fast = replace(product, seconds=1e-4)
    believed, refused = timed.believable([product, fast], TOY, kernel_fit.size)
    assert believed == [product]
    assert "the others taken" in refused[0]
    few = Kernel("experts", "bf16", (64.0, 8192.0, 8192.0, 1.0, 64.0, 1.0, 1.0), 1e-3)
    assert timed.believable([few], TOY, kernel_fit.size)[0] == []  # 26 GB in a millisecond


def test_what_long_products_keep_up_is_found_again() -> None:
    draw = np.random.default_rng(5)
    shapes = np.vstack([2.0 ** draw.integers(8, 15, (3, 300)), np.ones(300)])
    for share in (0.7, 1.0):
        device = replace(TOY, kernels=(*TOY.kernels, PRODUCT), loaded=share)
        seconds = kernel_fit.seconds_of(device, "gemm", "bf16", "", shapes)
        seconds = seconds * np.exp(0.01 * draw.standard_normal(300))
        samples = [Kernel("gemm", "bf16", tuple(map(float, shape)), float(second))
                   for shape, second in zip(shapes.T, seconds, strict=True)]  # fmt: skip
        kept = kept_up(samples, TOY)
        assert kept == pytest.approx(share, abs=0.03) if share < 1 else kept >= 0.8


def test_power_that_is_not_known_widens_what_units_take_alone() -> None:
    device = catalogue.device("b200-sxm")
    assert device.loaded_doubt > 0
    known = origin(device, "gemm", "bf16")
    doubts = []
    for power in (0.0, 0.08):
        tally = Provenance()
        _modelled(tally, "gemm", np.ones((1, 1)), known, np.full((1, 1), 1e12), power)
        doubts.append(float(tally.doubts["products"][0]))
    assert doubts[1] == pytest.approx(np.hypot(doubts[0], 0.08))


@pytest.mark.parametrize("name", ["h100-sxm5-80gb", "gb200"])
def test_attention_goes_back_slower_on_blackwell(name: str) -> None:
    """2 products forward and 5 back, at 63 / 73 of the rate, on Blackwell 1,000 / 1,460."""
    device = catalogue.device(name)
    ahead, back = (
        float(kernels.attention(device, "bf16", 1, 64, 64, 65536, 65536, 128, True, part))
        for part in ("forward", "backward")
    )
    ratio = SLOWER_BACK.get(device.generation, BACKWARD)
    assert back / ahead == pytest.approx(2.5 / ratio, rel=0.02)


def test_latent_attention_that_nobody_timed_is_as_fast_as_attention_and_doubted_more() -> None:
    device = catalogue.device("h100-pcie")
    core, latent = (
        float(kernels.attention(device, "bf16", 1, 16, 16, 4096, 4096, 160, family=family))
        for family in ("attention", "latent")
    )
    assert core == latent
    assert origin(device, "latent", "bf16").uncertainty == 0.3


def test_a_gb300_lies_by_its_sisters() -> None:
    """Each product between 0.9 and 1.3 of a B300's and a GB200's rate, doubted by 0.1 at least."""
    gb300, *sisters = (catalogue.device(name) for name in ("gb300", "b300-sxm", "gb200"))
    for precision in ("bf16", "fp8", "mxfp8"):
        seconds = [
            float(kernels.gemm(device, precision, 8192, 8192, 8192)) for device in (gb300, *sisters)
        ]
        assert 0.75 < seconds[0] / min(seconds[1:]) < 1.1
        known = origin(gb300, "gemm", precision)
        assert known.kind == "assumed"
        assert known.uncertainty >= 0.09
    assert OPERAND_BYTES["mxfp8"] > OPERAND_BYTES["fp8"]


def test_blackwell_casts_without_turning_round() -> None:
    """8 bits of one scale: 3 bytes an element for 4; what is multiplied is as long either way."""
    from oracle.kernels.rows import CAST, EITHER_WAY

    assert CAST["fp8"] - EITHER_WAY["blackwell"]["fp8"] == timed.CAST["fp8"]
