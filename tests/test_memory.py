"""Bytes of a device, by values worked by hand: weights, activations, experts, what is gathered."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from conftest import SYSTEM

import oracle
from oracle.models import masks
from oracle.models.shard import serial
from oracle.plan.in_flight import beside
from oracle.plan.partition import balanced_cuts
from oracle.plan.plan import parse
from oracle.plan.stages import Stages
from oracle.plan.strategies.base import text_of
from oracle.plan.strategies.recompute import FULL, WORDS, Recompute, recomputed, share_kept
from oracle.predict import alive
from oracle.predict.row_bytes import Rows
from oracle.spec import catalogue

BUILT = oracle.system(SYSTEM)
SIDE = 1024
ONE = {
    "name": "one", "source": "a matrix of 2^20 weights", "input": [SIDE],
    "layers": [{"dense": {"filters": SIDE, "bias": False}}],
}  # fmt: skip
WEIGHTS = SIDE * SIDE
MATRICES = ("attention.qkv", "attention.out", "mlp.up", "mlp.down")
EQUAL = {
    "name": "equal", "source": "eight equal blocks of a matrix each", "input": [256],
    "layers": [{"repeat": 8, "layers": [{"dense": {"filters": 256, "bias": False}}]}],
}  # fmt: skip
# a layer in sizes whose products are all different
LAYERS, HIDDEN, HEADS, SEQUENCE, BATCH = 6, 384, 6, 128, 4
SBH = SEQUENCE * BATCH * HIDDEN
SCORES = HEADS * SEQUENCE**2 * BATCH  # a s² b


def kinds(model: Any, plan: str, batch: int, **options: Any) -> dict[str, float]:
    """Bytes by kind on the fullest device."""
    found = oracle.estimate(model, BUILT, plan, batch, **options)
    return {kind: float(values[0]) for kind, values in found.memory_kinds.items()}


# --- weights, gradients, optimizer -----------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "optimizer", "weight", "gradient", "state"),
    [
        ("fp32", "sgd", 4, 4, 0),  # no state at all
        ("fp32", "momentum", 4, 4, 4),  # one fp32 slot
        ("fp32", "lars", 4, 4, 4),
        ("fp32", "adam", 4, 4, 8),  # two: 16 bytes a weight in all
        ("tf32", "adam", 4, 4, 8),  # tf32 is fp32 in memory
        ("bf16", "sgd", 2, 4, 4),  # an fp32 master even where the optimizer keeps nothing
        ("fp16", "momentum", 2, 4, 8),
        ("bf16", "adam", 2, 4, 12),  # master and two slots: 18 with gradients added up in fp32
        ("fp16", "lamb", 2, 4, 12),
        ("fp8", "adam", 2, 4, 12),  # weights are kept in 16 bits and cast on the way in
    ],
)
@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_bytes_a_weight(
    precision: str, optimizer: str, weight: int, gradient: int, state: int, zero: int
) -> None:
    """Over four replicas ZeRO-1 keeps a quarter of the state, 2 of the gradients, 3 of the weights.

    ZeRO-3 also holds two whole units at work, the one in use and the next: here 2 × the matrix.
    """
    found = kinds(ONE, f"data:4,zero={zero}", 4, precision=precision, optimizer=optimizer)
    gathered = 2 * weight if zero == 3 else 0
    assert found["weights"] == WEIGHTS * (weight / (4 if zero == 3 else 1) + gathered)
    assert found["gradients"] == WEIGHTS * gradient / (4 if zero >= 2 else 1)
    assert found["optimizer"] == WEIGHTS * state / (4 if zero >= 1 else 1)


@pytest.mark.parametrize(
    ("zero", "buffers"),
    [
        (0, 4 * WEIGHTS),  # all gradients once more in their bucket, fp32: 4.2 MB
        (3, 4 * WEIGHTS + 2 * 2 * WEIGHTS),  # and of two gathered units, as they are sent
    ],
)
def test_buckets_lie_beside_the_gradients(zero: int, buffers: int) -> None:
    assert kinds(ONE, f"data:4,zero={zero}", 4, precision="bf16")["buffers"] == buffers


def test_two_buckets_of_25_mb_are_all_that_is_held() -> None:
    """4096² weights are 67 MB of gradients; the buckets are 2 × 25 MB. One device has none."""
    wide = {**ONE, "input": [4096], "layers": [{"dense": {"filters": 4096, "bias": False}}]}
    assert kinds(wide, "data:2", 4)["buffers"] == 50e6
    assert kinds(wide, "serial", 4)["buffers"] == 0


def test_zero_3_gathers_the_largest_units() -> None:
    """Units of 1000·500, 500·100 and 100·1000 weights: 2 × 500,000 beside the own fourth."""
    layers = [{"dense": {"filters": n, "bias": False}} for n in (500, 100, 1000)]
    model = {**ONE, "input": [1000], "layers": layers}
    whole, largest = 500_000 + 50_000 + 100_000, 500_000
    for plan in ("data:4,zero=3", "sharded:4"):
        found = kinds(model, plan, 4, precision="bf16")
        assert found["weights"] == 2 * (whole / 4 + 2 * largest)


# --- micro-batches in flight -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("plan", "flight"),
    [
        # 1F1B: min(S, p - i) of stage i
        ("pipeline:4,segments=8", [4, 3, 2, 1]),
        ("pipeline:4,segments=2", [2, 2, 2, 1]),
        ("pipeline:4,segments=3", [3, 3, 2, 1]),
        ("pipeline:2,segments=16", [2, 1]),
        # GPipe: every one
        ("pipeline:4,segments=8,schedule=gpipe", [8, 8, 8, 8]),
        ("pipeline:2,segments=4,interleave=2,schedule=gpipe", [4, 4]),
        # v chunks: 2 (p - 1 - i) + (v - 1) p + 1 of them, each 1/v of a micro-batch
        ("pipeline:4,segments=8,interleave=2", [11 / 2, 9 / 2, 7 / 2, 5 / 2]),
        ("pipeline:2,segments=4,interleave=4", [9 / 4, 7 / 4]),
        ("pipeline:2,segments=2,interleave=2", [4 / 2, 3 / 2]),  # there are four chunks in all
        # gradients of weights later: ZB-H1 keeps p everywhere
        ("pipeline:4,segments=8,schedule=zb-h1", [4, 4, 4, 4]),
    ],
)
def test_micro_batches_in_flight(plan: str, flight: list[float]) -> None:
    """Each keeps the 256 fp32 inputs of a stage's blocks; the first stage keeps the most of them.

    64 samples in S segments: ⌈64/S⌉ · 256 · 4 bytes a block, 8/p blocks a stage.
    """
    table = parse(plan, 64.0)
    pipeline = table.axis("pipeline")
    S, v = int(pipeline.segments[0, 0]), int(pipeline.interleave[0, 0])
    stages = beside(str(pipeline.word("schedule")), len(flight), S, v)
    most = [max((each.kept + each.made).sum(axis=-1).max() for each in turns.values()) + 1
            for turns in stages]  # fmt: skip
    assert [each / v for each in most] == flight
    segments = int(table.axis("pipeline").segments[0, 0])
    one = -(-64 // segments) * 256 * 4 * 8 / len(flight)
    assert kinds(EQUAL, plan, 64)["activations"] == pytest.approx(max(flight) * one)


def test_accumulation_keeps_one_micro_batch() -> None:
    """16 samples of 64 at a time: 16 · 256 · 4 bytes a block."""
    assert kinds(EQUAL, "data:1,accumulate=4", 64)["activations"] == 16 * 256 * 4 * 8


# --- activations of a transformer ------------------------------------------------------------


def layer(plan: str, layers: int = LAYERS, **changes: Any) -> float:
    """Bytes of activations that a layer more keeps, in 16 bits."""
    held = []
    for count in (layers, 2 * layers):
        family = {"layers": count, "hidden": HIDDEN, "heads": HEADS, "vocab": 64,
                  "sequence": SEQUENCE, "dropout": True, "flash": False, **changes}  # fmt: skip
        spec = {"name": "t", "source": "here", "transformer": family}
        held.append(kinds(spec, plan, BATCH, precision="fp16")["activations"])
    return (held[1] - held[0]) / layers


@pytest.mark.parametrize("t", [2, 3, 6])
def test_a_layer_cut_by_tensor(t: int) -> None:
    """[korthikanti2022, Table 2]: 10 sbh stay whole, 24 sbh and the scores are cut."""
    assert layer("serial") == 34 * SBH + 5 * SCORES
    assert layer(f"tensor:{t}") == pytest.approx(10 * SBH + (24 * SBH + 5 * SCORES) / t)
    assert layer(f"tensor:{t},sequence=on") == pytest.approx((34 * SBH + 5 * SCORES) / t)


def test_a_fused_attention_keeps_no_scores() -> None:
    """One fp32 sum of each query and head instead: 4 a s b bytes."""
    assert layer("serial", flash=True) == 34 * SBH + 4 * HEADS * SEQUENCE * BATCH


def test_a_layer_without_dropout_keeps_no_masks() -> None:
    """Without the two masks of sbh; of the scores the softmax alone, 2 a s² b."""
    assert layer("serial", dropout=False) == 32 * SBH + 2 * SCORES


@pytest.mark.parametrize(
    ("kind", "sbh", "scores"),
    [
        ("none", 34, 5),
        ("selective", 34, 0),  # the core's output stays, its scores go
        ("full", 2, 0),  # the layer's input
        # the first and third of the matrices, (3 + 4) · 2, and the layer's input 2
        ("operators", 14 + 2, 0),
    ],
)
def test_a_layer_that_is_made_again(kind: str, sbh: int, scores: int) -> None:
    plan = "serial" if kind == "none" else f"recompute:{kind}"
    assert layer(plan) == pytest.approx(sbh * SBH + scores * SCORES)


LATENT = {"q_rank": 24, "kv_rank": 16, "plain": 8, "rotary": 4, "value": 8}
MIXED = {"experts": 8, "active": 3, "shared": 1, "ffn": 40, "gated": True, "dropout": False,
           "flash": True, "latent": LATENT}  # fmt: skip
TOKENS = SEQUENCE * BATCH
# what every part made that its layer keeps, bytes of 16 bits a token: of a dense layer, 4h twice;
# of a mixture the norms' outputs; latents that are normed, then q, k, v before the core; what the
# function of three visits makes; of a shared expert the two that it joins, and what it makes
PARTS = {
    "mlp": ({}, 2 * 2 * 4 * HIDDEN),
    "layernorm": (MIXED, 2 * 2 * HIDDEN),
    "mla_up_proj": (MIXED, 2 * (24 + 16 + HEADS * (2 * 12 + 8))),
    "moe_act": (MIXED, 2 * 3 * 40),
    "shared_experts": (MIXED, 2 * 3 * 40),
}


@pytest.mark.parametrize("part", PARTS)
def test_a_part_of_a_layer_that_is_made_again(part: str) -> None:
    changes, made = PARTS[part]
    plain = layer("serial", **changes)
    assert plain - layer(f"recompute:{part}", **changes) == pytest.approx(made * TOKENS)


def test_parts_of_a_layer_add_up() -> None:
    """What one leaves out and what another does: none has what the other has."""
    every = [part for part, (changes, _) in PARTS.items() if changes]
    less = layer("serial", **MIXED) - layer(f"recompute:{'+'.join(every)}", **MIXED)
    assert less == pytest.approx(sum(PARTS[part][1] for part in every) * TOKENS)
    core = layer("recompute:core_attn", flash=False)
    assert core == layer("recompute:selective", flash=False)


def test_hybrid_ep_has_room_for_all_tokens_of_its_group() -> None:
    """T p (2 h + 4 E + h / 32) of each group of p, once for all layers; none without a group."""
    spec = {"name": "m", "source": "here", "transformer": {
        "layers": 4, "hidden": 256, "heads": 4, "vocab": 64, "sequence": 32, "experts": 8,
        "gated": True}}  # fmt: skip
    plans = ["data:8 expert:4", "data:8", "data:8,accumulate=2 expert:2"]
    said = {"name": "own", "source": "here", "experts": {"dispatcher": "hybridep"}}
    hybrid, plain = (
        oracle.estimate(spec, BUILT, plans, 32, precision="bf16", software=software)
        for software in (said, said | {"experts": {"dispatcher": "alltoall"}})
    )
    more = hybrid.memory_kinds["buffers"] - plain.memory_kinds["buffers"]
    a_token = 2 * 256 + 4 * 8 + 256 / 32
    assert more.tolist() == [4 * 32 * 4 * a_token, 0, 2 * 32 * 2 * a_token]
    for plan, bytes_more in zip(plans, more, strict=True):
        alone = oracle.estimate(spec, BUILT, plan, 32, precision="bf16", software=said)
        plain_alone = plain.memory_kinds["buffers"][plans.index(plan)]
        assert alone.memory_kinds["buffers"][0] - plain_alone == bytes_more


def test_a_model_without_a_part_does_not_make_it_again() -> None:
    """Norms that the product behind them has in its kernel are none by themselves."""
    for part in ("layernorm", "mla_up_proj", "moe_act", "shared_experts"):
        broken = oracle.estimate("llama3-8b", BUILT, f"recompute:{part}", 8).broken[0]
        assert f"recompute:{part}: llama3-8b has no such part by itself" in broken
    with pytest.raises(oracle.SpecError, match="names a part twice"):
        oracle.estimate("mixtral-8x7b", BUILT, "recompute:moe_act+moe_act", 8)


def test_a_search_tries_the_parts_that_take_few_flop() -> None:
    """Of a model that has them: one setting more, of all of them together."""
    tries = {name: Recompute.tries(oracle.model(name))["mode"]
             for name in ("gpt2", "mixtral-8x7b", "deepseek-v3")}  # fmt: skip
    words = {name: [text_of(mode, WORDS) for mode in modes] for name, modes in tries.items()}
    usual = ["none", "selective", "full", "operators"]
    assert words == {"gpt2": usual, "mixtral-8x7b": [*usual, "layernorm+moe_act"],
                     "deepseek-v3": [*usual, "layernorm+mla_up_proj+moe_act"]}  # fmt: skip


def test_parts_that_are_made_again_take_their_passes_forward() -> None:
    """The seconds of the rows that they are, once a micro-batch."""
    found = oracle.estimate("mixtral-8x7b", BUILT, ["serial", "recompute:moe_act"], 8)
    plain, again = found.seconds
    assert found.compute["recompute"][0] == 0 < found.compute["recompute"][1]
    assert again - plain == pytest.approx(found.compute["recompute"][1], rel=0.02)


def test_attention_of_one_kernel_is_kept_by_operators() -> None:
    """Its output, 2 sbh, and an fp32 sum of each query and head."""
    assert layer("recompute:operators", flash=True) == 18 * SBH + 4 * HEADS * SEQUENCE * BATCH


def test_matrices_that_stand_apart_are_share_kept() -> None:
    """q and v of q, k, v; w1 and w2 of w1, w3, w2: the order in which torchtitan calls them."""
    spec = {"name": "t", "source": "here", "transformer": {
        "layers": 2, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 160, "gated": True,
        "vocab": 64, "sequence": 16}}  # fmt: skip
    found = {}
    for software in ("torchtitan", "megatron-core"):
        made = oracle.model(spec).under(catalogue.software(software).kernels)
        share = share_kept(made)
        found[software] = {row.name: float(share[i]) for i, row in enumerate(made.rows)}
    assert [found["torchtitan"][name] for name in MATRICES] == [(64 + 32) / 128, 0, 1 / 2, 1]
    assert [found["megatron-core"][name] for name in MATRICES] == [1, 0, 1, 0]


@pytest.mark.parametrize("software", ["mxnet", "megatron-core"])
def test_recomputation_holds_no_more_of_any_shipped_model(software: str) -> None:
    """A layer whose input is no smaller than what it keeps is not made again."""
    for name in catalogue.shipped("models"):
        kept, *remade = (
            oracle.estimate(name, "dgx-1-v100", f"data:2{mode}", 16, software=software,
                            any_plan=True).memory[0]
            for mode in ("", " recompute:full", " recompute:selective")
        )  # fmt: skip
        assert max(remade) <= kept * (1 + 1e-9), name


def test_five_blocks_of_a_volume_hold_the_same_made_again_or_not() -> None:
    """What torch.distributed._tools.mem_tracker counts of conv, leaky ReLU in place and pool with
    `checkpoint` around each: input, first output and two tensors of its size.
    """
    none, full = (kinds("cosmoflow-128", f"serial{mode}", 4, precision="fp32", software="mxnet")
                  for mode in ("", " recompute:full"))  # fmt: skip
    for held in (none, full):
        assert held["activations"] + held["workspace"] >= (128 + 1024 + 2 * 1024) * 2**20
        assert held["activations"] <= (128 + 1024 + 2 * 1024) * 2**20 * 1.01
    assert full["activations"] == none["activations"]


def test_jax_keeps_every_matrix_whose_output_a_pass_back_wants() -> None:
    """Four of six products of a block; what the last one made is only added, and not made again."""
    spec = {"name": "t", "source": "here", "transformer": {
        "layers": 2, "hidden": 64, "heads": 4, "ffn": 160, "gated": True, "vocab": 64,
        "sequence": 16}}  # fmt: skip
    made = oracle.model(spec).under(catalogue.software("maxtext").kernels)
    share = dict(zip((row.name for row in made.rows), share_kept(made), strict=True))
    assert [share[name] for name in MATRICES] == [1, 1, 1, 0]
    again = dict(zip((row.name for row in made.rows), recomputed(made)[FULL], strict=True))
    assert [again[name] for name in MATRICES] == [1, 1, 1, 0]
    assert share["attention.core"] == 0
    assert again["attention.core"] == 1


def test_a_layer_at_work_is_there_whole() -> None:
    """Under full recomputation L inputs of 2 sbh and one layer, which has its own among them."""
    family = {"layers": LAYERS, "hidden": HIDDEN, "heads": HEADS, "vocab": 64,
              "sequence": SEQUENCE, "dropout": True, "flash": False}  # fmt: skip
    spec = {"name": "t", "source": "here", "transformer": family}
    none, full = (
        kinds(spec, plan, BATCH, precision="fp16")["activations"]
        for plan in ("serial", "recompute:full")
    )
    whole = 34 * SBH + 5 * SCORES
    assert none - full == pytest.approx((LAYERS - 1) * (whole - 2 * SBH))


def of_ends(tied: bool, **more: int) -> dict[str, Any]:
    """Layers between a table and a matrix of 4,096 words, whose stage is the fullest."""
    family = {"layers": 4, "hidden": 64, "heads": 4, "vocab": 4096, "sequence": 32, "gated": True,
              "tied_embeddings": tied, **more}  # fmt: skip
    return {"name": "ends", "source": "here", "transformer": family}


def test_a_tied_table_is_held_by_the_first_and_the_last_stage() -> None:
    """A pipeline has a table at either end, tied or not; one device has one if tied."""
    table, vee = 4096 * 64, "pipeline:2,segments=8,schedule=dualpipe-v,interleave=2"
    for plan, fewer in (("serial", table), ("pipeline:2,segments=4", 0),
                        ("pipeline:2,segments=4 tensor:2", 0), (vee, table)):  # fmt: skip
        tied, own = (kinds(of_ends(each), plan, 8, precision="fp32", optimizer="adam")
                     for each in (True, False))  # fmt: skip
        assert own["weights"] - tied["weights"] == 4 * fewer, plan
        assert own["optimizer"] - tied["optimizer"] == 8 * fewer, plan


@pytest.mark.parametrize(("plan", "share"), [
    ("pipeline:2,segments=4", 1.0),
    ("pipeline:4,segments=4 data:2,zero=1", 1.0),
    ("pipeline:3,segments=6 data:2 tensor:2", 0.5),
    ("data:2", 0.0),
    ("pipeline:2,segments=8,schedule=dualpipe-v,interleave=2", 0.0),  # both on the first stage
])  # fmt: skip
def test_stages_of_a_tied_table_add_up_its_gradients(plan: str, share: float) -> None:
    for tied in (True, False):
        found = oracle.estimate(of_ends(tied), BUILT, plan, 24).exchange[0]
        sent = [one for one in found if one["what"] == "pipeline: gradients of the tied table"]
        assert sum(one["bytes"] for one in sent) == (4 * 4096 * 64 * share if tied else 0), plan
        assert all(one["group"] == 2 and one["seconds"] > 0 for one in sent if one["bytes"])


def test_a_token_predicted_ahead_looks_up_a_copy_of_the_table() -> None:
    """What predicts it stands on the last stage, whose own matrix of words it uses too."""
    copied = [masks.borrowed(oracle.model(of_ends(tied, predicts=2))) for tied in (True, False)]
    rows = [oracle.model(of_ends(tied, predicts=2)).rows[int(np.argmax(each))]
            for tied, each in zip((True, False), copied, strict=True)]  # fmt: skip
    assert [each.sum() for each in copied] == [4096 * 64] * 2
    assert [row.name for row in rows] == ["head", "predicted1.embedding"]


# --- experts ---------------------------------------------------------------------------------


def test_experts_are_dealt_and_the_rest_is_not() -> None:
    """8 experts of 3 matrices (gated) 128 × 512 a layer; a device holds 8/p of them.

    Beside them, in each layer: attention 4 h², router 8 h and two norms h; once: the table
    vocab · h (the head shares it) and the last norm h.
    """
    h, ffn, layers, vocab = 128, 512, 2, 256
    family = {"layers": layers, "hidden": h, "heads": 4, "vocab": vocab, "sequence": 64,
              "ffn": ffn, "gated": True, "experts": 8, "active": 2}  # fmt: skip
    spec = {"name": "m", "source": "here", "transformer": family}
    rest = layers * (4 * h * h + 8 * h + 2 * h) + vocab * h + h
    for p in (1, 2, 4, 8):
        found = kinds(spec, f"data:8 expert:{p}", 8, precision="bf16", optimizer="adam")
        held = rest + layers * 8 / p * 3 * h * ffn
        assert found["weights"] == 2 * held
        assert found["gradients"] == 4 * held
        assert found["optimizer"] == 12 * held


def test_every_copy_of_a_token_is_kept() -> None:
    """Of each visit: its token 2h, the gate's two halves 4f, their product 2f, the result 2h.

    A visit more of each of the b·s tokens keeps (2h + 4f + 2f + 2h) b s bytes, its weight 4 and
    its two indices 16.
    """
    h, ffn, tokens = 128, 512, 8 * 64  # the loss, of many words, runs back first
    held = []
    for active in (2, 3):
        family = {"layers": 2, "hidden": h, "heads": 4, "vocab": 8192, "sequence": 64,
                  "ffn": ffn, "gated": True, "experts": 8, "active": active}  # fmt: skip
        spec = {"name": "m", "source": "here", "transformer": family}
        held.append(kinds(spec, "serial", 8, precision="bf16")["activations"])
    assert (held[1] - held[0]) / 2 == (2 * h + 4 * ffn + 2 * ffn + 2 * h + 20) * tokens


MIXTURE = {"layers": 2, "hidden": 128, "heads": 4, "vocab": 256, "sequence": 64, "ffn": 512,
           "gated": True, "experts": 8, "active": 2}  # fmt: skip


def mixture(**changes: Any) -> dict[str, Any]:
    return {"name": "m", "source": "here", "transformer": {**MIXTURE, **changes}}


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("d", "c", "t", "e"),
    [(8, 1, 1, 1), (8, 1, 1, 2), (8, 1, 1, 8), (4, 2, 1, 4), (4, 1, 2, 2), (2, 2, 4, 2)],
)
def test_the_state_of_an_expert_is_shared_by_those_who_hold_it(
    d: int, c: int, t: int, e: int, zero: int
) -> None:
    """d·c/e devices hold the same experts, d·c the same of the rest.

    Of a layer tensor parallelism cuts attention 4 h² and 8 experts of 3 h f; router 8 h and two
    norms stay whole; so does the last norm. ZeRO-3 gathers two layers, without the experts where
    nobody else holds them.
    """
    layers, h, ffn = 2, 128, 512
    plan = f"data:{d},zero={zero} context:{c} tensor:{t} expert:{e}"
    found = kinds(mixture(), plan, 8, precision="bf16", optimizer="adam")
    layer, experts = 4 * h * h / t + 8 * h + 2 * h, 8 * 3 * h * ffn / t / e
    rest = layers * layer + 256 * h / t + h
    stated, graded, stored = (
        rest / (d * c if zero >= stage else 1)
        + layers * experts / (d * c / e if zero >= stage else 1)
        for stage in (1, 2, 3)
    )
    gathered = 2 * (layer + experts * (d * c > e)) * (zero == 3)
    assert found["optimizer"] == pytest.approx(12 * stated)
    assert found["gradients"] == pytest.approx(4 * graded)
    assert found["weights"] == pytest.approx(2 * (stored + gathered))
    # no byte of the state is nowhere
    parameters = oracle.model(mixture()).parameters
    assert found["optimizer"] * d * c * t >= 12 * parameters * (1 - 1e-12)


@pytest.mark.parametrize("zero", [0, 1, 3])
@pytest.mark.parametrize(("d", "t", "e"), [(4, 2, 2), (4, 2, 4), (2, 4, 2), (2, 4, 8), (4, 2, 8)])
def test_whole_experts_are_dealt_along_tensor_too(d: int, t: int, e: int, zero: int) -> None:
    """8/e experts of 3 h f on each of d·t devices; d·t/e of them hold the same ones."""
    plan = f"data:{d},zero={zero} tensor:{t},sequence=on expert:{e},cut=whole"
    found = kinds(mixture(), plan, 8, precision="bf16", optimizer="adam")
    layer, experts = 4 * 128 * 128 / t + 8 * 128 + 2 * 128, 8 / e * 3 * 128 * 512
    rest = 2 * layer + 256 * 128 / t + 128
    stated, graded, stored = (
        rest / (d if zero >= stage else 1) + 2 * experts / (d * t / e if zero >= stage else 1)
        for stage in (1, 2, 3)
    )
    gathered = 2 * (layer + experts * (d * t > e)) * (zero == 3)
    assert found["optimizer"] == pytest.approx(12 * stated)
    assert found["gradients"] == pytest.approx(4 * graded)
    assert found["weights"] == pytest.approx(2 * (stored + gathered))


def test_plans_of_one_table_share_the_state_as_each_alone() -> None:
    """Rows are priced once for plans that differ in ZeRO; the state is of each."""
    plans = [f"data:8,zero={zero} expert:{e}" for zero in range(4) for e in (1, 4, 8)]
    plans += [f"data:4,zero={zero} tensor:2,sequence=on expert:4,cut={cut}"
              for zero in range(4) for cut in ("tensor", "whole")]  # fmt: skip
    together = oracle.estimate(mixture(), BUILT, plans, 8)
    for i, plan in enumerate(plans):
        alone = oracle.estimate(mixture(), BUILT, plan, 8)
        assert together.seconds[i] == alone.seconds[0]
        for kind, values in alone.memory_kinds.items():
            assert together.memory_kinds[kind][i] == values[0], (plan, kind)


def test_an_inner_axis_of_shards_has_replicas_of_every_expert() -> None:
    """`expert` deals along `data` alone: 4 shards of each device's 8/2 experts."""
    found = kinds(mixture(), "data:2 sharded:4 expert:2", 8, precision="bf16", optimizer="adam")
    rest = 2 * (4 * 128 * 128 + 8 * 128 + 2 * 128) + 256 * 128 + 128
    assert found["optimizer"] == 12 * (rest + 2 * 4 * 3 * 128 * 512) / 4


