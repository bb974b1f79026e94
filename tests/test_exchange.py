"""Messages, what hides them, and the update, by values worked by hand."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal, localcontext
from itertools import combinations
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SYSTEM, TRANSFORMER

import oracle
from oracle.ask.climb import _steps
from oracle.ask.space import Space
from oracle.kernels.algorithms import Box, shape
from oracle.kernels.conv import conv
from oracle.network.collectives import Message
from oracle.plan.plan import parse
from oracle.plan.strategies.expert import places_hit
from oracle.predict import evaluate
from oracle.predict.defaults import options_for
from oracle.predict.overlap import Cover, longer, slowed
from oracle.predict.uncertainty import messages
from oracle.spec.device import Curve

BUILT = oracle.system(SYSTEM)
H, TOKENS, ACTIVE, LAYERS = 128, 64, 2, 3
EXPERTS = {
    "name": "experts", "source": "three layers of eight experts",
    "transformer": {"layers": LAYERS, "hidden": H, "heads": 4, "vocab": 256, "sequence": TOKENS,
                    "ffn": 512, "gated": True, "experts": 8, "active": ACTIVE},
}  # fmt: skip


def matrix(*sides: int) -> dict[str, Any]:
    """Matrices in a row, without biases: nothing but their weights is exchanged."""
    layers = [{"dense": {"filters": side, "bias": False}} for side in sides[1:]]
    return {"name": "m", "source": "here", "input": [sides[0]], "layers": layers}


def sent(model: Any, plan: str, batch: int, **options: Any) -> dict[str, dict[str, Any]]:
    """Messages of one plan by what they are."""
    found = oracle.estimate(model, BUILT, plan, batch, **options)
    return {one["what"]: one for one in found.exchange[0]}


# --- experts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("plan", "samples", "turns"),
                         [("data:4 expert:4", 2, 1), ("data:4 expert:2", 2, 1),
                          ("data:4,accumulate=2 expert:4", 1, 2)])  # fmt: skip
def test_tokens_go_to_their_experts_and_come_back(plan: str, samples: int, turns: int) -> None:
    """Two copies of each token, out and back, either pass of each layer: 2 h δ bytes a token.

    8 samples over 4 devices are 2 of 64 tokens: 2 · 64 · 2 · 128 · 2 bytes a call.
    """
    nbytes = samples * TOKENS * ACTIVE * H * 2
    found = sent(EXPERTS, plan, 8, precision="bf16")
    for what in ("expert: tokens to experts", "expert: gradients to experts"):
        assert found[what]["bytes"] == nbytes
        assert found[what]["calls"] == 2 * LAYERS * turns
        assert found[what]["op"] == "alltoall"


def test_what_comes_back_from_experts_is_as_much_as_went_out() -> None:
    """Row by row: `dispatch` hands on what it makes, `combine` gets what it is given."""
    model = oracle.model(EXPERTS)
    plan = parse("data:4 expert:4", 8.0)
    shard = evaluate.split(model, plan, options_for(model, BUILT, "bf16"))
    for message in plan.axis("expert").talk(shard):
        bytes_, calls = (np.broadcast_to(v, (1, len(model)))[0]
                         for v in (message.nbytes, message.calls))  # fmt: skip
        ends = {row.name.rpartition(".")[2]: float(size)
                for row, size, number in zip(model.rows, bytes_, calls, strict=True)
                if number}  # fmt: skip
        assert ends == dict.fromkeys(("dispatch", "combine"), 2 * TOKENS * ACTIVE * H * 2.0)


@pytest.mark.parametrize(("sequence", "part"), [("off", 1), ("on", 2)])
def test_tokens_that_a_tensor_axis_has_cut_are_sent_once(sequence: str, part: int) -> None:
    """Along the tokens each of two devices has half of 2 · 64; those that come are gathered."""
    whole = 2 * TOKENS * ACTIVE * H * 2
    found = sent(EXPERTS, f"data:4 tensor:2,sequence={sequence} expert:4", 8, precision="bf16")
    for what in ("expert: tokens to experts", "expert: gradients to experts"):
        assert found[what]["bytes"] == whole / part
        assert found[what]["group"] == 4
    inside = {"off": ["activations", "input gradients"],
              "on": ["activations gathered", "activations scattered", "input gradients scattered",
                     "output gradients gathered"]}  # fmt: skip
    for what in inside[sequence]:
        one = found[f"tensor: expert {what}"]
        assert (one["bytes"], one["calls"]) == (whole, LAYERS)
        assert one["exposed"] == one["seconds"]
    # kept as they came: nobody gathers them again but the attention's
    assert "tensor: expert inputs gathered again" not in found


def test_whole_experts_gather_no_tokens() -> None:
    """Each of 2 · 4 devices sends its half of the tokens to all 8, and that is all.

    A row is priced for half the tokens and whole matrices, where cut ones have all the tokens and
    half the matrices: the same work.
    """
    plan = "data:4 tensor:2,sequence=on expert:8,cut=whole"
    found = sent(EXPERTS, plan, 8, precision="bf16")
    for what in ("expert: tokens to experts", "expert: gradients to experts"):
        assert found[what]["bytes"] == 2 * TOKENS * ACTIVE * H * 2 / 2
        assert found[what]["group"] == 8
    assert not [what for what in found if what.startswith("tensor: expert")]
    model = oracle.model(EXPERTS)
    shards = [evaluate.split(model, parse(text, 8.0), options_for(model, BUILT, "bf16"))
              for text in (plan, "data:4 tensor:2,sequence=on expert:4")]  # fmt: skip
    inside = [i for i, row in enumerate(model.rows) if row.name.endswith(("mlp.up", "mlp.down"))]
    whole, cut = (
        [s.made[0] * np.ones((1, len(model))), s.filters * s.channels * np.ones((1, len(model)))]
        for s in shards
    )
    assert (whole[0] * 2 == cut[0])[0, inside].all()
    assert (whole[1] == cut[1] * 2)[0, inside].all()


def test_what_experts_share_is_sent_nowhere() -> None:
    family = {**EXPERTS["transformer"], "shared": 2}
    plain, shared = (
        sent(model, "data:4 expert:4", 8) for model in (EXPERTS, {**EXPERTS, "transformer": family})
    )
    for what in ("expert: tokens to experts", "expert: gradients to experts"):
        for part in ("bytes", "calls", "group", "seconds"):
            assert plain[what][part] == shared[what][part]


@pytest.mark.parametrize(
    ("plan", "share"),
    [
        ("data:8 expert:8", 11 / 14),  # two nodes of 4 experts: 2 (1 - 4·3/(8·7)) of 2 copies
        ("data:8 tensor:2 expert:8", 13 / 14),  # four of 2: 4 (1 - 6·5/(8·7))
        ("data:4 expert:4", 13 / 14),  # one node: four devices of 2
        ("data:4 tensor:4 expert:4", 13 / 14),  # each device on a node of its own
    ],
)
def test_a_token_goes_once_to_each_node(plan: str, share: float) -> None:
    plain, once = (
        sent(EXPERTS, f"{plan}{knob}", 8)["expert: tokens to experts"]["bytes"]
        for knob in ("", ",dispatch=once")
    )
    assert once / plain == pytest.approx(share)


@pytest.mark.parametrize(("places", "active", "experts"), [(2, 2, 8), (4, 3, 8), (3, 6, 12)])
def test_places_that_a_choice_hits_are_counted(places: int, active: int, experts: int) -> None:
    """Of all choices of so many experts, one by one."""
    inside = experts // places
    hits = [len({one // inside for one in each}) for each in combinations(range(experts), active)]
    found = places_hit(np.array([places]), np.array(active), np.array(experts))
    assert found == pytest.approx(np.mean(hits))


def test_the_fullest_device_of_experts_sets_the_pace() -> None:
    """Half as many tokens again come to it, in its products and on the way; alone it has them all.

    What is not sent to experts, dispatch and combine among it, is as it was.
    """
    skewed = {**EXPERTS, "transformer": {**EXPERTS["transformer"], "skew": 1.5}}
    for plan, factor in (("data:4 expert:4", 1.5), ("data:4", 1.0)):
        shards = [evaluate.split(oracle.model(each), parse(plan, 8.0),
                                 options_for(oracle.model(each), BUILT, "bf16"))
                  for each in (EXPERTS, skewed)]  # fmt: skip
        for part in ("x", "y", "work"):
            even, full = (np.broadcast_to(getattr(s, part), (1, len(s.model)))[0] for s in shards)
            grown = {row.name.rpartition(".")[2]
                     for row, more in zip(shards[0].model.rows, full / even, strict=True)
                     if more != 1}  # fmt: skip
            assert set(full / even) <= {1.0, factor}
            assert grown == ({"up", "act", "down"} if factor > 1 else set())
    even, full = (sent(model, "data:4 expert:4", 8) for model in (EXPERTS, skewed))
    for what in ("expert: tokens to experts", "expert: gradients to experts"):
        assert full[what]["bytes"] == 1.5 * even[what]["bytes"]


def test_experts_that_one_device_has_alone_exchange_no_gradients() -> None:
    """Over 8 devices `expert:4` leaves 2 replicas of each expert: a layer's 2 experts of 3 h f."""
    found = sent(EXPERTS, "data:8 expert:4", 8, precision="bf16")
    one = found["data: expert gradients"]
    assert one["group"] == 2
    assert one["bytes"] * one["calls"] == pytest.approx(LAYERS * 2 * 3 * H * 512 * 2)
    assert "data: expert gradients" not in sent(EXPERTS, "data:8 expert:8", 8, precision="bf16")


