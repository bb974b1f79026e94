"""The verbs of the command line as functions of names, paths or objects.

arguments  checks of arguments, and the refusals of wrong ones
predict    estimate, recommend
decide     choose, design_network, workflow
explore    sweep, explain
measured   calibrate, compare
written    plot, export
"""

from oracle.api.decide import choose, design_network, workflow
from oracle.api.explore import explain, sweep
from oracle.api.measured import calibrate, compare
from oracle.api.predict import estimate, recommend
from oracle.api.written import export, plot

__all__ = [
    "calibrate",
    "choose",
    "compare",
    "design_network",
    "estimate",
    "explain",
    "export",
    "plot",
    "recommend",
    "sweep",
    "workflow",
]
