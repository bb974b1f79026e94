"""Replicas that send less than all gradients: bytes by hand, memory, epochs, and when it pays."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from command_line import told

import oracle
from oracle.ask.compressing import on_links
from oracle.ask.fusing import buckets
from oracle.kernels.slowest import greatest
from oracle.plan.plan import parse
from oracle.plan.strategies.agreement import SPARSE, rules, waited
from oracle.plan.strategies.data import Data
from oracle.predict.defaults import options_for
from oracle.run.lossy import WARM_UP, lossy
from oracle.run.target import to_target, whole_first

MODEL = oracle.model({
    "name": "two", "source": "made up", "input": [64],
    "layers": [{"dense": {"filters": 512, "bias": False}},
               {"dense": {"filters": 256, "bias": True}}],
})  # fmt: skip
N = 64 * 512 + 512 * 256 + 256
ASKED = {"batch": 64, "precision": "fp32", "optimizer": "sgd", "reading": "none"}


def sent(plan: str, model: Any = MODEL, system: str = "ethernet-64", **more: Any) -> dict[str, Any]:
    found = oracle.estimate(model, system, plan, **{**ASKED, **more})
    return {one["what"].removeprefix("data: "): one for one in found.exchange[0]}


def nbytes(one: Any) -> float:
    """Of all calls of an iteration."""
    return float(one["bytes"] * one["calls"])


def test_bytes_of_each_form_by_hand() -> None:
    whole = 4.0 * N
    assert nbytes(sent("data:8")["gradients"]) == whole
    assert nbytes(sent("data:8,compress=fp16")["gradients"]) == whole / 2
    eight = sent("data:8,compress=int8")
    assert {one["op"] for one in eight.values()} == {"alltoall", "allgather"}
    assert all(nbytes(one) == pytest.approx(N * (1 + 4 / 2048)) for one in eight.values())
    signs = sent("data:8,compress=onebit")
    assert nbytes(signs["signs of gradients"]) == nbytes(signs["signs of sums"]) == N / 8
    assert nbytes(signs["scales of signs"]) == pytest.approx(2 * 8 * 4)  # of 8 ranks, twice
    low = sent("data:8,compress=powersgd,rank=2")
    assert nbytes(low["left factors"]) == 4 * 2 * (512 + 256)
    assert nbytes(low["right factors"]) == 4 * 2 * (64 + 512)
    assert nbytes(low["what is not factored"]) == 4 * 256  # the bias
    chosen = 0.01 * N * (4 + 4)
    assert nbytes(sent("data:8,compress=topk")["largest gradients"]) == pytest.approx(8 * chosen)
    for by in ("pairwise", "gtopk", "oktopk"):
        one = sent(f"data:8,compress=topk,sparse={by}")[f"largest gradients by {by}"]
        assert nbytes(one) == pytest.approx(chosen)
        assert one["algorithm"].partition("/")[0] == by
    share = sent("data:8,compress=topk,sparse=switching")["largest gradients by shares"]
    sums = [1 - 0.99**s for s in (*range(1, 8), *[8] * 7)]
    assert nbytes(share) == pytest.approx(whole * np.mean(sums) * 2)


def test_a_matrix_whose_factors_are_no_smaller_is_sent_whole() -> None:
    found = sent("data:8,compress=powersgd,rank=128")  # 128 (256 + 512) > 256 x 512 / 2
    assert nbytes(found["what is not factored"]) == 4 * (64 * 512 + 512 * 256 + 256)
    assert "left factors" not in found


def test_weights_are_averaged_now_and_then() -> None:
    found = sent("data:8,sync=16")
    assert set(found) == {"weights averaged"}
    assert nbytes(found["weights averaged"]) == pytest.approx(4.0 * N / 16)


def test_outer_replicas_of_hybrid_sharding_compress_what_they_have() -> None:
    plain, packed = (sent(f"data:4{word} sharded:2", batch=64)["gradients"]
                     for word in ("", ",compress=fp16"))  # fmt: skip
    assert packed["group"] == plain["group"] == 4
    assert nbytes(packed) == nbytes(plain) / 2


def test_buckets_stay_those_of_what_is_stood_for() -> None:
    vgg: dict[str, Any] = {"model": "vgg16", "system": "abci", "batch": 512}
    dense = sent("data:16", **vgg)["gradients"]
    packed = sent("data:16,compress=topk,sparse=oktopk", **vgg)["largest gradients by oktopk"]
    assert packed["calls"] == dense["calls"] > 10


def test_what_is_left_out_is_kept_beside_the_gradients() -> None:
    plans = ["data:8", "data:8,compress=topk", "data:8,compress=topk,feedback=off",
             "data:8,compress=int8"]  # fmt: skip
    found = oracle.estimate(MODEL, "ethernet-64", plans, **ASKED)
    held = found.memory_kinds["gradients"]
    assert held[1] - held[0] == pytest.approx(4.0 * N)
    assert held[2] == held[3] == held[0]


def test_encoding_takes_the_device_time() -> None:
    plans = ["data:8", *(f"data:8,compress={word}" for word in ("fp16", "topk", "powersgd"))]
    found = oracle.estimate("vgg16", "abci", plans, 256, reading="none", precision="fp32")
    more = found.compute["update"] - found.compute["update"][0]
    n, rate = float(oracle.model("vgg16").w.sum()), found.system.device.memory_bandwidth
    for extra, each in zip(more[1:], (12.0, 32 + 0.96, 36.0), strict=True):
        assert each * n / rate < extra < 1.6 * each * n / rate


def test_a_slow_selection_takes_the_place_of_its_passes() -> None:
    """By hand: gradients over the rate; a threshold that is used again, one step in 128."""
    plans = [f"data:8,compress=topk,sparse={by}" for by in ("allgather", "gtopk", "oktopk")]
    plain, slow = (
        oracle.estimate("vgg16", "abci", plans, 256, reading="none", precision="fp32",
                        software=software).compute["update"]
        for software in ("plain", "plain,exchange.selection=0.5 GB/s")
    )  # fmt: skip
    n, rate = float(oracle.model("vgg16").w.sum()), oracle.system("abci").device.memory_bandwidth
    selected, passes = 4 * n / 0.5e9, 4 * 4 * n / rate
    for more in (slow - plain)[:2]:
        assert selected - 1.6 * passes < more < selected - passes
    assert slow[2] - plain[2] == pytest.approx(selected / 128)


def test_who_is_waited_for() -> None:
    def part(text: str) -> float:
        return float(np.max(waited(parse(text, 64.0).axis("data"))))

    assert part("data:8") == part("data:8,servers=2") == 1.0
    assert part("data:8,servers=2,backups=2") == 0.75
    assert part("data:8,servers=2,mode=async") == 0.0
    assert greatest(100.0, 0.0) == pytest.approx(0.0, abs=1e-12)
    assert greatest(100.0, 0.9) < greatest(100.0)
    plans = ["data:64,servers=64", "data:64,servers=64,backups=8", "data:64,servers=64,mode=async"]
    every = oracle.estimate("resnet50", "abci", plans, 2048, reading="none").seconds
    assert every[0] > every[1] > every[2]


@pytest.mark.parametrize(("plan", "why"), [
    ("data:4,compress=topk,zero=1", "replicas that share state out agree by reduce-scatter"),
    ("data:4,compress=topk,servers=2", "one of compress, servers and sync at a time"),
    ("data:4,mode=async", "workers go ahead of others only where servers wait for them"),
    ("data:4,servers=8", "servers 8 is more than the 4 replicas"),
    ("data:4,servers=2,backups=4", "backups 4 is more than the 3 replicas but one"),
])  # fmt: skip
def test_what_does_not_go_together(plan: str, why: str) -> None:
    (broken,) = oracle.estimate(MODEL, "ethernet-64", plan, **ASKED).broken
    assert why in " ".join(broken)


def test_plain_replicas_have_no_more_rules() -> None:
    assert not list(rules(Data(np.full((1, 1), 4.0)), np.full((1, 1), 64.0)))


def test_epochs_that_it_may_cost_are_assumed_and_wide() -> None:
    def of(text: str) -> Any:
        return lossy(parse(text, 64.0))

    assert of("data:4").factor == of("data:1,compress=topk").factor == 1.0
    assert of("data:4").deviation == 0.0
    kept, dropped = of("data:4,compress=topk"), of("data:4,compress=topk,feedback=off")
    assert kept.factor == 1.0 < dropped.factor
    assert kept.deviation < dropped.deviation
    assert of("data:4,compress=topk,density=0.0001").deviation > kept.deviation
    assert of("data:8,servers=2,backups=2").factor == pytest.approx(8 / 6)
    late = of("data:8,servers=2,mode=async")
    assert late.factor == pytest.approx(1.3)
    assert math.exp(1.645 * late.deviation) == pytest.approx(2)
    plans = ["data:16", "data:16,compress=onebit", "data:16,servers=4,mode=async"]
    found = oracle.estimate("resnet50", "abci", plans, 1024, reading="none")
    plain, bits, alone = (to_target(found, row) for row in range(3))
    assert bits.epochs == plain.epochs
    assert bits.deviation > plain.deviation
    assert "assumed" in bits.words
    assert alone.epochs == pytest.approx(1.4 * plain.epochs)
    assert whole_first(found, 0) == 1.0
    dense = found.seconds[0] / found.seconds[1]
    assert whole_first(found, 1) == pytest.approx(WARM_UP * dense + 1 - WARM_UP)


@pytest.mark.slow
def test_compressing_pays_on_ethernet_and_not_on_nvlink(capsys: Any) -> None:
    alone: dict[str, Any] = {"compress": "allowed", "top": 3, "only": ["data"], "reading": "none"}
    slow = oracle.recommend("vgg16", "ethernet-64", 64, 2048, **alone)
    said = slow.compression
    assert said is not None
    assert said.pays
    assert said.gain > 2
    assert slow.best.plan.startswith("data:64,compress=")
    fast = oracle.recommend("vgg16", "dgx-2", 16, 512, **alone)
    said = fast.compression
    assert said is not None
    assert not said.pays
    assert "compress" not in fast.best.plan
    assert 0 < said.crossing < said.bandwidth
    assert said.words.startswith("does not pay: data:16,compress=fp16 takes")
    where = oracle.system("dgx-2")
    for factor, ahead in ((0.7, True), (1.4, False)):  # on either side of the crossing
        other = on_links(where, 16, factor * said.crossing / said.bandwidth)
        one = oracle.recommend("vgg16", other, 16, 512, **alone)
        assert one.compression is not None
        assert one.compression.pays == ahead
    line = ["gpt2", "dgx-a100", "--devices", "8", "--batch", "64", "--compress", "allowed"]
    code, out, _ = told(capsys, "recommend", *line, "--only", "data", "--software",
                        "megatron-core")  # fmt: skip
    assert code == 0
    assert "compress megatron-core is told of none here" in " ".join(out.split())


def test_software_is_told_of_what_its_spec_says(capsys: Any) -> None:
    def broken(software: str, plan: str) -> str:
        found = oracle.estimate("gpt2", "dgx-a100", plan, 64, software=software, reading="none")
        return " ".join(found.broken[0])

    assert not broken("pytorch-ddp", "data:8,compress=powersgd")
    assert "pytorch-ddp knows data compress=" in broken("pytorch-ddp", "data:8,compress=topk")
    assert not broken("deepspeed", "data:8,compress=onebit")
    assert "compress=none only" in broken("megatron-core", "data:8,compress=fp16")
    assert "servers=0 only" in broken("megatron-core", "data:8,servers=2")
    assert "sync=1 only" in broken("megatron-core", "data:8,sync=4")


@pytest.mark.parametrize("by", SPARSE)
def test_fewer_entries_are_never_slower(by: str) -> None:
    plans = [f"data:16,compress=topk,sparse={by},density={d}" for d in ("0.001", "0.01", "0.1")]
    seconds = oracle.estimate("vgg16", "ethernet-64", plans, 512, reading="none").seconds
    assert (np.diff(seconds) >= 0).all()


def test_exports_say_it_in_the_frameworks_words(tmp_path: Any, capsys: Any) -> None:
    def written(software: str, plan: str, *more: str) -> str:
        folder = tmp_path / plan
        line = ["export", "job", "gpt2", "dgx-a100", "--batch", "64", "--plan", plan, "--software",
                software, "-o", str(folder), *more]  # fmt: skip
        assert told(capsys, *line)[0] == 0
        return "".join(path.read_text() for path in folder.iterdir())

    text = written("pytorch-ddp", "data:8,compress=powersgd,rank=2,feedback=off")
    assert "HOOK = 'powersgd'" in text
    assert "powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=RANK" in text
    text = written("deepspeed", "data:8,compress=onebit")
    assert '"type": "OneBitAdam"' in text
    assert '"freeze_step": 100' in text
    line = ["export", "job", "gpt2", "dgx-a100", "--batch", "64", "--software", "pytorch-ddp"]
    assert told(capsys, *line, "--plan", "data:8,compress=topk")[0] == 2


def test_the_best_size_of_pieces_lies_between_too_many_and_too_late() -> None:
    model, system = oracle.model("vgg16"), oracle.system("ethernet-64")
    options = options_for(model, system, software="horovod-tensorflow")
    found = buckets(model, system, "data:64", 2048, options, (2.0**16, 2.0**24, 2.0**30))
    assert found[0].nbytes == 2**24
    assert found[0].seconds < found[1].seconds