def test_the_state_of_mixtral() -> None:
    """46,702,792,704 parameters, of which 32 · 8 · 3 · 4096 · 14336 are of experts.

    Eight devices with an eighth of the experts each: nobody else holds them, so that the state is
    there once, 560 GB; gradients are 4 bytes for an eighth of the experts and all of the rest.
    """
    experts = 32 * 8 * 3 * 4096 * 14336
    rest = 46_702_792_704 - experts
    found = kinds("mixtral-8x7b", "data:8,zero=1 expert:8", 8, precision="bf16", optimizer="adam")
    assert found["optimizer"] * 8 == 12 * 46_702_792_704
    assert found["gradients"] == 4 * (experts / 8 + rest)
    assert found["weights"] == 2 * (experts / 8 + rest)


def test_shared_experts_stay_at_home() -> None:
    """Two of them are one MLP of 3 h · 2f on every device; they keep up to 2 · 2f and 2f a token.

    Their input is what the router reads, and kept once.
    """
    h, ffn, tokens = 128, 512, 64
    for p in (1, 8):
        plain, shared = (
            kinds(mixture(shared=n), f"data:8 expert:{p}", 8, precision="bf16") for n in (0, 2)
        )
        assert shared["weights"] - plain["weights"] == 2 * 2 * 3 * h * 2 * ffn
        assert shared["activations"] - plain["activations"] == 2 * 2 * 3 * 2 * ffn * tokens


