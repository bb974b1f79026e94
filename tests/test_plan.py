"""The plan grammar: what is written is what is meant, and the other way round."""

from __future__ import annotations

import re
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.plan.mesh import Groups, merge
from oracle.plan.plan import Plan, join, parse, table
from oracle.plan.strategies import Strategy, strategies
from oracle.plan.strategies.base import MOST_DEVICES
from oracle.spec.document import SpecError

BATCH = 4096.0


@st.composite
def words(draw: st.DrawFn, cls: type[Strategy], grids: bool = True) -> str:
    """One axis as somebody might write it, its knobs in any order."""
    known = {f.name: f for f in fields(cls) if f.name not in ("degree", "height", "width")}
    said = []
    for name in draw(st.permutations(sorted(known))):
        choices = known[name].metadata.get("words")
        if draw(st.booleans()):
            continue
        if known[name].metadata.get("part"):
            choices = ("0.001", "0.25", "1")
        value = draw(st.sampled_from(choices) if choices else st.integers(1, 512).map(str))
        said.append(f"{name}={value}")
    if not cls.degrees:
        first = next(iter(cls.knobs().values())).metadata["words"]
        return ",".join([f"{cls.name}:{draw(st.sampled_from(first))}"])
    degree = str(draw(st.integers(1, 64)))
    if grids and any(f.name == "height" for f in fields(cls)) and draw(st.booleans()):
        degree = "x".join(
            str(draw(st.integers(1, 8))) for _ in range(draw(st.sampled_from([2, 3])))
        )
    return ",".join([f"{cls.name}:{degree}", *said])


@st.composite
def plans(draw: st.DrawFn) -> str:
    chosen = draw(st.lists(st.sampled_from(sorted(strategies())), unique=True, max_size=5))
    text = [draw(words(strategies()[name])) for name in chosen]
    return draw(st.sampled_from([" ", "  ", "\t"])).join(text) or "serial"


def refusal(text: str, batch: float = BATCH) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse(text, batch)
    return caught.value


@settings(max_examples=300, deadline=None)
@given(plans())
def test_a_plan_is_read_back_as_it_is_written(text: str) -> None:
    try:
        plan = parse(text, BATCH)
    except SpecError as error:  # words that do not go together; nothing else may be wrong
        assert {f.code for f in error.faults} == {"E112"}  # noqa: PT017
        assert re.search("accumulate|experts over", str(error))  # noqa: PT017
        return
    again = parse(plan.text(), BATCH)
    assert again.text() == plan.text()
    named = [axis.name for axis in again.axes if (axis.degree > 1).any()]
    assert named == [axis.name for axis in plan.axes if (axis.degree > 1).any()]
    assert (again.devices == plan.devices).all()
    for axis in plan.axes:
        other = again.axis(axis.name)
        if not axis.degrees or axis.degree[0, 0] > 1:
            for f in fields(axis):
                assert getattr(axis, f.name) == getattr(other, f.name), (axis.name, f.name)


@settings(max_examples=100, deadline=None)
@given(st.lists(plans(), min_size=1, max_size=6))
def test_a_table_gives_each_text_back(texts: list[str]) -> None:
    sound = []
    for text in texts:
        try:
            sound.append(parse(text, BATCH).text())
        except SpecError:
            continue
    found = {}
    for plan, rows in table(sound, BATCH):
        assert len(plan) == len(rows)
        found |= {row: plan.text(i) for i, row in enumerate(rows)}
    assert [found[i] for i in range(len(sound))] == sound


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet="datfilerpxosgmn:=,0123456789- \n\té٣", max_size=40))
def test_any_text_is_a_plan_or_refused(text: str) -> None:
    try:
        plan = parse(text, BATCH)
    except SpecError as error:
        assert {f.code for f in error.faults} == {"E112"}  # noqa: PT017
        assert all(f.place.line == 1 and f.place.column >= 1 for f in error.faults)  # noqa: PT017
    else:
        assert plan.devices[0, 0] >= 1


