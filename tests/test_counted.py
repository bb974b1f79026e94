"""Scans, tables and recurrent cells: what they count by hand, what they take, where from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

import oracle
from oracle.ask.explain.explanation import explain
from oracle.executor.supported import unsupported
from oracle.kernels.attention import attention
from oracle.kernels.counted import SETTLED_BY, counted, recurrent
from oracle.kernels.curve import ASSUMED, origin
from oracle.kernels.gemm import gemm
from oracle.kernels.rows import priced
from oracle.models.model import Model
from oracle.models.shard import serial
from oracle.plan.plan import Plan
from oracle.predict.defaults import options_for
from oracle.spec import catalogue
from oracle.spec.device import Curve
from oracle.spec.document import SpecError

PRICED = ("scan", "tables", "recurrent", "fft", "products", "experts")


def of(layers: list[Any], *shape: int) -> Model:
    return oracle.model({"name": "m", "source": "here", "input": list(shape), "layers": layers})


def test_a_scan_by_hand() -> None:
    """64 wide, 8 heads of 16, states of 32 in 2 groups, chunks of 16 of 48 tokens.

    In: 2 · 128 inside, 2 · 2 · 32 of states, 8 of steps; the convolution's 4 taps and a bias; three
    numbers a head; a norm; out. A chunk's products: 2 groups of 16 · 32 scores a token, half of 16
    others' 128 channels, the state written and read.
    """
    scan = {"scan": {"heads": 8, "width": 16, "state": 32, "groups": 2, "chunk": 16}}
    found = of([{"embedding": {"vocab": 10, "hidden": 64}}, scan], 1, 48)
    joint, mixed = 2 * 128 + 2 * 2 * 32 + 8, 128 + 2 * 2 * 32
    assert found.parameters - 640 == 64 * joint + mixed * 5 + 3 * 8 + 128 + 128 * 64
    within = 2 * 16 * 32 + 16 * 128 / 2 + 2 * 32 * 128
    assert found.flop == 6 * 48 * (64 * joint + 128 * 64 + within)
    # what goes in, what the first product makes, what the scan makes; a norm's is made again
    assert found.kept.sum() == pytest.approx(48 * (1 / 48 * 48 + 64 + joint + 128))
    with pytest.raises(SpecError, match="3 groups do not divide 8 heads"):
        of([{"embedding": {"vocab": 10, "hidden": 64}}, {"scan": {"heads": 8, "groups": 3}}], 1, 48)


def test_a_delta_rule_by_hand() -> None:
    """64 wide, 8 heads of values of 16, 4 of keys of 32, chunks of 16 of 48 tokens.

    In: values and gates, queries and keys, two rates a head; the convolution's 4 taps; two numbers
    a head; a norm that all heads share; out. A chunk's products: 3 of keys and 2 of values with 16
    others, the inverse of 16 x 16, the state written, read and corrected.
    """
    rule = {"heads": 8, "key_heads": 4, "key": 32, "width": 16, "chunk": 16}
    found = of([{"embedding": {"vocab": 10, "hidden": 64}}, {"delta": rule}], 1, 48)
    joint, mixed = 2 * 128 + 2 * 4 * 32 + 2 * 8, 128 + 2 * 4 * 32
    assert found.parameters - 640 == 64 * joint + mixed * 4 + 2 * 8 + 16 + 128 * 64
    within = 8 * (16 * (3 * 32 + 2 * 16) + 16**2 / 3 + 3 * 32 * 16)
    assert found.flop == pytest.approx(6 * 48 * (64 * joint + 128 * 64 + within))
    with pytest.raises(SpecError, match="3 heads of keys do not divide 8 heads"):
        of([{"embedding": {"vocab": 10, "hidden": 64}}, {"delta": rule | {"key_heads": 3}}], 1, 48)


def test_a_gate_of_attention_is_one_more_product_of_its_input() -> None:
    def attended(**said: Any) -> Model:
        core = {"attention": {"heads": 4, "kv_heads": 2, "width": 32, "bias": False} | said}
        return of([{"embedding": {"vocab": 10, "hidden": 64}}, core], 1, 48)

    plain, gated = attended(), attended(gated=True)
    assert gated.parameters - plain.parameters == 64 * 128
    assert gated.flop - plain.flop == 6 * 48 * 64 * 128
    names = [row.name for row in gated.rows]
    takes = dict(zip(names, gated.feeds, strict=True))
    assert takes["attention.gate"] == takes["attention.qkv"] == (names.index("embedding"),)
    both = names.index("attention.core"), names.index("attention.gate")
    assert takes["attention.gated"] == both
    assert takes["attention.out"] == (names.index("attention.gated"),)


def test_a_scan_is_cut_by_heads_and_not_along_the_tokens() -> None:
    one, two, along, crowded = (
        oracle.estimate("nemotron-h-8b", "dgx-h100", plan, 8)
        for plan in ("serial", "tensor:8", "context:2", "tensor:16")
    )
    assert two.compute["forward"][0] < one.compute["forward"][0] / 4
    assert "degree" not in str(two.broken)
    assert "context degree 2 is more than the 1" in str(along.broken)
    assert "tensor degree 16 is more than the 8" in str(crowded.broken)


@pytest.mark.parametrize(("tokens", "ratio"), [(2048, 1.0), (16384, 6.0)])
def test_a_scan_is_as_fast_as_its_authors_say(tokens: int, ratio: float) -> None:
    """As fast as FlashAttention-2 at 2K, six times at 16K: arXiv 2405.21060, §9.3, an A100."""
    device = catalogue.device("a100-sxm4-80gb")
    scan = {"scan": {"heads": 32, "state": 64}}
    model = of([{"embedding": {"vocab": 10, "hidden": 1024}}, scan], 1, tokens)
    batch = 65536.0 / tokens
    seconds = priced(serial(model, batch, 2.0), device, "bf16").forward[0]
    core = float(seconds[[row.name for row in model.rows].index("scan.core")])
    flash = attention(device, "bf16", batch, 32, 32, tokens, tokens, 64, queued=True)
    assert float(flash) / core == pytest.approx(ratio, rel=0.2)


def test_tables_by_hand() -> None:
    """Two tables of 1,000 and 10 rows of 8: three and one are read, sixteen numbers come out."""
    bags = {"bags": {"tables": [1000, 10], "width": 8, "named": [3, 1]}}
    found = of([bags, {"crossnet": {"layers": 2, "rank": 4}}], 4)
    tables, cross = 1010 * 8, 2 * (16 * 4 + 4 * 16 + 16)
    assert found.parameters == tables + cross
    assert found.flop == 6 * 2 * 2 * 16 * 4
    assert (found.w * found.trained).sum() == cross, "no optimizer passes over tables"
    assert found.rows[0].reads[1] * 16 == 2 * 16 + 16, "as if each table were asked for two"
    with pytest.raises(SpecError, match="1 numbers of rows for 2 tables"):
        of([{"bags": {"tables": [5, 5], "width": 8, "named": [1]}}], 4)


@pytest.mark.slow
def test_dealt_tables_send_what_was_looked_up() -> None:
    """65,536 samples on 8: each sends 26 rows of 128 in tf32 to those that asked for them."""
    whole, dealt = (
        oracle.estimate("dlrm-dcnv2", "dgx-a100", f"data:8{more}", 65536, precision="tf32")
        for more in ("", " tables:dealt")
    )
    sent = {part["what"]: part for part in dealt.exchange[0]}
    assert sent["tables: rows looked up"]["bytes"] == 8192 * 26 * 128 * 4
    assert sent["tables: numbers of rows"]["bytes"] == 8192 * 214 * 8
    held = 204_184_588 * 128 * 4
    assert whole.memory[0] - dealt.memory[0] > 0.8 * held
    assert dealt.feasible[0]
    assert not whole.feasible[0]
    best = oracle.recommend("dlrm-dcnv2", "dgx-a100", devices=8, batch=65536)
    assert "tables:dealt" in str(best)


def test_families_that_nobody_measured_say_so() -> None:
    device = catalogue.device("h100-sxm5-96gb-hbm2e")
    for family in (*PRICED, "counted"):
        known = origin(device, family, "bf16")
        assert known.kind == "assumed"
        assert 0.6 <= known.uncertainty <= 1.0
        assert family in SETTLED_BY
        assert ASSUMED[family].family == family
    few, many = (counted(device, "scan", "bf16", "forward", flop, 0.0) for flop in (1e9, 2e9))
    assert many == pytest.approx(2 * few)
    assert counted(device, "tables", "bf16", "forward", 0.0, 1e-3) > 1e-3, "rows lie anywhere"


@pytest.mark.parametrize("family", PRICED)
def test_a_family_is_priced_by_its_own_curve_once_there_is_one(family: str) -> None:
    device = catalogue.device("h100-sxm5-96gb-hbm2e")
    layer: dict[str, Any] = {"op": "x", "made": [64, 32], "tokens": True, "flop": 1e9, "moves": 1e6,
                             "family": family}  # fmt: skip
    layers: list[Any] = [{"opaque": layer}]
    if family == "experts":
        layers = [{"moe": {"experts": 4, "ffn": 512}}]
    elif family == "products":
        layers = [{"reshape": {"to": [64, 8, 8]}}, {"triangle": 256}]
    found = of([{"embedding": {"vocab": 10, "hidden": 64}}, *layers], 1, 64)

    def seconds(share: float) -> float:
        known = Curve(family, "here", start=0.0, sustained=share, traffic=share, reach=(1.0, 1e15))
        fitted = replace(device, kernels=(known, *device.kernels))
        assert origin(fitted, family, "bf16").kind == "fitted"
        return float(priced(serial(found, 512.0, 2.0), fitted, "bf16").forward.sum())

    assert seconds(0.05) > 1.3 * seconds(0.5)


def test_what_is_assumed_is_explained_with_what_would_settle_it() -> None:
    layers = [{"embedding": {"vocab": 10, "hidden": 64}}, {"scan": {"heads": 8, "width": 16}}]
    model, system = of(layers, 1, 512), catalogue.system("dgx-h100")
    found = explain(model, system, "data:8", 64, options_for(model, system, "bf16"))
    told = {one["family"]: one for one in found.to_dict()["unmeasured"]}
    assert told["scan"]["share"] > 0.2
    assert "forward and backward" in told["scan"]["settled_by"]
    assert sum(one["share"] for one in told.values()) <= 1.0
    assert set(SETTLED_BY) >= {family.partition(" ")[0] for family in ASSUMED}


def test_a_block_of_evoformer_counts_as_that_of_mlperf() -> None:
    """8 sequences of 16: 639,635,456 FLOP forward by PyTorch's counter of its EvoformerBlock.

    4,096 of these count for how many sequences each mean is, which is left out here.
    """
    spec = yaml.safe_load(catalogue.find("evoformer", "models").read_text(encoding="utf-8"))
    first, second, both, block, last = spec["layers"]
    first["opaque"] |= {"made": [256, 8, 16], "moves": 0}
    second["opaque"] |= {"made": [128, 16, 16], "moves": 0}
    small = {"name": "m", "source": "here", "input": [49, 8, 16]}
    found = oracle.model({**small, "layers": [first, second, both, {**block, "repeat": 1}, last]})
    assert found.parameters == 1_829_952
    assert found.flop == 3 * (639_635_456 - 4_096)
    assert len(oracle.model("evoformer").units[0]) > 48, "a pipeline is cut between blocks"
    along = oracle.estimate("evoformer", "dgx-a100", "context:2", 2, precision="bf16")
    assert "context degree 2 is more than the 1" in str(along.broken)
    with pytest.raises(SpecError, match="no number for each pair of 16 places"):
        of([{"axial": {"from": ["input", "input"], "heads": 2, "width": 4}}], 8, 4, 16)


def test_a_recurrent_cell_is_a_product_a_step() -> None:
    """An LSTM of 512 over 512: 50 steps of 64 samples times a matrix of 1,448² numbers."""
    device = catalogue.device("v100-sxm2-16gb")
    weights = 4 * 512 * (512 + 512)
    step = float(gemm(device, "fp16", 64, weights**0.5, weights**0.5, queued=True))
    seconds = recurrent(device, "fp16", "forward", 64, weights, 50)
    assert float(seconds) == pytest.approx(50 * step)
    assert recurrent(device, "fp16", "weight", 64, weights, 50) < seconds
    opaque = {"op": "lstm", "made": [512, 50], "tokens": True, "flop": 2 * 50 * weights,
              "moves": 1e5, "weights": weights, "steps": 50, "keeps": True}  # fmt: skip
    plain, cell = (
        priced(serial(of([{"opaque": {**opaque, **family}}], 512, 50), 64.0, 2.0), device, "fp16")
        for family in ({}, {"family": "recurrent"})
    )
    assert float(cell.forward.sum()) >= 50 * step
    assert float(cell.forward.sum()) > 2 * float(plain.forward.sum()), "small products are slow"


def test_layers_that_share_weights_hold_them_once() -> None:
    """ALBERT's: four layers' work, one's weights; nothing runs them here."""
    layer = [{"mlp": {"name": "mlp", "ffn": 32}}, {"add": {"from": ["block", "mlp"]}}]
    stack: dict[str, Any] = {"repeat": 4, "layers": layer}
    first = {"embedding": {"vocab": 10, "hidden": 16}}
    own, one = (of([first, {**stack, "shared": shared}], 1, 8) for shared in (False, True))
    assert own.flop == one.flop
    assert own.parameters - one.parameters == 3 * (2 * 16 * 32 + 32 + 16)
    assert one.repeat.tolist() == [1, 1, 1, 1, 1, 3, 3, 3, 3]
    assert own.repeat @ own.kept == one.repeat @ one.kept
    assert "share their weights" in str(unsupported(one, Plan.of(1)))
    with pytest.raises(SpecError, match="did you mean `shared`"):
        of([first, {**stack, "share": True}], 1, 8)


