"""What the page asks: one set of fields, as an address, as a command line, as Python.

A field is an option of the command line by its own name, or what is changed of the system. From
the fields come the words of a command, which the command line's own parser reads; from what it
reads come the keywords of the Python call. So the three agree: they are the same thing.
"""

from __future__ import annotations

import argparse
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any
from urllib.parse import urlencode

from oracle.commands.parser import Parser, Usage, options, parser_of, repeated
from oracle.spec.catalogue import shipped
from oracle.spec.document import suggest
from oracle.spec.what_if import FACTORS, TIMES

NAMED = {"model": "models", "system": "systems", "dataset": "datasets", "software": "software"}
OPTIONS = ("devices", "batch", "batch-per-device", "dataset", "precision", "optimizer", "software",
           "sequence", "max-memory", "objective", "risk", "only", "without", "any", "fastest",
           "top")  # fmt: skip
PRICE = "price"  # USD an hour and device
FIELDS = ("model", "system", *OPTIONS, *FACTORS, PRICE)
USUAL = {"model": "resnet50", "system": "abci", "devices": "64", "batch": "4096"}
LONGEST = 200  # characters of a field
_NUMBER = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


class FieldError(Exception):
    """What is wrong with one field of the page, said beside it."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field, self.words = field, words


@dataclass(frozen=True)
class Question:
    """The fields that were said, in the order of `FIELDS`."""

    said: tuple[tuple[str, str], ...]

    def __getitem__(self, field: str) -> str:
        return dict(self.said).get(field, "")

    @property
    def address(self) -> str:
        """What stands behind the `?` of an address."""
        return urlencode(self.said)

    @property
    def system(self) -> str:
        """The system with what is changed of it, as every verb takes it."""
        changes = [f"{name}{TIMES}{self[name]}" for name in FACTORS if self[name]]
        changes += [f"{PRICE}={self[PRICE]} USD/h"] if self[PRICE] else []
        return ",".join((self["system"], *changes))

    def as_it_is(self) -> Question:
        """The same without what-ifs."""
        return Question(tuple(one for one in self.said if one[0] not in (*FACTORS, PRICE)))

    def of_plans(self) -> Question:
        """The same with the global batch, which is what a plan is given."""
        if self["batch"] or not self["batch-per-device"]:
            return self
        batch = max(1, round(float(self["batch-per-device"]) * int(self["devices"])))
        said = {k: v for k, v in self.said if k != "batch-per-device"} | {"batch": str(batch)}
        return Question(tuple((field, said[field]) for field in FIELDS if field in said))

    def words(self, verb: str, *more: str, without: Iterable[str] = ()) -> list[str]:
        """The command line of a verb: the fields that it takes, and `more`.

        A verb of two words, `plot memory`, takes what the second does.
        """
        found = [*verb.split(), self["model"], self.system]
        for field in OPTIONS:
            if not self[field] or field in without or f"--{field}" not in _flags(verb):
                continue
            found += [f"--{field}"] if field in SWITCHES else [f"--{field}", self[field]]
        return [*found, *more]


SWITCHES = ("any", "fastest")


@cache
def _flags(verb: str) -> frozenset[str]:
    """The options that a verb takes."""
    name, _, kind = verb.partition(" ")
    parser: argparse.ArgumentParser = parser_of(name)
    if kind:
        [inner] = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        parser = inner.choices[kind]
    return frozenset(flag for action in options(parser) for flag in action.option_strings)


def question(said: Mapping[str, str], uploaded: Mapping[str, str]) -> Question:
    """The question of an address; a FieldError where a field cannot be what it says.

    `uploaded` are the names of specs that were dropped on the page, with their kind.
    """
    said = {**USUAL, **said} if not said.get("model") else dict(said)
    for field in said:
        if field not in FIELDS:
            raise FieldError(field, f"no field is called `{field:.40}`; {suggest(field, FIELDS)}")
    found = {field: said[field].strip() for field in FIELDS if said.get(field, "").strip()}
    for field, value in found.items():
        if len(value) > LONGEST or not value.isprintable():
            raise FieldError(field, f"longer than {LONGEST} characters, or not plain text")
        if value.startswith("-"):
            raise FieldError(field, "a value does not begin with `-`")
        if field in NAMED:
            _known(field, value, uploaded)
        elif field in (*FACTORS, PRICE) and not _NUMBER.fullmatch(value):
            raise FieldError(field, f"`{value}` is not a number such as 2 or 0.5")
        elif field in SWITCHES and value != "on":
            raise FieldError(field, "`on`, or nothing")
    for field in ("model", "system", "devices"):
        if field not in found:
            raise FieldError(field, "say one")
    found = {field: value for field, value in found.items()
             if not (field in FACTORS and float(value) == 1)}  # fmt: skip
    asked = Question(tuple(found.items()))
    read(parser_of("recommend"), asked.words("recommend")[1:])
    return asked


def _known(field: str, value: str, uploaded: Mapping[str, str]) -> None:
    """Refuse what is neither shipped nor dropped on the page: no file of this machine is named."""
    names = [*shipped(NAMED[field]), *(n for n, kind in uploaded.items() if kind == NAMED[field])]
    if value not in names:
        raise FieldError(field, f"no {field} is called `{value}`; {suggest(value, names)}")


def read(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """What the command line makes of words; a FieldError where it would refuse them."""
    from oracle.commands.arguments import changed

    try:
        asked: argparse.Namespace = parser.parse_args(words)
    except Usage as error:
        found = re.match(r"argument (?:-\w/)?--([\w-]+)[^:]*: (.*)", str(error), re.DOTALL)
        raise FieldError(
            found[1] if found else "batch", found[2] if found else str(error)
        ) from None
    asked.repeated = partial(repeated, words)
    changed(asked)
    return asked


def called(function: Callable[..., Any], said: Mapping[str, Any], first: Sequence[str]) -> str:
    """A call in Python: the arguments of `first` by position, others where they are not usual."""
    usual = {name: one.default for name, one in inspect.signature(function).parameters.items()}
    words = [repr(said[name]) for name in first]
    for name, value in said.items():
        if name in first or (name in usual and _same(value, usual[name])):
            continue
        words.append(f"{name}={value!r}")
    return f"oracle.{function.__name__}({', '.join(words)})"


def _same(value: Any, usual: Any) -> bool:
    return bool(value == usual) or (not value and not usual and value is not False)
