"""Files that start a training, as settings with their places: one module a format.

`read(paths)` reads the files of one job together. The format of each is found by content, never
by file name. Every module of this folder with a `TITLE` is a format, found by itself. It has
`recognises(text) -> bool` and `parse(text, name, sheet)`, and may set `PRECEDENCE`: the first that
recognises a text reads it, and they are asked by precedence, then by name.

arguments     `--flag value` lines, and how a command line's words become settings
deepspeed     DeepSpeed's JSON
log           the list of arguments that Megatron-LM prints when it starts
shell tokens  a shell script: what it sets, what it launches; its text as commands of words
conditions    what a script's tests and arithmetic come to, where that can be said
torchtitan    torchtitan's TOML
sheet         the settings of a job, and what is wrong with them
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

LARGEST = 16 * 2**20  # bytes of a log whose first lines are wanted
MOST_FILES = 32


@cache
def formats() -> tuple[ModuleType, ...]:
    """The modules that are formats, in the order in which they are asked."""
    found = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    known = [module for module in found if hasattr(module, "TITLE")]
    return tuple(sorted(known, key=lambda m: (getattr(m, "PRECEDENCE", 2), m.__name__)))


def read(paths: Iterable[str | Path], variables: Mapping[str, str] | None = None) -> Sheet:
    """What the files of one job say; `variables` are set before and stay as they are."""
    names = [str(path) for path in paths]
    if not 1 <= len(names) <= MOST_FILES:
        raise refusal("import", f"{len(names)} files of one job", f"1 to {MOST_FILES}", "E100")
    return parse({name: read_text(name, "job file", LARGEST) for name in names}, variables)


def parse(texts: Mapping[str, str], variables: Mapping[str, str] | None = None) -> Sheet:
    """The same of texts in hand, by name."""
    plain = {name: text.replace(OPEN, "?").replace(CLOSE, "?") for name, text in texts.items()}
    sheet = Sheet(plain, dict(variables or {}))
    sheet.shell.update({name: [(value, 0)] for name, value in sheet.variables.items()})
    for name, text in sheet.texts.items():
        module = next((each for each in formats() if each.recognises(text)), None)
        if module is None:
            known = "; ".join(each.TITLE for each in formats())
            raise refusal(name, "nothing here starts a training", f"known: {known}", "E130")
        module.parse(text, name, sheet)
    for name, value in sheet.variables.items():  # what is said of an argument holds too
        sheet.given(name, value)
    return sheet
