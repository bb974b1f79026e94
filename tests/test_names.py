"""Short names of plans: short, never two alike, and a key to the full text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oracle.plan.names import key, short_names
from oracle.plan.strategies import strategies

LONG = "pipeline:8,segments=64,interleave=2 data:16,zero=1 tensor:4,sequence=on recompute:full"


@pytest.mark.parametrize(
    ("plan", "name"),
    [(LONG, "PP8·DP16·TP4"), ("serial", "serial"), ("recompute:full", "serial"),
     ("data:4 spatial:2x2", "DP4·Spatial2×2"), ("tensor:4 data:2", "TP4·DP2"),
     ("data:8 expert:8", "DP8·EP8"), ("data:2 sharded:4", "DP2·FSDP4"),
     ("context:2 filter:4 channel:2", "CP2·Filter4·Channel2")],
)  # fmt: skip
def test_a_plan_alone_is_named_by_its_degrees(plan, name):
    assert short_names([plan]) == [name]


def test_knobs_stand_where_plans_would_be_called_the_same():
    assert short_names(["data:8", "data:8,zero=1", "tensor:8,sequence=on"]) == [
        "DP8 zero=0", "DP8 zero=1", "TP8",
    ]  # fmt: skip
    assert short_names(["data:8", "data:8 recompute:full"]) == [
        "DP8 recompute=none", "DP8 recompute=full",
    ]  # fmt: skip
    two = ["data:4,overlap=off tensor:2", "data:4 tensor:2,overlap=off", "data:4 tensor:2"]
    assert short_names(two)[0] == "DP4·TP2 data overlap=off, tensor overlap=on"


def test_only_knobs_that_tell_apart_are_said():
    plans = [f"pipeline:8,segments={s},interleave=2 data:4,zero=1" for s in (16, 32)]
    assert short_names(plans) == ["PP8·DP4 segments=16", "PP8·DP4 segments=32"]


def test_the_same_plan_twice_has_one_name():
    assert short_names(["data:4,zero=1", "data:4,zero=1"]) == ["DP4", "DP4"]
    assert key(["data:4,zero=1", "data:4,zero=1", "serial"]) == [("DP4", "data:4,zero=1")]


def test_every_strategy_has_letters_of_its_own():
    letters = [new.letters or name.capitalize() for name, new in strategies().items()]
    assert len(set(letters)) == len(letters)


WORDS = st.sampled_from(
    ["data:4", "data:4,zero=1", "data:4,zero=3", "data:2", "tensor:2", "tensor:2,sequence=on",
     "pipeline:2,segments=4", "pipeline:2,segments=8", "pipeline:2,segments=8,schedule=gpipe",
     "recompute:full", "recompute:selective"]
)  # fmt: skip


@given(st.lists(st.lists(WORDS, max_size=4, unique_by=lambda w: w.split(":")[0]), max_size=8))
def test_plans_that_differ_are_named_differently(found):
    plans = [" ".join(words) or "serial" for words in found]
    names = short_names(plans)
    told = {}
    for plan, name in zip(plans, names, strict=True):
        told.setdefault(name, set()).add(frozenset(plan.split()))
    assert all(len(alike) == 1 for alike in told.values()), told


@pytest.mark.parametrize("text", ["", "no plan", "x:1", "data:4 data:4", "<b>", "2.5"])
def test_what_is_no_plan_keeps_its_own_text(text):
    assert short_names([text, "data:4"]) == [text, "DP4"]