def test_experts_are_replicated_along_what_context_ranks_leave() -> None:
    """2 of 4 context ranks have an expert each half: 2 x 2 replicas; over all 8 ranks none."""
    some = sent(EXPERTS, "data:2 context:4 expert:2", 8, precision="bf16")
    gradients = [one["group"] for what, one in some.items() if "expert gradients" in what]
    assert gradients == [4]
    assert some["expert: tokens to experts"]["group"] == 2
    every = sent(EXPERTS, "data:2 context:4 expert:8", 8, precision="bf16")
    assert not [what for what in every if "expert gradients" in what]
    assert every["expert: tokens to experts"]["group"] == 8
    # a device has as many tokens either way
    whole = sent(EXPERTS, "data:8 expert:8", 8, precision="bf16")["expert: tokens to experts"]
    assert every["expert: tokens to experts"]["bytes"] == whole["bytes"]


# --- gradients -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("side", "precision", "buckets"),
    [(1024, "fp32", 1), (4096, "fp32", 3), (4096, "bf16", 2), (2500, "fp32", 1)],
)
def test_gradients_go_in_buckets(side: int, precision: str, buckets: int) -> None:
    """Of 25 MB: 4096² weights are 67.1 MB in fp32, three buckets; 33.6 MB in 16 bits, two.

    2500² · 4 bytes are one bucket to the byte.
    """
    one = sent(matrix(side, side), "data:4", 4, precision=precision)["data: gradients"]
    assert one["calls"] == buckets
    assert one["bytes"] * buckets == side**2 * (4 if precision == "fp32" else 2)
    assert one["bytes"] <= 25e6


