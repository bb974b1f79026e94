"""ZeRO++: bytes across nodes as published, the second copy, what DeepSpeed is told."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import oracle
from oracle.network.collectives import named
from oracle.network.collectives.schedule import flows

ASKED: dict[str, Any] = {"precision": "bf16", "optimizer": "adam", "reading": "none",
                         "software": "deepspeed"}  # fmt: skip
PLANS = ["data:64,zero=3", "data:64,zero=3,quantize=both,hpz=8",
         "data:64,zero=3,quantize=weights", "data:64,zero=3,quantize=gradients",
         "data:64,zero=3,hpz=8"]  # fmt: skip
M = 2.0 * 124439808  # bytes of GPT-2's weights in 16 bits


@pytest.fixture(scope="module")
def found() -> Any:
    return oracle.estimate("gpt2", "dgx-a100", PLANS, 64, **ASKED)


def sent(found: Any, at: int) -> dict[str, Any]:
    return {one["what"].removeprefix("data: "): one for one in found.exchange[at]}


def out_of_a_node(one: Any) -> float:
    """Bytes that leave a node of eight for the other seven, over M and (n - 1)/n."""
    if one["group"] <= 8:
        return 0.0
    return float(one["calls"] * one["bytes"]) / M


def test_three_times_the_weights_leave_a_node_and_three_quarters_do(found: Any) -> None:
    """[wang2024zero, Table 1]: 3 M of 16-bit weights, and 0.75 M with all three."""
    whole, less, weights, gradients, near = (
        {what: out_of_a_node(one) for what, one in sent(found, at).items()} for at in range(5)
    )
    times = whole["weights"]  # tied embeddings are gathered for both of their rows
    assert whole["weights again"] == times
    assert whole["gradients scattered"] == pytest.approx(1, rel=0.01)
    assert less["weights"] == weights["weights again"] == pytest.approx(0.5 * times, rel=2e-3)
    assert less["gradients in 4 bits"] == pytest.approx(0.25, rel=0.01)
    assert gradients["weights"] == near["weights"] == times
    assert less["weights from neighbours"] == near["weights from neighbours"] == 0
    assert not {"weights again", "gradients scattered"} & set(less)
    assert sum(less.values()) < 0.27 * sum(whole.values())


def test_a_sum_of_few_bits_takes_two_hops() -> None:
    """q = 4 of p = 8: (q - 1)/q m inside, m/p to its like in the other node."""
    by = named("reduce_scatter", "two_hop")
    sent = np.zeros(8)
    for source, target, share, _ in flows(by.schedule(8, 4), 8):
        inside = source // 4 == target // 4
        assert inside.all() or (~inside).all()
        np.add.at(sent, source, share)
    assert sent == pytest.approx(np.full(8, 3 / 4 + 1 / 8))


def test_neighbours_hold_a_second_copy(found: Any) -> None:
    more = found.memory[4] - found.memory[0]
    assert more == pytest.approx(M / 8, rel=0.2)  # of which 1 part in 8 is not only of its row
    assert found.memory[2] == found.memory[0]


@pytest.mark.parametrize(("plan", "why"), [
    ("data:64,zero=2,hpz=8", "zero=3"), ("data:64,zero=3,hpz=48", "hpz divides the data degree"),
    ("data:64,quantize=weights", "zero=3"),
])  # fmt: skip
def test_what_does_not_go_together(plan: str, why: str) -> None:
    broken = oracle.estimate("gpt2", "dgx-a100", plan, 64, **ASKED | {"software": "plain"}).broken
    assert why in " ".join(broken[0])


def test_software_is_told(capsys: Any, tmp_path: Any) -> None:
    from oracle.commands.cli import main

    line = ["export", "deepspeed", "gpt2", "dgx-a100", "--plan", PLANS[1], "--batch", "64",
            "--precision", "bf16", "--optimizer", "adam", "-o", str(tmp_path)]  # fmt: skip
    assert main(line) == 0
    capsys.readouterr()
    (path,) = tmp_path.rglob("ds_config.json")
    said = json.loads(path.read_text())["zero_optimization"]
    told = {key: said[key] for key in said if key.startswith(("zero_quantized", "zero_hpz"))}
    assert told == {"zero_quantized_weights": True, "zero_quantized_gradients": True,
                    "zero_hpz_partition_size": 8}  # fmt: skip
    other = oracle.estimate(
        "gpt2", "dgx-a100", PLANS[1], 64, **ASKED | {"software": "megatron-core"}
    )
    assert "quantize=none only" in " ".join(other.broken[0])