def test_the_fullest_device_keeps_more_of_what_experts_read() -> None:
    """Of each visit 2h before, 4f and 2f inside, half as much again; the result is kept at home."""
    few, some = (
        [kinds(mixture(skew=skew, layers=layers), "data:8 expert:8", 8, precision="bf16")
         for skew in (1, 1.5)] for layers in (2, 4)
    )  # fmt: skip
    more = [skewed["activations"] - even["activations"] for even, skewed in (few, some)]
    assert more[1] - more[0] == pytest.approx(2 * 0.5 * 2 * (2 * 128 + 6 * 512) * 64)


# --- beside what is counted ------------------------------------------------------------------


def test_the_reserve_is_the_libraries_and_a_twentieth() -> None:
    found = kinds(ONE, "serial", 4)
    counted = sum(bytes_ for kind, bytes_ in found.items() if kind != "reserve")
    assert found["reserve"] == pytest.approx(BUILT.device.reserve + 0.05 * counted)


def test_a_row_that_runs_back_has_three_gradients() -> None:
    """Of its input and of its output, 4 samples · (1024 + 1024) · 4 bytes; and of its weights."""
    assert kinds(ONE, "serial", 4)["workspace"] == 4 * 2 * SIDE * 4 + SIDE * SIDE * 4


# --- what is allowed -------------------------------------------------------------------------