def hidden(
    seconds: float, calls: int, window: float = 10.0, host: float = 0.0, edge: float | None = None
) -> float:
    """What is left of gradients beside a backward pass."""
    cover = Cover({"backward": np.array([[window]])}, {"backward": np.array([[host]])})
    message = Message("gradients", "allreduce", 1.0, ("data",), when="step", hides="backward")
    sent = np.array([[seconds]]), np.array([[float(calls)]]), np.array([True])
    last = None if edge is None else np.array([[edge]])
    return float(cover.left(message, *sent, edge=last)[0, 0])


def test_the_last_bucket_always_shows() -> None:
    """Beside 10 s of work: of 4 buckets that take 2 s in all, the last takes half a second."""
    assert hidden(2.0, 4) == 0.5
    assert hidden(1e-3, 10) == pytest.approx(1e-4)
    assert hidden(0.0, 4) == 0


def test_a_unit_at_the_edge_shows_whole() -> None:
    """Of 4 units that take 2 s in all, the last scatters a table for 1.5 s."""
    assert hidden(2.0, 4, edge=1.5) == 1.5
    assert hidden(2.0, 4, edge=0.0) == 0
    assert hidden(12.0, 4, edge=1.5) == 12.0 - 10.0 * 3 / 4


def test_the_first_bucket_waits_until_it_is_full() -> None:
    """A quarter of the pass is over before the first of 4 is sent: 7.5 s are left to hide under.

    Buckets of 2.75 s, full at 2.5, 5, 7.5 and 10 s, are sent without a pause until 13.5 s.
    """
    assert hidden(11.0, 4) == 3.5
    assert hidden(30.0, 4) == 22.5
    assert hidden(8.0, 1) == 8.0  # one bucket is full when the pass is over