@pytest.mark.parametrize(("text", "says"), [
    ("", "the plan is empty"),
    ("   ", "the plan is empty"),
    ("dat:4", "did you mean `data:4`?"),
    ("Data:4", "did you mean `data:4`?"),
    ("data", "lacks its degree"),
    ("data:", "lacks its degree"),
    ("data:0", "is not a degree"),
    ("data:-4", "is not a degree"),
    ("data:+4", "is not a degree"),
    ("data:04", "is not a degree"),
    ("data:4.0", "is not a degree"),
    ("data:1e3", "is not a degree"),
    ("data:٤", "is not a degree"),
    ("data:2x2", "is not a degree"),
    ("data:nan", "is not a degree"),
    ("data:99999999999999999999", "is not a degree"),
    ("spatial:2x2x2x2", "is not a degree"),
    ("spatial:2x0", "is not a degree"),
    ("spatial:x2", "is not a degree"),
    ("data:4 data:4", "stands twice"),
    ("data:4,zeroo=1", "did you mean `zero`?"),
    ("data:4,zero=4", "cannot be `4`"),
    ("data:4,zero", "lacks its value"),
    ("data:4,=1", "has no knob ``"),
    ("data:4,", "has no knob ``"),
    ("data:4,degree=2", "has no knob `degree`"),
    ("data:4,accumulate=0", "is not a number"),
    ("data:4,accumulate=1.5", "is not a number"),
    ("pipeline:4,schedule=1b1f", "write one of: `gpipe`, `1f1b`"),
    ("pipeline:4,segments=two", "is not a number"),
    ("recompute:ful", "did you mean `full`?"),
    ("recompute", "lacks its mode"),
    ("spatial:4,height=2", "has no knob `height`"),
    ("pipeline:2 data:2,accumulate=4", "`segments`"),
    ("expert:4", "do not divide the data axis"),
    ("data:6 expert:4", "do not divide the data axis"),
    ("data 4", "lacks its degree"),
    ("data=4", "did you mean `data:4`?"),
    ("data:4;filter:2", "is not a degree"),
    ("$(rm):4", "no strategy is called"),
])  # fmt: skip
def test_what_cannot_be_meant_is_refused(text: str, says: str) -> None:
    assert says in str(refusal(text))


def test_every_fault_of_a_plan_comes_at_once_where_it_stands() -> None:
    error = refusal("dat:4 filter:0 tensor:2,sequenc=on recompute:ful")
    assert [f.place.column for f in error.faults] == [1, 14, 25, 46]
    assert "4 problems in plan" in str(error)


def test_words_of_the_published_grammar() -> None:
    text = ("pipeline:8,segments=64,schedule=1f1b,interleave=2 data:16,zero=1 "
            "tensor:8,sequence=on recompute:selective")  # fmt: skip
    plan = parse(text, 1024)
    assert plan.devices[0, 0] == 1024
    assert parse(plan.text(), 1024).text() == plan.text()
    assert (plan.axis("pipeline").segments, plan.axis("pipeline").interleave) == (64, 2)
    assert (plan.axis("data").zero, plan.axis("tensor").sequence) == (1, 1)
    assert plan.axis("recompute").mode == 1
    for text, devices in (("serial", 1), ("data:16 filter:4", 64), ("spatial:2x3x4", 24),
                          ("spatial:6", 6), ("data:8 expert:4", 8), ("context:4,kind=alltoall", 4),
                          ("recompute:full", 1), ("data:3 channel:5 sharded:2", 30)):  # fmt: skip
        assert parse(text, 64).devices[0, 0] == devices
        assert parse(text, 64).text() == text
    grid = parse("spatial:2x3", 64).axis("spatial")
    assert (grid.degree, grid.height, grid.width) == (6, 2, 3)
    assert parse(f"data:{MOST_DEVICES}", 64).devices[0, 0] == MOST_DEVICES


def test_order_is_nesting() -> None:
    outer, inner = parse("data:4 filter:2", 64), parse("filter:2 data:4", 64)
    assert outer.text() != inner.text()
    assert (Groups(outer).strides["data"], Groups(inner).strides["data"]) == (2, 1)
    assert (Groups(outer).strides["filter"], Groups(inner).strides["filter"]) == (1, 4)


def ranks(pattern: tuple[tuple[int, int], ...]) -> list[int]:
    found = [0]
    for size, stride in pattern:
        found = [rank + i * stride for rank in found for i in range(size)]
    return sorted(found)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["pipeline", "data", "sharded", "spatial", "filter",
                                           "tensor"]), st.integers(1, 5)),
                unique_by=lambda pair: pair[0], min_size=1, max_size=4), st.data())  # fmt: skip
def test_groups_partition_the_ranks(axes: list[tuple[str, int]], data: st.DataObject) -> None:
    """The groups of a slice are shifted copies of one another that hold every rank once."""
    plan = parse(" ".join(f"{name}:{degree}" for name, degree in axes), 64)
    names = [name for name, _ in axes]
    chosen = tuple(data.draw(st.lists(st.sampled_from(names), unique=True, min_size=1)))
    found = Groups(plan)(chosen)
    (pattern, devices), size = found.patterns[0], int(found.size[0, 0])
    assert size == 1 or devices == int(np.prod([degree for _, degree in axes]))
    devices = int(np.prod([degree for _, degree in axes]))
    group = ranks(pattern)
    assert len(group) == size == len(set(group))
    # the other coordinates shift it over all ranks, each hit once
    others = [(d, int(Groups(plan).strides[n][0, 0])) for n, d in axes if n not in chosen]
    whole = sorted(rank + shift for rank in group for shift in ranks(tuple(others)))
    assert whole == list(range(devices))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4))
def test_merged_pairs_are_the_same_ranks(sizes: list[int]) -> None:
    pairs, stride = [], 1
    for size in reversed(sizes):
        pairs.append((size, stride))
        stride *= size * (2 if size == 3 else 1)
    assert ranks(merge(pairs)) == ranks(tuple(pairs))


