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
from oracle.plan.plan import even, join, parse
from oracle.plan.strategies import strategies
from oracle.predict import evaluate
from oracle.predict.block import Block, Work, messages
from oracle.predict.defaults import options_for
from oracle.predict.ways import Cuts, first_fastest
from oracle.spec import catalogue
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


@pytest.mark.parametrize("count", [3, pytest.param(12, marks=pytest.mark.slow)])
def test_plans_of_every_model_and_software_do_not_depend_on_their_neighbours(count: int) -> None:
    softwares = sorted(catalogue.shipped("software"))
    rng = np.random.default_rng(count)
    for turn, name in enumerate(sorted(catalogue.shipped("models"))):
        software = softwares[(turn + count) % len(softwares)]
        options = options_for(oracle.model(name), SYSTEM, any_plan=True, software=software)
        model = oracle.model(name).under(options.software.kernels)
        space = Space(model, 8, 64, tuple(strategies()), False)
        plan = space.plan(drawn(space, count, rng))
        for rows, block in evaluate.blocks(model, SYSTEM, plan, options):
            for row, number in enumerate(rows.tolist()):
                ((_, alone),) = evaluate.blocks(model, SYSTEM, plan[[number]], options)
                text = f"{name} under {software}: {plan.text(number)}"
                assert block.seconds[row] == pytest.approx(alone.seconds[0], rel=1e-9), text
                assert block.held.total[row] == pytest.approx(alone.held.total[0], rel=1e-9), text


@pytest.mark.parametrize("software", ["megatron-lm-2020", "megatron-lm-2021"])
def test_scattered_gradients_have_a_piece_beside_plans_that_keep_theirs(software: str) -> None:
    """`zero=2` holds a piece of its gradients more, whichever plans stand in its table."""
    model, plain, scattered = oracle.model("resnet101"), "data:8", "data:8,zero=2"
    options = options_for(model, SYSTEM, any_plan=True, software=software)

    def total(*texts: str) -> float:
        plan = join([even(parse(text, 64.0)) for text in texts])
        ((_, block),) = evaluate.blocks(model, SYSTEM, plan, options)
        return float(block.held.total[-1])

    assert total(plain, scattered) == pytest.approx(total(scattered), rel=1e-12)
    assert total(scattered, plain) == pytest.approx(total(plain), rel=1e-12)