def test_a_bucket_hides_while_the_host_is_waited_for() -> None:
    """Device and host take turns: the pass takes (10³ + 10³)^⅓ s, and 3/4 of it covers."""
    assert hidden(16.0, 4, host=10.0) == pytest.approx(16 - 0.75 * 2000 ** (1 / 3))


@pytest.mark.parametrize("mode", ["selective", "full", "operators"])
def test_gradients_hide_under_what_is_made_again(mode: str) -> None:
    """Nine buckets take far longer than a backward pass, all but a ninth of which covers them.

    A host takes no time here. So 8/9 of what the pass makes again covers them too, and a ninth of
    it makes the step longer.
    """
    device = {**SYSTEM["device"], "launch": "1e-15 s"}
    quick = oracle.system({**SYSTEM, "device": device, "dispatch": "1e-15 s"})
    large = {**TRANSFORMER, "transformer": {**TRANSFORMER["transformer"], "hidden": 1024}}
    plans = ["data:64", f"data:64 recompute:{mode}"]
    both = oracle.estimate(large, quick, plans, 128)
    plain, longer = (one["exposed"] for (one,) in both.exchange)
    again = float(both.compute["recompute"][1])
    assert both.exchange[0][0]["calls"] == 9
    assert again > 1e-4
    assert plain - longer == pytest.approx(again * 8 / 9, rel=1e-9)
    assert both.seconds[1] - both.seconds[0] == pytest.approx(again / 9, rel=1e-9)


def test_of_a_gather_ahead_the_first_shows() -> None:
    """Weights are gathered unit by unit: 6 gathers of 1 s beside 10 s of work leave the first."""
    cover = Cover({"forward": np.array([[10.0]])}, {"forward": np.zeros((1, 1))})
    message = Message("weights", "allgather", 1.0, ("data",), when="unit forward", hides="forward")
    given = np.array([[6.0]]), np.array([[6.0]]), np.array([True])
    assert cover.hide(message, *given) == 1.0
    # the next finds 5 s of the pass taken: of 6 s one is left over, as much as its own first
    assert cover.hide(message, *given) == 1.0
    assert cover.hide(message, *given) == 6.0  # and then nothing is free


def test_work_loses_what_it_hides_no_more() -> None:
    """Of 4 s one shows; 2 s lost beside all of them are 1.5 s beside the three that hide."""
    one, four = np.array([[1.0]]), np.array([[4.0]])
    assert slowed(one, four, np.array([[2.0]])) == 2.5
    assert slowed(one, four, np.array([[9.0]])) == 4.0  # hiding never costs more than showing


@pytest.mark.parametrize("zero", [0, 1, 2, 3])
def test_what_each_stage_of_zero_sends(zero: int) -> None:
    """Two matrices of 64² over 4 replicas, 4 bytes: an allreduce, or scattered and gathered.

    From ZeRO-3 on each unit is gathered for either pass of each of the 2 micro-batches; from
    ZeRO-2 on gradients of each are scattered. One unit is 16,384 bytes.
    """
    found = sent(matrix(64, 64, 64), f"data:4,zero={zero},accumulate=2", 8)
    unit, both = 64 * 64 * 4, 2 * 64 * 64 * 4
    sizes = {what.removeprefix("data: "): (one["bytes"], one["calls"])
             for what, one in found.items()}  # fmt: skip
    each = {"gradients scattered each time": (unit, 4.0)}
    assert (
        sizes
        == [
            {"gradients": (both, 1.0)},
            {"gradients scattered": (both, 1.0), "weights renewed": (both, 1.0)},
            {**each, "weights renewed": (both, 1.0)},
            {**each, "weights": (unit, 4.0), "weights again": (unit, 4.0)},
        ][zero]
    )


