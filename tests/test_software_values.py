"""What each field of a software spec changes, by values worked by hand."""

from __future__ import annotations

import copy
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SYSTEM
from test_exchange import matrix

import oracle
from oracle import kernels
from oracle.kernels.rows import CAST, passes
from oracle.network.collectives import Message
from oracle.plan.launchable import software as named_software
from oracle.plan.plan import parse
from oracle.predict import evaluate
from oracle.predict.defaults import options_for
from oracle.predict.exchange import _pieces
from oracle.spec import catalogue
from oracle.spec.software import PLAIN, Host, State, TensorMessages

QUIET = copy.deepcopy(SYSTEM)  # kernels are launched at once: what is left is the device's work
QUIET["device"]["launch"] = "0 s"
BUILT = oracle.system(QUIET)
SIDE = 1024
W = SIDE * SIDE
ONE = oracle.model(matrix(SIDE, SIDE))
# a family whose products last longer than what tensor ranks send beside them
H, TOKENS, LAYERS = 8192, 1024, 2
WIDE = oracle.model({"name": "wide", "source": "made up", "transformer": {
    "layers": LAYERS, "hidden": H, "heads": 64, "vocab": 1024, "sequence": TOKENS}})  # fmt: skip
SMALL = {"layers": 4, "hidden": 256, "heads": 8, "vocab": 1024, "sequence": 128}


def family(**changes: Any) -> oracle.Model:
    return oracle.model({"name": "t", "source": "made up", "transformer": SMALL | changes})


def software(said: dict[str, Any] | None = None) -> dict[str, Any]:
    """A spec that says this, and that its host is no hindrance."""
    return {"name": "own", "source": "made up", "host": {"dispatch": "0 s", "around": 0},
            **(said or {})}  # fmt: skip


def asked(
    model: Any, plan: str, batch: int, said: dict[str, Any] | None = None,
    precision: str = "bf16", **more: Any,
) -> oracle.Estimate:  # fmt: skip
    return oracle.estimate(model, BUILT, plan, batch, precision=precision, optimizer="adam",
                           software=software(said), **more)  # fmt: skip


def sent(found: oracle.Estimate) -> dict[str, dict[str, Any]]:
    return {one["what"]: one for one in found.exchange[0]}


def bytes_of(found: oracle.Estimate) -> dict[str, float]:
    return {kind: float(values[0]) for kind, values in found.memory_kinds.items()}


def stream(nbytes: float) -> float:
    return float(kernels.stream(BUILT.device, np.array(nbytes), queued=True))


# --- gradients -------------------------------------------------------------------------------

BY_PRECISION = {"fp16": "compute", "other": "fp32"}


@pytest.mark.parametrize(("said", "precision", "buffer", "wire"), [
    ({}, "bf16", 4, 2),
    ({}, "fp32", 4, 4),
    ({"wire": None}, "bf16", 4, 4),  # as the buffer has them
    ({"gradients": "bf16", "wire": None}, "bf16", 2, 2),
    ({"gradients": "bf16", "wire": "fp32"}, "bf16", 2, 4),
    ({"gradients": "compute"}, "fp16", 2, 2),
    ({"gradients": "compute"}, "fp8", 2, 2),  # activations in fp8 training are of 16 bits
    ({"gradients": BY_PRECISION, "wire": None}, "fp16", 2, 2),
    ({"gradients": BY_PRECISION, "wire": None}, "bf16", 4, 4),
    ({"gradients": {"fp32": "bf16"}, "wire": None}, "bf16", 2, 2),  # not said: as activations
])  # fmt: skip
def test_gradients_are_added_up_and_sent_in_their_widths(
    said: dict[str, Any], precision: str, buffer: int, wire: int
) -> None:
    found = asked(ONE, "data:4", 4, {"exchange": said}, precision)
    assert bytes_of(found)["gradients"] == W * buffer
    assert sent(found)["data: gradients"]["bytes"] == W * wire


@pytest.mark.parametrize(("pieces", "precision", "count"), [
    ({"bytes": "25e6"}, "bf16", 2),  # 4096² weights are 33.6 MB
    ({"bytes": "25e6"}, "fp32", 3),
    ({"bytes": "4 * 2**20"}, "bf16", 8),
    ({"elements": "4 * 2**20"}, "bf16", 4),  # however wide they are
    ({"elements": "4 * 2**20"}, "fp32", 4),
    ({"elements": "max(1e6, 2**20 * data)"}, "bf16", 4),
    ({"elements": "2**20 * devices / 2"}, "bf16", 8),
    (None, "fp32", 1),
])  # fmt: skip
def test_gradients_go_in_pieces(pieces: Any, precision: str, count: int) -> None:
    whole = asked(matrix(4096, 4096), "data:4", 4, {"exchange": {"pieces": pieces}}, precision)
    one = sent(whole)["data: gradients"]
    assert one["calls"] == count
    assert one["bytes"] * count == 4096**2 * (4 if precision == "fp32" else 2)


