"""Latent attention, windows, packed documents, adapters: values worked by hand."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import oracle
from benchmarks import deepseek_v3
from benchmarks.memories.counted import adapted
from benchmarks.published.nemo import cluster
from oracle.commands.cli import main
from oracle.models import masks
from oracle.models.model import Model
from oracle.plan.launchable import software
from oracle.plan.strategies.expert import _thinned, places_hit
from oracle.spec.document import SpecError
from tests.test_models import variant, written


def trained(name: str, how: str, **changes: Any) -> Model:
    """A shipped transformer of which so much is trained."""
    spec = written(name) | {"train": how}
    spec["transformer"].update(changes)
    return oracle.model(spec)


def in_layer(model: Model, part: str) -> float:
    """Weights of the rows of one layer whose names begin so."""
    return sum(row.weights for row in model.rows if row.name.startswith(part))


def test_latent_attention_has_the_matrices_of_its_report() -> None:
    """arXiv 2412.19437, section 4.2: 128 heads of 128 + 64 and 128, latents of 1,536 and 512."""
    model = variant("deepseek-v3", layers=4, first_dense=3, predicts=0)
    queries = 7168 * 1536 + 1536 + 1536 * 128 * 192
    pairs = 7168 * (512 + 64) + 512 + 512 * 128 * 256
    assert in_layer(model, "attention.") == 2 * (queries + pairs + 128 * 128 * 7168)
    (core, _) = (row for row in model.rows if row.work == "attention")
    assert core.width == (192 + 128) / 2


@pytest.mark.parametrize(("how", "seen"), [
    ({"window": 32}, lambda q, k: q - 32 < k <= q),
    ({"chunk": 16}, lambda q, k: k <= q and k // 16 == q // 16),
    ({"documents": {"mean": 32}}, lambda q, k: k <= q and k // 32 == q // 32),
    ({}, lambda q, k: k <= q),
])  # fmt: skip
def test_products_of_attention_are_those_of_pairs_that_see_each_other(how: Any, seen: Any) -> None:
    model = variant("llama3-8b", sequence=128, layers=1, **how)
    pairs = sum(seen(q, k) for q in range(128) for k in range(128))
    (at,) = (i for i, row in enumerate(model.rows) if row.work == "attention")
    assert model.mac[at] == pytest.approx(2 * 32 * 128 * pairs)


def test_long_documents_hold_more_of_the_tokens() -> None:
    """Of lengths 100 and 300, equally many, a token's text has 100²+300² over 400 tokens."""
    packed = {"documents": {"mean": 200, "variation": 0.5}}
    core = next(row for row in variant("gpt2", **packed).rows if row.work == "attention")
    assert core.keys == (100**2 + 300**2) / 400


def test_layers_come_in_turn() -> None:
    """Five with a window to each one without: of 34 layers the 6th, 12th, … 30th; 29 in all."""
    model = oracle.model("gemma3-4b")
    cores = model.mask(lambda row: row.work == "attention")
    keys = model.column(lambda row: row.keys)
    count = {int(each): model.repeat[cores & (keys == each)].sum() for each in set(keys[cores])}
    assert count == {1024: 29, 32768: 5}


def test_adapters_of_llama2_are_as_many_as_mlperf_has() -> None:
    """Rank 16 beside attention's matrices, q, k and v as one: 44,564,480 are trained."""
    model = trained("llama2-70b", "lora:16:attention")
    assert model.repeat @ (model.w * model.trained) == 80 * 16 * (8192 + 10240 + 8192 + 8192)
    assert model.parameters - 44_564_480 == oracle.model("llama2-70b").parameters
    # a frozen matrix has two products of three; only adapters have the third
    whole = oracle.model("llama2-70b").flop
    assert 2 / 3 < model.flop / whole < 0.71


def test_only_what_is_trained_is_exchanged_and_has_state() -> None:
    model, plan = trained("llama2-7b", "lora:16"), "data:8"
    ahead = trained("llama2-7b", "forward")
    alone, found, only = (
        oracle.estimate(each, "dgx-h100", plan, batch=8, software="plain")
        for each in ("llama2-7b", model, ahead)
    )
    (sent,), (whole,) = found.exchange[0], alone.exchange[0]
    parts = 32 * 16 * ((4096 + 12288) + 2 * 4096 + (4096 + 22016) + (11008 + 4096))
    share = parts / oracle.model("llama2-7b").parameters
    given, all_of_it = (each["bytes"] * each["calls"] for each in (sent, whole))
    assert given == pytest.approx(share * all_of_it)
    assert not only.exchange[0]
    assert only.memory[0] < found.memory[0] < 0.3 * alone.memory[0]
    assert only.seconds[0] < 0.6 * found.seconds[0] < 0.6 * alone.seconds[0]


