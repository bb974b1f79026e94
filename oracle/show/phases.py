"""A training in phases as a table: when, which batch, which plan, how long."""

from __future__ import annotations

from collections.abc import Sequence

from oracle.predict.estimate import Estimate
from oracle.run.schedule import Phase, Scheduled
from oracle.show.training import failures
from oracle.spec.units import number, show


def schedule_text(whole: Scheduled, found: Sequence[Estimate]) -> str:
    """The phases of a training, and what they come to."""
    first, total = found[0], whole.total
    model, system = first.model, first.system
    rows: list[tuple[str, ...]] = [
        ("phase", "batch", "devices", "iteration", "steps", "takes", "plan")
    ]
    rows += [_cells(one, each) for one, each in zip(whole.phases, found, strict=False)]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    broken = [f"  {one.plans[0]} cannot run: {'; '.join(one.broken[0])}"
              for one in found if one.broken[0]]  # fmt: skip
    late = len(found) - len(whole.phases)
    beyond = whole.to_dict()["largest_batch"]
    took = (f"{show(total('seconds'), 's')} ({show(total('low'), 's')} to "
            f"{show(total('high'), 's')})")  # fmt: skip
    return "\n".join([
        f"{model.title or model.name} on {system.title or system.name}, "
        f"{first.options.precision}, {first.options.optimizer_text}",
        "",
        f"{took} {'for' if whole.origin == 'given' else 'to'} {whole.words}"
        f"{'' if whole.origin == 'given' else f' ({whole.origin})'}, "
        f"{number(total('device_hours'))} device-hours",
        *broken,
        *_failures(whole),
        "",
        *("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True))
          .rstrip() for row in rows),
        *([f"  the target is met before {late} of the phases begin"] if late else []),
        *([f"  no run met it with a batch above {beyond:,.0f}"] if beyond else []),
    ])  # fmt: skip


def _failures(whole: Scheduled) -> list[str]:
    """What failures make of the first phase, or why nobody knows it."""
    name, said = failures(whole.phases[0].training.goodput, brief=True)
    return [f"  {name:<8}  {said}"] if said else []


def _cells(one: Phase, shown: Estimate) -> tuple[str, ...]:
    span = f"{_amount(one.start)}-{_amount(one.end)} {one.unit}"
    return (span, f"{one.batch:,}", f"{one.devices:,}", show(float(shown.seconds[0]), "s"),
            f"{one.training.length.steps:,.0f}", show(one.training.seconds, "s"),
            one.plan)  # fmt: skip


def _amount(value: float) -> str:
    for letter, scale in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if value >= scale:
            return f"{value / scale:.3g}{letter}"
    return f"{value:.4g}"
