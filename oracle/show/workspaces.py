"""What convolutions take of their workspace, as text: a line for each layer's passes."""

from __future__ import annotations

from oracle.ask.explain.workspaces import Kernel, Workspaces
from oracle.predict.estimate import Estimate
from oracle.spec.units import show


def workspaces_text(shown: Estimate, found: Workspaces) -> str:
    """What is asked, what it comes to, then every convolution in the order of the network."""
    asked = f"{shown.model.name} on {shown.system.name}, {found.plan}, batch {shown.batch[0]:.0f}"
    if not found.each:
        return f"{asked}\nno convolutions, so nothing wants a workspace"
    limit = f"--workspace {found.asked}" if found.asked else "no limit said"
    whose = "together" if found.shared else "the largest, one after the other"
    lines = [
        f"{show(found.most, 'B')} of workspace ({whose}); divisions save "
        f"{show(found.saved, 's')} a micro-batch",
        f"{asked}; {limit}",
        "",
        f"{'layer':<16} {'pass':<8} {'shape':<28} {'×':>3} {'algorithm':<20} {'bytes':>10} "
        f"{'seconds':>9} {'saved':>9}  batch",
        *map(_row, found.each),
    ]  # fmt: skip
    return "\n".join(lines)


def _row(one: Kernel) -> str:
    saved = show(one.saved, "s") if one.saved > 0 else "-"
    room = show(one.room, "B") if one.room else "-"
    return (f"{one.name[:16]:<16} {one.part:<8} {one.shape[:28]:<28} {one.count:>3} "
            f"{one.algorithms[:20]:<20} {room:>10} {show(one.seconds, 's'):>9} {saved:>9}  "
            f"{one.division}")  # fmt: skip
