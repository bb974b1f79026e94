"""A plan under its roofs as text: what binds the step and its longest layers."""

from __future__ import annotations

from oracle.ask.explain.roofline import ROOFS, Roofed, Roofline
from oracle.predict.estimate import Estimate
from oracle.show.terminal import fit, laid_out
from oracle.spec.units import show

LINES = 14  # layers shown


def roofline_text(shown: Estimate, found: Roofline) -> str:
    """What binds the step, then a table of its layers, the longest first."""
    step, device = found.step, shown.system.device
    asked = f"{shown.model.name} on {shown.system.name}, {found.plan}, batch {shown.batch[0]:.0f}"
    has = f"{show(found.peak, 'FLOP/s')}, {show(device.memory_bandwidth, 'B/s')}"
    roofs = ", ".join(f"{roof} {show(step.roofs[roof], 's')}" for roof in ROOFS if step.roofs[roof])
    lines = [
        fit(f"{step.binds} binds the step: {show(step.roofs[step.binds], 's')} of "
            f"{show(step.seconds, 's')} ({step.share:.0%} of that roof), "
            f"{show(step.attained, 'FLOP/s')} a device"),
        fit(f"{asked}; a device has {has}"),
        fit(f"roofs       {roofs}"),
        "",
        *laid_out([HEAD, *map(_row, found.each[:LINES])], "<<>>>><", ""),
    ]  # fmt: skip
    if any(one.share > 1 for one in found.each):
        lines.append("above 100%: an algorithm saves products, as Winograd's does")
    if len(found.each) > LINES:
        rest = sum(one.seconds for one in found.each[LINES:])
        lines.append(f"and {len(found.each) - LINES} more, {show(rest, 's')} together")
    return "\n".join(lines)


HEAD = ("layer", "shape", "×", "seconds", "FLOP/B", "FLOP/s", "binds")


def _row(one: Roofed) -> tuple[str, ...]:
    intensity = one.intensity("memory")
    return (
        one.name, one.shape, str(one.count), show(one.seconds, "s"),
        f"{intensity:.3g}" if intensity is not None else "-",
        show(one.attained, "FLOP/s") if one.amounts["compute"] else "-",
        f"{one.binds} {one.share:.0%}",
    )  # fmt: skip
