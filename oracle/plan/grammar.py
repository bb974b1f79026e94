"""The text of a plan: axes from words, and words from axes.

    data:16 filter:4
    pipeline:8,segments=64,schedule=1f1b,interleave=2 data:16,zero=1 tensor:8,sequence=on
    recompute:selective            serial

Outermost first. One grammar serves the command line, files, `str(plan)` and tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from oracle.plan.strategies import Strategy, strategies
from oracle.plan.strategies.base import number_of
from oracle.spec.document import Fault, Place, SpecError, nearest, suggest

LONGEST = 2**11  # characters of a plan: there are fewer strategies, and each stands once


def write(axes: Iterable[Strategy]) -> str:
    """One plan as it is written; what is as if nobody had said it is left out."""
    return " ".join(filter(None, map(_word, axes))) or "serial"


def _word(axis: Strategy) -> str:
    if not axis.active:
        return ""
    knob_words = axis.turned()
    if not axis.degrees:
        first = next(iter(axis.knobs()))
        rest = (f"{knob}={word}" for knob, word in knob_words.items() if knob != first)
        return ",".join([f"{axis.name}:{axis.word(first)}", *rest])
    knobs, degree_is_one = axis.knobs(), axis.degree_text() == "1"
    knob_words = {
        name: word
        for name, word in knob_words.items()
        if name not in axis.hidden() and (knobs[name].metadata.get("alone") or not degree_is_one)
    }
    return ",".join(
        [f"{axis.name}:{axis.degree_text()}", *(f"{k}={v}" for k, v in knob_words.items())]
    )


def read(text: str) -> list[Strategy]:
    """The axes that a text says; a SpecError with every fault otherwise."""
    faults: list[Fault] = []
    if len(text) > LONGEST:
        complaint = f"the plan has {len(text)} characters, more than a plan can need ({LONGEST})"
        raise SpecError(
            "plan", [_fault(complaint, 0, "", "one word for each strategy")], text[:LONGEST]
        )
    axes: dict[str, tuple[Strategy, int]] = {}  # with the column where each begins
    for match in re.finditer(r"\S+", text):
        word, start = match.group(), match.start()
        if word == "serial" or (word.isdigit() and text[:start].rstrip().endswith(":")):
            continue  # a number behind a blank is told of at the strategy that lacks it
        behind = re.match(r"\s+([0-9]+)\b", text[match.end() :])
        if axis := _axis(word, start, axes, faults, behind[1] if behind else ""):
            axes[axis.name] = axis, start
    read_axes = {name: axis for name, (axis, _) in axes.items()}
    for axis, start in axes.values():
        for complaint, hint in axis.clashes(read_axes):
            faults.append(_fault(complaint, start, axis.name, hint))
    if not text.strip():
        faults.append(_fault("the plan is empty", 0, "", "`serial`, or e.g. `data:16 filter:4`"))
    if faults:
        raise SpecError("plan", faults, text)
    return list(read_axes.values())


def _axis(
    word: str, start: int, before: dict[str, tuple[Strategy, int]], faults: list[Fault],
    behind: str = "",
) -> Strategy | None:  # fmt: skip
    """The axis of a word; `behind` is a number that stands apart from it."""
    head, *knobs = word.split(",")
    name, colon, degree = head.partition(":")
    known_strategies = strategies()
    if name not in known_strategies:
        faults.append(_fault(f"no strategy is called `{name}`", start, name, _meant(head)))
        return None
    if name in before:
        faults.append(_fault(f"`{name}` stands twice", start, word, "write it once"))
        return None
    cls = known_strategies[name]
    values: dict[str, Any] = {}
    column = start + len(name) + 1
    if not degree:
        words = "" if cls.degrees else next(iter(cls.knobs().values())).metadata["words"]
        hint = ", ".join(f"`{name}:{example}`" for example in words or [behind or 2])
        faults.append(_fault(f"`{name}` lacks its {'mode' if words else 'degree'}", start, word,
                             f"{hint}{', without a blank' if colon else ''}"))  # fmt: skip
    elif cls.degrees:
        values |= _degree(cls, degree, column, faults)
    else:
        values |= _knob(cls, next(iter(cls.knobs())), degree, column, faults)
    column = start + len(head) + 1
    for knob in knobs:
        values |= _turned(cls, knob, column, faults, word)
        column += len(knob) + 1
    return cls(**values)


ALSO = {"fsdp": ",zero=3", "hsdp": ",zero=3"}  # what a strategy's name elsewhere says beside ours


def _meant(word: str) -> str:
    """What to write for a word that is no strategy with its degree: `data=16`, `tp8`."""
    known_strategies = strategies()
    match = re.fullmatch(r"([A-Za-z_-]+)[:=]?([0-9x]*)", word)
    for owner, strategy in known_strategies.items():
        if match and match[1] in strategy.knobs() and strategy.degrees:
            return f"{match[1]} is said of {owner}: `{owner}:N,{match[1]}={match[2] or '…'}`"
    meant = nearest(match[1], known_strategies) if match else ""
    if match and meant and match[2] and known_strategies[meant].degrees:
        return f"did you mean `{meant}:{match[2]}{ALSO.get(match[1].lower(), '')}`?"
    return suggest(re.split("[:=]", word)[0], known_strategies, "strategies")


def _fault(complaint: str, column: int, word: str, hint: str = "") -> Fault:
    return Fault("E112", complaint, Place(1, column + 1), hint, max(1, len(word)))


def _degree(cls: type[Strategy], text: str, column: int, faults: list[Fault]) -> dict[str, float]:
    fields_of_degree = cls.degree_of(text)
    if fields_of_degree is None:
        hint = "a whole number from 1" + (", or a grid `2x2`" if cls.as_grid else "")
        faults.append(_fault(f"`{text}` is not a degree of {cls.name}", column, text, hint))
    return fields_of_degree or {}


def _turned(
    cls: type[Strategy], text: str, column: int, faults: list[Fault], word: str
) -> dict[str, float]:
    """A knob as it stands in a word of a plan, `segments=8`."""
    name, equals, value = text.partition("=")
    known_knobs = [knob for knob in cls.knobs() if knob not in cls().hidden()]
    if name not in known_knobs:
        hint = _knob_meant(cls, text, known_knobs, word)
        faults.append(_fault(f"{cls.name} has no knob `{name}`", column, name, hint))
        return {}
    if not equals:
        faults.append(_fault(f"`{name}` lacks its value", column, name, f"`{name}=…`"))
        return {}
    return _knob(cls, name, value, column + len(name) + 1, faults)


def _knob_meant(cls: type[Strategy], text: str, known_knobs: list[str], word: str) -> str:
    """What to write for a word that is no knob: `zero3`, or a strategy behind a comma."""
    if text.partition(":")[0] in strategies():
        return f"strategies stand apart: `{word.replace(f',{text}', f' {text}')}`"
    match = re.fullmatch(r"([a-z]+)[:_-]?([0-9]+)", text)
    if match and match[1] in known_knobs:
        return f"did you mean `{match[1]}={match[2]}`?"
    name, equals, value = text.partition("=")
    if name == "micro":
        return "samples of a micro-batch are said on the command line, beside --batch B"
    owners = [other for other, strategy in strategies().items() if name in strategy.knobs()]
    if owners and not nearest(name, known_knobs):
        return f"{name} is said of {owners[0]}: `{owners[0]}:N,{name}={value if equals else '…'}`"
    return suggest(name, known_knobs, f"knobs of {cls.name}")


def _knob(
    cls: type[Strategy], name: str, value: str, column: int, faults: list[Fault]
) -> dict[str, float]:
    """The value of a knob, which begins at a column."""
    choices = cls.knobs()[name].metadata.get("words")
    if cls.knobs()[name].metadata.get("part"):
        if re.fullmatch(r"[01]?\.?[0-9]{1,9}(e-[0-9])?", value) and 0 < float(value) <= 1:
            return {name: float(value)}
        faults.append(_fault(f"`{value}` is no part for `{name}`", column, value, "e.g. 0.01"))
    elif choices:
        if value in choices:
            return {name: float(choices.index(value))}
        form = cls.knobs()[name].metadata.get("form")
        if form and re.fullmatch(form, value):
            return {name: number_of(value, choices)}
        hint = suggest(value, choices, "write one of")
        faults.append(_fault(f"`{name}` cannot be `{value}`", column, value, hint))
    elif re.fullmatch(r"[1-9][0-9]{0,6}", value):
        return {name: float(value)}
    else:
        faults.append(_fault(f"`{value}` is not a number for `{name}`", column, value, "from 1 on"))
    return {}
