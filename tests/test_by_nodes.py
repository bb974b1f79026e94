"""Networks by the nodes that a message spans, and nanotron as software."""

from __future__ import annotations

from dataclasses import replace
from math import log

import numpy as np
import pytest

import oracle
from oracle.network.contention import RankGroups, lines
from oracle.network.contention.by_nodes import nodes_of
from oracle.plan.cuts import cuts_by_cost
from oracle.spec import catalogue
from oracle.spec.system import System

MEASURED = catalogue.system("aws-p5")
SYSTEMS = sorted(catalogue.shipped("systems"))


def ideal(system: System) -> System:
    """The same as its sheet has it."""
    levels = tuple(replace(level, by_nodes=()) for level in system.levels)
    return replace(system, levels=levels, calibrated_on=())


def seconds(system: System, op: str, pattern: tuple[tuple[int, int], ...], devices: int,
            nbytes: float) -> float:  # fmt: skip
    return min(line.start + line.per_byte * nbytes for line in lines(system, op, pattern, devices))


@pytest.mark.parametrize("point", MEASURED.levels[-1].by_nodes, ids=str)
def test_what_was_measured_is_given_back(point) -> None:
    """What the bus carried: 2 (p − 1) / p of an allreduce's bytes, half of it of the others."""
    p = 8 * point.nodes
    took = seconds(MEASURED, point.op, ((p, 1),), p, point.size)
    passes = 2 if point.op == "allreduce" else 1
    bus = passes * (p - 1) / p * point.size / (took + point.beside)
    assert bus == pytest.approx(point.bandwidth, rel=1e-6)


def test_a_group_is_as_slow_as_one_of_as_many_ranks() -> None:
    """Sixteen ranks on sixteen nodes, one on each, are no slower for it than sixteen on two."""
    apart = RankGroups(((16, 8),), 128)
    assert nodes_of(MEASURED, apart) == (16, 1)
    assert nodes_of(MEASURED, RankGroups(((16, 1),), 128)) == (2, 8)
    times = [
        seconds(MEASURED, "allgather", pattern, 128, 2.0**32)
        / seconds(ideal(MEASURED), "allgather", pattern, 128, 2.0**32)
        for pattern in (((16, 8),), ((16, 1),))
    ]
    assert times[0] == pytest.approx(times[1], rel=0.05)
    assert times[0] > 1.2


def test_a_message_widens_with_the_moments_of_its_network() -> None:
    (wide,) = {line.uncertainty for line in lines(MEASURED, "allreduce", ((64, 1),), 64)}
    point = next(p for p in MEASURED.levels[-1].by_nodes if (p.op, p.nodes) == ("allreduce", 8))
    assert wide == pytest.approx(log(point.high / point.bandwidth) / 1.6449)
    assert all(line.short == pytest.approx((point.bandwidth / point.low - 1) / 1.6449 - wide)
               for line in lines(MEASURED, "allreduce", ((64, 1),), 64))  # fmt: skip


def test_more_nodes_are_never_faster() -> None:
    for op in ("allreduce", "allgather", "reduce_scatter"):
        took = [seconds(MEASURED, op, ((8 * n, 1),), 8 * n, 2.0**30) for n in range(2, 129)]
        assert (np.diff(took) > -0.02 * np.array(took[1:])).all(), op


@pytest.mark.parametrize(("text", "complaint"), [
    ("{op: allreduce, nodes: 1, bandwidth: 9 GB/s}", "one node"),
    ("{op: allreduse, nodes: 2, bandwidth: 9 GB/s}", "no operation"),
    ("{op: allreduce, nodes: 2, bandwidth: 9 GB/s, low: 8 GB/s}", "two ends"),
    ("{op: allreduce, nodes: 2, bandwidth: 9 GB/s, low: 10 GB/s, high: 11 GB/s}", "median"),
    ("{op: allreduce, nodes: 9999, bandwidth: 9 GB/s}", "9999 nodes"),
    ("{op: allreduce, nodes: 2, bandwidth: 9 GB/s, beside: 1 s}", "no message"),
])  # fmt: skip
def test_what_cannot_be_is_refused(text: str, complaint: str, tmp_path) -> None:
    written = catalogue.shipped("systems")["aws-p5"].read_text(encoding="utf-8")
    head, _, rest = written.partition("    by_nodes:\n")
    spec = tmp_path / "mine.yaml"
    spec.write_text(f"{head}    by_nodes:\n      - {text}\nlibrary:{rest.partition('library:')[2]}")
    with pytest.raises(oracle.SpecError, match=complaint):
        oracle.system(str(spec))


GPT = {"layers": 16, "hidden": 2048, "heads": 32, "ffn": 8192, "gated": True, "vocab": 131072,
       "sequence": 4096, "tied_embeddings": True}  # fmt: skip
LLAMA = {"name": "llama", "source": "by hand", "transformer": GPT}


