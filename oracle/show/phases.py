"""A training in phases as a table: when, which batch, which plan, how long."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.predict.estimate import Estimate
from oracle.run.schedule import Phase, Scheduled
from oracle.show.layout import fact
from oracle.show.terminal import fit, laid_out
from oracle.show.training import failures
from oracle.spec.units import number, show

HEADS = ("phase", "batch", "devices", "step", "steps", "takes", "plan")


def schedule_text(schedule: Scheduled, estimates: Sequence[Estimate]) -> str:
    """Return how long the whole training takes, then a line for each phase."""
    first, total = estimates[0], schedule.total
    model, system = first.model, first.system
    rows = [HEADS, *(_cells(phase, estimate) for phase, estimate
                     in zip(schedule.phases, estimates, strict=False))]  # fmt: skip
    unreached = len(estimates) - len(schedule.phases)
    beyond = schedule.to_dict()["largest_batch"]
    length = "for" if schedule.origin == "given" else "to"
    origin = "" if schedule.origin == "given" else f" ({schedule.origin})"
    label, words = failures(schedule.phases[0].training.goodput, brief=True)
    return "\n".join([
        fit(f"{show(total('seconds'), 's')} ({show(total('low'), 's')} to "
            f"{show(total('high'), 's')}) {length} {schedule.words}{origin}, "
            f"{number(total('device_hours'))} device-hours"),
        fit(f"{model.title or model.name} on {system.title or system.name}, "
            f"{first.options.precision}, {first.options.optimizer_text}"),
        *(fit(f"  {estimate.plans[0]} cannot run: {'; '.join(estimate.broken[0])}", 4)
          for estimate in estimates if estimate.broken[0]),
        *([fact(label, words)] if words else []),
        *laid_out(rows, "<>>>>><", " "),
        *([f"  the target is met before {unreached} of the phases begin"] if unreached else []),
        *([f"  no run met it with a batch above {beyond:,.0f}"] if beyond else []),
    ])  # fmt: skip


def _cells(phase: Phase, estimate: Estimate) -> tuple[str, ...]:
    """Return a line of the table."""
    span = f"{_amount(phase.start)}-{_amount(phase.end)} {phase.unit}"
    return (span, f"{phase.batch:,}", f"{phase.devices:,}", show(float(estimate.seconds[0]), "s"),
            f"{phase.training.length.steps:,.0f}", show(phase.training.seconds, "s"),
            phase.plan)  # fmt: skip


def _amount(value: float) -> str:
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.4g}"
