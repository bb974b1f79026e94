"""The prediction of plans, and the ranking of all that fit."""

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
    """Predict the time and the memory of an iteration under one plan or under each of many.

    `batch` is one for all plans, one for each, or "max": the largest micro-batches that fit, as
    many as the plan has.
    `software` runs the training: a shipped name, a file, `nemo,gradients=bf16`. `any_plan` ignores
    its rules of which plans it can launch.
    A plan of more devices than the system has is `broken`; with `grow` the outermost level of the
    system joins more units instead.
    `reading` is the way samples are read, `shared`, `staged`, `cached`, `striped` or `spatial`: by
    default the best of these, or `none` to leave reading out. `shuffle` is `global`, `local` or
    `partial:0.1`, and costs that occur once are spread over the `epochs` of the training.
    `profile` is a file of `oracle measure compute`, whose rows replace predicted ones, a file of
    `oracle calibrate run`, or a log that names its plan and batch.
    `workspace` limits the memory of a convolution: `64MiB`, `64MiB,micro=best` in pieces of the
    batch where that is faster, `1GiB,shared=on` for all together, or `none` for no limit.
    `nodes` are the nodes of a scheduler, `rack3-[1-16],rack7-[1-16]`, in a system that names its
    nodes. `place` says how ranks fill them: `block`, `cyclic`, or the `best` way.

    >>> import oracle
    >>> found = oracle.estimate("resnet50", "abci", ["data:16", "data:4 filter:4"], batch=512)
    >>> found.seconds.shape, bool(found.feasible.all())
    ((2,), True)
    """
    net, machine = load_model(model, dataset), placing.on_nodes(load_system(system), nodes)
    if profile is not None:
        from oracle.calibration.run_profile import opened

        profile = opened(profile, net, machine, precision, optimizer, software)
    options = options_for(
        net, machine, precision, optimizer, ideal, max_memory, gamma, algorithm,
        profile, software, any_plan, reading, shuffle, epochs, workspace,
    )  # fmt: skip
    if isinstance(batch, str):
        if batch != "max":
            hint = f"a whole number, {batch if batch.isdigit() else 64}, or max"
            raise refusal("options", f"a batch of `{batch:.40}`", hint)
        rows = texts_of(plan)
        sizes = list(largest_batch(net, machine, rows, options))
        if place is not None or nodes is not None:
            return placing.placed(net, machine, rows, sizes, options, place or "block")
        return predict(net, machine, rows, sizes, options)
    plans = plans_of(plan)
    check_batch(batch, len(plans))
    machine = room_for(machine, plans, grow) if grow else machine
    if place is not None or nodes is not None:
        return placing.placed(net, machine, texts_of(plans), batch, options, place or "block")
    return predict(net, machine, plan if isinstance(plan, Plan) else plans, batch, options)


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
    """Rank the plans that split the training over `devices` and fit, the fastest first.

    With `compress="allowed"` plans that compress gradients are among them, and the answer's
    `compression` says below which bandwidth compression pays; the epochs it may cost are assumed.

    A plan fits if its memory suffices with a probability of 1 - `risk`; of plans within 1 % of
    each other the simplest comes first, unless `fastest`. With `place` the best plans are placed,
    `block`, `cyclic` or `best`, on the `nodes` of a scheduler or on any.

    >>> import oracle
    >>> oracle.recommend("resnet50", "abci", devices=16, batch=1024).best.plan
    'data:16'
    """
    net, machine = load_model(model, dataset), placing.on_nodes(load_system(system), nodes)
    if profile is not None:
        from oracle.calibration.run_profile import opened

        profile = opened(profile, net, machine, precision, optimizer, software)
    options = options_for(
        net, machine, precision, optimizer, ideal, max_memory, gamma, algorithm,
        profile, software, any_plan, reading, shuffle, epochs, workspace,
    )  # fmt: skip
    for name, count in (("devices", devices), ("top", top)):
        if not isinstance(count, Real) or not 1 <= count < 2**53 or count != int(count):
            raise refusal("options", f"{name} is {count!r:.40}", "a whole number from 1 on")
    if (batch is None) == (batch_per_device is None):
        raise refusal("options", "say the global batch, or the batch per device", "one of the two")
    if isinstance(batch, str):
        hint = 'a number; `estimate(…, batch="max")` takes a plan'
        raise refusal("options", f"a batch of `{batch}` for plans not yet known", hint)
    if batch is None:
        batch = max(1, round(float(batch_per_device or 0) * devices))
    check_batch(batch)
    if not 0 < risk < 1:
        raise refusal("options", f"a risk of {risk:g}", "between 0 and 1, e.g. 0.05")
    if objective not in (objectives := ("time", "cost", "memory", *PAID)):
        raise refusal(
            "options", f"unknown objective `{objective}`", f"one of {', '.join(objectives)}"
        )
    if compress not in ("none", "allowed") or (compress == "allowed" and objective != "time"):
        hint = "none or allowed; what it saves is time, so with `objective` time"
        raise refusal("options", f"compress `{compress}` with objective `{objective}`", hint)
    machine = machine.of_size(devices, grow)

    def ranked(count: int) -> Ranking:
        return search.recommend(
            net, machine, int(devices), int(batch), options,
            only=names_of(only), without=names_of(without), top=count, objective=objective,
            fastest=fastest, risk=risk,
        )  # fmt: skip

    if compress == "allowed":
        from oracle.ask.compressing import compressed

        ranking = compressed(ranked, int(top))
    else:
        ranking = ranked(int(top))
    if place is None and nodes is None:
        return ranking
    return placing.ranked(ranking, place or "block", int(top))
