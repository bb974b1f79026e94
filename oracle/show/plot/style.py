"""One look for all figures: colours that colour-blind readers tell apart, little ink, exact files.

Colours are those of Okabe and Ito; what must be told apart in print as well carries a hatch or a
marker too. Figures are made without pyplot, so a notebook's settings and backend stay as they are.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.files import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK, FAINT, RULE, PAPER = "#1a1a1b", "#5b5b5e", "#d9d9da", "#ffffff"
BLUE, SKY, GREEN, RED, ORANGE = "#0072b2", "#56b4e9", "#009e73", "#d55e00", "#e69f00"
PINK, YELLOW, GREY, PALE = "#cc79a7", "#f0e442", "#8c8c90", "#c9c9cc"
CURVES = (BLUE, RED, GREEN, PINK, ORANGE, SKY, GREY, "#7f4f24", "#4b2e83")
MARKERS = "osD^vPX*h"
PARTS = {
    "forward": (BLUE, ""), "backward": (SKY, ""), "recompute": (SKY, "////"),
    "update": (GREY, ""), "bubble": (PALE, "...."), "communication": (RED, ""),
    "computation": (BLUE, ""), "waiting": (PALE, "...."),
    "reading": (INK, "////"),
}  # fmt: skip
KINDS = {
    "weights": (BLUE, ""), "gradients": (SKY, ""), "optimizer": (GREEN, ""),
    "activations": (RED, ""), "workspace": (ORANGE, ""), "buffers": (YELLOW, ""),
    "reserve": (GREY, ""),
}  # fmt: skip
SUFFIXES = ("svg", "png", "pdf")

SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans", "font.size": 10.5, "axes.titlesize": 12,
    "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 12,
    "axes.labelsize": 10.5, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.axisbelow": True,
    "axes.grid": True, "axes.grid.axis": "y", "grid.color": RULE, "grid.linewidth": 0.8,
    "xtick.color": FAINT, "ytick.color": FAINT, "xtick.labelcolor": INK, "ytick.labelcolor": INK,
    "xtick.labelsize": 9.5, "ytick.labelsize": 9.5, "xtick.major.size": 3, "ytick.major.size": 0,
    "xtick.minor.size": 0, "ytick.minor.size": 0, "text.color": INK, "legend.frameon": False,
    "legend.fontsize": 9.5, "lines.linewidth": 2.0, "lines.markersize": 5.5,
    "lines.solid_capstyle": "round", "figure.facecolor": PAPER, "axes.facecolor": "none",
    "savefig.facecolor": "auto", "figure.constrained_layout.use": True, "hatch.linewidth": 0.7,
    "svg.hashsalt": "oracle", "mathtext.fontset": "dejavusans", "pdf.fonttype": 42,
}  # fmt: skip


def look() -> AbstractContextManager[Any]:
    """The settings, while a figure is made or written."""
    try:
        import matplotlib as mpl
    except ImportError:
        hint = "pip install 'oracle-training[plot]'"
        fault = Fault("E109", "matplotlib is not installed here", Place(), hint)
        raise SpecError("plot", [fault]) from None
    settings: Any = SETTINGS
    return mpl.rc_context(settings)


def canvas(width: float, height: float, alt: str) -> Figure:
    """An empty figure, in inches; `alt` says in words what it shows."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that shows itself in a notebook and knows what it shows."""

        alt = ""

        def _repr_png_(self) -> bytes:
            return rendered(self, "png", dpi=110)

    figure = Picture(figsize=(width, height), layout="constrained")
    engine: Any = figure.get_layout_engine()
    engine.set(w_pad=0.08, h_pad=0.08)
    figure.alt = printable(alt)
    return figure


def rendered(figure: Figure, form: str, dpi: float = 160, text: bool = False) -> bytes:
    """A figure as a file's content, the same bytes each time; `text` keeps SVG text as text."""
    from oracle.spec.version import __version__

    maker = f"oracle {__version__}"
    every: dict[str, dict[str, Any]] = {
        "svg": {"Date": None, "Creator": maker, "Title": getattr(figure, "alt", "")},
        "pdf": {"CreationDate": None, "ModDate": None, "Creator": maker, "Producer": maker},
        "png": {"Software": maker},
    }
    out = io.BytesIO()
    with look() as _:
        import matplotlib as mpl

        with mpl.rc_context({"svg.fonttype": "none" if text else "path"}):
            figure.savefig(out, format=form, dpi=dpi, metadata=every[form])
    return out.getvalue()


