"""Checks of the public functions' arguments; each refusal names the argument and a cure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import wraps
from inspect import Parameter, signature
from typing import Any, ParamSpec, TypeVar

from oracle.plan.plan import Plan
from oracle.predict.estimate import Estimate
from oracle.spec.catalogue import swapped
from oracle.spec.document import Fault, Place, SpecError, refusal, suggest

P = ParamSpec("P")
R = TypeVar("R")


class ArgumentError(SpecError, TypeError):
    """An error of a call that lacks an argument, or has an unknown one."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """Return a function that refuses wrong arguments and suggests the right ones."""
    parameters = signature(function).parameters
    open_ended = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not open_ended:
            check_names(function.__name__, kwargs, parameters)
        try:
            bound = signature(function).bind(*args, **kwargs).arguments
        except TypeError as error:
            complaint = f"{function.__name__}: {str(error).replace(chr(39), '`')}"
            raise _wrong(function.__name__, complaint, _shape(function)) from None
        model_and_system = bound.get("model"), bound.get("system")
        if (meant := swapped(*model_and_system)) is not None:
            net, machine = model_and_system
            complaint = f"`{net}` stands where the model is due, `{machine}` where the system is"
            call_meant = ", ".join(f'"{name}"' for name in meant)
            raise refusal("options", complaint, f"{function.__name__}({call_meant}, …)")
        return function(*args, **kwargs)

    return call


def check_names(name: str, words: Iterable[str], parameters: Iterable[str]) -> None:
    """Refuse arguments that a function does not know."""
    for word in words:
        if word not in parameters:
            hint = suggest(word, parameters, "it takes")
            raise _wrong(name, f"{name} has no argument `{word}`", hint)


def _wrong(name: str, complaint: str, hint: str) -> ArgumentError:
    return ArgumentError(name, [Fault("E112", complaint, Place(), hint)])


def _shape(function: Callable[..., Any]) -> str:
    """Return a function with its required arguments: `estimate(model, system, plan, batch, …)`."""
    required = [
        name
        for name, parameter in signature(function).parameters.items()
        if parameter.default is Parameter.empty
        and parameter.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
    return f"{function.__name__}({', '.join(required)}, …)"  # fmt: skip


def plans_of(plan: Any) -> list[str | Plan]:
    """Return each plan, or table of plans, of a text, `Plan`, `Estimate`, or a list of these."""
    if isinstance(plan, Mapping):
        words = " ".join(f"{name}:{degree}" for name, degree in plan.items())
        raise refusal("plan", "a plan is a text, not a dict", f"write `{words}`")
    if isinstance(plan, str | Plan):
        return [plan]
    if isinstance(plan, Estimate):
        return list(plan.plans)
    if not isinstance(plan, Iterable):
        raise refusal("plan", f"`{plan!r:.40}` is no plan", 'a text such as "data:16 filter:4"')
    return [part for entry in plan for part in plans_of(entry)]


def texts_of(plan: Any) -> list[str]:
    """Return the text of each plan."""
    return [
        row
        for plans in plans_of(plan)
        for row in (
            [plans] if isinstance(plans, str) else [plans.text(i) for i in range(len(plans))]
        )
    ]


def names_of(words: str | Iterable[str]) -> list[str]:
    """Return names as a list, of a list or of a text with commas as on the command line."""
    return [word.strip() for word in words.split(",")] if isinstance(words, str) else list(words)


def check_batch(batch: Any, plans: int = 1) -> None:
    """Refuse a batch that is no whole number, or batches that are not one for each plan."""
    import numpy as np

    try:
        sizes = np.asarray(batch, float)
    except (TypeError, ValueError):
        sizes = np.array(np.nan)
    valid = np.isfinite(sizes) & (sizes >= 1) & (sizes == np.round(sizes))
    if not (sizes.size and valid.all()):
        raise refusal("options", f"a batch of {batch!s:.40} samples", "a whole number from 1 on")
    if sizes.size not in (1, plans):
        complaint = f"{sizes.size} batches for {plans} plans"
        raise refusal("options", complaint, "one batch for all, or one for each")
