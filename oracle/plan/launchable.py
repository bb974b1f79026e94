"""Which plans a software can be told: its strategies, words of knobs, and rules of numbers.

It names the strategies whose knobs formulas of a software spec speak of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.models.model import Model
from oracle.models.shard import Array
from oracle.plan.plan import Plan
from oracle.plan.strategies import Rule, strategies
from oracle.plan.strategies.base import text_of
from oracle.spec import catalogue
from oracle.spec.document import suggest
from oracle.spec.formula import NAMES
from oracle.spec.schema import Clash
from oracle.spec.software import Launch, Software


def software(complaint: Any) -> Software:
    """Software by shipped name, path or dict, checked against the strategies that there are."""
    return catalogue.software(complaint, also=clashes)


def clashes(software: Software) -> Iterator[Clash]:
    """Strategies, knobs and words of a software spec that nobody knows."""
    numbers = strategies()
    for i, name in enumerate(software.launch.strategies):
        if name not in numbers:
            hint = suggest(name, numbers, "strategies")
            yield Clash(f"launch.strategies.{i}", f"no strategy is called `{name}`", hint)
    every = {f"{name}.{knob}": (new, knob) for name, new in numbers.items() for knob in new.knobs()}
    for key, values in software.launch.knobs.items():
        if key not in every:
            hint = suggest(key, every, "knobs")
            yield Clash(f"launch.knobs.{key}", f"no knob is called `{key}`", hint, True)
            continue
        new, knob = every[key]
        words = new.knobs()[knob].metadata.get("words")
        for i, value in enumerate(values):
            if words is not None and not takes_word(new, knob, value):
                hint = suggest(value, words, "it takes")
                yield Clash(f"launch.knobs.{key}.{i}", f"`{key}` is never `{value}`", hint)
            elif words is None and not value.isdigit():
                yield Clash(f"launch.knobs.{key}.{i}", f"`{key}` takes numbers", "e.g. 1")


def unshipped(software: Software, model: Model) -> bool:
    """Whether the software ships models, and this is none of them."""
    return bool(software.launch.models) and model.name not in software.launch.models


def instead(software: Software) -> str:
    """What to write where a model is not among those that the software ships."""
    return f"it ships {', '.join(software.launch.models)}; or --software megatron-core"


def rules(software: Software, model: Model, plan: Plan) -> Iterator[Rule]:
    """What a software cannot be told of each plan."""
    launch, name = software.launch, software.name
    if unshipped(software, model):
        yield Rule.never(_wide(np.ones(len(plan), bool), plan), f"{name} ships no {model.name}")
    for axis in plan.axes:
        if launch.strategies and axis.name not in launch.strategies and not axis.places:
            used = np.asarray(axis.degree) > 1
            if not axis.degrees:
                used = np.any([np.asarray(getattr(axis, knob)) != field.default
                               for knob, field in axis.knobs().items()], axis=0)  # fmt: skip
            if used.any():
                yield Rule.never(_wide(used, plan), f"{name} has no `{axis.name}` parallelism")
        for knob, field in axis.knobs().items():
            allowed = launch.knobs.get(f"{axis.name}.{knob}")
            if allowed is None and launch.strategies and field.metadata.get("rare"):
                allowed = (usual_word(field),)
            if allowed is None:
                continue
            plan_numbers = np.asarray(getattr(axis, knob))
            refused = ~np.isin(plan_numbers, shipped(field, allowed, plan_numbers))
            if not field.metadata.get("alone") and axis.degrees:
                refused = refused & (np.asarray(axis.degree) > 1)
            if refused.any():
                complaint = f"{name} knows {axis.name} {knob}={' or '.join(allowed)} only"
                yield Rule.never(_wide(refused, plan), complaint)
    if launch.rules:
        numbers = numbers_of(model, plan)
        for column in launch.rules:
            broken = np.logical_not(column.must(numbers))
            if np.any(broken):
                yield Rule.never(_wide(broken, plan), f"{name}: {column.why} ({column.must.text})")


def takes_word(new: Any, knob: str, value: str) -> bool:
    """Whether a knob takes this word, or a text of its form that is one part."""
    told = new.knobs()[knob].metadata
    return value in told["words"] or bool(
        told.get("form") and "+" not in value and re.fullmatch(told["form"], value)
    )


def shipped(field: Any, allowed: Sequence[str], numbers: Array) -> list[int]:
    """The numbers of a knob that a software takes: of texts those whose every part it does."""
    words = field.metadata.get("words")
    if words is None:
        return [int(word) for word in allowed]
    texts = {int(number) for number in np.unique(numbers) if number >= len(words)}
    return [
        *(words.index(word) for word in allowed if word in words),
        *(text for text in texts if {*text_of(text, words).split("+")} <= {*allowed}),
    ]


def usual_word(field: Any) -> str:
    """What a knob is where nobody says it."""
    words = field.metadata.get("words")
    return str(words[field.default] if words else field.default)


def _wide(column: Any, plan: Plan) -> Array:
    return np.broadcast_to(np.asarray(column).reshape(-1, 1), (len(plan), 1))


def numbers_of(model: Model, plan: Plan) -> Mapping[str, Array | float]:
    """What the names of formulas come to: of the plans, (plans, 1), and of the model."""
    axes: dict[str, Any] = {axis.name: axis for axis in plan.axes}
    numbers: dict[str, Array | float] = {name: axis.degree for name, axis in axes.items()}
    pieces = axes["pipeline"].segments * axes["data"].accumulate
    replicas = axes["data"].degree * axes["sharded"].degree
    numbers |= {
        "devices": plan.devices, "batch": plan.batch, "segments": pieces,
        "micro": plan.batch / np.maximum(replicas * pieces, 1),
        "interleave": axes["pipeline"].interleave, "zero": axes["data"].zero,
        "sequence": axes["tensor"].sequence * (np.asarray(axes["tensor"].degree) > 1),
        # 1: the optimizer's state, 2: the weights too; and whether activations are
        "offload": 1.0 * axes["offload"].of("optimizer") + axes["offload"].of("weights"),
        "activations": 1.0 * axes["offload"].of("activations"),
        "disk": axes["offload"].to, "recompute": axes["recompute"].mode,  # 2: full, 5: best
        **shapes(model),
    }  # fmt: skip
    return {name: numbers[name] for name in NAMES}


@lru_cache(32)
def shapes(model: Model) -> Mapping[str, float]:
    """What formulas call the model's own numbers; 0 where it has none."""
    cores = [row for row in model.rows if row.work == "attention"]
    tables = [row for row in model.rows if row.kind == "embedding"]
    repeats = [segment.repeat for segment in model.segments]
    stacked = sum(
        layer_kind.repeat * (len(layer_kind.cuts) + 1)
        for layer_kind in model.segments
        if layer_kind.stack
    )
    hidden = max((row.made.channels for row in tables), default=0)
    return {
        "layers": float(stacked or max(repeats, default=1)),
        "heads": float(max((row.heads for row in cores), default=0)),
        "groups": float(max((row.kv_heads for row in cores), default=0)),
        "experts": float(max((row.experts for row in model.rows), default=0)),
        "tokens": float(max((row.made.extents[0] for row in cores), default=0)),
        "hidden": float(hidden),
        "vocab": float(max((row.weights // max(hidden, 1) for row in tables), default=0)),
    }


def strategies_of(launch: Launch) -> tuple[str, ...]:
    """The strategies that a software has, of all that there are."""
    return tuple(
        name
        for name, new in strategies().items()
        if not launch.strategies or name in launch.strategies or new.places
    )