def save(figure: Figure, path: str | Path) -> Path:
    """Write a figure to `.svg`, `.png` or `.pdf`, whole or not at all."""
    place = Path(path)
    form = place.suffix.lower().lstrip(".")
    if form not in SUFFIXES:
        hint = "end the name in .svg, .png or .pdf"
        fault = Fault("E109", f"`{place.name}` does not say what kind of picture", Place(), hint)
        raise SpecError("plot", [fault])
    write(place, rendered(figure, form))
    return place


def scale(values: Any, unit: str) -> tuple[float, str]:
    """(what to divide by, the unit to write) so that an axis reads well.

    >>> scale([0.02, 0.3], "s"), scale([3e9], "B")
    ((0.001, 'ms'), (1073741824.0, 'GiB'))
    """
    top = float(np.nanmax(np.abs(np.asarray(values, float)), initial=0.0))
    steps = {
        "s": [(1e-6, "µs"), (1e-3, "ms"), (1.0, "s"), (60.0, "min"), (3600.0, "h"),
              (86400.0, "days")],
        "B": [(1.0, "B"), (2.0**10, "KiB"), (2.0**20, "MiB"), (2.0**30, "GiB"), (2.0**40, "TiB")],
    }[unit]  # fmt: skip
    fitting = [step for step in steps if top >= 1.5 * step[0]] or steps[:1]
    return fitting[-1]


def doubling(axes: Axes, devices: Sequence[float]) -> None:
    """A logarithmic axis of device counts, each written out as far as there is room."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    ticks = sorted({int(d) for d in devices})
    while len(ticks) > 11:
        ticks = ticks[::2]
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([float(t) for t in ticks]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.0f}"))
    axes.set_xlabel("devices")


def plain_log(axis: Any) -> None:
    """A logarithmic axis that says 0.5, 20, 1,000 rather than powers of ten."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    span = high / max(low, 1e-300)
    subs: tuple[float, ...] = (1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0) if span < 15 else (1.0, 2.0, 5.0)
    subs = subs if span < 300 else (1.0,)
    if span < 2.5:  # too narrow for a decade's steps: plain ones
        from matplotlib.ticker import MaxNLocator

        axis.set_major_locator(MaxNLocator(5))
        axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))
        axis.set_minor_formatter(NullFormatter())
        return
    axis.set_major_locator(LogLocator(10, subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def paler(colour: str, part: float = 0.45) -> Any:
    """A colour mixed with paper, opaque."""
    from matplotlib.colors import to_rgb

    return tuple(c + (1 - c) * part for c in to_rgb(colour))


def printable(text: str) -> str:
    """Text without control characters: they break SVG, and hide what stands beside them."""
    return "".join(c if c.isprintable() else "�" for c in text)


def shorter(text: str, most: int) -> str:
    """Text that fits, its middle left out if need be; never read as mathematics."""
    text = printable(text)
    if len(text) > most:
        half = (most - 1) // 2
        text = f"{text[: most - 1 - half]}…{text[len(text) - half :]}"
    return text.replace("$", r"\$")


def above(
    figure: Figure, handles: Any, labels: Any, title: str = "", columns: int = 8
) -> None:  # fmt: skip
    """The title and one legend over the whole figure."""
    width = figure.get_size_inches()[0]
    if not labels:
        figure.suptitle(shorter(title, int(width * 9)), x=0.012, ha="left", weight="bold")
        return
    line = width * 13  # letters
    room = len(labels)
    if sum(len(label) + 6 for label in labels) > line:
        room = max(1, int(line // (max(len(label) for label in labels) + 6)))
    figure.legend(
        handles, labels, loc="outside upper left", ncols=max(1, min(columns, room, len(labels))),
        handlelength=1.2, handleheight=1.0, columnspacing=1.4, borderaxespad=0.4,
        alignment="left", title=shorter(title, int(width * 9)) or None,
        title_fontproperties={"weight": "bold", "size": 12.5},
    )  # fmt: skip
