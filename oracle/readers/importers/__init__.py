"""Model specs from other tools' models: one module a format.

Every module of this folder is a format, found by itself and known by its file's name. It has

    read(what, sample=None, tokens=None, name="", trust=False) -> Imported

where `what` is a file or an import path, `sample` or `tokens` give the shape of one sample where
`what` leaves it open, and `trust` allows code to be run. A module is imported only when its format
is asked for, because its library may be large or missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from oracle.spec.document import refusal

EXTRAS = {"onnx": "'oracle-training[onnx]'"}  # package -> what pip installs it by, if not its name


@dataclass(frozen=True, slots=True)
class Imported:
    """A model spec as a dict that `oracle.model` loads, and what it leaves out, in words."""

    spec: dict[str, Any]
    notes: tuple[str, ...] = ()


def formats() -> list[str]:
    """The name of every format, in alphabetical order; nothing is imported."""
    return sorted(found.name for found in iter_modules(__path__))


def importer(name: str) -> ModuleType:
    """The module of a format; a plain sentence where its library is missing."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "oracle"):
            raise
        what = f"reading {name} models needs the package `{package}`"
        raise refusal(
            "import", what, f"pip install {EXTRAS.get(package, package)}", "E100"
        ) from None
