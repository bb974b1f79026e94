"""Questions above one plan: which machine, which network, how to run many trainings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from inspect import signature
from numbers import Real
from typing import TYPE_CHECKING, Any

from oracle.api.arguments import check_batch, check_names, names_of
from oracle.ask import search
from oracle.models.model import model as load_model
from oracle.plan.launchable import software as opened_software
from oracle.predict.defaults import foreign, options_for
from oracle.spec.catalogue import system as load_system
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.choose import Choice
    from oracle.ask.design_network import Designs
    from oracle.ask.workflow import Campaign
    from oracle.models.model import Model
    from oracle.spec.system import System


def workflow(
    what: str | dict[str, Any], system: System | str | dict[str, Any], nodes: int, *,
    search: str | dict[str, Any] | None = None, trials: int | None = None, grow: bool = False,
    reading: str = "best", **settings: Any,
) -> Campaign:  # fmt: skip
    """Return the fastest way to run many trainings on `nodes`: how many at once, how large each.

    `what` is a model, with a `search` (random, grid, halving, genetic, ensemble, transfer; or a
    dict of a `kind` and its settings) of so many `trials`; or a workflow's file. The `settings`
    override those of the file: `epochs`, `tokens`, `steps` or `to_target` of a trial, its `batch`
    or `max_batch`, `plan`, `dataset`, `precision`, `optimizer`, `software`, the `spread` of
    trials' times.

    >>> import oracle
    >>> found = oracle.workflow("resnet50", "abci", 4, search="random", trials=32, epochs=90,
    ...                         max_batch=1024)
    >>> found.main.at_once, found.main.trial.plan
    (16, 'data:1,accumulate=8')
    """
    from oracle.ask.trials import opened
    from oracle.ask.workflow import campaign

    settings = {"search": search, "trials": trials, **settings}
    return campaign(opened(what, system, settings, [nodes], grow=grow, reading=reading), nodes)


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
    """Return every network of `devices` and switches of `ports` ports, the recommended one first.

    It is the cheapest of the networks on which every model is within `within` of its fastest:
    by `switch_price` and `cable_price` (USD, one for all cables or one each of `node`, `group`
    and `global`), else by switches and then cables. Devices, nodes, ports of a node and their
    links are the system's, unless `nics` and `link` say otherwise. A model's batch follows its
    name, `resnet50:8192`, or is in `batch`; else it is 4 M tokens or 32 samples a device. The plan
    is `plan`, one for each model, or the `best` of each network, or the `same` on all. Other
    options are those of `recommend`.

    >>> import oracle
    >>> found = oracle.design_network("resnet50:8192", 256, 40, plan="data:256")
    >>> found.best.design.name, found.best.design.switches
    ('rail-only', 8)
    """
    from oracle.api.predict import recommend
    from oracle.ask import design_network as ask_design
    from oracle.spec.units import parse as quantity

    check_names("design_network", options, signature(recommend).parameters)
    base = load_system(system)
    for name, count in (("devices", devices), ("ports", ports), ("nics", nics or 1)):
        if not isinstance(count, Real) or not 1 <= count < 2**24 or count != int(count):
            raise refusal("options", f"{name} is {count!r:.40}", "a whole number from 1 on")
    if plans not in ask_design.PLANS:
        raise refusal("options", f"plans are `{plans}`", f"one of {', '.join(ask_design.PLANS)}")
    try:
        link_bandwidth = quantity(link, "B/s") if isinstance(link, str) else link
    except ValueError as error:
        raise refusal("options", str(error), "e.g. --link '50 GB/s'") from None
    need = ask_design.wanted(base, int(devices), int(ports), nics, link_bandwidth)
    model_list = (
        [models] if isinstance(models, str | dict) or hasattr(models, "rows") else list(models)
    )
    sizes: list[Any] = list(batch) if isinstance(batch, Sequence) else [batch] * len(model_list)
    plan_list: list[Any] = [plan] if isinstance(plan, str) else list(plan or [])
    if (
        not model_list
        or len(sizes) != len(model_list)
        or (plan_list and len(plan_list) != len(model_list))
    ):
        hint = "one for each model, in their order"
        raise refusal("options", f"{len(plan_list)} plans for {len(model_list)} models", hint)
    options = {"reading": "none", **options}
    works = [
        ask_design.workload(base, need, net, size, plan_text, options)
        for net, size, plan_text in zip(
            model_list, sizes, plan_list or [None] * len(model_list), strict=True
        )
    ]
    price = ask_design.prices(switch_price, cable_price)
    return ask_design.design_network(base, need, works, plans=plans, within=within, price=price)


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
    only: str | Iterable[str] = (),
    without: str | Iterable[str] = (),
    risk: float = 0.05,
    turned: bool = True,
    **options: Any,
) -> Choice:
    """Rank machines with their numbers of devices, software, plan and batch, best first.

    `devices` is a range as of a sweep, `8..4096`, beyond a node in whole nodes. The training ends
    at the model's target, or after a number of tokens, steps or epochs. `within` is a deadline
    (`7d`), `budget` any of `1MUSD`, `500MWh`, `30tCO2`, `20k device-hours`. The objective is time,
    money, energy, carbon or cost (device-hours); by default it is time, or with a deadline the
    money or the device-hours. With `turned` the answer says what would change it. Other options
    are those of `recommend`.
    """
    from oracle.api.predict import recommend
    from oracle.ask import choose as ask_choose
    from oracle.ask.setups import AXES, Asked, alike
    from oracle.ask.sweep.grid import numbers
    from oracle.run.costs import price_of
    from oracle.run.limits import Limits

    check_names("choose", options, signature(recommend).parameters)
    only, without = names_of(only), names_of(without)
    net, places = load_model(model, options.pop("dataset", None)), [*map(load_system, systems)]
    grow, reading = options.pop("grow", False), options.pop("reading", "best")
    for place in places:
        place.need_alike("which machine to choose")
    counts = [*numbers(devices)] if isinstance(devices, str) else sorted({*map(int, devices)})
    if not places or not counts or counts[0] < 1:
        raise refusal("choose", "no machines to choose from, or no devices", "--systems, --devices")
    limits = Limits.of(within, [budget] if isinstance(budget, str) else budget)
    if objective is None:
        priced = all(price_of(place) is not None for place in places)
        paid = "money" if priced else "cost"
        objective = paid if limits.within is not None else "time"
    if objective not in AXES:
        raise refusal("options", f"unknown objective `{objective}`", f"one of {', '.join(AXES)}")
    if to_target and options.get("optimizer") is None and net.convergence:
        options["optimizer"] = net.convergence[0].optimizer
    if batch is not None:
        check_batch(batch)
    if not 0 < risk < 1:
        raise refusal("options", f"a risk of {risk:g}", "between 0 and 1, e.g. 0.05")
    if not to_target and tokens is None and steps is None and epochs is None:
        hint = "--to-target, --tokens, --epochs or --steps"
        raise refusal("choose", "nobody says how long the training is", hint)
    places = [place.of_size(counts[-1], True) if grow else place for place in places]
    places, notes = alike(places, objective)
    search.allowed_names(only, without)
    ends = {"target": to_target, "tokens": tokens, "steps": steps, "epochs": epochs}
    question = Asked(net, ends, batch, batch_per_device, limits, objective, tuple(only),
                     tuple(without), risk)  # fmt: skip
    pairs = [(place, name) for place in places for name in ([*software] or [None])]
    reasons = ["" if name is None or options.get("any_plan") else
               foreign(opened_software(name), place) for place, name in pairs]  # fmt: skip
    if not all(reasons):  # where all are refused, the first says why
        pairs = [pair for pair, reason in zip(pairs, reasons, strict=True) if not reason]
        notes = (*notes, *filter(None, reasons))
    setups = [
        (place, options_for(net, place, software=name, reading=reading, epochs=epochs, **options))
        for place, name in pairs
    ]
    return ask_choose.choose(question, setups, counts, turned=turned, notes=notes)
