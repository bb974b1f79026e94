"""Many boxes or lines that look the same as one path each: it keeps files small."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def boxes(axes: Any, found: Sequence[tuple[float, float, float, float]], **look: Any) -> None:
    """Boxes (x, y, width, height) that look the same."""
    if not len(found):
        return
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    x, y, wide, high = np.asarray(found, float).T
    corners = np.stack([[x, y], [x, y + high], [x + wide, y + high], [x + wide, y], [x, y]])
    vertices = corners.transpose(2, 0, 1).reshape(-1, 2)
    codes = np.tile([Outline.MOVETO, *[Outline.LINETO] * 3, Outline.CLOSEPOLY], len(x))
    axes.add_patch(PathPatch(Outline(vertices, codes), **{"linewidth": 0.0, **look}))


def strokes(axes: Any, lines: Sequence[Any], colours: Sequence[str], **look: Any) -> None:
    """Lines of points, the last on top; neighbours in one colour as one path."""
    from itertools import groupby

    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    for colour, group in groupby(range(len(lines)), key=lambda at: colours[at]):
        each = [np.asarray(lines[at], float) for at in group]
        codes = [code for line in each
                 for code in (Outline.MOVETO, *[Outline.LINETO] * (len(line) - 1))]  # fmt: skip
        path = Outline(np.concatenate(each), codes)
        axes.add_patch(PathPatch(path, facecolor="none", edgecolor=colour, **look))
