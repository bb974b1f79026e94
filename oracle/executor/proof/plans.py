"""Small models and the plans to prove on them: strategies alone, with each knob, and in pairs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from oracle.executor.local.away import Away
from oracle.executor.supported import unsupported
from oracle.models.model import Model
from oracle.plan.plan import parse
from oracle.plan.strategies import Strategy, strategies
from oracle.spec.document import SpecError

DEGREES = (2, 4, 8)
BATCH = 16


def _conv(filters: int, kernel: int = 3) -> dict[str, Any]:
    return {"conv": {"filters": filters, "kernel": kernel, "padding": kernel // 2}}


IMAGES = {"name": "images", "source": "made to prove a machine", "input": [8, 32, 32], "layers": [
    _conv(16), "relu", _conv(16), "relu", {"pool": {"kernel": 2}}, _conv(32), "relu",
    _conv(16, 1), "relu", "flatten", {"dense": 32}, "relu", {"dense": 16}, "loss",
]}  # fmt: skip
WORDS = {"name": "words", "source": "made to prove a machine", "transformer": {
    "layers": 8, "hidden": 64, "heads": 8, "vocab": 96, "sequence": 32, "tied_embeddings": False,
}}  # fmt: skip
EXPERTS = {"name": "experts", "source": "made to prove a machine", "transformer": {
    "layers": 2, "hidden": 64, "heads": 8, "ffn": 32, "vocab": 96, "sequence": 32,
    "tied_embeddings": False, "experts": 8, "active": 2}}  # fmt: skip
MODELS: dict[str, dict[str, Any]] = {"images": IMAGES, "words": WORDS, "experts": EXPERTS}


def plans(model: Model, batch: int, ranks: int) -> list[str]:
    """Plans of a model on so many ranks that the executor can run and that change nothing."""
    candidates = dict.fromkeys(_candidates(model, min(ranks, DEGREES[-1])))
    return [text for text in candidates if _can_run(model, text, batch, ranks)]


def _candidates(model: Model, ranks: int) -> Iterator[str]:
    """Plans to try, plain ones of all strategies first, for where time is short."""
    wide = [new for new in strategies().values() if new.degrees]
    for degree in DEGREES:
        yield from (_split(new, degree) for new in wide if degree <= ranks)
    for new in strategies().values():
        if not new.degrees:
            yield from (f"{new.name}:{knob.partition('=')[2]}" for knob in _knobs(new, model))
    if ranks >= 4:
        yield from (f"{_split(a, 2)} {_split(b, 2)}" for a, b in combinations(wide, 2))
    for new in wide if ranks > 1 else ():
        yield from (f"{_split(new, 2)},{knob_text}" for knob_text in _knobs(new, model))
    if ranks >= 8:
        yield from (" ".join(_split(new, 2) for new in three) for three in combinations(wide, 3))


def _split(new: type[Strategy], degree: int) -> str:
    """The text of a strategy at a degree, with micro-batches or replicas where it needs them."""
    cut = "".join(f",{knob}={degree}" for knob in new.batch_knobs() if knob == "segments")
    text = f"{new.name}:{degree}{cut}"
    return text if new.multiplies else f"data:{degree} {text}"


def _knobs(new: type[Strategy], model: Model) -> Iterator[str]:
    """Each knob at each of its words but the plain one, and that changes nothing learned.

    Texts that a knob takes beside its words, such as parts of layers, are not tried.
    """
    for tried in (new.tries(model), new.resorts(model)):
        for knob, values in tried.items():
            words, plain = _words_and_plain(new, knob)
            yield from (f"{knob}={words[int(value)]}" for value in values
                        if value != plain and value < len(words))  # fmt: skip


def _words_and_plain(new: type[Strategy], knob: str) -> tuple[tuple[str, ...], float]:
    """The words of a knob, and the number of the plain one."""
    field: Any = new.__dataclass_fields__[knob]
    return field.metadata.get("words", ()), float(field.default)


def _can_run(model: Model, text: str, batch: int, ranks: int) -> bool:
    try:
        plan = parse(text, float(batch))
    except SpecError:
        return False
    axes_by_name = {axis.name: axis for axis in plan.axes}
    rules = [rule for axis in plan.axes for rule in axis.rules(model, plan.batch, axes_by_name)]
    chosen = plan.axis("recompute").word("mode") == "best" or Away.from_plan(plan).activations
    fits = int(plan.devices[0, 0]) <= ranks and all(rule.wanted <= rule.allowed for rule in rules)
    return fits and not chosen and not unsupported(model, plan)
