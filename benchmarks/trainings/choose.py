"""Which machine, how many devices: three questions, and the CPU seconds that they take."""

from __future__ import annotations

import time
from typing import Any

import oracle
from benchmarks.table import Table, figure
from oracle.ask.choose import Choice
from oracle.show.choose import choice_text
from oracle.spec.units import show

SYSTEMS = ("dgx-h100", "dgx-a100", "abci")
COUNTS = "8..1024"  # eight of them
QUESTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "Llama-2 7B on 2 T tokens within 30 days": (
        "llama2-7b", {"tokens": 2e12, "within": "30d"}),
    "ResNet-50 to its target, cheapest": (
        "resnet50", {"to_target": True, "objective": "money"}),
    "CosmoFlow, 30 epochs, within an hour": (
        "cosmoflow-128", {"epochs": 30, "batch": 128, "within": "1h"}),
}  # fmt: skip


def answered(name: str, **more: Any) -> Choice:
    """One of the questions."""
    model, asked = QUESTIONS[name]
    return oracle.choose(model, SYSTEMS, COUNTS, **asked, **more)


def table(quick: bool = False) -> Table:
    """Each question's answer, how many lines its first screen has, and what it took."""
    lines, spent, longest = [], [], 0
    for name in QUESTIONS:
        begin = time.process_time()
        found = answered(name)
        screen = choice_text(found).count("\n") + 2  # and the line that says what to type next
        spent.append(time.process_time() - begin)
        longest = max(longest, screen)
        best = found.best
        lines.append({
            "question": name, "answer": f"{best.devices} of {best.system.name}",
            "plan": best.plan, "batch": best.batch, "time": show(best.training.seconds, "s"),
            "USD": f"{best.training.costs.money:,.0f}", "frontier": len(found.front),
            "changes": len(found.changes), "lines": screen, "CPU": f"{spent[-1]:.1f} s",
        })  # fmt: skip
    return {
        "title": "three systems, eight numbers of devices, one software", "rows": lines,
        "figures": {"slowest": figure(max(spent), "s", "≤ 10"),
                    "longest_screen": figure(longest, "lines", "≤ 24")},
    }  # fmt: skip
