"""Models, a machine and plans drawn at random, for laws that hold of all of them."""

from __future__ import annotations

import copy
from dataclasses import fields
from typing import Any

import numpy as np
from conftest import CONVOLUTIONS, SYSTEM, TRANSFORMER
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

import oracle
from oracle.ask.space import Floats, Space
from oracle.models.model import Model
from oracle.plan.strategies import strategies

VOLUMES = {
    "name": "volumes", "source": "made up", "input": [4, 32, 32, 32],
    "layers": [
        {"conv": {"filters": 16, "kernel": 3, "padding": 1}}, {"pool": {"kernel": 2}},
        {"conv": {"filters": 32, "kernel": 2}}, {"pool": {"kernel": 3}},
        "flatten", {"dense": 128}, {"dense": 4},
    ],
}  # fmt: skip
EXPERTS = {
    "name": "experts", "source": "made up",
    "transformer": {"layers": 4, "hidden": 256, "heads": 8, "kv_heads": 4, "ffn": 512,
                    "gated": True, "vocab": 2048, "sequence": 128, "experts": 8, "active": 2},
}  # fmt: skip


def named(spec: Any) -> Any:
    """The same model with a name for each layer, so that rows can be told apart."""
    tree = copy.deepcopy(spec)
    for number, layer in enumerate(tree.get("layers", ())):
        if isinstance(layer, dict):
            ((kind, body),) = layer.items()
            if isinstance(body, dict):
                body["name"] = f"{kind} {number}"
            else:
                layer[kind] = {"filters" if kind == "dense" else "op": body,
                               "name": f"{kind} {number}"}  # fmt: skip
    return tree


MODELS = {spec["name"]: oracle.model(named(spec))
          for spec in (CONVOLUTIONS, TRANSFORMER, VOLUMES, EXPERTS)}  # fmt: skip
BUILT = oracle.system(SYSTEM)
KNOBS = {"spatial": ["halo=chain"], "pipeline": ["schedule=gpipe", "cuts=balanced"]}
names = st.sampled_from(sorted(MODELS))
batches = st.sampled_from([16, 48, 64, 100, 256])
TURNED = 0.07  # a knob must gain two percent to be turned, and there are three
law = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))


@st.composite
def plans(draw: st.DrawFn, most: int = 8) -> str:
    """A plan that may or may not be feasible: any axes, any knobs, any order."""
    chosen = draw(st.lists(st.sampled_from(sorted(strategies())), unique=True, max_size=4))
    degrees = {name: draw(st.sampled_from([1, 2, 3, 4, 8])) for name in chosen}
    if "expert" in chosen:
        degrees["data"] = degrees["expert"] * draw(st.sampled_from([1, 2]))
        chosen = list(dict.fromkeys([*chosen, "data"]))
    text = []
    for name in chosen:
        cls, word = strategies()[name], f"{name}:{degrees[name]}"
        if not cls.degrees:
            modes = next(iter(cls.knobs().values())).metadata["words"]
            text.append(f"{name}:{draw(st.sampled_from(modes))}")
            continue
        for f in fields(cls):
            words = f.metadata.get("words")
            if words and draw(st.booleans()):
                word += f",{f.name}={draw(st.sampled_from(words))}"
            elif f.name == "segments" and draw(st.booleans()):
                word += f",segments={draw(st.sampled_from([1, 2, 4, 8]))}"
            elif f.name == "interleave" and draw(st.integers(0, 3)) == 0:
                word += ",interleave=2"
            elif f.name == "accumulate" and degrees.get("pipeline", 1) == 1 and draw(st.booleans()):
                word += f",accumulate={draw(st.sampled_from([1, 2, 4]))}"
        text.append(word)
    return " ".join(text) or "serial"


def found(
    model: Model, plan: Any, batch: Any = 64, system: Any = BUILT, precision: str = "fp32",
    optimizer: str = "adam", ideal: bool = False, **more: Any,
) -> oracle.Estimate:  # fmt: skip
    return oracle.estimate(
        model, system, plan, batch, precision=precision, optimizer=optimizer, ideal=ideal, **more
    )


def numbers(tree: Any) -> list[float]:
    if isinstance(tree, dict):
        return [n for value in tree.values() for n in numbers(value)]
    if isinstance(tree, list | tuple):
        return [n for value in tree for n in numbers(value)]
    return [] if isinstance(tree, str | bool | None) else [float(tree)]


def drawn(space: Space, count: int, rng: np.random.Generator) -> Floats:
    """Random candidates: any product, any value of any knob, any size of micro-batch."""
    rows = space.usual(space.products())
    rows = rows[rng.integers(len(rows), size=count)]
    for column, values in enumerate(space.knobs.values(), space.micro + 1):
        rows[:, column] = rng.choice(values, size=count)
    rows[:, space.micro] = np.maximum(1, space.share(rows) // rng.integers(1, 9, size=count))
    return space.sound(rows)
