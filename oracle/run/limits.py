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
# unit of a budget -> its field of `Limits`, and the size of the unit
UNITS = {
    "USD": ("money", 1.0), "$": ("money", 1.0), "Wh": ("energy", 1e-3),
    "gCO2": ("carbon", 1e-3), "tCO2": ("carbon", 1e3), "device-hours": ("device_hours", 1.0),
}  # fmt: skip
_NUMBER = r"([0-9]+(?:\.[0-9]+)?(?:e[0-9]{1,2})?)"
_BUDGET = re.compile(rf"{_NUMBER}\s*([kMG]?)\s*(USD|\$|Wh|gCO2|tCO2|device-hours)")
_TIME = re.compile(rf"{_NUMBER}\s*({'|'.join(sorted(TIMES, key=len, reverse=True))})")


def duration(text: str) -> float:
    """Return the seconds of `7d`, `30 days`, `12 h`, `45 min`.

    >>> duration("7d"), duration("1.5 h")
    (604800.0, 5400.0)
    """
    match = _TIME.fullmatch(text.strip()[:60])
    value = float(match[1]) * TIMES[match[2]] if match else 0.0
    if not 0 < value < 1e12:
        raise refusal("within", f"`{text[:40]}` is no length of time", "e.g. 7d, 12 h or 45 min")
    return value


def budget(text: str) -> tuple[str, float]:
    """Return the kind and the size of a budget: USD, kWh, kg of CO₂ or device-hours.

    >>> budget("1 MUSD"), budget("500 MWh"), budget("30 tCO2")
    (('money', 1000000.0), ('energy', 500000.0), ('carbon', 30000.0))
    """
    match = _BUDGET.fullmatch(text.strip()[:60])
    value = float(match[1]) * SCALES[match[2]] if match else 0.0
    if match is None or not 0 < value < 1e18:
        hint = "e.g. 1MUSD, 500MWh, 30tCO2 or 20k device-hours"
        raise refusal("budget", f"`{text[:40]}` is no budget", hint)
    kind, unit = UNITS[match[3]]
    return kind, value * unit


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a whole training; None where there is no limit."""

    within: float | None = None  # seconds
    money: float | None = None  # USD
    energy: float | None = None  # kWh
    carbon: float | None = None  # kg of CO₂
    device_hours: float | None = None

    @classmethod
    def of(cls, within: str | float | None = None, budgets: Iterable[str] = ()) -> Limits:
        """Return the limits of `7d`, and any of `1MUSD`, `500MWh`, `20k device-hours`."""
        limits: dict[str, float] = {}
        for text in budgets:
            kind, value = budget(text)
            limits[kind] = min(value, limits.get(kind, math.inf))
        seconds = duration(within) if isinstance(within, str) else within
        return cls(seconds, **limits)

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in self.__slots__)

    def over(self, training: Training) -> dict[str, float | None]:
        """Return each limit that a training breaks, with the excess as a factor.

        The factor is None for an unknown amount, which counts as a break.
        """
        broken: dict[str, float | None] = {}
        for name in self.__slots__:
            limit = getattr(self, name)
            if limit is not None:
                value = amount(training, name)
                if value is None or value > limit:
                    broken[name] = None if value is None else value / limit
        return broken

    def probability(self, training: Training) -> float:
        """Return the probability that a training keeps to all limits, by its time's interval.

        Money, energy and carbon grow with time, so the tightest limit decides.
        """
        ratios = [
            limit / value
            for name in self.__slots__
            if (limit := getattr(self, name)) is not None
            and (value := amount(training, name)) is not None
        ]
        all_known = not any(ratio is None for ratio in self.over(training).values())
        if not ratios:
            return float(all_known)
        room = math.log(max(min(ratios), 1e-300))
        end = training.low if room < 0 else training.high
        spread = abs(math.log(end / training.seconds)) / NINETY
        chance = NormalDist().cdf(room / spread) if spread else float(room >= 0)
        return chance * all_known


def amount(training: Training, name: str) -> float | None:
    """Return the amount of a limited quantity that a training takes."""
    if name in ("within", "time"):
        return training.seconds
    value: float | None = getattr(training.costs, name)
    return value


def words(name: str, value: float) -> str:
    """Return an amount in words."""
    if name in ("within", "time"):
        return show(value, "s")
    if name == "money":
        return f"{value:,.0f} USD" if value >= 100 else f"{value:.3g} USD"
    if name == "energy":
        return f"{value / 1000:,.4g} MWh" if value >= 1e4 else f"{value:,.4g} kWh"
    if name == "carbon":
        return f"{value / 1000:,.3g} t CO₂" if value >= 100 else f"{value:,.3g} kg CO₂"
    return f"{value:,.0f} device-hours"
