"""Questions over many points, and the explanation of one plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from oracle.api.arguments import check_names, names_of, texts_of
from oracle.models.model import model as load_model
from oracle.predict.defaults import memory_limit, options_for, room_for
from oracle.spec.catalogue import system as load_system
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.explain.explanation import Explanation
    from oracle.ask.sweep import Sweep
    from oracle.models.model import Model
    from oracle.plan.plan import Plan
    from oracle.predict.estimate import Estimate
    from oracle.spec.system import System


def sweep(
    model: str | Iterable[str],
    system: str | Iterable[str],
    devices: str | int | Iterable[int],
    *,
    batch: str | int | Iterable[int] | None = None,
    batch_per_device: str | float | Iterable[float] | None = None,
    each: str | Iterable[str] = (),
    plan: str | Iterable[str] = (),
    what_if: str | Iterable[str] = (),
    only: str | Iterable[str] = (),
    without: str | Iterable[str] = (),
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = 1,
    progress: Callable[[int, int, float], None] = lambda done, size, seconds: None,
    **options: Any,
) -> Sweep:
    """Return a row for every model, system, number of devices, batch, way to split and what-if.

    Models and systems are names or files. Numbers are lists, or ranges as on the command line:
    `1..1024` doubles, `8,16,24` are these three. A curve is of the best plan of each point, of
    each family of strategies in `each` (`data+filter`), or of a `plan` with one degree left open,
    `data:* filter:4`; and again for each `what_if`, `network=2`. With a folder `out` a sweep that
    was stopped goes on. Other options are those of `recommend`.

    >>> import oracle
    >>> found = oracle.sweep("resnet50", "abci", "4..16", batch_per_device=32, only="data")
    >>> [row["plan"] for row in found.rows]
    ['data:4', 'data:8', 'data:16']
    """
    from oracle.ask.sweep import Grid, numbers, sizes
    from oracle.ask.sweep import sweep as answered

    grids = Grid.__dataclass_fields__
    check_names("sweep", options, [name for name in grids if name not in _ARGUMENTS])
    if (batch is None) == (batch_per_device is None):
        raise refusal("options", "say the global batch, or the batch per device", "one of the two")
    batch_and_reader = (batch, numbers) if batch is not None else (batch_per_device, sizes)
    options["max_memory"] = memory_limit(options.get("max_memory"))
    ways = [
        *(f"each:{family}" for family in names_of(each)),
        *(f"plan:{family}" for family in _list(plan)),
    ]
    grid = Grid(
        _named(model, "model"), _named(system, "system"), _numbers(devices, numbers),
        tuple(map(float, _numbers(*batch_and_reader))), batch is None, ("", *_list(what_if)),
        tuple(dict.fromkeys(ways)) or ("best",), only=tuple(names_of(only)),
        without=tuple(names_of(without)), **options,
    )  # fmt: skip
    return answered(grid, out, jobs=jobs, progress=progress)


_ARGUMENTS = ("models", "systems", "devices", "batches", "per_device", "what_ifs", "ways", "only",
              "without")  # fmt: skip


def _list(words: str | Iterable[str]) -> list[str]:
    return [words] if isinstance(words, str) else list(words)


def _named(names: Any, noun: str) -> tuple[str, ...]:
    """Return names or files, which every process of a sweep can read."""
    named = names_of(names) if isinstance(names, str | Iterable) else [names]
    for name in named:
        if not isinstance(name, str):
            hint = "write it into a file, and name that"
            raise refusal("sweep", f"a {noun} of a sweep is a name or a file", hint)
    return tuple(named)


def _numbers(numbers: Any, read: Callable[[str], tuple[Any, ...]]) -> tuple[Any, ...]:
    """Return the numbers of a list, or of a range as on the command line."""
    if isinstance(numbers, str):
        return read(numbers)
    return read(",".join(map(str, numbers if isinstance(numbers, Iterable) else [numbers])))


def explain(
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    plan: str | Plan | Estimate,
    batch: int,
    *,
    dataset: Any = None,
    grow: bool = False,
    nodes: str | None = None,
    place: str | None = None,
    profile: Any = None,
    **options: Any,
) -> Explanation:
    """Explain a plan: the parts of an iteration, its bottleneck, and what would change its rank.

    Other options are those of `estimate`.

    >>> import oracle
    >>> oracle.explain("resnet50", "abci", "data:16", 512).bottleneck
    'computation redundancy'
    """
    from oracle.api.predict import estimate
    from oracle.ask.explain.explanation import explain as explained
    from oracle.ask.placing import on_nodes

    check_names("explain", options, estimate.__kwdefaults__ or ())
    net, texts = load_model(model, dataset), texts_of(plan)
    if len(texts) != 1:
        raise refusal("plan", f"{len(texts)} plans to explain", "one at a time")
    machine = room_for(on_nodes(load_system(system), nodes), texts, grow)
    if profile is not None:
        from oracle.calibration.run_profile import opened

        words = (options.get(name) for name in ("precision", "optimizer", "software"))
        profile = opened(profile, net, machine, *words)
    options = {"reading": "best", **options}
    prediction_options = options_for(net, machine, profile=profile, **options)
    return explained(net, machine, texts[0], int(batch), prediction_options, place or "block")
