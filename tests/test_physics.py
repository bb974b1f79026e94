"""Laws of `benchmarks.physics`: some cases at random, those that broke one, and one made to."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import oracle
from benchmarks import physics
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate


@pytest.mark.slow
@pytest.mark.parametrize("cases", [90, 380])
def test_no_law_is_broken(cases: int) -> None:
    """One question of a seed, or five, of nets with and without experts;
    `python -m benchmarks.physics` asks them all, the dear ones too.
    """
    tried = [*physics.asked(cases, np.inf, physics.SEED, number=2)]
    assert sum(len(q.plans) for q, _ in tried) >= cases
    assert not [broken.row() for _, some in tried for broken in some]


@pytest.mark.parametrize("number", [14, 28, pytest.param(18, marks=pytest.mark.slow)])
def test_bytes_and_seconds_of_a_message_are_of_one_stage(number: int) -> None:
    """Stages of GPipe: one sets the pace of the forward, another of the backward passes."""
    q = physics.question(number)
    assert q is not None
    found = estimate(q.model, q.system, q.plans, q.batch, q.options)
    rng = random.Random(0)
    assert not [*physics.one_stage(q, found, rng)]
    assert not [*physics.messages(q, found, rng)]


@pytest.mark.parametrize(("model", "system", "plans"), [
    ("resnet50", "abci", ["spatial:8", "spatial:256"]),  # of which one gathers more layers
    ("alexnet", "jean-zay", ["pipeline:3,segments=4", "pipeline:3,segments=4 recompute:full"]),
    ("llama2-7b", "dgx-a100", [f"tensor:{t} pipeline:2,segments=4,schedule={how} recompute:{what}"
                               for t in (2, 8) for how in ("zb-h1", "1f1b", "gpipe")
                               for what in ("none", "full")]),
])  # fmt: skip
def test_a_plan_does_not_know_the_others_of_its_table(
    model: str, system: str, plans: list[str]
) -> None:
    """Its seconds, its bytes, its intervals and its messages are those that it has alone."""
    there, what = oracle.system(system), oracle.model(model)
    q = physics.Question(0, 0, what, there, "plain", 64, options_for(what, there), plans)
    found = estimate(q.model, q.system, plans, q.batch, q.options)
    for seed in range(len(plans)):
        assert not [*physics.alone(q, found, random.Random(seed))]


def test_plans_in_another_order_of_kinds_keep_their_answers() -> None:
    """Two of these three plans were given each other's seconds and bytes."""
    plans = ["pipeline:4,segments=4 spatial:2", "pipeline:4,segments=4",
             "pipeline:4,segments=4,schedule=gpipe spatial:2"]  # fmt: skip
    said = ("vgg16", "mi300x-node")
    supposed = {"software": "hai-llm", "precision": "fp32", "any_plan": True}
    found = oracle.estimate(*said, plans, 1000, **supposed)
    for row, plan in enumerate(plans):
        alone = oracle.estimate(*said, plan, 1000, **supposed)
        assert found.seconds[row] == pytest.approx(alone.seconds[0], rel=1e-12)
        assert found.memory[row] == alone.memory[0]


@pytest.mark.slow
def test_a_broken_law_is_found() -> None:
    """Seconds out of the air are below the peak and the memory's, and unlike those alone."""
    q = physics.question(0)
    assert q is not None
    found = estimate(q.model, q.system, q.plans, q.batch, q.options)
    wrong = replace(found, seconds=found.seconds * 1e-9, memory_kinds={})
    rng = random.Random(0)
    for law in (physics.peak, physics.memory_traffic, physics.alone, physics.batch):
        turned = replace(found, seconds=found.seconds * 1e9) if law is physics.batch else wrong
        if law is physics.alone:
            turned = replace(found, seconds=found.seconds * (1 + 1e-9))
        assert [*law(q, turned, rng)], law.__name__


def test_a_question_can_be_asked_again() -> None:
    one, two = physics.question(5), physics.question(5)
    assert one is not None
    assert two is not None
    assert (one.plans, one.batch, one.software) == (two.plans, two.batch, two.software)
    assert one.again == "python -m benchmarks.physics --seed 2026 --question 5"