def test_units_send_their_own() -> None:
    """Of one matrix, or of three units: embedding, blocks, head; whichever stage has the most."""
    units = {"exchange": {"pieces": {"of": "units"}}}
    assert sent(asked(ONE, "data:4", 4, units))["data: gradients"]["calls"] == 1
    model = family(layers=3)
    each = [float(w) for w in model.units[0] @ (model.w * model.trained) if w]
    for plan in ("data:4,zero=2", "data:4,zero=3", "data:2 sharded:2"):
        found = sent(asked(model, plan, 4, units))
        for what in ("gradients scattered", "gradients", "weights renewed", "weights"):
            for one in (one for name, one in found.items() if name.endswith(f": {what}")):
                share = 2 if one["op"] == "allreduce" else 1  # replicas of shards
                assert one["calls"] == len(each), (plan, what)
                assert one["bytes"] == max(each) * 2 / share, (plan, what)


def test_other_stages_than_the_first_send_each_chunk_whole() -> None:
    """1,000 bytes in pieces of 300; or as many as a stage has chunks."""
    message = Message("gradients", "allreduce", 1.0, ("data",))
    for of, found in (("stages", [4, 4, 2]), ("first_stage", [4, 3, 3])):
        rule = catalogue.software(software({"exchange": {"pieces": {"bytes": "300", "of": of}}}))
        load: Any = SimpleNamespace(
            shard=SimpleNamespace(software=rule, wire=2.0, gathered=2.0),
            plan=SimpleNamespace(devices=np.array([[6.0]])), stages=SimpleNamespace(v=3),
        )  # fmt: skip
        nbytes = np.array([[1000.0, 1000.0, 500.0]])
        assert _pieces(message, nbytes, load, np.array([[2.0]])).tolist() == [found]


def test_gradients_hide_under_the_backward_pass_or_not() -> None:
    model = matrix(*[2048] * 9)  # 8 matrices, 67 MB: three pieces
    for overlap, calls in (("backward", 3), ("none", 1)):
        one = sent(asked(model, "data:4", 8192, {"exchange": {"overlap": overlap}}))
        found = one["data: gradients"]
        assert found["calls"] == calls
        if overlap == "none":
            assert found["exposed"] == pytest.approx(found["seconds"])
        else:  # the last piece, at least
            assert found["exposed"] == pytest.approx(found["seconds"] / 3)


@pytest.mark.parametrize(("plan", "devices"), [("data:4", 4), ("serial", 1)])
def test_passes_over_the_gradients_where_replicas_agree(plan: str, devices: int) -> None:
    before, after = (asked(ONE, plan, 4, {"exchange": {"passes": n}}) for n in (0, 3))
    more = stream(3 * 4 * W) if devices > 1 else 0.0
    assert after.compute["update"][0] - before.compute["update"][0] == pytest.approx(more)


def test_the_last_piece_waits_half_a_cycle() -> None:
    before, after = (asked(ONE, "data:4", 4, {"exchange": {"cycle": t}}) for t in ("0 s", "5 ms"))
    assert after.seconds[0] - before.seconds[0] == pytest.approx(2.5e-3)


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_agree_on_what_is_ready_by_recursive_doubling(ranks: int) -> None:
    before, after = (
        asked(ONE, f"data:{ranks}", ranks, {"exchange": {"negotiations": n}}) for n in (0, 3)
    )
    start = 3 * np.log2(ranks) * oracle.system(SYSTEM).levels[0].latency
    assert after.seconds[0] - before.seconds[0] == pytest.approx(start)


