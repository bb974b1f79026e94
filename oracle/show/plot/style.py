"""One look for all figures: sizes, type, legends, keys of plans, exact files.

A figure is as wide as it is asked to be, in pixels of a screen, and laid out for that: `WIDE` for a
page or a talk, `PHONE` for a phone. Letters are of one size on both. What must be told apart in
print as well carries a hatch or a marker too. Figures are made without pyplot, so a notebook's
settings and backend stay as they are.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.plan.names import key as key_of
from oracle.show.plot.palette import (
    BLUE,
    FAINT,
    GREEN,
    GREY,
    INK,
    OLIVE,
    ORANGE,
    PALE,
    PAPER,
    PINK,
    RED,
    RULE,
    SKY,
    STEPS,
    WAIT,
    filled,
    step,
)
from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.files import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CURVES = (BLUE, RED, SKY, GREEN, PINK, ORANGE, OLIVE, GREY, INK)
MARKERS = "osD^vPX*h"
PARTS = {
    "forward": (BLUE, ""), "backward": (SKY, ""), "recompute": (SKY, "////"),
    "update": (GREY, ""), "bubble": (PALE, ""), "communication": (RED, ""),
    "computation": (BLUE, ""), "waiting": (PALE, ""),
    "reading": (INK, "////"),
}  # fmt: skip
KINDS = {
    "weights": (BLUE, ""), "gradients": (SKY, ""), "optimizer": (GREEN, ""),
    "activations": (RED, ""), "workspace": (ORANGE, ""), "buffers": (OLIVE, ""),
    "reserve": (GREY, ""),
}  # fmt: skip
SUFFIXES = ("svg", "png", "pdf")
WIDE, PHONE = 1200, 390  # pixels of a screen, 96 an inch
NARROW = 640  # pixels: below, panels stand under each other and names above bars
# words, and quantities that stay together
QUANTITY = re.compile(r"[\d.,]+ (?:[kMGTP]?i?B|[mµu]?s|min|h|days|%)(?:/s)?(?!\S)|\S+")
LETTER = 0.56  # of the size of its type, a letter's mean width

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


__all__ = [
    "BLUE",
    "CURVES",
    "FAINT",
    "GREEN",
    "GREY",
    "INK",
    "KINDS",
    "MARKERS",
    "NARROW",
    "OLIVE",
    "ORANGE",
    "PALE",
    "PAPER",
    "PARTS",
    "PHONE",
    "PINK",
    "RED",
    "RULE",
    "SETTINGS",
    "SKY",
    "STEPS",
    "SUFFIXES",
    "WAIT",
    "WIDE",
    "above",
    "at_ends",
    "bars",
    "below",
    "canvas",
    "doubling",
    "filled",
    "key_height",
    "key_of",
    "literal",
    "look",
    "paler",
    "paragraph",
    "plain_log",
    "printable",
    "rendered",
    "save",
    "scale",
    "step",
    "tall",
    "wrapped",
]


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
    """An empty figure, in pixels of a screen; `alt` says in words what it shows."""
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that shows itself in a notebook and knows what it shows."""

        alt = ""

        def _repr_png_(self) -> bytes:
            return rendered(self, "png", dpi=110)

    figure = Picture(figsize=(width / 96, height / 96), layout="constrained")
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
    wide = axes.get_figure().get_size_inches()[0] * 96 > NARROW  # type: ignore[union-attr]
    while len(ticks) > (11 if wide else 7):
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
        axis.set_major_formatter(FuncFormatter(_plainly))
        axis.set_minor_formatter(NullFormatter())
        return
    axis.set_major_locator(LogLocator(10, subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(_plainly))
    axis.set_minor_formatter(NullFormatter())


def _plainly(value: float, _: int) -> str:
    """`0.5`, `20`, `1,000,000`."""
    return f"{value:,.0f}" if value >= 1e5 else f"{value:,.6g}"


def paler(colour: str, part: float = 0.45) -> Any:
    """A colour mixed with paper, opaque."""
    from matplotlib.colors import to_rgb

    return tuple(c + (1 - c) * part for c in to_rgb(colour))


def printable(text: str) -> str:
    """Text without control characters: they break SVG, and hide what stands beside them."""
    return "".join(c if c.isprintable() else "�" for c in text)


def literal(text: str) -> str:
    """Text that is never read as mathematics."""
    return printable(text).replace("$", r"\$")


def wrapped(text: str, width: float, size: float = 9.5) -> list[str]:
    """Lines of whole text in so many pixels, broken at spaces and, where need be, after signs."""
    most = max(12, int(width * 0.75 / (size * LETTER)))
    lines = [""]
    for word in QUANTITY.findall(printable(text)):
        if len(lines[-1]) + len(word) + 1 <= most:
            lines[-1] = f"{lines[-1]} {word}".strip()
            continue
        pieces = [word] if len(word) <= most else re.findall(rf".{{1,{most}}}(?:,|$)|.{{1,{most}}}",
                                                             word)  # fmt: skip
        lines += pieces if lines[-1] else [*pieces[1:]]
        if not lines[0]:
            lines[0] = pieces[0]
    return [literal(line) for line in lines]


def paragraph(text: str, width: float, size: float = 9.5) -> str:
    """The same as one text."""
    return "\n".join(wrapped(text, width, size))


def above(figure: Figure, handles: Any, labels: Any, title: str = "") -> None:
    """The title and one legend over the whole figure."""
    width = figure.get_size_inches()[0] * 96 - 20
    head = paragraph(title, width, 12.5 * 1.12)  # bold is wider
    if not labels:
        if title:
            figure.suptitle(head, x=0.012, ha="left", weight="bold", fontsize=12.5)
        return
    letters = width * 0.75 / (9.5 * LETTER)
    room = len(labels)
    if sum(len(label) + 6 for label in labels) > letters:
        room = max(1, int(letters // (max(len(label) for label in labels) + 5)))
    figure.legend(
        handles, [literal(label) for label in labels], loc="outside upper left",
        ncols=max(1, min(room, len(labels))), handlelength=1.2, handleheight=1.0,
        columnspacing=1.4, borderaxespad=0.4, alignment="left", title=head or None,
        title_fontproperties={"weight": "bold", "size": 12.5},
    )  # fmt: skip


def below(figure: Figure, plans: Sequence[str], numbered: Sequence[str] = ()) -> None:
    """The key of short names, under the whole figure: each with the full text of its plan.

    `numbered`: words before each plan, in place of its short name.
    """
    pairs = list(zip(numbered, plans, strict=True)) if numbered else key_of(plans)
    if not pairs:
        return
    from matplotlib.lines import Line2D

    width = figure.get_size_inches()[0] * 96 - 24
    lines = [paragraph(f"{name}  {plan}", width, 8.5).replace("\n", "\n     ")
             for name, plan in pairs]  # fmt: skip
    figure.legend([Line2D([], [], lw=0)] * len(lines), lines, loc="outside lower left", ncols=1,
                  handlelength=0, handletextpad=0, borderaxespad=0.4, labelspacing=0.4,
                  fontsize=8.5, labelcolor=FAINT)  # fmt: skip


def bars(axes: Any, y: Any, names: Sequence[str], said: Sequence[str], width: float) -> float:
    """Names of horizontal bars and what is said of each; the height of a bar is returned.

    On a wide figure names stand to the left and the words to the right; on a narrow one both
    above the bar.
    """
    axes.grid(visible=False, axis="y")
    axes.grid(visible=True, axis="x")
    axes.spines["left"].set_visible(False)
    top = max(len(names), 1) - (0.5 if width > NARROW else 0.2)
    axes.set_ylim(-0.5, top)
    if width > NARROW:
        axes.set_yticks(y, [literal(name) for name in names])
        for at, words in zip(y, said, strict=True):
            axes.annotate(words, (1.0, at), (6, 0), xycoords=("axes fraction", "data"),
                          textcoords="offset points", va="center", fontsize=9.5)  # fmt: skip
        return 0.62
    axes.set_yticks([])
    for at, name, words in zip(y, names, said, strict=True):
        axes.annotate(paragraph(f"{name}: {words}", width - 30, 9), (0.0, at), (0, 10),
                      xycoords=("axes fraction", "data"), textcoords="offset points", fontsize=9,
                      va="bottom")  # fmt: skip
    return 0.4


def tall(
    rows: int, width: float, labels: Sequence[str], title: str, plans: Sequence[str] = ()
) -> float:
    """Pixels of height of a figure of horizontal bars with a legend, a title and a key."""
    letters = sum(len(label) + 6 for label in labels) * 9.5 * LETTER / 0.75
    head = 26 * len(wrapped(title, width - 20, 14)) + 24 * np.ceil(1.35 * letters / width)
    foot = key_height(key_of(plans), width)
    return float(110 + head + foot + (40 if width > NARROW else 50) * max(rows, 1))


def key_height(pairs: Sequence[tuple[str, str]], width: float) -> float:
    """Pixels that the key of some plans takes."""
    return sum(2.0 + 15 * len(wrapped(" ".join(pair), width - 24, 8.5)) for pair in pairs)


def at_ends(axes: Any, ends: Sequence[tuple[float, float, str, Any]], height: float) -> None:
    """A name to the right of each curve's end, moved apart where they would meet.

    Each is (x, y, name, colour); `height` are pixels of the axes, whose limits stand.
    """
    low, high = axes.get_ylim()
    log = axes.get_yscale() == "log"

    def place(value: float) -> float:
        if log:
            return float(np.log(value / low) / np.log(high / low))
        return float((value - low) / (high - low))

    ranked = sorted(ends, key=lambda one: place(one[1]))
    least = 17 / height
    spots: list[float] = []
    for one in ranked:
        wanted = place(one[1])
        spots.append(wanted if not spots else max(wanted, spots[-1] + least))
    over = max(0.0, spots[-1] - 1.0) if spots else 0.0
    for at in range(len(spots) - 1, -1, -1):
        limit = 1.0 if at == len(spots) - 1 else spots[at + 1] - least
        spots[at] = min(spots[at] - (over if at == len(spots) - 1 else 0.0), limit)
    for (x, y, name, colour), spot in zip(ranked, spots, strict=True):
        axes.annotate(literal(name), (x, y), (1.05, spot), xycoords="data",
                      textcoords="axes fraction", va="center", fontsize=9.5, annotation_clip=False,
                      arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.9, "shrinkA": 1,
                                  "shrinkB": 3, "linestyle": (0, (1, 2.5))})  # fmt: skip
