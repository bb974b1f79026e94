"""Model specs from other tools' models: one module a format.

Every module of this folder is a format, known by its file's name. It has

    read(source, sample=None, tokens=None, name="", trust=False) -> Imported

where `source` is a file or an import path, `sample` or `tokens` give the shape of one sample where
`source` leaves it open, and `trust` allows code to run. A module is imported only when its format
is needed, because its library may be large or missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from oracle.spec.document import refusal

EXTRAS = {"onnx": "'oracle-training[onnx]'"}  # package -> its name for pip, if another


@dataclass(frozen=True, slots=True)
class Imported:
    """A model spec as a dict that `oracle.model` loads, and notes on what it leaves out."""

    spec: dict[str, Any]
    notes: tuple[str, ...] = ()


def formats() -> list[str]:
    """Return the name of every format in alphabetical order, without importing any."""
    return sorted(module.name for module in iter_modules(__path__))


def importer(name: str) -> ModuleType:
    """Return the module of a format, or raise a plain sentence where its library is missing."""
    try:
        return import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", "oracle"):
            raise
        complaint = f"reading {name} models needs the package `{package}`"
        raise refusal(
            "import", complaint, f"pip install {EXTRAS.get(package, package)}", "E100"
        ) from None
