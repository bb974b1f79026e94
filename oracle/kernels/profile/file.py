"""Read the file of a profile: JSON lines, as `oracle measure compute` writes them; or YAML of runs.

    {"oracle-profile": 1, "precision": "fp32", "complete": true}
    {"row": SIGNATURE, "forward": 0.0012, "backward": 0.0025, "spread": 0.02, "samples": 2}
    {"optimizer": "momentum", "weights": 25557032, "seconds": 0.0011}

A row has `backward`, or its halves `data` and `weight`. Times are seconds, or text with a unit
(`"1.2 ms"`). Nothing of a file is used that has a fault: NaN, a negative number, a row twice, an
unknown field.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.kernels.profile import run_file
from oracle.kernels.profile.measured import Profile, Timed, Update
from oracle.kernels.profile.shape import taken_apart
from oracle.spec.document import SHOWN, Fault, Place, SpecError, refusal, suggest
from oracle.spec.files import LOG, read_text
from oracle.spec.options import SLOTS
from oracle.spec.precision import PRECISIONS
from oracle.spec.strict_json import Unfit, loads
from oracle.spec.units import parse

MARK = "oracle-profile"


def profile(what: Any) -> Profile:
    """A profile as `oracle measure compute` wrote it, by path; a SpecError with every fault."""
    if isinstance(what, Profile):
        return what
    path = os.fspath(what)
    hint = f"of a log: oracle calibrate run {path} MODEL SYSTEM --plan … --batch … -o profile.yaml"
    try:
        text = read_text(path, "profile", LOG)
    except SpecError as error:
        if "UTF-8" not in str(error):
            raise
        raise refusal(path, "this is no profile", hint, "E130") from None
    if text.strip() and not (text.lstrip()[:1] == "{" or run_file.recognises(text)):
        raise refusal(path, "this is no profile", hint, "E130")
    return run_file.read(text, path) if run_file.recognises(text) else read(text, path)


def read(text: str, name: str) -> Profile:
    """The profile in a text; all that is wrong with it at once."""
    lines = _Lines(name)
    for number, line in enumerate(text.split("\n"), 1):
        if len(lines.faults) > SHOWN:
            break
        if line.strip():
            lines.take(number, line)
    if not lines.begun and not lines.faults:
        lines.fault(1, "the file is empty", "write it with `oracle measure compute`")
    if not lines.rows and not lines.updates and not lines.faults:
        lines.fault(1, "no row and no update was measured", "measure again")
    if lines.faults:
        raise SpecError(name, lines.faults, text)
    return Profile(lines.rows, tuple(lines.updates), f"measured: {name}", lines.precision)


@dataclass
class _Lines:
    """The lines of a profile, one after the other, with what is wrong in them."""

    name: str
    rows: dict[str, Timed] = field(default_factory=dict)
    updates: list[Update] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    precision: str = ""
    begun: bool = False

    def fault(self, at: int, what: str, hint: str = "") -> None:
        self.faults.append(Fault("E130", what, Place(at, 1), hint))

    def take(self, at: int, line: str) -> None:
        try:
            data = loads(line)
        except Unfit as error:
            return self.fault(at, str(error), "a profile holds finite numbers")
        except (ValueError, RecursionError):
            return self.fault(at, "this line is not JSON", "one object a line")
        if not isinstance(data, dict):
            return self.fault(at, "this line is not an object", "one object a line")
        if not self.begun:
            self.begun = True
            return self.head(at, data)
        kind = "row" if "row" in data else "optimizer" if "optimizer" in data else ""
        if not kind:
            return self.fault(at, "a line has a `row` or an `optimizer`", "measure again")
        return self.row(at, data) if kind == "row" else self.step(at, data)

    def head(self, at: int, data: dict[str, Any]) -> None:
        if data.get(MARK) != 1:
            return self.fault(at, "this is no profile of version 1",
                              "write it with `oracle measure compute`")  # fmt: skip
        self.known(at, data, (MARK, "complete", "precision", "note", "questions",
                              "environment"))  # fmt: skip
        said = data.get("precision", "")
        if said not in ("", *PRECISIONS):
            self.fault(
                at, f"`precision` is `{str(said)[:20]}`", suggest(str(said), PRECISIONS, "known")
            )
        else:
            self.precision = said
        return None

    def row(self, at: int, data: dict[str, Any]) -> None:
        self.known(at, data, ("row", "forward", "backward", "data", "weight", "spread", "samples"))
        whole = "backward" in data
        names = ("forward", "backward") if whole else ("forward", "data", "weight")
        if whole and ("data" in data or "weight" in data):
            self.fault(at, "`backward` is `data` and `weight` together", "write it or those two")
        forward, *back = (self.seconds(at, data, name) for name in names)
        spread = self.number(at, "spread", data.get("spread", 0.0))
        samples = self.number(at, "samples", data.get("samples", 1))
        text = data["row"]
        try:
            taken_apart(text if isinstance(text, str) else "")
        except ValueError as error:
            return self.fault(at, str(error), "it is written by `oracle measure compute`")
        if text in self.rows:
            return self.fault(at, "the same `row` stands twice", "keep one")
        data_, weight = (*back, 0.0)[:2]
        self.rows[text] = Timed(forward, data_, weight, spread, samples)
        return None

    def step(self, at: int, data: dict[str, Any]) -> None:
        self.known(at, data, ("optimizer", "weights", "seconds"))
        name = str(data["optimizer"])
        if name not in SLOTS:
            self.fault(at, f"unknown optimizer `{name[:20]}`", suggest(name, SLOTS, "known"))
        weights = self.number(at, "weights", data.get("weights"))
        self.updates.append(Update(name, weights, self.seconds(at, data, "seconds")))

    def seconds(self, at: int, data: dict[str, Any], name: str) -> float:
        value = data.get(name)
        if isinstance(value, str):
            try:
                return parse(value, "s")
            except ValueError as error:
                self.fault(at, f"`{name}`: {error}", 'seconds, or e.g. "1.5 ms"')
                return 0.0
        return self.number(at, name, value, 'seconds, or e.g. "1.5 ms"')

    def number(self, at: int, name: str, value: Any, hint: str = "") -> float:
        if type(value) in (int, float) and 0 <= value < 1e15:
            return float(value)
        what = "is missing" if value is None else "is a number, 0 or more"
        self.fault(at, f"`{name}` {what}", hint)
        return 0.0

    def known(self, at: int, data: dict[str, Any], names: Sequence[str]) -> None:
        for key in data:
            if key not in names:
                self.fault(at, f"unknown field `{key[:40]}`", suggest(key, names, "known"))