def test_what_never_changes_is_kept_once_and_adapters_in_16_bits() -> None:
    """Frozen products in 8 bits with the copies that are said; tables, norms, adapters in 16."""
    model = trained("llama2-7b", "lora:16")
    narrow = model.repeat @ model.column(lambda row: row.weights * row.narrow)
    for copies, told in ((1, None), (0, 0)):
        state = {"weights": {"fp8": "fp8"}, "fp8_copies": 1, "frozen_copies": told}
        software = {"name": "own", "source": "made up", "state": state}
        found = oracle.estimate(model, "dgx-h100", "data:8", batch=8, precision="fp8",
                                software=software)  # fmt: skip
        wide = model.parameters - narrow
        assert found.memory_kinds["weights"][0] == pytest.approx(2 * wide + (1 + copies) * narrow)


@pytest.mark.parametrize(("train", "again"), [
    ("lora:4:attention", False), ("lora:4:attention", True), ("lora:8:mlp", False),
])  # fmt: skip
def test_what_adapters_keep_is_what_torch_keeps(train: str, again: bool) -> None:
    """Of eight layers, with and without checkpoints; nothing before the first adapter."""
    row, difference = adapted(train, again)
    assert abs(difference) < 0.02, row


def test_gates_in_8_bits_keep_half_and_take_casts() -> None:
    said = {"name": "own", "source": "made up"}
    plain, eight = (
        oracle.estimate("llama2-7b,train=lora:16:attention", "dgx-h100", "data:8", batch=8,
                        precision="fp8", software=said | {"state": {"fp8_gates": gates}})
        for gates in ("never", "frozen")
    )  # fmt: skip
    less = (plain.memory_kinds["activations"] - eight.memory_kinds["activations"])[0]
    gates = 32 * 4096 * 2 * 11008  # of a sample, one byte less each
    assert less == pytest.approx(gates, rel=0.05)
    assert eight.seconds[0] > plain.seconds[0]


def test_llama2_70b_with_adapters_fits_as_mlperf_ran_it() -> None:
    """v5.0 on eight B200, v4.1 on eight H200, a replica on one and on two of them."""
    hopper = cluster(8, "h200-sxm5")
    for system, plan in (("dgx-b200", "data:8,zero=1"),
                         (hopper, "data:4,zero=1,accumulate=2 context:2")):  # fmt: skip
        found = oracle.estimate("llama2-70b,train=lora:16:attention,sequence=8192", system, plan,
                                batch=8, precision="fp8", software="mlperf-nemo")  # fmt: skip
        assert found.fits[0] > 0.8, plan


def test_a_latent_is_refused_beside_heads_of_its_own() -> None:
    with pytest.raises(SpecError, match="latent attention has heads of its own"):
        variant("deepseek-v3", kv_heads=8)
    for wrong in ("lora", "lora:0", "lora:16:head", "half"):
        with pytest.raises(SpecError, match="no training is called"):
            trained("gpt2", wrong)


def test_a_token_reaches_no_more_places_than_its_groups() -> None:
    """DeepSeek-V3 routes a token to 4 of 8 nodes at most: 8 experts without it hit 5.3 of 8."""
    limited, free = oracle.model("deepseek-v3"), variant("deepseek-v3", groups=0, reach=0)
    rows = limited.mask(lambda row: row.role == "dispatch")
    for model, most in ((limited, 4), (free, float(places_hit(8.0, 8.0, 256.0)))):
        share = _thinned(model, np.array([True]), np.array([8.0]))
        assert share[rows].max() * 8 == pytest.approx(most)


def test_a_model_is_changed_beside_its_name() -> None:
    """As its file with these fields would be; what isn't there is refused with what is."""
    changed = oracle.model("llama2-70b,sequence=2048,layers=40,train=lora:16")
    same = trained("llama2-70b", "lora:16", sequence=2048, layers=40)
    assert changed.parameters == same.parameters
    assert changed.flop == same.flop
    assert changed.name == "llama2-70b,sequence=2048,layers=40,train=lora:16"
    narrow = oracle.model("deepseek-v2-lite,latent.kv_rank=256")
    assert narrow.parameters < oracle.model("deepseek-v2-lite").parameters
    for wrong, why in (("gpt2,layer=3", "did you mean `layers`"),
                       ("gpt2,layers", "changes nothing"),
                       ("resnet50,layers=3", "no field is called `layers`"),
                       ("gpt2,layers=0", "layers")):  # fmt: skip
        with pytest.raises(SpecError, match=why):
            oracle.model(wrong)