def test_several_tensors_pass_on_as_one() -> None:
    """A cell reads what the two before it made; a pipeline is cut where both cross."""
    cell = [{"part": {"name": "last"}}, {"conv": {"name": "made", "filters": 4, "kernel": 1}},
            {"part": {"name": "before", "from": ["block"], "at": 1}},
            {"add": {"name": "sum", "from": ["made", "before"]}},
            {"together": {"from": ["sum", "last"]}}]  # fmt: skip
    first = [{"conv": {"name": "a", "filters": 4, "kernel": 1}}, {"together": {"from": ["a", "a"]}}]
    last = ["part", {"take": 2}, "flatten"]
    found = of([*first, {"repeat": 3, "layers": cell}, *last], 4, 6, 6)
    assert found.repeat.max() == 3, "cells are alike"
    assert found.y[found.mask(lambda row: row.name == "together")].tolist() == [288, 288]
    assert len(found.units[0]) >= 4
    assert found.rows[-1].made.size == 2 * 36
    with pytest.raises(SpecError, match="holds 0 tensors together"):
        of([{"part": 1}], 4)
    with pytest.raises(SpecError, match="no 9 channels"):
        of([{"take": 9}], 4)
    with pytest.raises(SpecError, match="nothing as wide as 7×7"):
        of([{"crop": {"to": [7, 7]}}], 4, 6, 6)
