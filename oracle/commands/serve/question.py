"""The question of the page: one set of fields, as an address, as a command line, as Python.

A field is an option of the command line, or a factor or price of the system. The fields make the
words of a command, the command line's own parser reads the words, and its result makes the
keywords of the Python call. So the three always agree.
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
    """A fault of one field of the page, shown beside the field."""

    def __init__(self, field: str, words: str) -> None:
        super().__init__(words)
        self.field, self.words = field, words


@dataclass(frozen=True)
class Question:
    """The fields that are set, in the order of `FIELDS`."""

    values: tuple[tuple[str, str], ...]

    def __getitem__(self, field: str) -> str:
        return dict(self.values).get(field, "")

    @property
    def address(self) -> str:
        """Return the part of an address after the `?`."""
        return urlencode(self.values)

    @property
    def system(self) -> str:
        """Return the system with its changes, as every verb takes it."""
        changes = [f"{name}{TIMES}{self[name]}" for name in FACTORS if self[name]]
        changes += [f"{PRICE}={self[PRICE]} USD/h"] if self[PRICE] else []
        return ",".join((self["system"], *changes))

    def as_it_is(self) -> Question:
        """Return the question without what-ifs."""
        return Question(tuple(pair for pair in self.values if pair[0] not in (*FACTORS, PRICE)))

    def of_plans(self) -> Question:
        """Return the question with a global batch, as plans need it."""
        if self["batch"] or not self["batch-per-device"]:
            return self
        batch = max(1, round(float(self["batch-per-device"]) * int(self["devices"])))
        values = {k: v for k, v in self.values if k != "batch-per-device"} | {"batch": str(batch)}
        return Question(tuple((field, values[field]) for field in FIELDS if field in values))

    def words(self, verb: str, *more: str, without: Iterable[str] = ()) -> list[str]:
        """Return the command line of a verb: the fields that it takes, and `more`.

        A verb of two words, `plot memory`, takes the options of its second word.
        """
        line = [*verb.split(), self["model"], self.system]
        for field in OPTIONS:
            if not self[field] or field in without or f"--{field}" not in _flags(verb):
                continue
            line += [f"--{field}"] if field in SWITCHES else [f"--{field}", self[field]]
        return [*line, *more]


SWITCHES = ("any", "fastest")


@cache
def _flags(verb: str) -> frozenset[str]:
    """Return the options that a verb takes."""
    name, _, kind = verb.partition(" ")
    parser: argparse.ArgumentParser = parser_of(name)
    if kind:
        [inner] = [
            action for action in parser._actions if isinstance(action, argparse._SubParsersAction)
        ]
        parser = inner.choices[kind]
    return frozenset(flag for action in options(parser) for flag in action.option_strings)


def question(fields: Mapping[str, str], uploaded: Mapping[str, str]) -> Question:
    """Return the question of an address, or raise a FieldError for a field with a wrong value.

    `uploaded` holds the names of specs that were dropped on the page, with their kinds.
    """
    fields = {**USUAL, **fields} if not fields.get("model") else dict(fields)
    for field in fields:
        if field not in FIELDS:
            raise FieldError(field, f"no field is called `{field:.40}`; {suggest(field, FIELDS)}")
    values = {field: fields[field].strip() for field in FIELDS if fields.get(field, "").strip()}
    for field, value in values.items():
        if len(value) > LONGEST or not value.isprintable():
            raise FieldError(field, f"longer than {LONGEST} characters, or not plain text")
        if value.startswith("-"):
            raise FieldError(field, "a value does not begin with `-`")
        if field in NAMED:
            _check_name(field, value, uploaded)
        elif field in (*FACTORS, PRICE) and not _NUMBER.fullmatch(value):
            raise FieldError(field, f"`{value}` is not a number such as 2 or 0.5")
        elif field in SWITCHES and value != "on":
            raise FieldError(field, "`on`, or nothing")
    for field in ("model", "system", "devices"):
        if field not in values:
            raise FieldError(field, "say one")
    values = {field: value for field, value in values.items()
              if not (field in FACTORS and float(value) == 1)}  # fmt: skip
    checked = Question(tuple(values.items()))
    read(parser_of("recommend"), checked.words("recommend")[1:])
    return checked


def _check_name(field: str, value: str, uploaded: Mapping[str, str]) -> None:
    """Refuse a name that is neither shipped nor dropped on the page, as any file is."""
    names = [*shipped(NAMED[field]), *(n for n, kind in uploaded.items() if kind == NAMED[field])]
    if value not in names:
        raise FieldError(field, f"no {field} is called `{value}`; {suggest(value, names)}")


def read(parser: Parser, words: Sequence[str]) -> argparse.Namespace:
    """Return the options that words parse to, or raise a FieldError where they do not parse."""
    from oracle.commands.arguments import changed

    try:
        args: argparse.Namespace = parser.parse_args(words)
    except Usage as error:
        match = re.match(r"argument (?:-\w/)?--([\w-]+)[^:]*: (.*)", str(error), re.DOTALL)
        raise FieldError(
            match[1] if match else "batch", match[2] if match else str(error)
        ) from None
    args.repeated = partial(repeated, words)
    changed(args)
    return args


def called(function: Callable[..., Any], keywords: Mapping[str, Any], first: Sequence[str]) -> str:
    """Return a call in Python: `first` by position, other arguments unless at their default."""
    usual = {
        name: parameter.default
        for name, parameter in inspect.signature(function).parameters.items()
    }
    words = [repr(keywords[name]) for name in first]
    for name, value in keywords.items():
        if name in first or (name in usual and _same(value, usual[name])):
            continue
        words.append(f"{name}={value!r}")
    return f"oracle.{function.__name__}({', '.join(words)})"


def _same(value: Any, usual: Any) -> bool:
    return bool(value == usual) or (not value and not usual and value is not False)
