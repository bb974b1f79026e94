"""What convolutions take of their workspace, as text: a line for each layer's passes."""

from __future__ import annotations

from oracle.ask.explain.workspaces import Kernel, Workspaces
from oracle.predict.estimate import Estimate
from oracle.show.layout import within
from oracle.show.terminal import laid_out
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
        *laid_out([HEAD, *map(_row, found.each)], "<<<><>>><", ""),
    ]  # fmt: skip
    return within("\n".join(lines))


HEAD = ("layer", "pass", "shape", "×", "algorithm", "bytes", "seconds", "saved", "batch")


def _row(one: Kernel) -> tuple[str, ...]:
    return (
        one.name, one.part, one.shape, str(one.count), one.algorithms,
        show(one.room, "B") if one.room else "-", show(one.seconds, "s"),
        show(one.saved, "s") if one.saved > 0 else "-", one.division,
    )  # fmt: skip
