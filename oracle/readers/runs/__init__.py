"""Logs and profiles of training runs: what a step took, and its parts; one module a format.

`read(path)` finds the format by content, never by file name. Steps that warm up are left out, and
what differs between the others is their spread. Every module of this folder with a `TITLE` is a
format, found by itself: it has `recognises(text) -> bool` and `parse(text, path) -> RunLog`, and
may set `PRECEDENCE` (2 if not); the first that recognises a text reads it, and they are asked by
precedence, then by name. One that sets `BINARY` is given bytes and the path.

table               CSV by layer, by three totals, or of step times
chrome_trace        traces of the PyTorch profiler (Kineto), packed or not
nsight              exports of Nsight Systems as SQLite
oracle_run          what `oracle run` measured of a plan
megatron torchtitan nemo mlperf   lines that these frameworks print
kernel_names        which group of kernels, or which collective, a name is of
timeline            busy time of kernels and messages in the steps of a trace
steady              the steps that count: no warm-up, with their spread
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
    """Seconds an iteration, the median of so many, and their relative 1σ."""

    seconds: float
    spread: float = 0.0
    count: int = 1


@dataclass(frozen=True)
class RunLog:
    """What one file says of a run: seconds an iteration of one device, and how it was run."""

    path: str
    format: str
    step: Timing | None = None
    totals: Mapping[str, Timing] = field(default_factory=dict)  # forward backward update
    kernels: Mapping[str, Timing] = field(default_factory=dict)  # by group, `update` among them
    messages: Mapping[str, Timing] = field(default_factory=dict)  # by operation, hidden or not
    shown: Timing | None = None  # of messages, what no kernel runs beside
    layers: Mapping[str, tuple[Timing, Timing, Timing]] = field(default_factory=dict)
    # devices, batch, sequence, tensor, pipeline, context, expert, data, …, as far as it says
    said: Mapping[str, float] = field(default_factory=dict)
    plan: str = ""  # where it says it
    notes: tuple[str, ...] = ()

    @property
    def parts(self) -> list[str]:
        """What it tells of, in words."""
        found = ["step"] if self.step else []
        found += [*self.totals, *(f"{name} kernels" for name in self.kernels), *self.messages]
        found += ["shown messages"] if self.shown else []
        return found + ([f"{len(self.layers)} layers"] if self.layers else [])


def read(path: str | Path) -> RunLog:
    """The content of a log, whatever its format and its name."""
    name = "standard input" if str(path) == "-" else str(path)
    return parse(read_bytes(path, "trace", TRACE), name, path)


def parse(data: bytes, name: str, path: str | Path = "") -> RunLog:
    """The same from bytes in hand; a database is opened by its path."""
    if data[:2] == b"\x1f\x8b":
        try:
            data = unpacked(data, name)
        except (gzip.BadGzipFile, zlib.error, EOFError):
            raise InputError(name, 0, "this gzip file is damaged", "copy it again") from None
    for each in formats():
        if hasattr(each, "BINARY") and each.recognises(data[:4096]):
            return cast(RunLog, each.parse(data, name))
    text = decoded(data, name)
    if text.lstrip()[:1] not in ("{", "["):
        bounded(text, name, "log")
    for each in formats():
        if not hasattr(each, "BINARY") and each.recognises(text):
            return cast(RunLog, each.parse(text, name))
    known = ", ".join(each.TITLE for each in formats())
    what = "the file is empty" if not text.strip() else "this is no log of a training run"
    raise InputError(name, 0, what, f"read are: {known}")


@cache
def formats() -> tuple[ModuleType, ...]:
    """Every format of this folder, in the order in which they are asked."""
    found = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    known = [module for module in found if hasattr(module, "TITLE")]
    return tuple(sorted(known, key=lambda m: (getattr(m, "PRECEDENCE", 2), m.__name__)))


def recognised(data: bytes) -> bool:
    """Whether some format reads it, by its first bytes: what is no profile may be a log."""
    if data[:2] == b"\x1f\x8b" or data[:15] == b"SQLite format 3":
        return True
    text = data.decode("utf-8-sig", "replace")
    return any(each.recognises(text) for each in formats() if not hasattr(each, "BINARY"))


def arguments_of(text: str, names: Mapping[str, str]) -> dict[str, float]:
    """Whole numbers of a list of arguments, `name ..... 4` or `name=4` or `name: 4`, by our name.

    The last that stands there holds.
    """
    found = {}
    for theirs, ours in names.items():
        pattern = (
            rf"(?<![\w.]){theirs}(?: \.{{3,80}} ?|['\"]?\s*[=:]\s*['\"]?)(\d{{1,12}})(?![\w.])"
        )
        if values := re.findall(pattern, text):
            found[ours] = float(values[-1])
    return found
