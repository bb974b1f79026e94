"""Defaults of options from the environment and from files, each with its origin.

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
# options that are a matter of the site or of taste; a run's subject is said each time
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
        from_environment = f"environment {variable(self.key)}"
        return f"{self.file}:{self.place.line}" if self.file else from_environment


def variable(key: str) -> str:
    """Return the name of an option's environment variable."""
    return f"ORACLE_{key.upper().replace('-', '_')}"


def files(environment: Mapping[str, str], folder: Path) -> list[Path]:
    """Return the files of settings that may exist, the weakest first."""
    system = [parent for parent in environment.get("XDG_CONFIG_DIRS", "").split(":") if parent]
    user = environment.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")
    above = [parent / "oracle.toml" for parent in (folder, *folder.parents)]
    project = next((path for path in above if os.path.isfile(path)), above[0])
    shared = [*reversed(system or ["/etc/xdg"]), user]
    config_files = [
        Path(parent) / "oracle" / "config.toml" for parent in shared if parent[:1] != "~"
    ]
    return [*config_files, project]  # `~` stays where the home folder is unknown


def doubted(path: Path) -> str:
    """Return why a file of settings is passed over; nothing where it is read or missing."""
    try:
        file_status, folder = path.stat(), path.parent.stat()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except OSError as error:
        return (error.strerror or "it cannot be looked at").lower()
    if file_status.st_uid not in (0, os.geteuid()):
        return "it belongs to another user"
    if file_status.st_mode & stat.S_IWOTH:
        return "anybody may write to it"
    if folder.st_mode & stat.S_IWOTH:
        return "anybody may write to its folder"
    return "" if os.access(path, os.R_OK) else "it may not be read"


def settings(
    environment: Mapping[str, str], folder: Path, say: Callable[[str], None] = lambda text: None
) -> list[Setting]:
    """Return all settings, the weakest first; raise a SpecError with every fault of a file."""
    all_settings: list[Setting] = []
    for path in files(environment, folder):
        if why := doubted(path):
            say(f"warning: the settings in {path} are not read: {why}")
        elif os.path.isfile(path):
            all_settings += _read(path)
    set_here = {key: environment.get(variable(key), "") for key in SETTINGS}
    return [*all_settings, *(Setting(key, text) for key, text in set_here.items() if text)]


def settle(
    parser: Parser, verb: str, environment: Mapping[str, str] = os.environ,
    folder: Path | None = None, say: Callable[[str], None] = lambda text: None,
) -> dict[str, Setting]:  # fmt: skip
    """Make settings the defaults of a verb's options; return the setting that decides each."""
    decided: dict[str, Setting] = {}
    for setting in settings(environment, folder or Path.cwd(), say):
        if setting.verb in ("", verb) and _takes(parser, setting.key):
            decided[setting.key] = setting
    for key, setting in decided.items():
        for inner in parsers(parser):
            for action in inner._actions:
                if f"--{key}" in action.option_strings:
                    inner.set_defaults(**{action.dest: _value(action, setting)})
    return decided


def origins(parser: Parser, words: Sequence[str], decided: Mapping[str, Setting]) -> dict[str, str]:
    """Return who set each option, by its long name."""
    flags = {word.split("=")[0] for word in words}
    origin_of = {}
    for action in options(parser):
        names = [flag.removeprefix("--") for flag in action.option_strings if flag[:2] == "--"]
        alike = [candidate for candidate in options(parser) if candidate.dest == action.dest]
        typed = any(flag in flags for setting in alike for flag in setting.option_strings)
        for name in names:
            setting = decided.get(name)
            origin_of[name] = "command line" if typed else setting.origin if setting else "default"
    return origin_of


