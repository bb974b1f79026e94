"""The questions, as functions of names, paths or objects: what will it take, what is best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal

from oracle.ask import placing, search
from oracle.ask.compressing import compressed
from oracle.ask.largest import largest_batch
from oracle.ask.spending import PAID
from oracle.models.model import model as load_model
from oracle.plan.plan import Plan
from oracle.predict.defaults import options_for, room_for
from oracle.predict.estimate import estimate as predict
from oracle.spec.catalogue import system as load_system
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.choose import Choice
    from oracle.ask.design_network import Designs
    from oracle.ask.ranking import Ranking
    from oracle.ask.workflow import Campaign
    from oracle.models.model import Model
    from oracle.predict.estimate import Estimate
    from oracle.spec.system import System


def estimate(
    model: Model | str | dict[str, Any],
    system: System | str | dict[str, Any],
    plan: str | Plan | Iterable[str | Plan],
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
            raise refusal("options", f"a batch of `{batch}`", "a whole number, or max")
        rows = _rows(plan)
        sizes = list(largest_batch(what, where, rows, options))
        if place is not None or nodes is not None:
            return placing.placed(what, where, rows, sizes, options, place or "block")
        return predict(what, where, rows, sizes, options)
    _check_batch(batch)
    plans = plan if isinstance(plan, str | Plan) else list(plan)
    some = [plans] if isinstance(plans, str | Plan) else plans
    where = room_for(where, some, grow) if grow else where
    if place is not None or nodes is not None:
        return placing.placed(what, where, _rows(plans), batch, options, place or "block")
    return predict(what, where, plans, batch, options)


def _rows(plan: str | Plan | Iterable[str | Plan]) -> list[str]:
    """The text of each plan."""
    tables = [plan] if isinstance(plan, str | Plan) else list(plan)
    return [
        row
        for one in tables
        for row in ([one] if isinstance(one, str) else [one.text(i) for i in range(len(one))])
    ]


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
    >>> oracle.recommend("resnet50", "abci", devices=16, batch=1024).best
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
    _check_batch(batch)
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
            only=only, without=without, top=most, objective=objective, fastest=fastest, risk=risk,
        )  # fmt: skip

    found = compressed(ranked, int(top)) if compress == "allowed" else ranked(int(top))
    if place is None and nodes is None:
        return found
    return placing.ranked(found, place or "block", int(top))


def workflow(
    what: str | dict[str, Any],
    system: System | str | dict[str, Any],
    nodes: int,
    *,
    search: str | dict[str, Any] | None = None,
    trials: int | None = None,
    grow: bool = False,
    reading: str = "best",
    **said: Any,
) -> Campaign:
    """The fastest way to run many trainings on `nodes`: how many at once, how large each.

    `what` is a model, with a `search` (random, grid, halving, genetic, ensemble, transfer; or a
    dict of a `kind` and its settings) of so many `trials`; or a workflow's file. What is `said`
    beside it counts before what the file says: `epochs`, `tokens`, `steps` or `to_target` of a
    trial, its `batch` or `max_batch`, `plan`, `dataset`, `precision`, `optimizer`, `software`, the
    `spread` of trials' times.

    >>> import oracle
    >>> found = oracle.workflow("resnet50", "abci", 4, search="random", trials=32, epochs=90,
    ...                         max_batch=1024)
    >>> found.main.at_once, found.main.trial.plan
    (16, 'data:1,accumulate=8')
    """
    from oracle.ask.trials import opened
    from oracle.ask.workflow import campaign

    said = {"search": search, "trials": trials, **said}
    return campaign(opened(what, system, said, [nodes], grow=grow, reading=reading), nodes)


def design_network(
    models: str | Iterable[Model | str | dict[str, Any]],
    devices: int,
    ports: int,
    *,
    system: System | str | dict[str, Any] = "dgx-a100",
    batch: int | Sequence[int] | None = None,
    plan: str | Sequence[str] | None = None,
    plans: str = "best",
    within: float = 0.05,
    switch_price: float | None = None,
    cable_price: float | dict[str, float] | None = None,
    nics: int | None = None,
    link: float | str | None = None,
    **options: Any,
) -> Designs:
    """Every network that joins so many devices with switches of so many ports, the answer first.

    That is the cheapest of those on which no model is slower than on the fastest for it by more
    than `within`: by `switch_price` and `cable_price` (USD, one for all cables or one each of
    `node`, `group` and `global`), else by switches and then cables. Devices, nodes, ports of a
    node and their links are the system's, unless `nics` and `link` say otherwise. A model's batch
    stands behind it, `resnet50:8192`, or in `batch`; else 4 M tokens or 32 samples a device. The
    plan is `plan`, one for each model, or the `best` of each network, or the `same` on all. Other
    options are those of `recommend`.

    >>> import oracle
    >>> found = oracle.design_network("resnet50:8192", 256, 40, plan="data:256")
    >>> found.best.design.name, found.best.design.switches
    ('rail-only', 8)
    """
    from oracle.ask import design_network as ask_design
    from oracle.spec.units import parse as quantity

    base = load_system(system)
    for name, count in (("devices", devices), ("ports", ports), ("nics", nics or 1)):
        if not isinstance(count, Real) or not 1 <= count < 2**24 or count != int(count):
            raise refusal("options", f"{name} is {count!r:.40}", "a whole number from 1 on")
    if plans not in ask_design.PLANS:
        raise refusal("options", f"plans are `{plans}`", f"one of {', '.join(ask_design.PLANS)}")
    try:
        each = quantity(link, "B/s") if isinstance(link, str) else link
    except ValueError as error:
        raise refusal("options", str(error), "e.g. --link '50 GB/s'") from None
    need = ask_design.wanted(base, int(devices), int(ports), nics, each)
    some = [models] if isinstance(models, str | dict) or hasattr(models, "rows") else list(models)
    sizes: list[Any] = list(batch) if isinstance(batch, Sequence) else [batch] * len(some)
    given: list[Any] = [plan] if isinstance(plan, str) else list(plan or [])
    if not some or len(sizes) != len(some) or (given and len(given) != len(some)):
        hint = "one for each model, in their order"
        raise refusal("options", f"{len(given)} plans for {len(some)} models", hint)
    options = {"reading": "none", **options}
    works = [
        ask_design.workload(base, need, one, size, told, options)
        for one, size, told in zip(some, sizes, given or [None] * len(some), strict=True)
    ]
    price = ask_design.prices(switch_price, cable_price)
    return ask_design.design_network(base, need, works, plans=plans, within=within, price=price)


def _check_batch(batch: Any) -> None:
    import numpy as np

    try:
        sizes = np.asarray(batch, float)
    except (TypeError, ValueError):
        sizes = np.array(np.nan)
    whole = np.isfinite(sizes) & (sizes >= 1) & (sizes == np.round(sizes))
    if not (sizes.size and whole.all()):
        raise refusal("options", f"a batch of {batch!s:.40} samples", "a whole number from 1 on")


def choose(
    model: Model | str | dict[str, Any],
    systems: Iterable[System | str | dict[str, Any]],
    devices: str | Iterable[int],
    *,
    batch: int | None = None,
    batch_per_device: float | None = None,
    to_target: bool = False,
    tokens: float | None = None,
    steps: float | None = None,
    epochs: float | None = None,
    within: str | float | None = None,
    budget: str | Iterable[str] = (),
    objective: str | None = None,
    software: Iterable[Any] = (),
    only: Iterable[str] = (),
    without: Iterable[str] = (),
    risk: float = 0.05,
    turned: bool = True,
    **options: Any,
) -> Choice:
    """Which machine, how many of its devices, which software, plan and batch; best first.

    `devices` is a range as of a sweep, `8..4096`, beyond a node in whole nodes. The training ends
    at the model's target, or after so many tokens, steps or epochs. `within` is a deadline
    (`7d`), `budget` any of `1MUSD`, `500MWh`, `30tCO2`, `20k device-hours`. The objective is time,
    money, energy, carbon or cost (device-hours): not said, time, or what is spent where there is a
    deadline. `turned` asks as well what would change the answer. Other options are those of
    `recommend`.
    """
    from oracle.ask import choose as ask_choose
    from oracle.ask.setups import AXES, Asked, alike
    from oracle.ask.sweep.grid import numbers
    from oracle.run.costs import price_of
    from oracle.run.limits import Limits

    what, places = load_model(model, options.pop("dataset", None)), [*map(load_system, systems)]
    grow, reading = options.pop("grow", False), options.pop("reading", "best")
    for where in places:
        where.need_alike("which machine to choose")
    counts = [*numbers(devices)] if isinstance(devices, str) else sorted({*map(int, devices)})
    if not places or not counts or counts[0] < 1:
        raise refusal("choose", "no machines to choose from, or no devices", "--systems, --devices")
    limits = Limits.of(within, [budget] if isinstance(budget, str) else budget)
    if objective is None:
        priced = all(price_of(where) is not None for where in places)
        paid = "money" if priced else "cost"
        objective = paid if limits.within is not None else "time"
    if objective not in AXES:
        raise refusal("options", f"unknown objective `{objective}`", f"one of {', '.join(AXES)}")
    if to_target and options.get("optimizer") is None and what.convergence:
        options["optimizer"] = what.convergence[0].optimizer
    if batch is not None:
        _check_batch(batch)
    if not 0 < risk < 1:
        raise refusal("options", f"a risk of {risk:g}", "between 0 and 1, e.g. 0.05")
    if not to_target and tokens is None and steps is None and epochs is None:
        hint = "--to-target, --tokens, --epochs or --steps"
        raise refusal("choose", "nobody says how long the training is", hint)
    places = [where.of_size(counts[-1], True) if grow else where for where in places]
    places, notes = alike(places, objective)
    search.allowed_names(only, without)
    ends = {"target": to_target, "tokens": tokens, "steps": steps, "epochs": epochs}
    asked = Asked(what, ends, batch, batch_per_device, limits, objective, tuple(only),
                  tuple(without), risk)  # fmt: skip
    each = [
        (where, options_for(what, where, software=one, reading=reading, epochs=epochs, **options))
        for where in places for one in ([*software] or [None])
    ]  # fmt: skip
    return ask_choose.choose(asked, each, counts, turned=turned, notes=notes)
