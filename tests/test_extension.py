"""A new strategy or layer kind is one class: it is found, read, and held to the laws."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from conftest import CONVOLUTIONS, SYSTEM

import oracle
from oracle.models.layers import Layer, Row, Shape, kinds
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan import plan as grammar
from oracle.plan.plan import Plan, parse
from oracle.plan.strategies import Strategy, strategies
from oracle.plan.strategies.base import words
from oracle.spec.document import SpecError
from oracle.spec.schema import Count, fields_of

MODEL, BUILT = oracle.model(CONVOLUTIONS), oracle.system(SYSTEM)


@pytest.fixture(scope="module")
def halves() -> Iterator[type[Strategy]]:
    """A strategy of one's own: every matrix's output dealt out, and rebuilt at once."""

    @dataclass(frozen=True)
    class Halves(Strategy):
        """Deal the samples out like `Data`, and broadcast the weights instead of summing.

        T_comm = D/B (p - 1)(α + Σ|w| δβ)
        """

        mood: Array = words("calm", "busy")

        source = "kahira2021, made up for a test"
        nearness = 3
        bound = "samples in the batch"
        limited_by = ("gradient exchange",)

        def limit(self, model: Model, batch: Array) -> Array:
            return batch

        def split(self, shard: Shard) -> Shard:
            return shard.but(batch=shard.deal(shard.batch, self.degree))

        def talk(self, shard: Shard) -> list[Message]:
            return [
                Message("weights", "broadcast", shard.w * shard.delta, ("halves",), when="step")
            ]

    yield Halves
    _forget(Halves, Strategy)


def _forget(kind: type, registry: type) -> None:
    """Out of the registry again: a class is there for as long as somebody holds it."""
    grammar._parse.cache_clear()
    fields_of.cache_clear()
    kind.__bases__ = (_Retired[registry],)


class _RetiredStrategy(Strategy.__base__):  # type: ignore[name-defined, misc]
    """Where a strategy goes when its test is over."""


class _RetiredLayer:
    """Where a layer kind goes."""


_Retired = {Strategy: _RetiredStrategy, Layer: _RetiredLayer}


def test_a_new_strategy_is_found_by_itself(halves: type[Strategy]) -> None:
    assert strategies()["halves"] is halves
    assert list(strategies()).index("halves") > list(strategies()).index("data")


def test_a_new_strategy_has_its_words(halves: type[Strategy]) -> None:
    plan = parse("data:2 halves:4,mood=busy filter:2", 64)
    assert plan.text() == "data:2 halves:4,mood=busy filter:2"
    assert plan.devices[0, 0] == 16
    with pytest.raises(SpecError, match="did you mean `halves:4`"):
        parse("halfs:4", 64)
    with pytest.raises(SpecError, match="write one of"):
        parse("halves:4,mood=sad", 64)
    with pytest.raises(SpecError, match="did you mean `mood`"):
        parse("halves:4,mod=busy", 64)


def test_a_new_strategy_obeys_the_laws(halves: type[Strategy]) -> None:
    def found(plan: Any, batch: Any = 64) -> oracle.Estimate:
        return oracle.estimate(MODEL, BUILT, plan, batch, precision="fp32", optimizer="sgd")

    serial, one = found("serial"), found(Plan.of(64, halves(degree=1)))
    assert (one.seconds, one.memory, one.exchange) == (serial.seconds, serial.memory, ((),))
    plans = ["halves:4", "data:2 halves:2", "filter:2 halves:8", "halves:2 pipeline:2"]
    together = found(plans)
    for row, plan in enumerate(plans):
        assert together.seconds[row] == pytest.approx(found(plan).seconds[0], rel=1e-12)
    four = found("halves:4")
    assert four.feasible.all()
    assert four.exchange[0][0]["what"] == "halves: weights"
    assert four.exchange[0][0]["bytes"] == pytest.approx(4 * MODEL.parameters)
    for part in ("forward", "backward"):
        assert four.compute[part][0] == found("serial", 16).compute[part][0]
    wide = found("halves:128")
    assert any("samples in the batch" in words for words in wide.broken[0])


def test_a_new_strategy_is_searched(halves: type[Strategy]) -> None:
    ranking = oracle.recommend(MODEL, BUILT, devices=8, batch=64, only=["halves"])
    assert [plan.split(",")[0] for plan in ranking.estimate.plans] == ["halves:8"]
    mixed = oracle.recommend(MODEL, BUILT, devices=8, batch=64, only=["halves", "filter"], top=9)
    assert any("halves:4" in p and "filter:2" in p for p in mixed.estimate.plans)


@pytest.fixture(scope="module")
def squeeze() -> Iterator[type[Layer]]:
    @dataclass(frozen=True)
    class Squeeze(Layer):
        """A layer kind of one's own: channels scaled by what two small matrices make of them."""

        ratio: Count = 16

        shorthand = "ratio"

        def rows(self, shapes: Sequence[Shape]) -> Iterator[Row]:
            shape = shapes[0]
            inner = max(1, shape.channels // self.ratio)
            yield Row(self.name or "squeeze", "squeeze", "stream", shape, shape,
                      weights=2 * shape.channels * inner, reads=(2, 1), rereads=(2, 1),
                      needs="x")  # fmt: skip

    yield Squeeze
    _forget(Squeeze, Layer)


def tree(*extra: Any) -> dict[str, Any]:
    layers = [{"conv": {"filters": 64, "kernel": 3, "padding": 1}}, *extra, "relu", "flatten",
              {"dense": 10}]  # fmt: skip
    return {"name": "own", "source": "made up", "input": [3, 32, 32], "layers": layers}


def test_a_new_layer_kind_is_read_priced_and_advised(squeeze: type[Layer]) -> None:
    assert kinds()["squeeze"] is squeeze
    plain = oracle.model(tree())
    for written, inner in (("squeeze", 4), ({"squeeze": 8}, 8), ({"squeeze": {"ratio": 32}}, 2)):
        own = oracle.model(tree(written))
        assert own.parameters == plain.parameters + 2 * 64 * inner
        for plan in ("serial", "data:4", "filter:2", "spatial:4", "pipeline:2,segments=2"):
            a, b = (oracle.estimate(m, BUILT, plan, 32) for m in (plain, own))
            assert np.isfinite(b.seconds).all()
            assert b.seconds[0] >= a.seconds[0]
            assert b.memory[0] >= a.memory[0]
    with pytest.raises(SpecError, match="did you mean `squeeze`"):
        oracle.model(tree("squeze"))
    with pytest.raises(SpecError, match="did you mean `ratio`"):
        oracle.model(tree({"squeeze": {"ration": 8}}))


def test_a_new_layer_kind_is_in_the_schema(squeeze: type[Layer]) -> None:
    from oracle.models.build import Network
    from oracle.spec.json_schema import json_schema

    assert "Squeeze" in json_schema(Network, "models")["$defs"]
