"""Logs and profiles of training runs: seconds of a step and of its parts; one module a format.

`read(path)` finds the format by content, never by file name. Steps of the warm-up are left out, and
the differences between the others are their spread. Every module of this folder with a `TITLE` is a
format: it has `recognises(text) -> bool` and `parse(text, path) -> RunLog`, and may set
`PRECEDENCE` (2 by default); the first module that recognises a text reads it, in order of
precedence, then of name. A module that sets `BINARY` takes bytes and the path.

table               CSV by layer, by three totals, or of step times
chrome_trace        traces of the PyTorch profiler (Kineto), packed or not
nsight              exports of Nsight Systems as SQLite
oracle_run          measurements of `oracle run`
megatron torchtitan nemo mlperf   lines that these frameworks print
kernel_names        the group of kernels, or the collective, of a name
timeline            busy time of kernels and messages in the steps of a trace
steady              steps after the warm-up, and their spread
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import cast

from oracle.readers.logs import InputError, decoded
from oracle.spec.files import TRACE, bounded, read_bytes, unpacked


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds an iteration, the median of a number of steps, with their relative 1σ."""

    seconds: float
    spread: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class RunLog:
    """The content of one log: seconds an iteration of one device, and the settings of the run."""

    path: str
    format: str
    step: Timing | None = None
    totals: Mapping[str, Timing] = field(default_factory=dict)  # forward backward update
    kernels: Mapping[str, Timing] = field(default_factory=dict)  # by group, `update` among them
    messages: Mapping[str, Timing] = field(default_factory=dict)  # by operation, hidden or not
    exposed: Timing | None = None  # seconds of messages while no kernel runs
    layers: Mapping[str, tuple[Timing, Timing, Timing]] = field(default_factory=dict)
    # devices, batch, sequence, tensor, pipeline, context, expert, data, …, as far as it says
    settings: Mapping[str, float] = field(default_factory=dict)
    plan: str = ""  # where the log says it
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> list[str]:
        """The parts of a step that the log has seconds of, in words."""
        words = ["step"] if self.step else []
        words += [*self.totals, *(f"{name} kernels" for name in self.kernels), *self.messages]
        words += ["shown messages"] if self.exposed else []
        return words + ([f"{len(self.layers)} layers"] if self.layers else [])


def read(path: str | Path) -> RunLog:
    """Return the content of a log, whatever its format and its name."""
    name = "standard input" if str(path) == "-" else str(path)
    return parse(read_bytes(path, "trace", TRACE), name, path)


def parse(data: bytes, name: str, path: str | Path = "") -> RunLog:
    """Return the content of a log's bytes, whatever its format."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = unpacked(data, name)
        except (gzip.BadGzipFile, zlib.error, EOFError):
            raise InputError(name, 0, "this gzip file is damaged", "copy it again") from None
    for format_ in formats():
        if hasattr(format_, "BINARY") and format_.recognises(data[:4096]):
            return cast(RunLog, format_.parse(data, name))
    text = decoded(data, name)
    if text.lstrip()[:1] not in ("{", "["):
        bounded(text, name, "log")
    for format_ in formats():
        if not hasattr(format_, "BINARY") and format_.recognises(text):
            return cast(RunLog, format_.parse(text, name))
    titles = ", ".join(format_.TITLE for format_ in formats())
    complaint = "the file is empty" if not text.strip() else "this is no log of a training run"
    raise InputError(name, 0, complaint, f"read are: {titles}")


@cache
def formats() -> tuple[ModuleType, ...]:
    """Return every format of this folder, in the order in which they try a text."""
    modules = [import_module(f"{__name__}.{entry.name}") for entry in iter_modules(__path__)]
    with_title = [module for module in modules if hasattr(module, "TITLE")]
    return tuple(sorted(with_title, key=lambda m: (getattr(m, "PRECEDENCE", 2), m.__name__)))


def recognised(data: bytes) -> bool:
    """Return whether a format recognises the first bytes of a file, profile or log."""
    if data[:2] == b"\x1f\x8b" or data[:15] == b"SQLite format 3":
        return True
    text = data.decode("utf-8-sig", "replace")
    return any(format_.recognises(text) for format_ in formats() if not hasattr(format_, "BINARY"))


def arguments_of(text: str, names: Mapping[str, str]) -> dict[str, float]:
    """Return whole numbers of arguments, `name ..... 4`, `name=4` or `name: 4`, by our names.

    The last one of a name counts.
    """
    numbers = {}
    for theirs, ours in names.items():
        pattern = (
            rf"(?<![\w.]){theirs}(?: \.{{3,80}} ?|['\"]?\s*[=:]\s*['\"]?)(\d{{1,12}})(?![\w.])"
        )
        if values := re.findall(pattern, text):
            numbers[ours] = float(values[-1])
    return numbers