def test_tables_of_a_kind_are_joined_in_order() -> None:
    parts = [parse("data:2 filter:2", 8), parse("data:4 filter:1", 8), parse("data:1 filter:8", 16)]
    whole = join(parts)
    assert len(whole) == 3
    assert [whole.text(i) for i in range(3)] == [part.text() for part in parts]
    assert whole.batch.ravel().tolist() == [8, 8, 16]
    assert isinstance(whole[[1]], Plan)
    assert whole[[1]].text() == parts[1].text()


def test_replicas_of_experts_are_a_stride_apart() -> None:
    """Experts are dealt to ranks 0-3 and again to 4-7: 0 and 4 hold the same ones."""
    groups = Groups(parse("data:8 expert:4", 64))
    assert groups(("expert",)).patterns == [(((4, 1),), 8)]
    assert groups(("data/expert",)).patterns == [(((2, 4),), 8)]
    inner = Groups(parse("data:4 tensor:2 expert:2", 64))
    assert inner(("expert",)).patterns == [(((2, 2),), 8)]
    assert inner(("data/expert",)).patterns == [(((2, 4),), 8)]


@pytest.mark.parametrize(
    ("plan", "holds", "same"),
    [
        ("data:4 tensor:2 expert:4,cut=whole", ((4, 1),), ((2, 4),)),  # a pair of pairs
        ("data:4 tensor:4 expert:2,cut=whole", ((2, 1),), ((8, 2),)),  # halves of a tensor axis
        ("data:4 tensor:2 expert:4,cut=tensor", ((4, 2),), ()),
        ("tensor:2 data:4 expert:4,cut=whole", ((2, 4), (2, 1)), ((2, 2),)),
    ],
)
def test_whole_experts_are_dealt_along_tensor_first(plan: str, holds: Any, same: Any) -> None:
    groups = Groups(parse(plan, 64))
    assert groups(("expert", "expert/tensor")).patterns[0][0] == holds
    assert groups(("data/expert", "tensor/expert")).patterns[0][0] == same


@pytest.mark.parametrize(
    ("plan", "holds", "same"),
    [
        # 0 1 2 3 | 4 5 6 7: pairs of context ranks inside four of data, a tensor rank between
        ("data:4 context:2 expert:4", ((4, 1),), ((2, 4),)),
        ("data:2 context:4 expert:2", ((2, 1),), ((4, 2),)),
        ("data:2 context:2 tensor:2 expert:4", ((4, 2),), ()),
        ("data:2 context:2 tensor:2 expert:2", ((2, 2),), ((2, 4),)),
        ("data:2 context:2 tensor:2 expert:8,cut=whole", ((8, 1),), ()),
        ("data:4 context:3 expert:2", ((2, 3),), ((2, 6), (3, 1))),
    ],
)
def test_experts_are_dealt_along_context_first(plan: str, holds: Any, same: Any) -> None:
    """As Megatron-Core 0.14 does, whose ranks of experts number those of context and data."""
    groups = Groups(parse(plan, 64))
    assert groups(("expert", "expert/context", "expert/tensor")).patterns[0][0] == holds
    left = groups(("data/expert", "context/expert", "tensor/expert"))
    assert left.patterns[0][0] == same


NARROW = {"name": "narrow", "source": "here", "input": [3, 32, 24], "layers": [
    {"conv": {"filters": 12, "kernel": 5, "padding": 2}}, {"pool": {"kernel": 2}},
    {"conv": {"filters": 30, "kernel": 3, "padding": 1}}, "flatten", {"dense": 20}]}  # fmt: skip
GROUPED = {"name": "grouped", "source": "here", "transformer": {
    "layers": 6, "hidden": 128, "heads": 8, "kv_heads": 2, "vocab": 100, "sequence": 64,
    "experts": 4, "active": 2, "gated": True}}  # fmt: skip


@pytest.mark.parametrize(
    ("model", "plan", "limit"),
    [
        (NARROW, "data:2", 64),  # the samples
        (NARROW, "filter:2", 12),  # the fewest filters: of 12, 30 and 20
        (NARROW, "channel:2", 12),  # the fewest channels, but for the three colours
        (NARROW, "spatial:2", 32 * 24),  # pixels of the first convolution
        (GROUPED, "tensor:2", 2),  # key-value heads
        (GROUPED, "context:2", 64),  # tokens, passed round
        (GROUPED, "context:2,kind=alltoall", 2),  # or heads, turned
        (GROUPED, "data:2 expert:2", 4),  # experts of a mixture
        (GROUPED, "pipeline:2", 6 + 4),  # layers; embedding, norm, head and loss
        (GROUPED, "pipeline:2,segments=2,interleave=2", (6 + 4) // 2),
    ],
)
def test_the_widest_that_an_axis_may_be(model: dict[str, Any], plan: str, limit: int) -> None:
    axis = parse(plan, 64).axis(re.findall(r"(\w+):", plan)[-1])
    assert np.ravel(axis.limit(oracle.model(model), np.float64(64))).tolist() == [limit]