@pytest.mark.parametrize(("knobs", "connection", "process", "rate"), [
    ("servers=1", "1 MB/s", "1 TB/s", 1e6), ("servers=2", "1 MB/s", "1 TB/s", 2e6),
    ("servers=3", "1 MB/s", "2 MB/s", 2e6), ("servers=4", "1 MB/s", "1 TB/s", 4e6 / (3 / 4)),
    ("servers=1", "1 TB/s", "1 MB/s", 1e6 / 3),
    ("servers=1,hosts=own", "1 TB/s", "1 MB/s", 1e6 / 4),
    ("servers=2,hosts=own", "1 TB/s", "1 MB/s", 2e6 / 4),
])  # fmt: skip
def test_servers_are_no_faster_than_processes_copy(
    knobs: str, connection: str, process: str, rate: float
) -> None:
    """By hand: a worker sends W over its connections, a server takes W/k from each other."""
    said = {"exchange": {"connection": connection, "process": process, "wire": "fp32"}}
    (served,) = sent(asked(ONE, f"data:4,{knobs}", 4, said)).values()
    assert served["seconds"] == pytest.approx(2 * 4 * W / rate, rel=0.01)


# --- weights that are gathered ---------------------------------------------------------------

FP8 = {"fp8": "fp8", "other": "compute"}


@pytest.mark.parametrize(("wire", "precision", "width"), [
    ("compute", "bf16", 2), ("fp32", "bf16", 4), (FP8, "fp8", 1), (FP8, "bf16", 2),
])  # fmt: skip
def test_weights_come_back_in_their_width(wire: Any, precision: str, width: int) -> None:
    """Renewed by ZeRO-1; by ZeRO-3 two units, the one at work and the next, beside the share."""
    renewed = asked(ONE, "data:4,zero=1", 4, {"gather": {"wire": wire}}, precision)
    assert sent(renewed)["data: weights renewed"]["bytes"] == W * width
    used = asked(ONE, "data:4,zero=3", 4, {"gather": {"wire": wire}}, precision)
    assert sent(used)["data: weights"]["bytes"] == W * width
    assert bytes_of(used)["weights"] == W * (2 / 4 + 2 * width)


def test_renewed_weights_hide_under_the_next_forward_pass_or_not() -> None:
    model = matrix(*[2048] * 9)
    for overlap in ("none", "forward"):
        found = sent(asked(model, "data:4,zero=1", 8192, {"gather": {"overlap": overlap}}))
        one = found["data: weights renewed"]
        part = 1 if overlap == "none" else one["calls"]
        assert one["exposed"] == pytest.approx(one["seconds"] / part)


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_units_that_are_gathered_ahead(prefetch: int) -> None:
    found = asked(ONE, "data:4,zero=3", 4, {"gather": {"prefetch": prefetch}})
    assert bytes_of(found)["weights"] == 2 * W * (1 / 4 + 1 + prefetch)
    model = matrix(*[2048] * 9)
    one = sent(asked(model, "data:4,zero=3", 8192, {"gather": {"prefetch": prefetch}}))
    for what in ("data: weights", "data: weights again"):  # all but the first of eight hide
        part = one[what]["seconds"] / (8 if prefetch else 1)
        assert one[what]["exposed"] == pytest.approx(part)


# --- tensor parallelism ----------------------------------------------------------------------

SAID = {
    "forward_column": ("activations gathered", "forward"),
    "forward_row": ("activations scattered", "forward"),
    "backward_row": ("output gradients gathered", "data"),
    "backward_column_gather": ("inputs gathered again", "data"),
    "backward_column_reduce": ("input gradients scattered", "weight"),
}
NOTHING = dict.fromkeys(SAID, "none")


@pytest.mark.parametrize(("field", "word"), [
    (field, word) for field, (_, own) in SAID.items() for word in ("none", "own", "pipelined")
    if (own, word) != ("forward", "own")
])  # fmt: skip
def test_what_a_message_of_tensor_ranks_hides_under(field: str, word: str) -> None:
    """Row by row: nothing hides, what its product has room for, or that but for a last piece.

    A row has one product forward: beside it a message hides piece by piece only.
    """
    what, own = SAID[field]
    part = "data" if (own, word) == ("weight", "pipelined") else own
    said = NOTHING | {field: own if word == "own" else word, "shown": 0.25}
    plan = "tensor:4,sequence=on"
    found = sent(asked(WIDE, plan, 4, {"tensor": said}))
    one = found[f"tensor: {what}"]
    shard = evaluate.split(WIDE, parse(plan, 4.0), options_for(WIDE, BUILT, "bf16", "adam"))
    alone = getattr(passes(shard, BUILT.device, "bf16"), part)[0]
    role, table = ("row", "embedding") if "row" in field else ("column", "dense")
    senders = [i for i, row in enumerate(WIDE.rows)
               if row.role == role or (row.role, row.kind) == ("vocab", table)]  # fmt: skip
    assert one["calls"] == sum(WIDE.repeat[i] for i in senders)
    each = one["seconds"] / one["calls"]
    least = {"none": each, "own": 0.0, "pipelined": 0.25 * each}[word]
    left = sum(WIDE.repeat[i] * max(least, (each - alone[i]) if word != "none" else 0.0)
               for i in senders)  # fmt: skip
    assert one["exposed"] == pytest.approx(left)
    assert (one["exposed"] < one["seconds"]) == (word != "none")
    for name, other in found.items():
        if name.startswith("tensor") and other is not one:
            assert other["exposed"] == other["seconds"]


