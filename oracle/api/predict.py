"""What a plan will take, and which is best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from oracle.api.arguments import check_batch, names_of, plans_of, texts_of
from oracle.ask import placing, search
from oracle.ask.largest import largest_batch
from oracle.ask.spending import PAID
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
    plan: str | Plan | Estimate | Iterable[str | Plan | Estimate],
    batch: float | Sequence[float] | Literal["max"],
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
    reading: str = "best",
    shuffle: str = "global",
    epochs: float | None = None,
    workspace: str | float | None = None,
    nodes: str | None = None,
    place: str | None = None,
) -> Estimate:
    """How long an iteration takes under a plan, or under each of many; and what it needs.

    `batch` is one for all plans, one for each, or "max": of each the largest micro-batches that
    fit, as many as it has.
    `software` is what runs the training: a shipped name, a file, `nemo,gradients=bf16`.
    `any_plan` leaves its rules of what can be launched out.
    A plan of more devices than the system has is `broken`, or with `grow` the outermost level of
    the system joins as many more units.
    `reading` is how samples are got, `shared`, `staged`, `cached`, `striped` or `spatial`: the best
    of these unless it is said, or `none` to leave reading out. `shuffle` is `global`, `local` or
    `partial:0.1`, and `epochs` of the training say over how many what is done once is spread.
    `profile` is a file of `oracle measure compute`, whose rows take what they took there, one of
    `oracle calibrate run`, or a log that says its plan and batch itself.
    `workspace` is what a convolution may take: `64MiB`, `64MiB,micro=best` in pieces of the batch
    where that is faster, `1GiB,shared=on` all of them together, or `none` for no limit.
    `nodes` are those that a scheduler gave, `rack3-[1-16],rack7-[1-16]`, of a system that says what
    its nodes are called. `place` says how ranks fill them: `block`, `cyclic`, or the `best` way.

    >>> import oracle
    >>> found = oracle.estimate("resnet50", "abci", ["data:16", "data:4 filter:4"], batch=512)
    >>> found.seconds.shape, bool(found.feasible.all())
    ((2,), True)
    """
    what, where = load_model(model, dataset), placing.on_nodes(load_system(system), nodes)
    if profile is not None:
        from oracle.calibration.run_profile import opened

        profile = opened(profile, what, where, precision, optimizer, software)
    options = options_for(
        what, where, precision, optimizer, ideal, max_memory, gamma, algorithm,
        profile, software, any_plan, reading, shuffle, epochs, workspace,
    )  # fmt: skip
    if isinstance(batch, str):
        if batch != "max":
            hint = f"a whole number, {batch if batch.isdigit() else 64}, or max"
            raise refusal("options", f"a batch of `{batch:.40}`", hint)
        rows = texts_of(plan)
        sizes = list(largest_batch(what, where, rows, options))
        if place is not None or nodes is not None:
            return placing.placed(what, where, rows, sizes, options, place or "block")
        return predict(what, where, rows, sizes, options)
    plans = plans_of(plan)
    check_batch(batch, len(plans))
    where = room_for(where, plans, grow) if grow else where
    if place is not None or nodes is not None:
        return placing.placed(what, where, texts_of(plans), batch, options, place or "block")
    return predict(what, where, plan if isinstance(plan, Plan) else plans, batch, options)


def recommend(
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    devices: int,
    batch: int | None = None,
    *,
    batch_per_device: float | None = None,
    dataset: Any = None,
    top: int = 10,
    only: str | Iterable[str] = (),
    without: str | Iterable[str] = (),
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
    risk: float = 0.05,
    fastest: bool = False,
    grow: bool = False,
    reading: str = "best",
    shuffle: str = "global",
    epochs: float | None = None,
    compress: Literal["none", "allowed"] = "none",
    workspace: str | float | None = None,
    nodes: str | None = None,
    place: str | None = None,
) -> Ranking:
    """The fastest ways to split the training over `devices` that fit, best first.

    With `compress="allowed"` plans that compress gradients are among them, and the answer's
    `compression` says below which bandwidth that pays; epochs that it may cost are assumed.

    A plan fits if it does with a probability of 1 - `risk`; of plans within 1 % of each other the
    simplest comes first, unless `fastest`. With `place` those that are best are placed, `block`,
    `cyclic` or `best`, on the `nodes` that a scheduler gave or any.

    >>> import oracle
    >>> oracle.recommend("resnet50", "abci", devices=16, batch=1024).best.plan
    'data:16'
    """
    what, where = load_model(model, dataset), placing.on_nodes(load_system(system), nodes)
    if profile is not None:
        from oracle.calibration.run_profile import opened

        profile = opened(profile, what, where, precision, optimizer, software)
    options = options_for(
        what, where, precision, optimizer, ideal, max_memory, gamma, algorithm,
        profile, software, any_plan, reading, shuffle, epochs, workspace,
    )  # fmt: skip
    for name, count in (("devices", devices), ("top", top)):
        if not isinstance(count, Real) or not 1 <= count < 2**53 or count != int(count):
            raise refusal("options", f"{name} is {count!r:.40}", "a whole number from 1 on")
    if (batch is None) == (batch_per_device is None):
        raise refusal("options", "say the global batch, or the batch per device", "one of the two")
    if isinstance(batch, str):
        what_else = 'a number; `estimate(…, batch="max")` takes a plan'
        raise refusal("options", f"a batch of `{batch}` for plans not yet known", what_else)
    if batch is None:
        batch = max(1, round(float(batch_per_device or 0) * devices))
    check_batch(batch)
    if not 0 < risk < 1:
        raise refusal("options", f"a risk of {risk:g}", "between 0 and 1, e.g. 0.05")
    if objective not in (known := ("time", "cost", "memory", *PAID)):
        raise refusal("options", f"unknown objective `{objective}`", f"one of {', '.join(known)}")
    if devices < 1:
        raise refusal("options", f"{devices} devices", "a whole number from 1 on")
    if compress not in ("none", "allowed") or (compress == "allowed" and objective != "time"):
        hint = "none or allowed; what it saves is time, so with `objective` time"
        raise refusal("options", f"compress `{compress}` with objective `{objective}`", hint)
    where = where.of_size(devices, grow)

    def ranked(most: int) -> Ranking:
        return search.recommend(
            what, where, int(devices), int(batch), options,
            only=names_of(only), without=names_of(without), top=most, objective=objective,
            fastest=fastest, risk=risk,
        )  # fmt: skip

    if compress == "allowed":
        from oracle.ask.compressing import compressed

        found = compressed(ranked, int(top))
    else:
        found = ranked(int(top))
    if place is None and nodes is None:
        return found
    return placing.ranked(found, place or "block", int(top))
