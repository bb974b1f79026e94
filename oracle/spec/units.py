"""Quantities: `"25 GB/s"` in a spec file, `25e9` inside, `"25 GB/s"` again in a report.

Inside, every number is a plain float in base units: seconds, bytes, FLOP.
This is the only module that knows a prefix.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Annotated

_TEN = {
    "n": "1e-9", "u": "1e-6", "µ": "1e-6", "μ": "1e-6", "m": "1e-3", "": "1",
    "k": "1e3", "K": "1e3", "M": "1e6", "G": "1e9", "T": "1e12", "P": "1e15", "E": "1e18",
}  # fmt: skip
_TWO = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_SCALE = {prefix: Decimal(scale) for prefix, scale in (_TEN | _TWO).items()}
_BASE = {
    "s": ("s", "1"), "min": ("s", "60"), "h": ("s", "3600"), "day": ("s", "86400"),
    "days": ("s", "86400"),
    "B": ("B", "1"), "bit": ("B", "0.125"), "FLOP": ("FLOP", "1"), "USD": ("USD", "1"),
    "": ("", "1"), "W": ("W", "1"),
}  # fmt: skip
_PER = {"h": 3600, "day": 86400}  # seconds of it
# beyond them sums of squares and cubes, which intervals and overlaps are, leave the floats
SMALLEST, LARGEST = 1e-24, 1e30
_NUMBER = r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]{1,3})?"
_TEXT = re.compile(
    rf"({_NUMBER})\s*([KMGTP]i|[nuµμmkKMGTPE]?)(min|days?|USD|FLOP|bit|s|h|B|W)(?:/(s|h))?"
)
_BARE = re.compile(_NUMBER)
_PER_ENERGY = re.compile(rf"({_NUMBER})\s*(k?)g/kWh")  # of what is emitted
_TIMES = re.compile(rf"({_NUMBER})\s*([kMG]?)(?:/(s|h|day))?")  # of something that is counted
_AMBIGUOUS = re.compile(
    rf"({_NUMBER})\s*([kKMGTP]i?)?(b|bps|bits|bytes|FLOPS|FLOPs|flops|Bps)(/s)?"
)
_MEANT = {"b": "bit", "bps": "bit/s", "bits": "bit", "bytes": "B", "Bps": "B/s"}


@dataclass(frozen=True, slots=True)
class Quantity:
    """What a number in a spec file must be: its unit, and whether zero is allowed."""

    unit: str  # "s", "B", "FLOP", "B/s", "FLOP/s", "USD/s", "/s", "W", "g/kWh"
    zero: bool = False
    example: str = ""


Seconds = Annotated[float, Quantity("s", zero=True, example="1.5 us")]
Bytes = Annotated[float, Quantity("B", example="16 GiB")]
BytesPerSecond = Annotated[float, Quantity("B/s", example="25 GB/s")]
Flop = Annotated[float, Quantity("FLOP", example="2 GFLOP")]
FlopPerSecond = Annotated[float, Quantity("FLOP/s", example="125 TFLOP/s")]
PerSecond = Annotated[float, Quantity("/s", example="60 k/s")]
Watt = Annotated[float, Quantity("W", example="700 W")]
Emission = Annotated[float, Quantity("g/kWh", zero=True, example="57 g/kWh")]
Price = Annotated[float, Quantity("USD/s", zero=True, example="2.5 USD/h")]


def parse(text: str, unit: str) -> float:
    """Read `text` as a number of `unit` (`s`, `B`, `FLOP`, `B/s`, `FLOP/s`, `USD/s`, `/s`).

    >>> parse("25 GB/s", "B/s"), parse("200 Gbit/s", "B/s"), parse("20 us", "s")
    (25000000000.0, 25000000000.0, 2e-05)
    """
    text = text.strip()
    form = {"/s": _TIMES, "g/kWh": _PER_ENERGY}.get(unit, _TEXT)
    match = form.fullmatch(text) if len(text) <= 400 else None
    if match is None:
        raise ValueError(_unreadable(text, unit))
    number, prefix, *rest = match.groups(default="")
    base, per = rest if form is _TEXT else ("", "".join(rest) or "s" * (unit == "/s"))
    name, scale = _BASE[base]
    found = unit if form is not _TEXT else f"{name}/s" if per else name
    if found != unit:
        raise ValueError(f"`{text}` is in {found}, but {unit} is wanted")
    try:
        exact = Decimal(number) * _SCALE[prefix] * Decimal(scale)
        value = float(exact / _PER.get(per, 1))
    except (InvalidOperation, OverflowError):
        value = math.inf
    if not abs(value) <= LARGEST:
        raise ValueError(f"`{text}` is too large to be a number of {unit}")
    if 0 < abs(value) < SMALLEST:
        raise ValueError(f"`{text}` is too small to be a number of {unit}")
    return value


def _unreadable(text: str, unit: str) -> str:
    text = text if len(text) <= 60 else f"{text[:57]}..."
    if _BARE.fullmatch(text):
        return f"a number needs its unit here: write `{text} {unit}` if that is what is meant"
    if loose := _AMBIGUOUS.fullmatch(text):
        number, prefix, word, _ = loose.groups(default="")
        if word.lower().startswith("flops"):
            return f"`{text}` has no dimension we know: write `{number} {prefix}FLOP/s`"
        if word == "b":
            per = "/s" if unit.endswith("/s") else ""
            return (
                f"`{text}` is ambiguous: write `{number} {prefix}bit{per}` "
                f"or `{number} {prefix}B{per}`"
            )
        return f"cannot read `{text}`: write `{number} {prefix}{_MEANT[word]}`"
    return f"cannot read `{text}` as a quantity of {unit}"


def spelled_out(text: str) -> str:
    """What to write for a count with a letter behind it, `1.28M`; nothing for any other text."""
    found = re.fullmatch(r"([0-9]{1,9}(?:\.[0-9]{1,9})?) ?([kKMGBT])", text)
    if found is None:
        return ""
    number = Decimal(found[1]) * _SCALE[found[2].replace("K", "k").replace("B", "G")]
    return f": write `{int(number)}`" if number == int(number) else ""


def several(number: float, noun: str) -> str:
    """A count with its noun.

    >>> several(1, "device"), several(64, "device")
    ('1 device', '64 devices')
    """
    return f"{number:.0f} {noun}{'' if number == 1 else 's'}"


def number(value: float) -> str:
    """Write a plain number with three digits, from a hundred on whole and never as a power of ten.

    >>> number(4.5678), number(48956.3)
    ('4.57', '48,956')
    """
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def show(value: float, unit: str, digits: int = 3) -> str:
    """Write `value` with three digits and the prefix that fits.

    >>> show(2.5e10, "B/s"), show(0.00231, "s"), show(0.0, "s"), show(5400.0, "s")
    ('25 GB/s', '2.31 ms', '0 s', '1.5 h')
    """
    if not math.isfinite(value):
        return f"{value} {unit}"
    if unit == "s" and abs(value) >= 120:
        for name, length in (("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
            if abs(value) >= 1.5 * length or name == "min":
                return f"{_short(value / length, digits)} {name}"
    if unit == "B":
        for prefix in ("Pi", "Ti", "Gi", "Mi", "Ki"):
            scale = float(_SCALE[prefix])
            if abs(value) >= scale:
                return f"{_short(value / scale, digits)} {prefix}B"
        return f"{_short(value, digits)} B"
    for prefix in ("E", "P", "T", "G", "M", "k", "", "m", "u", "n"):
        scale = float(_SCALE[prefix])
        if abs(value) >= scale * (1 - 0.5 * 10**-digits):
            if prefix == "" and unit == "s" and abs(value) >= 100:
                return f"{value:.0f} s"
            return f"{value / scale:.{digits}g} {prefix}{unit}"
    return f"{value:.{digits}g} {unit}"


def _short(value: float, digits: int) -> str:
    """So many digits; no power of ten for the thousand and more that a unit may count to.

    >>> _short(1.5, 3), _short(1010.2, 3)
    ('1.5', '1010')
    """
    return f"{value:.0f}" if 10**digits <= abs(value) < 1e6 else f"{value:.{digits}g}"


def exact(value: float, unit: str) -> str:
    """Write `value` so that `parse` gives the very same float again.

    >>> exact(2.5e10, "B/s"), parse(exact(1.7e-6, "s"), "s") == 1.7e-6
    ('25000000000.0 B/s', True)
    """
    return f"{value!r} {unit}"