def test_what_has_run_back_is_given_up() -> None:
    """A wide tensor near the start, then eight layers of 1024: what is wide runs back last.

    The last layer has two gradients of 1024, its weights' and everything kept. Those of 2048 and
    1024 come when six tensors of 1024 are gone, which the wide layer alone has not behind it.
    """
    batch = 4096

    def chain(*sides: int) -> Any:
        layers = [{"dense": {"filters": side, "bias": False}} for side in sides[1:]]
        return {"name": "m", "source": "here", "input": [sides[0]], "layers": layers}

    deep, wide = chain(64, 2048, *[1024] * 8), chain(64, 2048, 1024)
    square, large = 4 * 1024 * 1024, 4 * 2048 * 1024
    assert kinds(deep, "serial", batch)["workspace"] == 4 * batch * (1024 + 1024) + square
    assert kinds(wide, "serial", batch)["workspace"] == 4 * batch * (2048 + 1024) + large
    kept = 4 * batch * (64 + 2048 + 7 * 1024)
    assert kinds(deep, "serial", batch)["activations"] == kept


def test_each_device_gives_up_what_its_own_stages_used() -> None:
    """Of a model in chunks, row by row: its three gradients, and what is kept ahead of it there.

    Its own output, which the row behind it wanted, is gone; the samples are the first row's.
    """
    layers = [{"conv": {"filters": n, "kernel": 3, "padding": 1}} for n in (8, 64, 16, 16, 16, 4)]
    model = oracle.model({"name": "m", "source": "here", "input": [3, 16, 16], "layers": layers})
    edges = balanced_cuts((model.units[0] @ model.mac)[None], 3)[0]
    stages = Stages.of(model, 3, 1, edges)
    shard = serial(model, 1.0, 4.0)
    rows, kept = 4 * (model.x + model.y), 4 * model.kept + model.kept_bytes
    found = alive.Chunks.of(stages, Rows.of(shard, alive.NONE))
    for stage, (begin, end) in enumerate(pairwise(edges)):
        first, last = int(stages.begin[begin]), int(stages.stop[end - 1])
        samples = 4 * model.x[0] * (first == 0)
        moving = rows + 4 * model.w
        each = [moving[i] + max(kept[first:i].sum(), samples) for i in range(first, last)]
        assert found.turns["layers"].real[0, 0, stage] == max(each)


def test_memory_is_full_when_it_is_full() -> None:
    needs = float(oracle.estimate(ONE, BUILT, "serial", 4).memory[0])
    for limit, fits in ((needs, True), (needs * (1 - 1e-9), False), (needs * 1.001, True)):
        assert oracle.estimate(ONE, BUILT, "serial", 4, max_memory=limit).feasible[0] == fits


def test_there_are_as_many_devices_as_there_are() -> None:
    """1024 of them; of a device more the plan says so."""
    asked = oracle.estimate(ONE, BUILT, ["data:1024", "data:1025"], 4096)
    assert asked.feasible.tolist() == [True, False]
    assert asked.broken[1] == ("1025 devices, but small has 1024",)
