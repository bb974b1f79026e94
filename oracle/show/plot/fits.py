"""Measured points, the fit through them with its band, and what it leaves over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.show.plot.style import CURVES, MARKERS, look
from oracle.spec.doubt import NINETY

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def fits(calibration: Any) -> Figure:
    """One column a fit: seconds by message size above, fitted / measured − 1 below."""
    with look():
        from matplotlib.figure import Figure

        found = calibration.fits
        figure = Figure(figsize=(4.6 * max(len(found), 1), 5.6))
        axes = figure.subplots(2, max(len(found), 1), sharex="col", squeeze=False,
                               gridspec_kw={"height_ratios": [3, 1]})  # fmt: skip
        for column, fit in enumerate(found):
            pool, (above, below) = fit.pool, axes[:, column]
            for k, ranks in enumerate(np.unique(pool.ranks)):
                mine = pool.ranks == ranks
                order = np.argsort(pool.nbytes[mine], kind="stable")
                size, seconds = pool.nbytes[mine][order], pool.seconds[mine][order]
                error = fit.error[mine][order]
                fitted = seconds * (1 + error)
                colour, marker = CURVES[k % len(CURVES)], MARKERS[k % len(MARKERS)]
                band = np.exp(NINETY * fit.envelope.scale)
                above.fill_between(
                    size, fitted / band, fitted * band, color=colour, alpha=0.15, lw=0
                )
                above.plot(size, fitted, color=colour, lw=1.5)
                above.plot(size, seconds, marker, color=colour, ms=3.5, label=f"{ranks:.0f} ranks")
                below.plot(size, 100 * error, marker, color=colour, ms=3)
            above.set(xscale="log", yscale="log", title=f"{pool.op}, {pool.level}")
            below.axhline(0, color="black", lw=0.8)
            below.set(xlabel="message, bytes", xscale="log")
            above.legend(loc="upper left")
        axes[0, 0].set_ylabel("seconds")
        axes[1, 0].set_ylabel("fit off by, %")
        figure.align_ylabels()
    return figure