@pytest.mark.parametrize(("kernel", "rows"), [(3, 1), (5, 2), (7, 3)])
def test_a_halo_is_half_a_window(kernel: int, rows: int) -> None:
    """8 samples of 4 channels, 32 rows of 24: ⌊K/2⌋ rows of x over; of dL/dy 6 filters' rows."""
    conv = {"kernel": kernel, "padding": kernel // 2, "bias": False}
    model = {"name": "m", "source": "here", "input": [4, 32, 24],
             "layers": [{"conv": {"filters": 4, **conv}}, {"conv": {"filters": 6, **conv}},
                        "flatten", {"dense": 8}]}  # fmt: skip
    found = sent(model, "spatial:2x1", 8)
    assert found["spatial: halo of x"]["bytes"] == 8 * 4 * 24 * rows * 4
    assert found["spatial: halo of x"]["calls"] == 2
    assert found["spatial: halo of dL/dy"]["bytes"] == 8 * 6 * 24 * rows * 4
    assert found["spatial: halo of dL/dy"]["calls"] == 1  # none of the first: no gradient of x


def test_a_bottom_that_is_whole_is_gathered_and_dealt_out_again() -> None:
    """8 samples: 6 channels of 16² are gathered before the bottom, 5 of 8² come back; fp32."""
    three = {"kernel": 3, "padding": 1, "bias": False}
    model = {"name": "m", "source": "here", "input": [4, 16, 16], "layers": [
        {"conv": {"filters": 6, **three}}, {"norm": "instance"}, "relu",
        {"conv": {"filters": 5, "stride": 2, **three}}, {"norm": "instance"}, "relu",
        {"deconv": {"filters": 6, "kernel": 2, "stride": 2}}, {"norm": "instance"},
        {"conv": {"filters": 3, **three}}, "loss"]}  # fmt: skip
    found = sent(model, "spatial:4x1,least=16,norms=shared", 8)
    assert found["spatial: halo of x"]["calls"] == 2  # not of the bottom's
    assert found["spatial: collect at the split point"]["bytes"] == 8 * 6 * 16 * 16 * 4
    assert found["spatial: gather where cut again"]["bytes"] == 8 * 5 * 8 * 8 * 4
    for what in ("statistics of norms", "gradients of statistics"):
        one = found[f"spatial: {what}"]
        assert (one["calls"], one["bytes"]) == (2, 8 * 6 * 2 * 4)
    alone, plain = (sent(model, plan, 8) for plan in ("spatial:4x1", "spatial:4x1,norms=shared"))
    assert "spatial: gather where cut again" not in plain  # 8 rows are enough for four parts
    assert "spatial: statistics of norms" not in alone


def test_a_full_recomputation_sends_everything_again() -> None:
    """An allreduce after attention and one after the MLP of each layer; with it, twice."""
    family = {"layers": 4, "hidden": 128, "heads": 4, "vocab": 100, "sequence": 64}
    model = {"name": "m", "source": "here", "transformer": family}
    plans = ["tensor:2", "tensor:2 recompute:full", "tensor:2 recompute:selective"]
    found = oracle.estimate(model, BUILT, plans, 8)
    once, twice, selective = (
        next(one for one in row if one["what"] == "tensor: activations") for row in found.exchange
    )
    assert once["calls"] == selective["calls"] == 2 * 4 + 1  # and one after the embedding
    assert twice["calls"] == 2 * once["calls"]
    assert twice["seconds"] == pytest.approx(2 * once["seconds"])
    for row in range(3):  # what is sent is part of the step
        parts = [float(seconds[row]) for seconds in found.compute.values()]
        shown = [one["exposed"] for one in found.exchange[row]]
        assert sum(parts) + sum(shown) == pytest.approx(float(found.seconds[row]))


# --- update ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("precision", "optimizer", "nbytes"),
    [
        ("fp32", "sgd", 3 * 4),  # reads w and g, writes w
        ("fp32", "momentum", 5 * 4),
        ("fp32", "adam", 7 * 4 + 4),  # and the gradients once more for their norm
        # gradients cast up 6, unscaled 8 if they were scaled, weights cast down 6
        ("bf16", "sgd", 3 * 4 + 12),
        ("fp16", "momentum", 5 * 4 + 20),
        ("bf16", "adam", 7 * 4 + 12 + 4),
        ("bf16", "lamb", 12 * 4 + 12 + 4),
    ],
)
def test_bytes_of_an_update(precision: str, optimizer: str, nbytes: int) -> None:
    """Between 1024² and 2048² weights, at 0.8 of 900 GB/s; starts of kernels cancel out."""
    small, large = (
        float(oracle.estimate(matrix(side, side), BUILT, "serial", 4, precision=precision,
                              optimizer=optimizer).compute["update"][0])
        for side in (1024, 2048)
    )  # fmt: skip
    assert (large - small) * 0.8 * 900e9 == pytest.approx(3 * 1024**2 * nbytes)


