"""Figures: each function returns a matplotlib Figure, for a file, a report or a notebook.

    from oracle.plot import scaling, save
    save(scaling(sweep(grid).rows), "scaling.svg")

`breakdown`, `scaling` and `pareto` take rows of a sweep, `spending` those of plans with a price,
`parts`, `memory`, `alive`, `timeline`, `dearest`, `roofline` and `waits` an estimate, `exchange`
one of those that its plan sends, `measured` pairs of seconds, `contention` a system and a pattern
of groups, `combined` the table of a workflow, `designs` that of networks that could be bought. Each
takes a `width` in pixels, `WIDE` or `PHONE`, and is laid out for it.
"""

from oracle.show.plot.against import measured
from oracle.show.plot.alive import alive
from oracle.show.plot.bars import bar, breakdown
from oracle.show.plot.combined import combined
from oracle.show.plot.curves import scaling
from oracle.show.plot.designs import designs
from oracle.show.plot.front import pareto
from oracle.show.plot.hold import memory
from oracle.show.plot.network import contention
from oracle.show.plot.parts import parts
from oracle.show.plot.roofs import roofline
from oracle.show.plot.sent import dearest, exchange, exchanges
from oracle.show.plot.spent import spending
from oracle.show.plot.style import PHONE, SUFFIXES, WIDE, rendered, save
from oracle.show.plot.timeline import timeline
from oracle.show.plot.waits import waits

__all__ = [
    "PHONE",
    "SUFFIXES",
    "WIDE",
    "alive",
    "bar",
    "breakdown",
    "combined",
    "contention",
    "dearest",
    "designs",
    "exchange",
    "exchanges",
    "measured",
    "memory",
    "pareto",
    "parts",
    "rendered",
    "roofline",
    "save",
    "scaling",
    "spending",
    "timeline",
    "waits",
]  # fmt: skip
