"""`--batch max`: the largest micro-batches that fit, of each plan."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from command_line import told
from hypothesis import given, settings
from plans_drawn import BUILT, MODELS, found, law, names, plans

import oracle
from oracle.ask.largest import pieces
from oracle.plan.plan import parse
from oracle.spec.document import SpecError

PLANS = ["data:8", "data:4,accumulate=4 tensor:2", "pipeline:4,segments=8 data:2,zero=1",
         "sharded:8 recompute:full"]  # fmt: skip


def test_one_sample_more_does_not_fit() -> None:
    largest = oracle.estimate("gpt2", "dgx-a100", PLANS, batch="max")
    assert largest.feasible.all()
    for row, plan in enumerate(PLANS):
        each = pieces(parse(plan, 1.0))
        micro = largest.batch[row] / each
        assert micro == int(micro) >= 1
        more = oracle.estimate("gpt2", "dgx-a100", plan, batch=float((micro + 1) * each))
        assert not more.feasible[0]
        assert more.memory[0] > largest.memory[row]
        assert more.plans == (plan,) == largest.plans[row : row + 1]


def test_it_keeps_the_number_of_micro_batches() -> None:
    assert [pieces(parse(plan, 1.0)) for plan in PLANS] == [8, 16, 16, 8]
    assert pieces(parse("spatial:4 data:2", 1.0)) == 2  # a sample is shared by four


@pytest.mark.slow
@settings(law, max_examples=8)
@given(names, plans())
def test_it_is_the_largest_of_all(model: str, plan: str) -> None:
    limit = 0.25 * BUILT.device.memory
    largest = oracle.estimate(MODELS[model], BUILT, plan, "max", precision="fp32",
                              optimizer="adam", max_memory=limit)  # fmt: skip
    each = pieces(parse(plan, 1.0))
    micro = int(largest.batch[0]) // each
    tried = sorted({1, max(1, micro // 2), micro, micro + 1, 2 * micro + 1})
    memory = np.array([found(MODELS[model], plan, size * each, max_memory=limit).memory[0]
                       for size in tried])  # fmt: skip
    fit = [size for size, held in zip(tried, memory, strict=True) if held <= limit]
    assert micro == max(fit, default=1)


def test_where_not_one_sample_fits_it_says_what_is_short() -> None:
    none = oracle.estimate("gpt3-175b", "dgx-a100", "data:8", batch="max")
    assert none.batch[0] == 8
    assert "short" in none.broken[0][-1]


def test_the_command_prints_micro_batch_and_rate(capsys: Any) -> None:
    line = ["estimate", "gpt2", "dgx-a100", "--plan", "data:8", "--batch", "max"]
    code, out, _ = told(capsys, *line)
    plan = json.loads(told(capsys, *line, "--json")[1])["plans"][0]
    assert code == 0
    assert plan["batch"] % 8 == 0
    assert f"{plan['batch'] // 8} samples, the largest that fits" in out
    assert f"{plan['samples_per_second']:,.1f} samples/s" in out
    assert f"{plan['samples_per_second'] * 1024:,.0f} tokens/s" in out
    assert plan["samples_per_second"] == pytest.approx(plan["batch"] / plan["seconds"]["iteration"])
    assert "tokens/s" not in told(capsys, "estimate", "resnet50", "abci", "--plan", "data:4",
                                  "--batch", "max")[1]  # fmt: skip
    code, out, _ = told(capsys, "estimate", "gpt3-175b", "dgx-a100", "--plan", "data:8",
                        "--batch", "max")  # fmt: skip
    assert code == 1
    assert "1 sample, which does not fit" in out


def test_where_no_plan_is_named_it_says_what_to_write(capsys: Any) -> None:
    code, _, err = told(capsys, "recommend", "gpt2", "dgx-a100", "--devices", "8", "--batch", "max")
    assert code == 2
    assert "oracle estimate … --plan … --batch max" in err
    with pytest.raises(SpecError, match="plans not yet known"):
        oracle.recommend("gpt2", "dgx-a100", devices=8, batch="max")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="max"):
        oracle.estimate("gpt2", "dgx-a100", "data:8", batch="most")  # type: ignore[arg-type]