@pytest.mark.parametrize(("precision", "width"), [("fp8", 1), ("bf16", 2)])
def test_activations_are_gathered_in_their_width(precision: str, width: int) -> None:
    """What is reduced stays in 16 bits."""
    found = sent(asked(WIDE, "tensor:4,sequence=on", 4, {"tensor": {"gather": FP8}}, precision))
    whole = 4 * TOKENS * H
    for what in ("activations gathered", "inputs gathered again"):
        assert found[f"tensor: {what}"]["bytes"] == whole * width
    for what in ("activations scattered", "output gradients gathered"):
        assert found[f"tensor: {what}"]["bytes"] == whole * 2


# --- context, pipeline -----------------------------------------------------------------------


def test_keys_and_values_hide_under_attention_or_not() -> None:
    for word in ("beside", "exposed"):
        found = sent(asked(WIDE, "context:4", 4, {"context": word}))
        for what in ("keys and values", "keys, values and gradients"):
            one = found[f"context: {what}"]
            assert (one["exposed"] == one["seconds"]) == (word == "exposed")


@pytest.mark.parametrize(("scattered", "part"), [(True, 2), (False, 1)])
def test_ranks_send_parts_over_a_border_or_all_of_it(scattered: bool, part: int) -> None:
    said = {"borders": {"scattered": scattered}}
    found = sent(asked(family(), "pipeline:4,segments=8 tensor:2", 8, said))
    one = found["pipeline: stage borders"]
    assert one["bytes"] == SMALL["sequence"] * SMALL["hidden"] * 2 / part


@pytest.mark.parametrize(("overlap", "chunks", "hidden"), [
    ("none", 1, False), ("interleaved", 1, False), ("all", 1, True), ("none", 2, False),
    ("interleaved", 2, True), ("all", 2, True),
])  # fmt: skip
def test_borders_that_are_crossed_beside_work(overlap: str, chunks: int, hidden: bool) -> None:
    """Filling crosses p - 1 of them, draining as many; the other crossings hide.

    On nodes of two a pipeline of four has a slow border in the middle: each stage waits for its
    own, and with more chunks a stage crosses v times, the last leading back to the first.
    """
    model, segments = family(layers=16), 8
    plan = f"pipeline:4,segments={segments},interleave={chunks}"
    shown, whole = (
        asked(model, plan, segments, {"borders": {"overlap": word}}) for word in (overlap, "none")
    )
    one, all_of_it = (sent(each)["pipeline: stage borders"] for each in (shown, whole))
    assert one["seconds"] == all_of_it["seconds"]
    if not hidden:
        assert one["exposed"] == one["seconds"]
        assert shown.seconds[0] == whole.seconds[0]
        return
    assert shown.seconds[0] < whole.seconds[0]
    if chunks == 1:  # one node of four: every border is alike
        each = one["seconds"] / one["calls"]
        assert one["exposed"] == pytest.approx(2 * 3 * each)
        busy = sum(each for part, (each,) in shown.compute.items() if part != "update")
        left = shown.seconds[0] - busy - shown.compute["update"][0]
        tied = sent(shown)["pipeline: gradients of the tied table"]["exposed"]
        assert left == pytest.approx(2 * 3 * each + tied)


def test_hiding_borders_makes_no_plan_slower() -> None:
    """Where the host sets the pace a border hides under it already."""
    said = {"host": {"dispatch": "20 us"}}
    for plan in ("pipeline:4,segments=8 tensor:2", "pipeline:4,segments=8,interleave=2,cuts=even"):
        none, every = (
            asked(family(layers=8), plan, 8, {**said, "borders": {"overlap": word}}).seconds[0]
            for word in ("none", "all")
        )
        assert every <= none


# --- what is kept, and the update ------------------------------------------------------------


