"""One table for plans of all shapes: each plan has the numbers that it has alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from plans_drawn import MODELS, drawn, law

import oracle
from oracle.ask.space import Space
from oracle.plan.mesh import distinct
from oracle.plan.plan import parse
from oracle.plan.strategies import strategies
from oracle.predict import evaluate
from oracle.predict.block import Block, Work, messages
from oracle.predict.defaults import options_for
from oracle.predict.ways import Cuts, first_fastest
from oracle.spec.options import Options

SYSTEM = oracle.system("dgx-a100")
DRAWN = 24
FORKED = oracle.model("unet-2d")  # no chain: tensors pass stages by
CASES = {**MODELS, "unet-2d": FORKED}


def numbers(block: Block, row: int) -> dict[str, Any]:
    """What a block says of one plan."""
    deviation, more = (np.broadcast_to(each, len(block.plan)) for each in block.doubted)
    return {
        "seconds": block.seconds[row], "deviation": deviation[row], "more": more[row],
        **{kind: np.broadcast_to(each, len(block.plan))[row]
           for kind, each in block.held.kinds.items()},
        **{f"{one['what']} {name}": one[name] for one in messages(Work(block, row))
           for name in ("calls", "bytes", "seconds", "exposed", "deviation")},
    }  # fmt: skip


@pytest.mark.parametrize("said", [
    {}, {"ideal": True}, {"software": "deepspeed"},  # which keeps what a stage has sent
])  # fmt: skip
@pytest.mark.parametrize("name", CASES)
def test_a_plan_is_priced_in_a_table_as_alone(name: str, said: dict[str, Any]) -> None:
    """Pipelines of all lengths, chunks, cuts and schedules stand in one table."""
    model, ideal = CASES[name], "ideal" in said
    options = options_for(model, SYSTEM, any_plan=True, **said)
    model = model.under(options.software.kernels)
    space = Space(model, 8, 64, tuple(strategies()), ideal)
    plan = space.plan(drawn(space, DRAWN, np.random.default_rng(3)))
    ((at, block),) = evaluate.blocks(model, SYSTEM, plan, options)
    for row, number in enumerate(at.tolist()):
        ((_, alone),) = evaluate.blocks(model, SYSTEM, plan[[number]], options)
        together, apart = numbers(block, row), numbers(alone, 0)
        assert together == pytest.approx(apart, rel=1e-9), plan.text(number)
        assert Work(block, row).cuts == Work(alone, 0).cuts


@law
@given(st.lists(st.lists(st.floats(-1e9, 1e9), min_size=7, max_size=7), min_size=1, max_size=5),
       st.lists(st.integers(0, 4), min_size=1, max_size=60))  # fmt: skip
def test_equal_rows_are_one_kind(rows: list[list[float]], which: list[int]) -> None:
    table = np.array(rows)[np.array(which) % len(rows)]
    first, kind = distinct(table)
    assert (table[first[kind]] == table).all()
    assert len(first) == len(np.unique(table, axis=0))


@pytest.mark.parametrize(("name", "many"), [("unequal", False), ("unet-2d", True)])
def test_of_ways_that_tie_the_first_is_taken(name: str, many: bool) -> None:
    """And where ways are many none that cannot win is looked at."""
    cuts = Cuts.of(CASES[name], parse("pipeline:4,segments=4,cuts=balanced", 64.0), Options())
    count = int(cuts.count[0])
    assert count > 1
    looked_at: list[int] = []

    def seconds(plans: Any, way: Any) -> Any:
        looked_at.extend(way.tolist())
        return np.where(way < count // 2, 2.0, 1.0)

    def bound(plans: Any, way: Any) -> Any:
        return np.where(way < count // 2, 2.0, 1.0)

    which, way = cuts.fastest(np.zeros(1, int), seconds, bound)
    assert way[first_fastest(which, seconds(which, way))].tolist() == [count // 2]
    assert (len(way) == 1) == (len(looked_at) == 2) == many
