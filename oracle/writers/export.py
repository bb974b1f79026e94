"""The formats a plan can be exported to, and writing all files of one or none.

A module of this room that has a `TITLE` is a format. Its `files(job)` returns file names and texts;
what the format cannot express it refuses with an `ExportError`.
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
    """A plan, or a target file, that a format cannot take."""

    def __init__(self, name: str, what: str, hint: str = "") -> None:
        super().__init__(name, [Fault("E131", what, Place(), hint)])


def formats() -> dict[str, str]:
    """name -> title of every format, in alphabetical order."""
    names = sorted(found.name for found in iter_modules(writers.__path__))
    titles = {name: getattr(import_module(f"oracle.writers.{name}"), "TITLE", "") for name in names}
    return {name: title for name, title in titles.items() if title}


def writer(name: str) -> ModuleType:
    """The module of a format."""
    known = formats()
    if name not in known:
        raise ExportError(
            "export", f"no format is called `{name}`", suggest(name, known, "formats")
        )
    return import_module(f"oracle.writers.{name}")


def put(files: Mapping[str, str], force: bool = False) -> None:
    """Write all files or none that is there already: each beside its place first, then renamed."""
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
    """The name of a finished file beside the place where it shall stand."""
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
    """Give a finished file its name, in one step; without `force` never over another."""
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
