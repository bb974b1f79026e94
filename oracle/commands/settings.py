"""Defaults of options from the environment and from files, each known by where it comes from.

    flag > ORACLE_TOP > oracle.toml > ~/.config/oracle/config.toml > /etc/xdg/oracle/config.toml

The project's file is the nearest `oracle.toml` of the folder at hand and those above it. A file
is TOML: options by their long names, in a table for what holds of one command alone.

    precision = "bf16"
    max-memory = "70 GiB"

    [report]
    top = 40
"""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.commands.parser import VERBS, Parser, options, parser_of, parsers
from oracle.spec.document import Fault, Place, SpecError, read_text, suggest

Row = dict[str, str]
# options that are a matter of the site or of taste; what a run is about is said each time
SETTINGS = (
    "precision", "optimizer", "dataset", "max-memory", "algorithm", "objective", "top", "format",
    "color", "jobs", "backend", "timeout",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Setting:
    """One option set somewhere; for one verb, or for each that takes it."""

    key: str
    text: str  # as it would be typed
    verb: str = ""
    file: str = ""  # empty: the environment
    place: Place = field(default_factory=Place)

    @property
    def origin(self) -> str:
        said = f"environment {variable(self.key)}"
        return f"{self.file}:{self.place.line}" if self.file else said


def variable(key: str) -> str:
    """The environment variable of an option."""
    return f"ORACLE_{key.upper().replace('-', '_')}"


def files(environment: Mapping[str, str], here: Path) -> list[Path]:
    """Where settings are looked for, the weakest first."""
    system = [folder for folder in environment.get("XDG_CONFIG_DIRS", "").split(":") if folder]
    user = environment.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()
    above = [folder / "oracle.toml" for folder in (here, *here.parents)]
    project = next((path for path in above if path.is_file()), above[0])
    shared = [*reversed(system or ["/etc/xdg"]), user]
    return [*(Path(folder) / "oracle" / "config.toml" for folder in shared), project]


def settings(environment: Mapping[str, str], here: Path) -> list[Setting]:
    """Everything that is set, the weakest first; a SpecError with every fault of a file."""
    found = [one for path in files(environment, here) if path.is_file() for one in _read(path)]
    set_here = {key: environment.get(variable(key), "") for key in SETTINGS}
    return [*found, *(Setting(key, text) for key, text in set_here.items() if text)]


def settle(
    parser: Parser, verb: str, environment: Mapping[str, str] = os.environ, here: Path | None = None
) -> dict[str, Setting]:
    """Make what is set the default of a verb's options; key -> what decides it."""
    decided: dict[str, Setting] = {}
    for one in settings(environment, here or Path.cwd()):
        if one.verb in ("", verb) and _takes(parser, one.key):
            decided[one.key] = one
    for key, one in decided.items():
        for inner in parsers(parser):
            for action in inner._actions:
                if f"--{key}" in action.option_strings:
                    inner.set_defaults(**{action.dest: _value(action, one)})
    return decided


def shown(environment: Mapping[str, str] = os.environ, here: Path | None = None) -> list[Row]:
    """Of every option its value, where it comes from, and the verbs of which that is so.

    No verbs are named where it is so of all that take the option.
    """
    found: dict[str, dict[tuple[str, str], list[str]]] = {}
    for verb in VERBS:
        parser = parser_of(verb)
        decided = settle(parser, verb, environment, here)
        for key in SETTINGS:
            if action := _takes(parser, key):
                default = "" if action.default is None else str(action.default)
                one = decided.get(key)
                what = (one.text, one.origin) if one else (default, "default")
                found.setdefault(key, {}).setdefault(what, []).append(verb)
    return [
        {"key": key, "value": value, "origin": origin,
         "verbs": " ".join(verbs) if len(each) > 1 else ""}
        for key, each in sorted(found.items())
        for (value, origin), verbs in each.items()
    ]  # fmt: skip


def _takes(parser: Parser, key: str) -> argparse.Action | None:
    return next((a for a in options(parser) if f"--{key}" in a.option_strings), None)


def _value(action: argparse.Action, one: Setting) -> Any:
    try:
        value = action.type(one.text) if callable(action.type) else one.text
        if action.choices is not None and value not in action.choices:
            words = [str(word) for word in action.choices]
            raise ValueError(f"unknown `{one.text}`; {suggest(one.text, words, 'write one of')}")
    except (ValueError, argparse.ArgumentTypeError) as error:
        where = one.file or "the environment"
        text = read_text(one.file) if one.file else ""
        place = one.place if one.file else Place(path=variable(one.key))
        fault = Fault("E105", f"`{one.key}`: {error}", place, "", len(one.key))
        raise SpecError(where, [fault], text) from None
    return value


def _read(path: Path) -> Iterator[Setting]:
    import tomllib

    text, faults = read_text(path), []
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        at = re.search(r"line (\d+), column (\d+)", str(error))
        place = Place(int(at[1]), int(at[2])) if at else Place(text.count("\n") + 1, 1)
        what = re.sub(r"\s*\(at .*\)$", "", str(error))
        raise SpecError(str(path), [Fault("E101", what, place, "this is not TOML")], text) from None
    found = []
    tables = {verb: table for verb, table in content.items() if isinstance(table, dict)}
    plain = {key: value for key, value in content.items() if key not in tables}
    for verb, table in {"": plain, **tables}.items():
        if verb and verb not in VERBS:
            hint = suggest(verb, VERBS, "commands")
            what = f"no command is called `{verb}`"
            faults.append(Fault("E102", what, _place(text, verb), hint, len(verb)))
            continue
        parser = parser_of(verb) if verb else None
        known = [key for key in SETTINGS if parser is None or _takes(parser, key)]
        for key, value in table.items():
            place = _place(text, verb, key)
            if key not in known:
                hint = suggest(key, known, "settings")
                faults.append(Fault("E102", f"unknown setting `{key}`", place, hint, len(key)))
            elif isinstance(value, bool) or not isinstance(value, str | int | float):
                faults.append(Fault("E104", f"`{key}` takes one word or number", place, "",
                                    len(key)))  # fmt: skip
            else:
                found.append(Setting(key, str(value), verb, str(path), place))
    if faults:
        raise SpecError(str(path), faults, text)
    yield from found


def _place(text: str, table: str, key: str = "") -> Place:
    """Where a key stands; TOML's own reader forgets it."""
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*[\"']?([\w-]+)[\"']?\s*\]", line):
            inside = head[1]
            if not key and inside == table:
                return Place(number, head.start(1) + 1)
        words = re.match(r"\s*[\"']?(?:([\w-]+)[\"']?\s*\.\s*[\"']?)?([\w-]+)[\"']?\s*=", line)
        if words and (words[1] or inside) == table and words[2] == key:
            return Place(number, words.start(2) + 1)
        if words and not key and not inside and table in words.groups():
            return Place(number, words.start(1 if words[1] else 2) + 1)
    return Place(1, 1)
