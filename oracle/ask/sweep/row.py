"""One point of a sweep as one flat row: the plan, its seconds, what they are made of, its bytes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from oracle.ask.spending import PAID
from oracle.ask.sweep.grid import Grid, Point
from oracle.ask.sweep.ways import family, template
from oracle.spec.document import SpecError
from oracle.spec.what_if import supposed

DIGITS = 9  # significant; what a different order of additions may change lies beyond
PRODUCTS = 400  # products of a family's degrees that are looked at

COLUMNS = (
    "point", "model", "system", "what_if", "way", "devices", "batch", "status", "plan",
    "seconds", "seconds_low", "seconds_high", "epoch_seconds", "samples_per_second",
    "tokens_per_second", "flops_per_device", "mfu", "device_hours_per_epoch",
    "forward", "backward", "recompute", "update", "bubble", "exchange", "exposed",
    "reading", "memory", "capacity", "why",
)  # fmt: skip


def row(grid: Grid, point: Point) -> dict[str, Any]:
    """The answer to one point; the same text whoever computes it."""
    from oracle.predict.defaults import options_for

    model, system = _model(point.model, grid.dataset), _system(point.system, point.what_if)
    found: dict[str, Any] = dict.fromkeys(COLUMNS)
    found |= point._asdict() | {"point": point.number, "status": "infeasible", "plan": ""}
    del found["number"]
    found["capacity"] = _figure(grid.max_memory or system.device.memory)
    try:
        options = options_for(
            model, system, grid.precision, grid.optimizer, grid.ideal, grid.max_memory, grid.gamma,
            grid.algorithm, _profile(grid.profile, point.system), grid.software, grid.any_plan,
            grid.reading, grid.shuffle, grid.epochs, grid.workspace,
        )  # fmt: skip
        system = system.of_size(point.devices, grid.grow)
        shown, at, why = _answer(grid, point, model, system, options)
    except SpecError as error:
        return found | {"status": "impossible", "why": error.faults[0].what}
    if shown is None:
        return found | {"why": why}
    return {**found, **shown.figures(at)}


def _figure(value: Any) -> float | None:
    return None if value is None else float(f"{float(value):.{DIGITS}g}")


def _answer(
    grid: Grid, point: Point, model: Any, system: Any, options: Any
) -> tuple[Any, int, str]:
    """(estimate, its row, "") or (None, 0, why there is none)."""
    from oracle.ask import search
    from oracle.predict.estimate import estimate as predict

    kind, _, text = point.way.partition(":")
    if kind == "plan":
        plan = template(text, model, point.devices)
        if plan is None:
            return None, 0, f"{point.devices} devices are not a whole number of `{text}`"
        return predict(model, system, [plan], point.batch, options), 0, ""
    chosen = family(text) if kind == "each" else grid.only
    ranking = search.recommend(
        model, system, point.devices, point.batch, options, only=chosen, without=grid.without,
        top=PRODUCTS if kind == "each" else 1, objective=grid.objective,
    )  # fmt: skip
    for shown in (ranking.estimate, ranking.misses):
        for at, plan in enumerate(shown.plans):
            if int(shown.devices[at]) != point.devices and grid.objective not in ("cost", *PAID):
                continue
            if kind != "each" or _uses(plan, chosen) or point.devices == 1:
                return shown, at, ""
    return None, 0, f"{' and '.join(chosen)} cannot use {point.devices} devices here"


def _uses(plan: str, chosen: tuple[str, ...]) -> bool:
    """Whether every strategy of the family splits something."""
    from oracle.plan.strategies import strategies

    named = {word.partition(":")[0] for word in plan.split()}
    return all(name in named for name in chosen if strategies()[name].multiplies)


@lru_cache(maxsize=64)
def _system(name: str, what_if: str) -> Any:
    from oracle.spec.catalogue import system

    return supposed(system(name), what_if)


@lru_cache(maxsize=64)
def _profile(name: str | None, system: str) -> Any:
    """Of the device as it is, whatever is supposed of it."""
    from oracle.kernels.profile import profile

    return None if name is None else profile(name).on(_system(system, "").device)


@lru_cache(maxsize=64)
def _model(name: str, dataset: str | None) -> Any:
    from oracle.models.model import model

    return model(name, dataset)


def label(entry: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The parts of a row's question that tell curves apart, in words."""
    said = [str(entry[name]) for name in names if entry[name] not in ("", None)]
    return " · ".join(word.removeprefix("each:").removeprefix("plan:") for word in said)
