"""Predictions beside measurements, as text."""

from __future__ import annotations

import numpy as np

from oracle.ask.compare import Comparison
from oracle.show.recovery import recovery
from oracle.show.terminal import fit
from oracle.spec.units import show


def comparison_text(found: Comparison) -> str:
    """Accuracy in all, then each plan part by part."""
    count = "1 plan" if len(found.seconds) == 1 else f"{len(found.seconds)} plans"
    lines = [f"mean accuracy {np.mean(found.accuracy):.1%} over {count}; "
             f"{np.mean(found.covered):.0%} inside the 90 % interval"]  # fmt: skip
    if len(found.seconds) > 1:
        order = "" if np.isnan(found.tau) else f"ranking τ {found.tau:.2f}; "
        lines.append(f"{order}our pick is {found.regret:.1%} slower than the best")
    for i, plan in enumerate(found.predicted.plans):
        mark = "" if found.covered[i] else "  outside its interval"
        lines += ["", fit(f"{plan}: predicted {show(found.predicted.seconds[i], 's')}, measured "
                          f"{show(found.seconds[i], 's')} ± {found.spread[i]:.0%}, "
                          f"accuracy {found.accuracy[i]:.1%}{mark}")]  # fmt: skip
        lines.append(f"  {'part':<36} {'predicted':>10} {'measured':>10}")
        for name, pair in found.compared(i).items():
            late = (
                f", {show(pair['waiting'], 's')} of it for late ranks" if "waiting" in pair else ""
            )
            lines.append(f"  {name:<36} {show(pair['predicted'], 's'):>10} "
                         f"{show(pair['measured'], 's'):>10}{late}")  # fmt: skip
        lines += recovery(*found.recoveries[i]) if found.recoveries else []
    return "\n".join(lines)