def test_pipelines_are_dealt_by_cost() -> None:
    """A layer counts 4 h² + 3 · 4 h² = 16 h², the head 64 h²: 320 h² in all, 160 h² a half.

    Ten layers are half; the eleventh passes it.
    """
    model = oracle.model(LLAMA)
    assert cuts_by_cost(model, 2).tolist() == [0, 12, 20]  # the embedding is a unit
    # its last ranks have no weights, or nothing at all: each has a unit here
    assert cuts_by_cost(model, 16).tolist() == [0, 3, 4, 5, 7, 8, 9, 10, 12, 13, 14, 15, 16, 17,
                                                18, 19, 20]  # fmt: skip
    assert cuts_by_cost(model, 21) is None
    plans = ["pipeline:16,segments=256", "pipeline:8,segments=256"]
    found = oracle.estimate(LLAMA, "aws-p5", plans, 256, software="nanotron", precision="bf16")
    assert "dealt by cost" in found.broken[0][0]
    assert not found.broken[1]


def test_sharded_state_under_nanotron_adds_whole_gradients_up() -> None:
    plans = ["data:16", "data:16,zero=1"]
    found = oracle.estimate(LLAMA, "aws-p5", plans, 256, software="nanotron", precision="bf16",
                            optimizer="adam")  # fmt: skip
    plain, sharded = ({message["op"]: message for message in row} for row in found.exchange)
    assert {*plain} == {"allreduce"}
    assert {*sharded} == {"allreduce", "allgather"}
    whole = sharded["allreduce"]
    assert whole["exposed"] == pytest.approx(whole["seconds"])  # nothing hides it
    assert plain["allreduce"]["exposed"] < plain["allreduce"]["seconds"]
    weights = whole["bytes"] / 4
    assert weights == pytest.approx(16 * 16 * 2048**2 + 131072 * 2048, rel=0.001)
    # DDP's buckets stay, of 16 bits
    extra = found.memory_kinds["gradients"][0] - found.memory_kinds["gradients"][1]
    assert extra == pytest.approx(2 * weights)


def test_a_plan_alone_is_as_in_a_table_under_nanotron() -> None:
    plans = ["data:16", "data:16,zero=1", "data:8 tensor:2,sequence=on", "data:4,zero=1 tensor:4",
             "pipeline:2,segments=16 data:8"]  # fmt: skip
    kinds = {"software": "nanotron", "precision": "bf16", "optimizer": "adam"}
    together = oracle.estimate(LLAMA, "aws-p5", plans, 256, any_plan=True, **kinds)
    for row, plan in enumerate(plans):
        alone = oracle.estimate(LLAMA, "aws-p5", plan, 256, any_plan=True, **kinds)
        assert alone.memory[0] == pytest.approx(together.memory[row])
        assert alone.seconds[0] == pytest.approx(together.seconds[row])


def test_explain_says_how_much_the_network_varies() -> None:
    def varying(system: str) -> list[str]:
        found = oracle.explain(plan="data:128", model=LLAMA, system=system, batch=256,
                               precision="bf16", software="nanotron", optimizer="adam")  # fmt: skip
        return [limit["words"] for limit in found.to_dict()["limits"]
                if limit["factor"] == "network varies"]  # fmt: skip

    (line,) = varying("aws-p5")  # 188.42 by 84.74, 84.74 by 31.34 GB/s
    assert f"{84.74 / 188.42:.2g} to {84.74 / 31.34:.2g} × as long" in line
    assert not varying("eos")


def test_what_tensor_ranks_gather_and_scatter_stays_under_nanotron() -> None:
    """By hand: of 16 layers each scatters twice and the embedding once, 4,096 × 2,048 × 2 B a time.

    Two buffers of as much stay. What a pass scattered lingers where the next one follows it, and
    neither where it is the only one nor in one of a pipeline that is launched no faster than run.
    """
    tensor = 4096 * 2048 * 2
    plans = ["data:4,accumulate=2 tensor:8,sequence=on", "data:8 tensor:8,sequence=on",
             "pipeline:2,segments=8 data:4 tensor:8,sequence=on"]  # fmt: skip
    kinds = {"software": "nanotron", "precision": "bf16", "optimizer": "adam", "any_plan": True}
    found = oracle.estimate(LLAMA, "aws-p5", plans, 8, **kinds)
    buffers = found.memory_kinds["buffers"] - found.memory_kinds["buffers"][1]
    assert buffers[0] == pytest.approx(33 * tensor, rel=0.01)


def test_rank_0_is_on_the_first_stage() -> None:
    """Its log says no more than the fullest stage holds, and as much of the only one."""
    plans = ["data:8", "pipeline:4,segments=8 data:8", "pipeline:2,segments=1 data:8"]
    found = oracle.estimate(LLAMA, "aws-p5", plans, 64, software="nanotron", precision="bf16",
                            optimizer="adam", any_plan=True)  # fmt: skip
    first = [work.first_stage_bytes for work in found.work]
    slack = 1 + found.options.software.state.slack
    fullest = slack * (found.memory - found.memory_kinds["reserve"])
    assert first[0] == pytest.approx(fullest[0])
    assert all(held <= most * 1.001 for held, most in zip(first, fullest, strict=True))
    assert int(found.stage[2]) != 0  # the loss is on the last
    assert first[2] < fullest[2]


def test_a_field_has_the_network_as_its_sheet_says() -> None:
    kinds = {"software": "nanotron", "precision": "bf16", "optimizer": "adam"}
    sheet = oracle.system("aws-p5,network=sheet")
    assert not any(level.by_nodes for level in sheet.levels)
    measured, ideal = (oracle.estimate(LLAMA, system, "data:256", 256, **kinds)
                       for system in ("aws-p5", "aws-p5,network=sheet"))  # fmt: skip
    assert ideal.seconds[0] < 0.8 * measured.seconds[0]
