"""Predictions beside measurements, as text."""

from __future__ import annotations

import numpy as np

from oracle.ask.compare import Comparison
from oracle.plan.names import short_names
from oracle.show.layout import percent
from oracle.show.plan_words import legend
from oracle.show.recovery import recovery
from oracle.show.terminal import fit, laid_out
from oracle.spec.units import show


def comparison_text(comparison: Comparison, following: str = "") -> str:
    """Return how near the predictions are, a line a plan, then the parts of each plan."""
    plans = comparison.predicted.plans
    return "\n".join([
        fit(_answer(comparison)),
        *_table(comparison),
        *(line for row in range(len(plans)) for line in _parts(comparison, row)),
        *([following] if following else []),
    ])  # fmt: skip


def _answer(comparison: Comparison) -> str:
    """Return the mean accuracy, how many lie inside their interval, and what the order is worth."""
    accuracy = _share(float(np.mean(comparison.accuracy)))
    count = len(comparison.seconds)
    if count == 1:
        side = "inside" if comparison.covered[0] else "outside"
        return f"Accuracy {accuracy}, {side} the 90\u00a0% interval"
    text = (f"Accuracy {accuracy} over {count} plans, "
            f"{percent(float(np.mean(comparison.covered)))} of them inside the 90\u00a0% "
            "interval; the plan predicted to be the fastest is ")  # fmt: skip
    text += ("the fastest" if comparison.regret <= 0
             else f"{_share(comparison.regret)} slower than the fastest")  # fmt: skip
    return text + ("" if np.isnan(comparison.tau) else f" (ranking τ {comparison.tau:.2f})")


def _share(share: float) -> str:
    return f"{100 * share:.1f}\u00a0%"


def _table(comparison: Comparison) -> list[str]:
    """Return a line for each plan: predicted, measured, and whether it is inside its interval."""
    predicted = comparison.predicted
    rows: list[tuple[str, ...]] = [("#", "plan", "predicted", "measured", "spread", "accuracy", "")]
    for row, name in enumerate(short_names(predicted.plans)):
        rows.append((
            str(row + 1), name, show(predicted.seconds[row], "s"),
            show(comparison.seconds[row], "s"), f"± {percent(comparison.spread[row])}",
            _share(comparison.accuracy[row]),
            "" if comparison.covered[row] else "outside its interval",
        ))  # fmt: skip
    words = legend(predicted.plans, "\u00a0")
    return [*(line.replace("\u00a0", " ") for line in laid_out(rows, "><>>>><", " ")),
            *([fit(f"     {words}", 5)] if words else [])]  # fmt: skip


def _parts(comparison: Comparison, row: int) -> list[str]:
    """Return what each part of a step was predicted to take, and took."""
    lines = ["", fit(f"{row + 1}  {comparison.predicted.plans[row]}", 3)]
    lines.append(f"  {'part':<36} {'predicted':>10} {'measured':>10}")
    for name, part in comparison.compared(row).items():
        lines.append(f"  {name:<36} {show(part['predicted'], 's'):>10} "
                     f"{show(part['measured'], 's'):>10}")  # fmt: skip
        if "waiting" in part:
            lines.append(f"  {'  of it for late ranks':<47} {show(part['waiting'], 's'):>10}")
    return [*lines, *(recovery(*comparison.recoveries[row]) if comparison.recoveries else ())]
