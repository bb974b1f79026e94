"""Every number of a shipped model counts or is refused."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

import oracle
from oracle.run.target import to_target, training
from oracle.spec import catalogue
from oracle.spec.files import read_text

# what the executor alone asks: a rate, since what is dropped takes as long at any
RUN = {"dropout"}
TRIED = 6  # numbers that are turned before a key is called dead


def numbers(at: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(path, number) of each in a tree."""
    if isinstance(at, dict | list):
        for key, value in at.items() if isinstance(at, dict) else enumerate(at):
            yield from numbers(value, (*path, key))
    elif isinstance(at, int | float) and not isinstance(at, bool):
        yield path, at


def turned(tree: Any, path: tuple[Any, ...], value: Any) -> Iterator[Any]:
    """The tree with that number halved, then doubled."""
    for other in (value // 2 or 0.5 * value, 2 * value):
        found = copy.deepcopy(tree)
        inner = found
        for key in path[:-1]:
            inner = inner[key]
        inner[path[-1]] = other
        yield found


def answers(tree: Any) -> Iterator[str]:
    """From the cheapest on."""
    model = oracle.model(tree)
    some = [
        "data:4 tensor:2",
        "pipeline:2,segments=4",
        "context:2",
        "data:8 expert:4",
        "data:64 expert:64,dispatch=once",
    ]
    for plans in (["serial"], some if model.tokens.any() else ["data:4", "spatial:2"]):
        found = oracle.estimate(model, "dgx-a100", plans, 16, any_plan=True, precision="bf16")
        yield json.dumps(found.to_dict()["plans"])
    if model.convergence:
        found = oracle.estimate(model, "dgx-a100", ["data:16"] * 2, [16, 2**20])
        yield json.dumps([training(found, row, to_target(found, row)).to_dict() for row in (0, 1)])


def moves(tree: Any, path: tuple[Any, ...], value: Any, before: list[str]) -> bool:
    for other in turned(tree, path, value):
        try:
            if any(now != then for now, then in zip(answers(other), before, strict=True)):
                return True
        except oracle.SpecError:  # refused, so not ignored
            return True
    return False


@pytest.mark.slow
def test_every_number_of_a_model_moves_an_answer() -> None:
    trees = {name: yaml.safe_load(read_text(path))
             for name, path in sorted(catalogue.shipped("models").items(),
                                      key=lambda one: one[1].stat().st_size)}  # fmt: skip
    found: dict[str, list[Any]] = {}
    for name, tree in trees.items():
        for path, value in numbers(tree):
            words = [key for key in path if isinstance(key, str) and key != "layers"]
            key = ".".join(words) or "layers"
            found.setdefault(key, []).append((name, path, value))
    assert len(found) > 30
    before = {name: list(answers(trees[name])) for name in {row[0][0] for row in found.values()}}
    dead = set()
    for key, some in found.items():
        for name, path, value in some[:TRIED]:
            then = before.setdefault(name, []) or list(answers(trees[name]))
            before[name] = then
            if moves(trees[name], path, value, then):
                break
        else:
            dead.add(key)
    assert dead <= RUN, "a number that changes nothing: use it, or refuse the key"
