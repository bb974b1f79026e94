"""What arguments of the public functions may be; each refusal names the argument and a cure."""

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
    """A call that lacks an argument, or has one that nobody knows."""


def checked(function: Callable[P, R]) -> Callable[P, R]:
    """The same function, whose wrong arguments are told with the right word."""
    known = signature(function).parameters
    open_ended = any(one.kind is Parameter.VAR_KEYWORD for one in known.values())

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        if not open_ended:
            check_names(function.__name__, kwargs, known)
        try:
            given = signature(function).bind(*args, **kwargs).arguments
        except TypeError as error:
            what = f"{function.__name__}: {str(error).replace(chr(39), '`')}"
            raise _wrong(function.__name__, what, _shape(function)) from None
        named = given.get("model"), given.get("system")
        if (meant := swapped(*named)) is not None:
            what = f"`{named[0]}` stands where the model is due, `{named[1]}` where the system is"
            call_meant = ", ".join(f'"{name}"' for name in meant)
            raise refusal("options", what, f"{function.__name__}({call_meant}, …)")
        return function(*args, **kwargs)

    return call


def check_names(name: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Refuse arguments that a function does not know."""
    for word in given:
        if word not in known:
            hint = suggest(word, known, "it takes")
            raise _wrong(name, f"{name} has no argument `{word}`", hint)


def _wrong(name: str, what: str, hint: str) -> ArgumentError:
    return ArgumentError(name, [Fault("E112", what, Place(), hint)])


def _shape(function: Callable[..., Any]) -> str:
    """`estimate(model, system, plan, batch, …)`: what must be said."""
    said = [
        name
        for name, one in signature(function).parameters.items()
        if one.default is Parameter.empty and one.kind is Parameter.POSITIONAL_OR_KEYWORD
    ]
    return f"{function.__name__}({', '.join(said)}, …)"  # fmt: skip


def plans_of(plan: Any) -> list[str | Plan]:
    """Each plan, or table of plans, of a text, a `Plan`, an `Estimate`, or a column of these."""
    if isinstance(plan, Mapping):
        words = " ".join(f"{name}:{degree}" for name, degree in plan.items())
        raise refusal("plan", "a plan is a text, not a dict", f"write `{words}`")
    if isinstance(plan, str | Plan):
        return [plan]
    if isinstance(plan, Estimate):
        return list(plan.plans)
    if not isinstance(plan, Iterable):
        raise refusal("plan", f"`{plan!r:.40}` is no plan", 'a text such as "data:16 filter:4"')
    return [one for each in plan for one in plans_of(each)]


def texts_of(plan: Any) -> list[str]:
    """The text of each plan."""
    return [
        row for one in plans_of(plan)
        for row in ([one] if isinstance(one, str) else [one.text(i) for i in range(len(one))])
    ]  # fmt: skip


def names_of(words: str | Iterable[str]) -> list[str]:
    """Names as a list, or between commas as on the command line."""
    return [word.strip() for word in words.split(",")] if isinstance(words, str) else list(words)


def check_batch(batch: Any, plans: int = 1) -> None:
    """Refuse what is not one batch, or one for each of so many plans."""
    import numpy as np

    try:
        sizes = np.asarray(batch, float)
    except (TypeError, ValueError):
        sizes = np.array(np.nan)
    whole = np.isfinite(sizes) & (sizes >= 1) & (sizes == np.round(sizes))
    if not (sizes.size and whole.all()):
        raise refusal("options", f"a batch of {batch!s:.40} samples", "a whole number from 1 on")
    if sizes.size not in (1, plans):
        what = f"{sizes.size} batches for {plans} plans"
        raise refusal("options", what, "one batch for all, or one for each")
