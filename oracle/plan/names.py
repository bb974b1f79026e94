"""Short names of plans in pictures, tables and headings: `PP8·DP16·TP4`.

A name says the degrees, outermost first. A knob stands in it only where two of the plans that are
named together would else be called the same: `PP8·DP16·TP4 segments=48`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from oracle.plan.grammar import read
from oracle.plan.strategies import Strategy
from oracle.spec.document import SpecError


def short_names(plans: Sequence[str]) -> list[str]:
    """A name for each plan; what is no plan is its own name.

    >>> short_names(["pipeline:8,segments=64 data:16,zero=1 tensor:4", "serial"])
    ['PP8·DP16·TP4', 'serial']
    >>> short_names(["data:8", "data:8,zero=1", "data:4 spatial:2x2"])
    ['DP8 zero=0', 'DP8 zero=1', 'DP4·Spatial2×2']
    """
    axes = {plan: _axes(plan) for plan in dict.fromkeys(plans)}
    alike: dict[str, list[str]] = {}
    for plan, own_words in axes.items():
        alike.setdefault(plan if own_words is None else _degrees(own_words), []).append(plan)
    names = {}
    for name, members in alike.items():
        turned = [_turned(axes[plan] or ()) for plan in members]
        knobs = _telling(turned, len(members)) if len(members) > 1 else []
        for plan, values in zip(members, turned, strict=True):
            texts = ", ".join(f"{word}={values.get(knob, _plain(knob))}" for knob, word in knobs)
            names[plan] = f"{name} {texts}".strip()
    return [names[plan] for plan in plans]


def _axes(plan: str) -> tuple[Strategy, ...] | None:
    try:
        return tuple(read(plan))
    except SpecError:  # a word of a table that others wrote
        return None


def _degrees(axes: Iterable[Strategy]) -> str:
    words = [f"{axis.letters or axis.name.capitalize()}{axis.degree_text().replace('x', '×')}"
            for axis in axes if axis.degrees and axis.wide]  # fmt: skip
    return "·".join(words) or "serial"


def _turned(axes: Iterable[Strategy]) -> dict[tuple[type[Strategy], str], str]:
    """The knobs that one plan turns, by strategy and name."""
    words: dict[tuple[type[Strategy], str], str] = {}
    for axis in axes:
        if axis.active:
            hidden = axis.hidden()
            words |= {(type(axis), k): v for k, v in axis.turned().items() if k not in hidden}
    return words


def _plain(knob: tuple[type[Strategy], str]) -> str:
    """A knob's value where nobody says it."""
    return knob[0]().word(knob[1])


def _telling(
    turned: Sequence[Mapping[tuple[type[Strategy], str], str]], many: int
) -> list[tuple[tuple[type[Strategy], str], str]]:
    """The fewest knobs that tell plans apart, the most telling first, each with its word."""
    left = list(dict.fromkeys(knob for values in turned for knob in values))
    chosen: list[tuple[type[Strategy], str]] = []

    def apart(knobs: Sequence[tuple[type[Strategy], str]]) -> int:
        return len({tuple(values.get(knob) for knob in knobs) for values in turned})

    while left and apart(chosen) < many:
        best = max(left, key=lambda knob: apart([*chosen, knob]))
        if apart([*chosen, best]) == apart(chosen):
            break
        chosen.append(best)
        left.remove(best)
    words = [_word(knob) for knob in chosen]
    return [(knob, word if words.count(word) == 1 else f"{knob[0].name} {word}")
            for knob, word in zip(chosen, words, strict=True)]  # fmt: skip


def _word(knob: tuple[type[Strategy], str]) -> str:
    """A knob's name; a strategy's own where it is written in place of a degree."""
    strategy, name = knob
    first = next(iter(strategy.knobs()))
    return strategy.name if not strategy.degrees and name == first else name


def key(plans: Sequence[str]) -> list[tuple[str, str]]:
    """(short name, full text) of each plan once, where they differ."""
    pairs = zip(short_names(plans), plans, strict=True)
    return [pair for pair in dict.fromkeys(pairs) if pair[0] != pair[1]]
