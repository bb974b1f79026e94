"""Limits of a whole training: a deadline, and budgets of money, energy, carbon, device-hours."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING

from oracle.spec.document import refusal
from oracle.spec.doubt import NINETY
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.run.target import Training

SCALES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9}
TIMES = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0, "day": 86400.0, "days": 86400.0,
         "week": 7 * 86400.0, "weeks": 7 * 86400.0}  # fmt: skip
# of what a budget is: its field of `Limits`, and how much of it the unit is
UNITS = {
    "USD": ("money", 1.0), "$": ("money", 1.0), "Wh": ("energy", 1e-3),
    "gCO2": ("carbon", 1e-3), "tCO2": ("carbon", 1e3), "device-hours": ("device_hours", 1.0),
}  # fmt: skip
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)"
_BUDGET = re.compile(rf"{_NUMBER}\s*([kMG]?)\s*(USD|\$|Wh|gCO2|tCO2|device-hours)")
_TIME = re.compile(rf"{_NUMBER}\s*({'|'.join(sorted(TIMES, key=len, reverse=True))})")


def duration(text: str) -> float:
    """Seconds of `7d`, `30 days`, `12 h`, `45 min`.

    >>> duration("7d"), duration("1.5 h")
    (604800.0, 5400.0)
    """
    found = _TIME.fullmatch(text.strip()[:60])
    value = float(found[1]) * TIMES[found[2]] if found else 0.0
    if not 0 < value < 1e12:
        raise refusal("within", f"`{text[:40]}` is no length of time", "e.g. 7d, 12 h or 45 min")
    return value


def budget(text: str) -> tuple[str, float]:
    """What may be spent, and how much of it: USD, kWh, kg of CO₂ or device-hours.

    >>> budget("1 MUSD"), budget("500 MWh"), budget("30 tCO2")
    (('money', 1000000.0), ('energy', 500000.0), ('carbon', 30000.0))
    """
    found = _BUDGET.fullmatch(text.strip()[:60])
    value = float(found[1]) * SCALES[found[2]] if found else 0.0
    if found is None or not 0 < value < 1e18:
        hint = "e.g. 1MUSD, 500MWh, 30tCO2 or 20k device-hours"
        raise refusal("budget", f"`{text[:40]}` is no budget", hint)
    kind, each = UNITS[found[3]]
    return kind, value * each


@dataclass(frozen=True, slots=True)
class Limits:
    """What a whole training may take; None where anything goes."""

    within: float | None = None  # seconds
    money: float | None = None  # USD
    energy: float | None = None  # kWh
    carbon: float | None = None  # kg of CO₂
    device_hours: float | None = None

    @classmethod
    def of(cls, within: str | float | None = None, budgets: Iterable[str] = ()) -> Limits:
        """`7d`, and any of `1MUSD`, `500MWh`, `30tCO2`, `20k device-hours`."""
        limits: dict[str, float] = {}
        for text in budgets:
            kind, value = budget(text)
            limits[kind] = min(value, limits.get(kind, math.inf))
        seconds = duration(within) if isinstance(within, str) else within
        return cls(seconds, **limits)

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)

    def over(self, one: Training) -> dict[str, float | None]:
        """Limit -> times what it allows, of each that a training breaks.

        None where nobody knows: what is not known is not taken to be within.
        """
        found: dict[str, float | None] = {}
        for name in self.__slots__:
            most = getattr(self, name)
            if most is not None:
                value = amount(one, name)
                if value is None or value > most:
                    found[name] = None if value is None else value / most
        return found

    def probability(self, one: Training) -> float:
        """That a training keeps to all of them, by the interval of its time.

        Money, energy and carbon grow with time, so that the tightest decides.
        """
        ratios = [
            most / value
            for name in self.__slots__
            if (most := getattr(self, name)) is not None
            and (value := amount(one, name)) is not None
        ]
        known = not any(ratio is None for ratio in self.over(one).values())
        if not ratios:
            return float(known)
        room = math.log(max(min(ratios), 1e-300))
        end = one.low if room < 0 else one.high
        spread = abs(math.log(end / one.seconds)) / NINETY
        chance = NormalDist().cdf(room / spread) if spread else float(room >= 0)
        return chance * known


def amount(one: Training, name: str) -> float | None:
    """What a training takes of what is limited."""
    if name in ("within", "time"):
        return one.seconds
    value: float | None = getattr(one.costs, name)
    return value


def words(name: str, value: float) -> str:
    """An amount as one reads it."""
    if name in ("within", "time"):
        return show(value, "s")
    if name == "money":
        return f"{value:,.0f} USD" if value >= 100 else f"{value:.3g} USD"
    if name == "energy":
        return f"{value / 1000:,.4g} MWh" if value >= 1e4 else f"{value:,.4g} kWh"
    if name == "carbon":
        return f"{value / 1000:,.3g} t CO₂" if value >= 100 else f"{value:,.3g} kg CO₂"
    return f"{value:,.0f} device-hours"
