"""An optimizer as it is written: a name, and the knobs of those that have some."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

from oracle.spec.document import refusal, suggest

Solve = Literal["eigen", "cholesky"]
MOST = 10**6  # steps between two updates


@dataclass(frozen=True, slots=True)
class Kfac:
    """K-FAC beside momentum: how often curvature is looked at, and who holds what of it.

    Steps between updates and the solver are what the public implementation does unless told
    [pauloski2021, §3].
    """

    factors: int = 10  # steps between updates of the factors A and G
    inverse: int = 100  # and of their inverses, or eigenvectors
    workers: float = 1.0  # share of the replicas that precondition a layer; the rest are told
    solve: Solve = "eigen"
    halves: bool = False  # of symmetric factors one triangle is sent

    def __str__(self) -> str:
        said = []
        for field in fields(self):
            value = getattr(self, field.name)
            if value != field.default:
                word = ("off", "on")[value] if field.name == "halves" else f"{value}"
                said.append(f"{field.name}={word}")
        return ",".join(["kfac", *said])


def parted(text: str, known: Iterable[str]) -> tuple[str, Kfac]:
    """(name, knobs) of `kfac,factors=10,inverse=100`; refused where either is unknown."""
    name, *words = text.split(",")
    if name not in (names := list(known)):
        what = f"unknown optimizer `{name}`"
        raise refusal("options", what, suggest(name, names, "write one of"), "E110")
    if words and name != "kfac":
        raise refusal("options", f"`{name}` has no knobs", f"--optimizer {name}")
    return name, Kfac(**dict(_knobs(words)))


def _knobs(words: Iterable[str]) -> Iterator[tuple[str, Any]]:
    known = [field.name for field in fields(Kfac)]
    for word in words:
        knob, _, value = (part.strip() for part in word.partition("="))
        if knob not in known:
            what = f"`kfac` has no knob `{knob[:40]}`"
            raise refusal("options", what, suggest(knob, known, "it has"), "E110")
        yield knob, _value(knob, value)


def _value(knob: str, value: str) -> Any:
    whole = f"a whole number of steps from 1 to {MOST:,}"
    takes = {"solve": " or ".join(get_args(Solve)), "halves": "on or off",
             "workers": "a share above 0, at most 1"}.get(knob, whole)  # fmt: skip
    if knob == "solve" and value in get_args(Solve):
        return value
    if knob == "halves" and value in ("on", "off"):
        return value == "on"
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if knob == "workers" and 0 < number <= 1:
        return number
    if knob in ("factors", "inverse") and 1 <= number <= MOST and number == int(number):
        return int(number)
    raise refusal("options", f"`{knob}={value[:40]}` of kfac", takes, "E110")
