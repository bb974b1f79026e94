"""The two questions, as functions of names, paths or objects: what will it take, what is best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from oracle import prediction, search
from oracle.document import Fault, Place, SpecError
from oracle.models import model as load_model
from oracle.specs import system as load_system

if TYPE_CHECKING:
    from oracle.models import Model
    from oracle.plan import Plan
    from oracle.prediction import Estimate
    from oracle.ranking import Ranking
    from oracle.specs import System


def estimate(
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    plan: str | Plan | Iterable[str | Plan],
    batch: float | Sequence[float],
    *,
    dataset: Any = None,
    precision: str | None = None,
    optimizer: str | None = None,
    ideal: bool = False,
    max_memory: float | str | None = None,
    gamma: float = 1.0,
    algorithm: str | None = None,
    profile: Any = None,
) -> Estimate:
    """How long an iteration takes under a plan, or under each of many; and what it needs.

    `profile` is a file of `oracle measure compute`: rows that it has take what they took there.

    >>> import oracle
    >>> found = oracle.estimate("resnet50", "abci", ["data:16", "data:4 filter:4"], batch=512)
    >>> found.seconds.shape, bool(found.feasible.all())
    ((2,), True)
    """
    what, where = load_model(model, dataset), load_system(system)
    options = prediction.options_for(
        what, where, precision, optimizer, ideal, _bytes(max_memory), gamma, algorithm,
        profile,
    )  # fmt: skip
    _check_options(gamma, algorithm)
    _check_batch(batch)
    return prediction.estimate(what, where, plan, batch, options)


def recommend(
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    devices: int,
    batch: int | None = None,
    *,
    batch_per_device: float | None = None,
    dataset: Any = None,
    top: int = 10,
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    objective: str = "time",
    precision: str | None = None,
    optimizer: str | None = None,
    ideal: bool = False,
    max_memory: float | str | None = None,
    gamma: float = 1.0,
    algorithm: str | None = None,
    profile: Any = None,
) -> Ranking:
    """The fastest ways to split the training over `devices` that fit, best first.

    >>> import oracle
    >>> oracle.recommend("resnet50", "abci", devices=16, batch=1024).best
    'data:16'
    """
    what, where = load_model(model, dataset), load_system(system)
    options = prediction.options_for(
        what, where, precision, optimizer, ideal, _bytes(max_memory), gamma, algorithm,
        profile,
    )  # fmt: skip
    _check_options(gamma, algorithm)
    if (batch is None) == (batch_per_device is None):
        raise _unusable("say the global batch, or the batch per device", "one of the two")
    if batch is None:
        batch = max(1, round(float(batch_per_device or 0) * devices))
    _check_batch(batch)
    if objective not in ("time", "cost", "memory"):
        raise _unusable(f"unknown objective `{objective}`", "time, cost or memory")
    if not 1 <= devices <= where.devices:
        raise _unusable(
            f"{devices} devices, but {where.name} has {where.devices}", "fewer, or a larger system"
        )
    return search.recommend(
        what, where, int(devices), int(batch), options,
        only=only, without=without, top=top, objective=objective,
    )  # fmt: skip


def _bytes(value: float | str | None) -> float | None:
    from oracle.units import parse

    if isinstance(value, str):
        try:
            value = parse(value, "B")
        except ValueError as error:
            raise _unusable(f"the memory limit: {error}", "e.g. 16 GiB") from None
    if value is not None and not 0 < value < float("inf"):
        raise _unusable(f"a memory limit of {value:g} bytes", "e.g. 16 GiB")
    return value


def _check_options(gamma: float, algorithm: str | None) -> None:
    from oracle.collectives import ALGORITHMS
    from oracle.document import suggest

    if not 0 < gamma < float("inf"):
        raise _unusable(f"a memory reuse gamma of {gamma:g}", "a number above zero")
    if algorithm is None:
        return
    from oracle.contention.price import ALIASES

    known = {"best", "nccl", *ALIASES, *(name for each in ALGORITHMS.values() for name in each)}
    if algorithm not in known:
        hint = suggest(algorithm, sorted(known), "known")
        raise _unusable(f"no algorithm is called `{algorithm}`", hint)


def _check_batch(batch: Any) -> None:
    import numpy as np

    sizes = np.asarray(batch, float)
    if not (np.isfinite(sizes).all() and (sizes >= 1).all() and (sizes == np.round(sizes)).all()):
        raise _unusable(f"a batch of {batch} samples", "a whole number from 1 on")


def _unusable(what: str, hint: str) -> SpecError:
    return SpecError("options", [Fault("E109", what, Place(), hint)])
