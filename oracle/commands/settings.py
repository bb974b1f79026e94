"""Defaults of options from the environment and from files, each known by where it comes from.

    flag > ORACLE_TOP > oracle.toml > ~/.config/oracle/config.toml > /etc/xdg/oracle/config.toml

The project's file is the nearest `oracle.toml` of the folder at hand and those above it. A file
is TOML: options by their long names, in a table for what holds of one command alone.

    precision = "bf16"
    max-memory = "70 GiB"

    [report]
    top = 40

A file that somebody else owns, or that anybody may change, is passed over with a word.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oracle.commands.parser import VERBS, Parser, options, parser_of, parsers
from oracle.spec.document import SHOWN, Fault, Place, SpecError, suggest
from oracle.spec.files import SETTINGS as LARGEST
from oracle.spec.files import read_text, toml_of

Row = dict[str, str]
# options that are a matter of the site or of taste; what a run is about is said each time
SETTINGS = (
    "precision", "optimizer", "dataset", "max-memory", "algorithm", "objective", "top", "format",
    "color", "counts", "jobs", "backend", "timeout",
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
    user = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    above = [folder / "oracle.toml" for folder in (here, *here.parents)]
    project = next((path for path in above if os.path.isfile(path)), above[0])
    shared = [*reversed(system or ["/etc/xdg"]), user]
    known = [Path(folder) / "oracle" / "config.toml" for folder in shared if folder[:1] != "~"]
    return [*known, project]  # `~` stays where nobody knows whose home it is


def doubted(path: Path) -> str:
    """Why a file of settings is passed over; nothing where it is read, or is not there."""
    try:
        found, folder = path.stat(), path.parent.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return (error.strerror or "it cannot be looked at").lower()
    if found.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    if found.st_mode & stat.S_IWOTH:
        return "anybody may write to it"
    if folder.st_mode & stat.S_IWOTH:
        return "anybody may write to its folder"
    return "" if os.access(path, os.R_OK) else "it may not be read"


def settings(
    environment: Mapping[str, str], here: Path, say: Callable[[str], None] = lambda text: None
) -> list[Setting]:
    """Everything that is set, the weakest first; a SpecError with every fault of a file."""
    found: list[Setting] = []
    for path in files(environment, here):
        if why := doubted(path):
            say(f"warning: the settings in {path} are not read: {why}")
        elif os.path.isfile(path):
            found += _read(path)
    set_here = {key: environment.get(variable(key), "") for key in SETTINGS}
    return [*found, *(Setting(key, text) for key, text in set_here.items() if text)]


def settle(
    parser: Parser, verb: str, environment: Mapping[str, str] = os.environ,
    here: Path | None = None, say: Callable[[str], None] = lambda text: None,
) -> dict[str, Setting]:  # fmt: skip
    """Make what is set the default of a verb's options; key -> what decides it."""
    decided: dict[str, Setting] = {}
    for one in settings(environment, here or Path.cwd(), say):
        if one.verb in ("", verb) and _takes(parser, one.key):
            decided[one.key] = one
    for key, one in decided.items():
        for inner in parsers(parser):
            for action in inner._actions:
                if f"--{key}" in action.option_strings:
                    inner.set_defaults(**{action.dest: _value(action, one)})
    return decided


def origins(parser: Parser, words: Sequence[str], decided: Mapping[str, Setting]) -> dict[str, str]:
    """Of every option, by its long name: who set it."""
    flags = {word.split("=")[0] for word in words}
    found = {}
    for action in options(parser):
        names = [flag.removeprefix("--") for flag in action.option_strings if flag[:2] == "--"]
        alike = [o for o in options(parser) if o.dest == action.dest]
        typed = any(flag in flags for one in alike for flag in one.option_strings)
        for name in names:
            one = decided.get(name)
            found[name] = "command line" if typed else one.origin if one else "default"
    return found


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
        text = read_text(one.file, "settings file", LARGEST) if one.file else ""
        place = one.place if one.file else Place(path=variable(one.key))
        fault = Fault("E105", f"`{one.key}`: {error}", place, "", len(one.key))
        raise SpecError(where, [fault], text) from None
    return value


def _read(path: Path) -> Iterator[Setting]:
    text, faults = read_text(path, "settings file", LARGEST), []
    content = toml_of(text, str(path))
    places = _places(text)

    def _place(*words: str) -> Place:
        return places.get(words, Place(1, 1))

    found = []
    tables = {verb: table for verb, table in content.items() if isinstance(table, dict)}
    plain = {key: value for key, value in content.items() if key not in tables}
    for verb, table in {"": plain, **tables}.items():
        if verb and verb not in VERBS:
            hint = suggest(verb, VERBS, "commands")
            what = f"no command is called `{verb}`"
            faults.append(Fault("E102", what, _place(verb), hint, len(verb)))
            continue
        parser = parser_of(verb) if verb else None
        known = [key for key in SETTINGS if parser is None or _takes(parser, key)]
        for key, value in table.items():
            place = _place(verb, key)
            if key not in known:
                hint = suggest(key, known, "settings") if len(faults) < SHOWN else ""
                faults.append(Fault("E102", f"unknown setting `{key}`", place, hint, len(key)))
            elif isinstance(value, bool) or not isinstance(value, str | int | float):
                faults.append(Fault("E104", f"`{key}` takes one word or number", place, "",
                                    len(key)))  # fmt: skip
            else:
                found.append(Setting(key, str(value), verb, str(path), place))
    if faults:
        raise SpecError(str(path), faults, text)
    yield from found


def _places(text: str) -> dict[tuple[str, ...], Place]:
    """Where each table, and each key of a table, stands first; TOML's own reader forgets it."""
    found: dict[tuple[str, ...], Place] = {}
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*[\"']?([\w-]+)[\"']?\s*\]", line):
            inside = head[1]
            found.setdefault((inside,), Place(number, head.start(1) + 1))
        words = re.match(r"\s*[\"']?(?:([\w-]+)[\"']?\s*\.\s*[\"']?)?([\w-]+)[\"']?\s*=", line)
        if words:
            table, key = words[1] or inside, words[2]
            found.setdefault((table, key), Place(number, words.start(2) + 1))
            if not inside:  # `recommend.top = 2`, or `recommend = {top = 2}`
                begin = words.start(1 if words[1] else 2) + 1
                found.setdefault((words[1] or key,), Place(number, begin))
    return found
