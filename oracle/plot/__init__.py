"""Figures: each function returns a matplotlib Figure, for a file, a report or a notebook.

    from oracle.plot import scaling, save
    save(scaling(sweep(grid).rows), "scaling.svg")

`breakdown`, `scaling` and `pareto` take rows of a sweep, `parts`, `memory` and `timeline` an
estimate, `measured` pairs of seconds, `contention` a system and a pattern of groups.
"""

from oracle.plot.against import measured
from oracle.plot.bars import bar, breakdown
from oracle.plot.curves import scaling
from oracle.plot.front import pareto
from oracle.plot.hold import memory
from oracle.plot.network import contention
from oracle.plot.parts import parts
from oracle.plot.style import SUFFIXES, rendered, save
from oracle.plot.timeline import timeline

__all__ = [
    "SUFFIXES",
    "bar",
    "breakdown",
    "contention",
    "measured",
    "memory",
    "pareto",
    "parts",
    "rendered",
    "save",
    "scaling",
    "timeline",
]  # fmt: skip
