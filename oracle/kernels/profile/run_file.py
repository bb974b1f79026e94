"""The file of a profile of logged runs: YAML, as `oracle calibrate run` writes it.

profile: runs
source: run.log
device: v100-sxm2-16gb
runs: [{plan: "data:8", batch: 512, part: step, seconds: 209 ms, spread: 0.01, …}]
factors: {gemm: {times: 1.04, doubt: 0.03}, host: …}
together: [[-0.42]]
rows: [{row: SIGNATURE, forward: 1.2 ms, backward: 2.5 ms, spread: 0.02}]
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from oracle.kernels.profile.factors import Factor, Factors
from oracle.kernels.profile.measured import Profile, Timed
from oracle.kernels.profile.shape import taken_apart
from oracle.spec.document import load, suggest
from oracle.spec.precision import PRECISIONS
from oracle.spec.schema import Between, Clash, Count, Ratio
from oracle.spec.schema import read as as_record
from oracle.spec.units import Seconds

Correlation = Annotated[float, Between(-1, 1)]
_FIRST = re.compile(r"\s*(#[^\n]*\n\s*)*profile\s*:\s*runs\b")


@dataclass(frozen=True, slots=True)
class RunPart:
    """What a log said of one part of a run, and what was predicted of it beforehand."""

    plan: str
    batch: Count
    part: str
    seconds: Seconds
    spread: Ratio = 0.0
    before: Seconds = 0.0  # predicted without the log, and with it
    after: Seconds = 0.0


@dataclass(frozen=True, slots=True)
class RunRow:
    """One row of the model, of which layers were timed."""

    row: str
    forward: Seconds
    backward: Seconds
    spread: Ratio = 0.0

    def check(self) -> Iterator[Clash]:
        try:
            taken_apart(self.row)
        except ValueError as error:
            yield Clash("row", str(error), "it is written by `oracle calibrate run`")


@dataclass(frozen=True)
class RunFile:
    """Runs that were logged, and what they told of the machine and its software."""

    profile: Literal["runs"]
    source: str
    model: str = ""
    system: str = ""
    device: str = ""
    software: str = ""
    precision: str = ""
    runs: tuple[RunPart, ...] = ()
    factors: dict[str, Factor] = field(default_factory=dict)
    # correlations of their doubts, each with those before it
    together: tuple[tuple[Correlation, ...], ...] = ()
    rows: tuple[RunRow, ...] = ()

    def check(self) -> Iterator[Clash]:
        if self.precision and self.precision not in PRECISIONS:
            hint = suggest(self.precision, PRECISIONS, "known")
            yield Clash("precision", f"unknown precision `{self.precision[:20]}`", hint)
        for clash in Factors(self.factors, self.together).check():
            where = f"factors.{clash.field}" if clash.field else "together"
            yield Clash(where, clash.what, clash.hint, bool(clash.field))
        seen: set[str] = set()
        for at, each in enumerate(self.rows):
            if each.row in seen:
                yield Clash(f"rows.{at}.row", "the same `row` stands twice", "keep one")
            seen.add(each.row)

    @property
    def opened(self) -> Profile:
        """As predictions use it."""
        rows = {each.row: Timed(each.forward, each.backward, 0.0, each.spread)
                for each in self.rows}  # fmt: skip
        return Profile(rows, (), f"measured: {self.source}", self.precision,
                       factors=Factors(self.factors, self.together), of=self.device,
                       under=self.software, trained=self.model)  # fmt: skip


def recognises(text: str) -> bool:
    """Whether a text is such a file, by its first line."""
    return bool(_FIRST.match(text))


def read(text: str, name: str) -> Profile:
    """The profile in a text; all that is wrong with it at once."""
    found: RunFile = as_record(RunFile, load(text, name, partly=True), name, text, label="profile")
    return found.opened


def written(found: RunFile) -> str:
    """The text of a file, which `read` reads again: numbers a person can check."""
    head = {name: value for name in ("source", "model", "system", "device", "software", "precision")
            if (value := getattr(found, name))}  # fmt: skip
    lines = ["# written by `oracle calibrate run`: name it as --profile", "profile: runs"]
    lines += [f"{name}: {quoted(value)}" for name, value in head.items()]
    for name, doc in (("runs", "what the logs say, predicted before and after"),
                      ("rows", "layers that were timed")):  # fmt: skip
        entries = getattr(found, name)
        lines += [f"{name}:{f'  # {doc}' if doc else ''}"] if entries else []
        lines += [f"  - {_flow(_said(each))}" for each in entries]
    lines += ["factors:  # times as long as modelled, and 1σ of the logarithm"] * bool(
        found.factors
    )
    lines += [f"  {name}: {{times: {each.times:.4g}, doubt: {each.doubt:.3g}}}"
              for name, each in found.factors.items()]  # fmt: skip
    if found.together:
        rows = ", ".join(f"[{', '.join(f'{r:.2f}' for r in row)}]" for row in found.together)
        lines += [
            "# correlations of their doubts, each with those before it",
            f"together: [{rows}]",
        ]
    return "\n".join(lines) + "\n"


def _said(entry: Any) -> Mapping[str, Any]:
    return {name: getattr(entry, name) for name in entry.__slots__}


def _flow(said: Mapping[str, Any]) -> str:
    times = ("seconds", "before", "after", "forward", "backward")
    words = [
        f"{name}: {value:.6g} s" if name in times
        else f"{name}: {quoted(value) if isinstance(value, str) else format(value, '.6g')}"
        for name, value in said.items()
    ]  # fmt: skip
    return "{" + ", ".join(words) + "}"


def quoted(text: str) -> str:
    """A word as YAML takes it whatever is in it."""
    kept = "".join(char if char.isprintable() else " " for char in text)
    return '"' + kept.replace("\\", "\\\\").replace('"', '\\"') + '"'