@pytest.mark.parametrize(("zero", "part"), [(0, 1), (1, 4), (3, 4)])
def test_a_shared_optimizer_updates_its_own_part(zero: int, part: int) -> None:
    """momentum in fp32: 20 bytes a weight, of a fourth of them from ZeRO-1 on."""
    small, large = (
        oracle.estimate(matrix(side, side), BUILT, f"data:4,zero={zero}", 4).compute["update"][0]
        for side in (1024, 2048)
    )
    assert (large - small) * 0.8 * 900e9 == pytest.approx(3 * 1024**2 * 20 / part)


# --- a strided convolution -------------------------------------------------------------------


def test_the_data_gradient_of_a_strided_convolution() -> None:
    """It has the points of the input, and a product over the taps that meet each of them.

    2 samples of 7 × 7 outputs at stride 2 × 2, 8 → 16 channels, 3 × 3 taps: 2 · 49 · 4 = 392 by 8
    by 16 · 9/4 = 36. The same FLOP as forward: 98 · 16 · 72.
    """
    plain = Curve("conv", "by hand", granule=0.0)
    given = [np.asarray(each) for each in (2.0, 49.0, 8.0, 16.0, 9.0, 4.0, 1.0, 3.0)]
    forward, data, weight = (Box(part, *given, 4.0) for part in ("forward", "data", "weight"))
    assert shape(plain, data) == (392, 8, 36)
    assert shape(plain, forward) == (98, 16, 72)
    assert shape(plain, weight) == (16, 72, 98)
    assert 392 * 8 * 36 == 98 * 16 * 72
    # 4 taps of zeros, but for the quarter that is not skipped: 16 (9/4 + 4 · 3/4) = 84
    zeros = Curve("conv", "by hand", granule=0.0, zeros=4.0)
    assert shape(zeros, data) == (392, 8, 84)
    # no kernel of its own for windows that overlap: as if each tap were several
    assert shape(replace(plain, strided=3.0), data) == (392, 8, 108)
    assert shape(replace(plain, strided=3.0), forward) == (98, 16, 72)


def test_a_strided_convolution_moves_its_whole_input() -> None:
    """Memory-bound, the bytes alone count: B (C P s² + F P) + C F K of 4 each.

    2 samples, 8 channels of 14 × 14 in, 16 of 7 × 7 out: 2 (8 · 196 + 16 · 49) + 8 · 16 · 9.
    """
    device = oracle.system({**SYSTEM, "device": {
        **SYSTEM["device"], "peak": {"fp32": "1e18 FLOP/s"}, "memory_bandwidth": "1 MB/s",
    }}).device  # fmt: skip
    moved = 4 * (2 * (8 * 196 + 16 * 49) + 8 * 16 * 9)
    for part in ("forward", "data", "weight"):
        seconds = conv(device, "fp32", 2, 8, 16, (1, 7, 7), (1, 3, 3), (1, 2, 2), part=part)
        assert seconds == pytest.approx(moved / (0.8 * 1e6), rel=1e-3)  # its start


# --- uncertainty -----------------------------------------------------------------------------


