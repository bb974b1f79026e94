"""The formats of exported plans, and a writer of all their files or none.

A module of this room that has a `TITLE` is a format. Its `files(job)` returns file names and texts,
and raises an `ExportError` for a plan that the format cannot express.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType

from oracle import writers
from oracle.spec.document import Fault, Place, SpecError, suggest


class ExportError(SpecError):
    """An error of a plan that a format cannot express, or of a file that cannot be written."""

    def __init__(self, name: str, complaint: str, hint: str = "") -> None:
        super().__init__(name, [Fault("E131", complaint, Place(), hint)])


def formats() -> dict[str, str]:
    """Return the title of every format, by name, in alphabetical order."""
    names = sorted(module.name for module in iter_modules(writers.__path__))
    titles = {name: getattr(import_module(f"oracle.writers.{name}"), "TITLE", "") for name in names}
    return {name: title for name, title in titles.items() if title}


def writer(name: str) -> ModuleType:
    """Return the module of a format."""
    titles = formats()
    if name not in titles:
        raise ExportError(
            "export", f"no format is called `{name}`", suggest(name, titles, "formats")
        )
    return import_module(f"oracle.writers.{name}")


def put(files: Mapping[str, str], force: bool = False) -> None:
    """Write all files or, if one exists, none: each under another name first, then renamed."""
    places = {Path(name): text for name, text in files.items()}
    for place in places:
        if place.is_dir():
            raise ExportError(str(place), "this is a directory", "name a file in it")
        if (place.exists() or place.is_symlink()) and not force:
            raise ExportError(
                str(place), "there is such a file already", "say --force to replace it"
            )
    staged: dict[Path, str] = {}
    try:
        for place, text in places.items():
            place.parent.mkdir(parents=True, exist_ok=True)
            staged[place] = _staged(place, text)
        for place, name in staged.items():
            _named(place, name, force)
    finally:
        for name in staged.values():
            Path(name).unlink(missing_ok=True)


def _staged(place: Path, text: str) -> str:
    """Write a file beside its place, and return its temporary name."""
    handle, name = tempfile.mkstemp(prefix=".oracle-", suffix=".part", dir=place.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(name, (0o777 if text.startswith("#!") else 0o666) & ~umask)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    return name


def _named(place: Path, name: str, force: bool) -> None:
    """Give a finished file its name, in one step; replace another file only with `force`."""
    if force:
        os.replace(name, place)
    else:
        try:
            os.link(name, place)
        except FileExistsError:
            raise ExportError(str(place), "there is such a file by now", "say --force") from None
        except OSError:  # a file system without links
            os.replace(name, place)
    if hasattr(os, "O_DIRECTORY"):  # the new name itself is made durable
        folder = os.open(place.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
