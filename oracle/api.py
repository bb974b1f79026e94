"""The two questions, as functions of names, paths or objects: what will it take, what is best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from oracle.ask import search
from oracle.models.model import model as load_model
from oracle.plan.plan import Plan
from oracle.predict.defaults import options_for, room_for
from oracle.predict.estimate import estimate as predict
from oracle.spec.catalogue import system as load_system
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking
    from oracle.models.model import Model
    from oracle.predict.estimate import Estimate
    from oracle.spec.system import System


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
    software: Any = None,
    any_plan: bool = False,
    grow: bool = False,
) -> Estimate:
    """How long an iteration takes under a plan, or under each of many; and what it needs.

    `software` is what runs the training: a shipped name, a file, `nemo,gradients=bf16`.
    `any_plan` leaves its rules of what can be launched out.
    A plan of more devices than the system has is refused (`broken`, among others that it has), or
    with `grow` the outermost level of the system joins as many more units.
    `profile` is a file of `oracle measure compute`: rows that it has take what they took there.

    >>> import oracle
    >>> found = oracle.estimate("resnet50", "abci", ["data:16", "data:4 filter:4"], batch=512)
    >>> found.seconds.shape, bool(found.feasible.all())
    ((2,), True)
    """
    what, where = load_model(model, dataset), load_system(system)
    options = options_for(
        what, where, precision, optimizer, ideal, max_memory, gamma, algorithm,
        profile, software, any_plan,
    )  # fmt: skip
    _check_batch(batch)
    plans = plan if isinstance(plan, str | Plan) else list(plan)
    some = [plans] if isinstance(plans, str | Plan) else plans
    return predict(what, room_for(where, some, grow), plans, batch, options)


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
    software: Any = None,
    any_plan: bool = False,
    grow: bool = False,
) -> Ranking:
    """The fastest ways to split the training over `devices` that fit, best first.

    >>> import oracle
    >>> oracle.recommend("resnet50", "abci", devices=16, batch=1024).best
    'data:16'
    """
    what, where = load_model(model, dataset), load_system(system)
    options = options_for(
        what, where, precision, optimizer, ideal, max_memory, gamma, algorithm,
        profile, software, any_plan,
    )  # fmt: skip
    if (batch is None) == (batch_per_device is None):
        raise refusal("options", "say the global batch, or the batch per device", "one of the two")
    if batch is None:
        batch = max(1, round(float(batch_per_device or 0) * devices))
    _check_batch(batch)
    if objective not in ("time", "cost", "memory"):
        raise refusal("options", f"unknown objective `{objective}`", "time, cost or memory")
    if devices < 1:
        raise refusal("options", f"{devices} devices", "a whole number from 1 on")
    where = where.of_size(devices, grow)
    return search.recommend(
        what, where, int(devices), int(batch), options,
        only=only, without=without, top=top, objective=objective,
    )  # fmt: skip


def _check_batch(batch: Any) -> None:
    import numpy as np

    sizes = np.asarray(batch, float)
    if not (np.isfinite(sizes).all() and (sizes >= 1).all() and (sizes == np.round(sizes)).all()):
        raise refusal("options", f"a batch of {batch} samples", "a whole number from 1 on")