@pytest.mark.parametrize(("said", "precision", "weight", "state"), [
    ({}, "bf16", 2, 12),
    ({"weights": "fp32", "masters": "none"}, "bf16", 4, 8),
    ({"weights": {"fp16": "fp32"}}, "fp16", 4, 12),
    ({"weights": {"fp16": "fp32"}}, "bf16", 2, 12),
    ({"masters": "bf16", "moments": "bf16"}, "bf16", 2, 6),
    ({"moments": "compute"}, "bf16", 2, 8),
    ({"masters": "bf16"}, "fp32", 4, 8),  # fp32 weights are their own masters
    ({"weights": FP8}, "fp8", 1, 12),
    ({"weights": FP8, "fp8_copies": 2}, "fp8", 3, 12),
    ({"fp8_copies": 2}, "bf16", 2, 12),
    ({"weights": "narrow", "fp8_copies": 1}, "mxfp8", 2 * (1 + 1 / 32), 12),
    ({"weights": "narrow", "fp8_copies": {"nvfp4": 1, "other": 0}}, "nvfp4", 9 / 8, 12),
    ({"weights": "narrow", "fp8_copies": {"nvfp4": 1, "other": 0}}, "fp8", 1, 12),
    ({"weights": "narrow"}, "bf16", 2, 12),
])  # fmt: skip
def test_bytes_a_weight(said: dict[str, Any], precision: str, weight: float, state: int) -> None:
    found = bytes_of(asked(ONE, "data:2", 4, {"state": said}, precision))
    assert found["weights"] == W * weight
    assert found["optimizer"] == W * state


@pytest.mark.parametrize(("buckets", "held"), [(0, 0), (1, 2**20), (2, 2 * 2**20), (9, 4 * W)])
def test_copies_of_gradients_in_flight(buckets: int, held: int) -> None:
    said = {"state": {"buckets": buckets}, "exchange": {"pieces": {"bytes": "2**20"}}}
    assert bytes_of(asked(ONE, "data:2", 4, said))["buffers"] == held


@pytest.mark.parametrize(("beside", "precision", "each"), [
    (2, "bf16", 2), (2, "fp32", 2), ({"bf16": 6}, "bf16", 6), ({"bf16": 6}, "fp16", 0),
    ({"bf16": 6, "other": 1}, "fp16", 1),
])  # fmt: skip
def test_what_lies_beside_each_gradient(beside: Any, precision: str, each: int) -> None:
    said = {"state": {"beside": beside, "buckets": 0}}
    assert bytes_of(asked(ONE, "data:2", 4, said, precision))["buffers"] == W * each


@pytest.mark.parametrize(("zero", "share"), [(0, 1), (1, 4)])
def test_what_the_update_takes_is_not_there_with_activations(zero: int, share: int) -> None:
    """The worst moment: all activations and the loss, or the update's own bytes.

    An allocator keeps what it gave to either, and gives it up when asked.
    """
    plan = f"data:4,zero={zero}"
    before, little, much = (
        asked(ONE, plan, 4, {"state": {"step": n, "buckets": 0}}) for n in (0, 6e-6, 60)
    )
    kept = before.memory_kinds["activations"][0] + before.memory_kinds["workspace"][0]
    assert bytes_of(before)["buffers"] == bytes_of(little)["buffers"] == 0
    assert (before.cached[0], little.cached[0]) == (0, pytest.approx(6e-6 * W / share))
    assert bytes_of(much)["buffers"] == 60 * W / share
    assert bytes_of(much)["activations"] == 0
    assert much.cached[0] == kept
    assert much.to_dict()["plans"][0]["memory"]["cached"] == kept


def test_casts_of_the_update() -> None:
    for precision, each in (("bf16", 30), ("fp32", 0)):
        less, more = (
            asked(ONE, "serial", 4, {"state": {"casts": n}}, precision).compute["update"][0]
            for n in (0, 30)
        )
        plain = float(kernels.update(BUILT.device, precision, "adam", np.array(float(W)), 2.0))
        if precision == "bf16":  # what the product left in 16 bits is cast up
            plain += stream(6 * W)
        assert less == pytest.approx(plain + stream(4 * W))  # read once more for their norm
        assert more == pytest.approx(plain + stream((4 + each) * W))
    # gradients that were added up in fp32 are not cast up; those of bf16 are not scaled either
    by_name = {name: named_software(name) for name in ("plain", "megatron-lm-2022", "nemo")}
    casts = {name: (found.state.cast("fp16"), found.state.cast("bf16"), found.state.cast("fp32"))
             for name, found in by_name.items()}  # fmt: skip
    assert casts == {"plain": (8 + 6, 6, 0), "megatron-lm-2022": (6 + 8 + 6, 6, 0),
                     "nemo": (6 + 8 + 6, 6 + 6, 0)}  # fmt: skip