def settings_table(
    environment: Mapping[str, str] = os.environ, folder: Path | None = None
) -> list[Row]:
    """Return the value and the origin of every option, and the verbs that have this value.

    No verbs are named where all that take the option have one value.
    """
    verbs_by_value: dict[str, dict[tuple[str, str], list[str]]] = {}
    for verb in VERBS:
        parser = parser_of(verb)
        decided = settle(parser, verb, environment, folder)
        for key in SETTINGS:
            if action := _takes(parser, key):
                default = "" if action.default is None else str(action.default)
                setting = decided.get(key)
                value_and_origin = (
                    (setting.text, setting.origin) if setting else (default, "default")
                )
                verbs_by_value.setdefault(key, {}).setdefault(value_and_origin, []).append(verb)
    return [
        {"key": key, "value": value, "origin": origin,
         "verbs": " ".join(verbs) if len(by_value) > 1 else ""}
        for key, by_value in sorted(verbs_by_value.items())
        for (value, origin), verbs in by_value.items()
    ]  # fmt: skip


def _takes(parser: Parser, key: str) -> argparse.Action | None:
    return next((a for a in options(parser) if f"--{key}" in a.option_strings), None)


def _value(action: argparse.Action, setting: Setting) -> Any:
    try:
        value = action.type(setting.text) if callable(action.type) else setting.text
        if action.choices is not None and value not in action.choices:
            words = [str(word) for word in action.choices]
            raise ValueError(
                f"unknown `{setting.text}`; {suggest(setting.text, words, 'write one of')}"
            )
    except (ValueError, argparse.ArgumentTypeError) as error:
        source = setting.file or "the environment"
        text = read_text(setting.file, "settings file", LARGEST) if setting.file else ""
        place = setting.place if setting.file else Place(path=variable(setting.key))
        fault = Fault("E105", f"`{setting.key}`: {error}", place, "", len(setting.key))
        raise SpecError(source, [fault], text) from None
    return value


def _read(path: Path) -> Iterator[Setting]:
    text, faults = read_text(path, "settings file", LARGEST), []
    content = toml_of(text, str(path))
    places = _places(text)

    def _place(*words: str) -> Place:
        return places.get(words, Place(1, 1))

    read_settings = []
    tables = {verb: table for verb, table in content.items() if isinstance(table, dict)}
    plain = {key: value for key, value in content.items() if key not in tables}
    for verb, table in {"": plain, **tables}.items():
        if verb and verb not in VERBS:
            hint = suggest(verb, VERBS, "commands")
            complaint = f"no command is called `{verb}`"
            faults.append(Fault("E102", complaint, _place(verb), hint, len(verb)))
            continue
        parser = parser_of(verb) if verb else None
        keys = [key for key in SETTINGS if parser is None or _takes(parser, key)]
        for key, value in table.items():
            place = _place(verb, key)
            if key not in keys:
                hint = suggest(key, keys, "settings") if len(faults) < SHOWN else ""
                faults.append(Fault("E102", f"unknown setting `{key}`", place, hint, len(key)))
            elif isinstance(value, bool) or not isinstance(value, str | int | float):
                faults.append(Fault("E104", f"`{key}` takes one word or number", place, "",
                                    len(key)))  # fmt: skip
            else:
                read_settings.append(Setting(key, str(value), verb, str(path), place))
    if faults:
        raise SpecError(str(path), faults, text)
    yield from read_settings


def _places(text: str) -> dict[tuple[str, ...], Place]:
    """Return the first place of each table and key, which TOML's own reader forgets."""
    places: dict[tuple[str, ...], Place] = {}
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if head := re.match(r"\s*\[\s*[\"']?([\w-]+)[\"']?\s*\]", line):
            inside = head[1]
            places.setdefault((inside,), Place(number, head.start(1) + 1))
        words = re.match(r"\s*[\"']?(?:([\w-]+)[\"']?\s*\.\s*[\"']?)?([\w-]+)[\"']?\s*=", line)
        if words:
            table, key = words[1] or inside, words[2]
            places.setdefault((table, key), Place(number, words.start(2) + 1))
            if not inside:  # `recommend.top = 2`, or `recommend = {top = 2}`
                begin = words.start(1 if words[1] else 2) + 1
                places.setdefault((words[1] or key,), Place(number, begin))
    return places
