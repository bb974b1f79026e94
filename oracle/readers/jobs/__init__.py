"""Files that start a training, as settings with their places: one module a format.

`read(paths)` reads the files of one job together. The content of a file decides its format, never
the file's name. Every module of this folder with a `TITLE` is a format. It has
`recognises(text) -> bool` and `parse(text, name, sheet)`, and may set `PRECEDENCE`: the first
module that recognises a text reads it, in order of precedence, then of name.

arguments     `--flag value` lines, and a command line's words as settings
deepspeed     DeepSpeed's JSON
log           the list of arguments that Megatron-LM prints when it starts
shell tokens  a shell script: its variables and its launch; its text as commands of words
conditions    the results of a script's tests and arithmetic, where they can be known
torchtitan    torchtitan's TOML
sheet         the settings of a job, and their faults
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from oracle.readers.jobs.sheet import CLOSE, OPEN, Sheet
from oracle.spec.document import refusal
from oracle.spec.files import read_text

LARGEST = 16 * 2**20  # bytes of a log, of which the first lines are read
MOST_FILES = 32


@cache
def formats() -> tuple[ModuleType, ...]:
    """Return the modules that are formats, in the order in which they try a text."""
    modules = [import_module(f"{__name__}.{entry.name}") for entry in iter_modules(__path__)]
    with_title = [module for module in modules if hasattr(module, "TITLE")]
    return tuple(sorted(with_title, key=lambda m: (getattr(m, "PRECEDENCE", 2), m.__name__)))


def read(paths: Iterable[str | Path], variables: Mapping[str, str] | None = None) -> Sheet:
    """Return the settings of one job's files; `variables` are set before and stay."""
    names = [str(path) for path in paths]
    if not 1 <= len(names) <= MOST_FILES:
        raise refusal("import", f"{len(names)} files of one job", f"1 to {MOST_FILES}", "E100")
    return parse({name: read_text(name, "job file", LARGEST) for name in names}, variables)


def parse(texts: Mapping[str, str], variables: Mapping[str, str] | None = None) -> Sheet:
    """Return the settings of one job's texts, by name."""
    plain = {name: text.replace(OPEN, "?").replace(CLOSE, "?") for name, text in texts.items()}
    sheet = Sheet(plain, dict(variables or {}))
    sheet.shell.update({name: [(value, 0)] for name, value in sheet.variables.items()})
    for name, text in sheet.texts.items():
        module = next((candidate for candidate in formats() if candidate.recognises(text)), None)
        if module is None:
            titles = "; ".join(candidate.TITLE for candidate in formats())
            raise refusal(name, "nothing here starts a training", f"known: {titles}", "E130")
        module.parse(text, name, sheet)
    for name, value in sheet.variables.items():  # a variable may be an argument too
        sheet.override(name, value)
    return sheet