def test_an_optimizer_updates_tensor_by_tensor() -> None:
    """Adam's six terms are 17 passes over fp32 weights, a kernel of each of two tensors a row."""
    whole, apart = (
        asked(ONE, "serial", 4, {"kernels": {"optimizer": word}}, "fp32").compute["update"][0]
        for word in ("fused", "apart")
    )
    read = stream(4 * W) - stream(0)  # once more for their norm
    assert whole == pytest.approx(stream(4 * 7 * W) + stream(0) + read)
    assert apart == pytest.approx(12 * stream(4 * 17 * W / 12) + stream(0) + read)


def test_weights_are_cast_to_8_bits_with_each_use_or_once_a_step() -> None:
    """Four micro-batches of 64 rows: their inputs are cast each time."""
    plan, batch = "data:2,accumulate=4", 512
    use, step = (
        asked(ONE, plan, batch, {"state": {"fp8_casts": word}}, "fp8").compute
        for word in ("use", "step")
    )
    once = stream(CAST["fp8"] * (64 * SIDE + W)) - stream(CAST["fp8"] * 64 * SIDE)
    assert use["forward"][0] - step["forward"][0] == pytest.approx(4 * once)
    plain = {name: float(step[name][0] - use[name][0]) for name in ("backward", "update")}
    assert plain["backward"] == 0
    assert plain["update"] == pytest.approx(
        stream((20 + 4 + CAST["fp8"]) * W) - stream((20 + 4) * W)
    )


def test_inputs_of_linear_layers_are_kept_in_8_bits() -> None:
    """Only what nobody else wants again: the four products' inputs of a layer without dropout.

    QKV's and FC1's come from norms, which want their own inputs; the output's from attention,
    which wants its result too; FC2's from an activation, which wants what it was given.
    """
    model = family(flash=True, fused=True)
    wide, narrow = (
        asked(model, "serial", 4, {"state": {"fp8_inputs": word}}, "fp8").memory_kinds
        for word in ("compute", "fp8")
    )
    s, h, b = SMALL["sequence"], SMALL["hidden"], 4
    fed = 4 * s * b * (h + h + 4 * h)  # of four layers, elements; h, h and 4 h
    saved = float(wide["activations"][0] - narrow["activations"][0])
    assert saved == pytest.approx(fed, rel=0.01)
    for word in ("compute", "fp8"):
        same = asked(model, "serial", 4, {"state": {"fp8_inputs": word}}, "bf16").memory_kinds
        assert same["activations"][0] == wide["activations"][0]


# --- kernels ---------------------------------------------------------------------------------


def test_kernels_where_a_model_does_not_say() -> None:
    open_ = family(layers=2, heads=4)
    choices = {"unfused": (False, None), "flash1": (True, 1), "flash2": (True, 2),
               "best": (True, None)}  # fmt: skip
    for word, (flash, version) in choices.items():
        said = {"kernels": {"attention": word}}
        found = asked(open_, "serial", 4, said, "fp16")
        named: dict[str, Any] = {"flash": flash} | ({"flash_version": version} if version else {})
        by_hand = asked(family(layers=2, heads=4, **named), "serial", 4, precision="fp16")
        assert found.seconds[0] == by_hand.seconds[0], word
        assert found.memory[0] == by_hand.memory[0], word
        closed = family(layers=2, heads=4, flash=False)  # a model's own word counts
        assert asked(closed, "serial", 4, said, "fp16").seconds[0] == (
            asked(closed, "serial", 4, precision="fp16").seconds[0])  # fmt: skip


def test_kernels_that_take_their_neighbours_along() -> None:
    fused, apart = (  # gates and rotations; gradients of micro-batches that products add up
        asked(family(gated=True), "data:1,accumulate=4", 64, {"kernels": {"fused": yes}})
        for yes in (True, False)
    )
    assert apart.seconds[0] > fused.seconds[0]
    inside, outside = (
        asked(family(experts=8, active=2), "data:2", 4, {"kernels": {"experts": word}})
        for word in ("inside", "outside")
    )
    assert inside.memory[0] != outside.memory[0]