def test_messages_that_nobody_measured_err_together() -> None:
    """Measured 2 s ± 10 % and 1 s ± 20 % err apart: 0.2² + 0.2². Assumed 3 and 4 s ± 50 %, each
    twice, err together: (2 · 1.5 + 2 · 2)² = 49; those 14 s may also take longer. What logged runs
    told of has the doubt of its factor alone.
    """

    def one(seconds: float, rough: float, covered: bool, logged: bool = False) -> Any:
        return SimpleNamespace(when="step", exposed=np.array([[seconds]]),
                               logged=np.array([logged]), between=np.array([True]),
                               rough=np.array([rough]), covered=np.array([covered]),
                               longer=np.array([[0.0 if covered else seconds]]))  # fmt: skip

    none = np.zeros(1, int)

    def added(times: float, *talk: Any) -> list[float]:
        found = messages(
            talk, {"step": np.array([times]), "again": np.zeros(1)}, {"step": none}, none, none
        )
        return [float(value[0]) for value in (*found[:2], *found[2].values())]

    known, guessed = (
        (one(2, 0.1, True), one(1, 0.2, True)),
        (one(3, 0.5, False), one(4, 0.5, False)),
    )
    assert added(1, *known) == pytest.approx([0.08, 0])
    assert added(2, *guessed) == pytest.approx([49, 14])
    assert added(1, *known, *guessed) == pytest.approx([0.08 + 12.25, 7])
    assert added(2, *known, one(5, 0.3, True, logged=True)) == pytest.approx([0.32, 0, 0, 10])


# --- a search --------------------------------------------------------------------------------


def test_what_a_short_message_makes_a_long_pass_longer_is_exact() -> None:
    """Against 50 digits: the difference of two passes had kept 6 of them."""
    with localcontext() as context:
        context.prec = 50
        for device, more, host in ((300.0, 3e-8, 200.0), (1.0, 5.0, 2.0), (7.0, 0.5, 0.0)):
            d, m, h = map(Decimal, (device, more, host))
            roots = [x ** (Decimal(1) / 3) for x in ((d + m) ** 3 + h**3, d**3 + h**3)]
            wanted = float(roots[0] - roots[1])
            found = longer(np.array([device]), np.array([more]), np.array([host]))[0]
            assert found == pytest.approx(wanted, rel=1e-14)
    assert longer(np.ones(1), np.zeros(1), np.ones(1)) == 0


def test_the_fastest_comes_first_and_the_nearest_miss() -> None:
    ranking = oracle.recommend(matrix(*[1024] * 5), BUILT, 8, 64)
    seconds = ranking.estimate.seconds.tolist()
    assert len(seconds) > 3
    assert seconds == sorted(seconds)
    assert seconds[-1] > 1.1 * seconds[0]
    none = oracle.recommend(matrix(*[1024] * 5), BUILT, 8, 64, max_memory="1 MiB")
    assert not len(none.estimate)
    needs = none.misses.memory.tolist()
    assert needs == sorted(needs)
    assert needs[0] < needs[-1]


def test_a_factor_of_a_degree_moves_to_any_other_axis() -> None:
    """From data:6 a 2 or a 3 goes to filters; from there on both ways."""
    space = Space(oracle.model(matrix(64, 64, 64)), 6, 12, ("data", "filter"))
    for degrees, wanted in (([6, 1], {(3, 2), (2, 3)}), ([3, 2], {(1, 6), (6, 1)})):
        (row,) = space.usual(np.array([degrees], float))
        stepped = {tuple(int(n) for n in each[:2]) for each in _steps(space, row)}
        assert stepped == {*wanted, tuple(degrees)}


def test_zero_3_is_found_where_nothing_else_fits() -> None:
    """Eight matrices of 2^20 weights over 8 devices: ZeRO-2 keeps all weights, ZeRO-3 an eighth.

    32 MiB against 4 MiB and the 8 MiB of two units that are gathered, and 8 MiB of their
    gradients; the limit lies between.
    """
    model = matrix(*[1024] * 9)
    plans = [f"data:8,zero={stage} recompute:full" for stage in (2, 3)]
    two, three = oracle.estimate(model, BUILT, plans, 8).memory
    assert two - three == pytest.approx(1.05 * (32 - 4 - 8 - 8) * 2**20, rel=0.01)
    between = (float(two) + float(three)) / 2
    ranking = oracle.recommend(model, BUILT, 8, 8, only=["data"], max_memory=between, risk=0.5)
    assert ranking.best.plan == "data:8,zero=3"