def test_options_change_every_model_that_is_asked(capsys: pytest.CaptureFixture[str]) -> None:
    here = ["estimate", "gpt2", "dgx-h100", "--plan", "data:8", "--batch", "64"]
    said = []
    for more in ([], ["--sequence", "512"], ["--inference"], ["--train", "lora:8"]):
        assert main([*here, *more, "--json"]) == 0
        said.append(json.loads(capsys.readouterr().out))
    seconds = [found["plans"][0]["seconds"]["iteration"] for found in said]
    # adapters of a small model are so many small kernels that a host cannot launch them in time
    assert seconds[3] > seconds[0] > seconds[1] > seconds[2]
    table = ["sweep", "gpt2,vocab=60000,gpt2-xl", "dgx-h100", "--devices", "8", "--batch", "64",
             "--layers", "4", "--json"]  # fmt: skip
    assert main(table) == 0
    assert "gpt2-xl,layers=4" in capsys.readouterr().out


def test_deepseek_v3_trains_in_the_hours_of_its_report() -> None:
    """Within 15 % of 180 thousand H800-hours for 10¹² tokens, made again or not."""
    for recompute in ("", "operators"):
        assert deepseek_v3.hours(recompute)[0] == pytest.approx(180e3, rel=0.15)


def test_tokens_to_experts_are_as_wide_as_the_software_has_them() -> None:
    """fp8 out, bf16 back: of two messages a pass, three bytes where there were four."""
    plan, sent = "data:8,zero=1 expert:8", {}
    for said in ("megatron-core", "megatron-core,experts.out=fp8"):
        found = oracle.estimate("deepseek-v2-lite", "dgx-h100", plan, 64, software=said)
        tokens = [part for part in found.exchange[0] if "to experts" in part["what"]]
        sent[said] = sum(part["seconds"] for part in tokens)
    assert 0.7 < sent["megatron-core,experts.out=fp8"] / sent["megatron-core"] < 0.8


def test_optimizers_keep_what_they_keep() -> None:
    """Beside fp32 masters: Adam 8 bytes a weight, in 8 bits 2, Muon 4 of a matrix."""
    held, seconds = {}, {}
    for name in ("adam", "adam8", "muon"):
        found = oracle.estimate("llama3-8b", "dgx-h100", "data:8,zero=1", 64, optimizer=name,
                                software="plain")  # fmt: skip
        held[name] = float(found.memory_kinds["optimizer"][0])
        seconds[name] = float(found.seconds[0])
    model = oracle.model("llama3-8b")
    words = model.mask(lambda row: row.role == "vocab" or row.work == "stream")
    count = model.repeat @ (model.w * ~words) / 8, model.repeat @ (model.w * words) / 8
    assert held["adam"] == pytest.approx(12 * sum(count))
    assert held["adam8"] == pytest.approx((6 + 8 / 2048) * sum(count))
    assert held["muon"] == pytest.approx(8 * count[0] + 12 * count[1])
    assert seconds["adam8"] < seconds["adam"]
    # 2 · 5 · (2 a² b + a³) of each matrix, an eighth of them here, at 100 to 40 % of the peak
    sides = [sorted((row.given.channels, row.made.channels)) for row in model.rows]
    flop = sum(10 * (2 * a * a * b + a**3) * often for (a, b), often, matrix in zip(
        sides, model.repeat, masks.matrices(model), strict=True) if matrix)  # fmt: skip
    least = flop / 8 / oracle.system("dgx-h100").device.peak["bf16"]
    assert 0.9 * least < seconds["muon"] - seconds["adam8"] < 2.5 * least


def test_narrow_formats_of_blackwell_are_units_of_their_own() -> None:
    """MXFP8 at fp8's rate, NVFP4 at twice that; elsewhere in bf16, and it says so."""
    seconds = {}
    for precision in ("bf16", "fp8", "mxfp8", "nvfp4"):
        found = oracle.estimate("llama3-8b", "dgx-b200", "data:8,zero=1", 8, precision=precision)
        seconds[precision] = float(found.seconds[0])
    assert seconds["bf16"] > seconds["mxfp8"] > seconds["nvfp4"]
    assert seconds["mxfp8"] == pytest.approx(seconds["fp8"], rel=0.1)
    older = oracle.estimate("llama3-8b", "dgx-h100", "data:8,zero=1", 8, precision="nvfp4")
    assert "has no nvfp4" in older.warnings[0]["what"]
    # numbers and the scales of their blocks, of 32 and of 16
    eight = software("megatron-core").state
    assert [eight.fed(each) for each in ("fp8", "mxfp8", "nvfp4")] == [1, 33 / 32, 9 / 16]