def test_a_loss_writes_its_gradient_over_its_input_or_beside_it() -> None:
    place, beside = (
        asked(family(), "serial", 4, {"kernels": {"loss": word}}).memory_kinds
        for word in ("in_place", "beside")
    )
    logits = 4 * SMALL["sequence"] * SMALL["vocab"]
    more = [float(beside[k][0] - place[k][0]) for k in ("activations", "workspace")]
    assert sum(more) > 0
    assert sum(more) % logits == 0  # whole tensors of logits


def test_batch_norms_take_along_what_is_beside_them() -> None:
    layers = [{"conv": {"filters": 16, "kernel": 3, "padding": 1}}, {"norm": "batch"}, "relu"]
    net = {"name": "n", "source": "made up", "input": [3, 32, 32], "layers": layers}
    apart, fused = (
        asked(net, "serial", 64, {"kernels": {"norms": word}}).seconds[0]
        for word in ("apart", "fused")
    )
    assert fused < apart
    said = asked({**net, "fused": False}, "serial", 64, {"kernels": {"norms": "fused"}})
    assert said.seconds[0] == apart


# --- the host --------------------------------------------------------------------------------


def test_what_the_host_needs_for_a_kernel() -> None:
    """The driver's seconds and the framework's; those of a system count before a framework's."""
    built = oracle.system(SYSTEM)  # 5 us of driver, if it does not say
    there = oracle.system({**SYSTEM, "dispatch": "7 us"})
    host = Host(dispatch=30e-6)
    assert host.launch(built) == pytest.approx(35e-6)
    assert host.launch(there) == pytest.approx(12e-6)
    assert Host(dispatch=30e-6, graphs="iteration").launch(built) == 0


def test_parts_of_layers_are_launched_as_one() -> None:
    """Of a pass of layers without a loss to speak of: what is no part's kernels, and one a part."""
    dense = {"name": "d", "source": "here", "transformer": {
        "layers": 40, "hidden": 64, "heads": 2, "vocab": 64, "sequence": 16,
        "gated": True}}  # fmt: skip
    mixed = {**dense, "transformer": {**dense["transformer"], "experts": 4, "shared": 1}}
    system = oracle.system(SYSTEM)

    def launches(model: dict[str, Any], graphs: str) -> float:
        host = {"dispatch": "995 us", "around": 0, "graphs": graphs}
        seconds = [
            oracle.estimate({**model, "transformer": {**model["transformer"], "layers": layers}},
                            system, "serial", 1, software=software({"host": host})
                            ).compute["forward"][0] for layers in (20, 40)]  # fmt: skip
        return float(seconds[1] - seconds[0]) / 20 / 1e-3

    assert launches(dense, "attn+mlp") == pytest.approx(2, rel=0.02)
    every, attention, mlp = (launches(dense, graphs) for graphs in ("none", "attn", "mlp"))
    assert attention + mlp == pytest.approx(every + 2, rel=0.02)
    assert launches(mixed, "mlp") == pytest.approx(launches(mixed, "none"), rel=0.02)
    router = launches(mixed, "none") - launches(mixed, "moe_router+moe_preprocess")
    # the norm, three of the shared expert, nine of the router, less one
    assert router == pytest.approx(1 + 3 + 9 - 1, rel=0.02)
    with pytest.raises(oracle.SpecError, match="is not launched as one"):
        launches(dense, "attn+heads")


@pytest.mark.parametrize(("precision", "ahead", "back"), [("bf16", 1, 2), ("mxfp8", 2, 3)])
def test_products_of_experts_one_by_one(precision: str, ahead: int, back: int) -> None:
    """Of two products a layer: for each further expert one forward and two back, with a cast each
    where operands are narrow. The driver alone takes time for them.
    """
    slow = oracle.system({**SYSTEM, "device": {**SYSTEM["device"], "launch": "1 ms"}})
    family = {"hidden": 64, "heads": 2, "vocab": 64, "sequence": 16, "gated": True, "experts": 8}

    def per_layer(grouped: str, plan: str) -> tuple[float, float]:
        said = software(
            {"kernels": {"grouped": grouped}, "host": {"dispatch": "9 ms", "around": 0}}
        )
        found = [
            oracle.estimate({"name": "m", "source": "s", "transformer": {**family, "layers": n}},
                            slow, plan, 4, precision=precision, software=said) for n in (20, 40)
        ]  # fmt: skip
        return tuple((found[1].compute[part][0] - found[0].compute[part][0]) / 20e-3
                     for part in ("forward", "backward"))  # fmt: skip

    for plan, here in (("data:4", 8), ("data:4 expert:4", 2)):
        each, one = (np.array(per_layer(grouped, plan)) for grouped in ("each", "one"))
        assert each - one == pytest.approx(
            [2 * (here - 1) * ahead, 2 * (here - 1) * back], rel=0.02
        )


def test_the_host_sets_the_pace_of_small_kernels() -> None:
    """One matrix: three kernels forward and four back; around them what a framework does."""
    model, system = ONE, oracle.system(SYSTEM)

    def seconds(plan: str = "serial", **host: Any) -> oracle.Estimate:
        said = software({"host": {"dispatch": "995 us", "around": 0} | host})
        return oracle.estimate(model, system, plan, 4, precision="bf16", software=said)

    forward = seconds().compute["forward"][0]
    assert forward == pytest.approx(3e-3, rel=0.01)  # beside which the device is nothing
    assert seconds(around=10).compute["forward"][0] == pytest.approx(13e-3, rel=0.01)
    assert seconds(graphs="iteration", around=10).seconds[0] < 1e-3
    zero = "data:4,zero=3"  # two gathers a pass or less, each as much as `call` kernels
    none, two = (seconds(zero, call=n).seconds[0] for n in (0, 2))
    assert two >= none + 2 * 1e-3


def test_weights_gathered_where_they_are_used_are_not_copied_there() -> None:
    """Read and written in 16 bits, either pass, in a kernel of its own forward."""
    placed, there = (
        asked(ONE, "data:4,zero=3", 16, {"gather": {"placed": yes}}).compute
        for yes in (True, False)
    )
    saved = {part: placed[part][0] - there[part][0] for part in ("forward", "backward")}
    assert saved["forward"] == pytest.approx(stream(2 * 2 * W), rel=0.01)
    assert saved["backward"] == pytest.approx(stream(2 * 2 * W) - stream(0), rel=0.01)
    # of micro-batches' gradients that are added up, each device has its share
    whole, shares = (
        asked(ONE, f"data:4,zero={zero},accumulate=2", 16, {"kernels": {"fused": False},
              "gather": {"placed": False}}).compute["backward"][0] for zero in (1, 3)
    )  # fmt: skip
    assert shares < whole


def test_weights_gathered_to_run_back_are_there_for_what_is_made_again() -> None:
    """Six units, two micro-batches: 12 gathers a pass, whether the forward pass runs twice."""
    for mode in ("none", "full"):
        found = asked(family(), f"data:4,zero=3,accumulate=2 recompute:{mode}", 16)
        assert sent(found)["data: weights"]["calls"] == 12
        assert sent(found)["data: weights again"]["calls"] == 12


def test_keys_and_values_that_stand_once_for_each_head() -> None:
    """8 heads ask 2 keys: four times the bytes in a ring, 3 of 3 h kept and not 1.5 h."""
    model = family(kv_heads=2, sequence=256)
    once, often = (
        {
            plan: asked(model, plan, 4, {"kernels": {"repeated": yes}})
            for plan in ("context:4", "serial")
        }
        for yes in (False, True)
    )
    for name in ("context: keys and values", "context: keys, values and gradients"):
        assert sent(often["context:4"])[name]["bytes"] == 4 * sent(once["context:4"])[name]["bytes"]
    grown = bytes_of(often["serial"])["activations"] - bytes_of(once["serial"])["activations"]
    assert grown == 4 * 4 * 256 * 2 * 1.5 * 256
    # a kernel that takes them as they lie saves two passes over q, k, v and the result
    laid, lie = (asked(family(), "serial", 4, {"kernels": {"strided": yes}}).compute["forward"][0]
                 for yes in (False, True))  # fmt: skip
    assert laid - lie == pytest.approx(4 * stream(4 * 128 * 2 * 2 * 4 * 256), rel=0.01)


def test_a_loss_that_is_logged_is_taken_once_more() -> None:
    """Cast up and four passes over the logits in fp32."""
    none, two = (asked(family(vocab=32768), "serial", 4, {"kernels": {"logged": times}})
                 .compute["forward"][0] for times in (0, 2))  # fmt: skip
    start = stream(0.0)
    assert two - none == pytest.approx(stream(2 * 5.5 * 4 * 4 * 128 * 32768) - start, rel=0.01)


def test_the_defaults_are_those_of_no_framework() -> None:
    assert PLAIN.exchange.buffer("bf16") == 4
    assert PLAIN.exchange.sent("bf16") == 2
    assert TensorMessages().sent("fp8") == 2
    assert State().kept("fp8", narrow=True, frozen=False) == 2
    assert PLAIN.kernels.flash_version is None
    assert PLAIN.label == "plain"
