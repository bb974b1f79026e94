"""Figures inside a page: SVG that takes the page's colours, light or dark, and keeps its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from oracle.predict.trace import trace
from oracle.show.page.markup import Html, plain, tag
from oracle.spec.document import SpecError

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking
    from oracle.predict.estimate import Estimate

MOST_BOXES = 6000  # passes of a pipeline that are drawn
FINE = 320  # columns of time in which memory is drawn


def figures(ranking: Ranking) -> Iterator[tuple[str, str, Html]]:
    """(heading, what one sees in it, SVG) of each picture of a ranking."""
    from oracle.show.plot import alive, memory, pareto, parts, timeline

    shown = ranking.estimate if len(ranking.estimate) else ranking.misses
    if not len(shown):
        return
    few = shown.take(range(min(len(shown), 8)))
    yield ("What the time is made of", "Each bar is a plan, the first the best. Exchanges count "
           "with what no computation hides; the line is the 90 % interval.",
           inline(parts(few), "time"))  # fmt: skip
    yield ("Memory against the capacity", "Bytes of the fullest device at its worst moment.",
           inline(memory(few), "memory"))  # fmt: skip
    if not len(ranking.estimate):
        return
    if len(shown) > 3:
        rows = [shown.figures(at) for at in range(len(shown))]
        yield ("What there is to choose from", "Down and left is better; ringed plans are beaten "
               "by no other in time, memory and device-hours together.",
               inline(pareto(rows), "pareto"))  # fmt: skip
    if _boxes(shown) <= MOST_BOXES:
        yield ("The best plan in time", "One iteration, replayed from the prediction; numbers "
               "are micro-batches.", inline(timeline(shown, 0), "timeline"))  # fmt: skip
        if not shown.options.ideal:
            yield ("Its memory in time", "Bytes of the stage that needs most, by what they are "
                   "of; the mark is the worst moment.",
                   inline(alive(shown, 0, columns=FINE), "alive"))  # fmt: skip
    if network := _network(shown):
        yield network


def _boxes(shown: Estimate) -> float:
    """Passes of the first plan, forward and back."""
    found = trace(shown.work[0])
    return 2.0 * found.stages * found.chunks * found.micro_batches


def _network(shown: Estimate) -> tuple[str, str, Html] | None:
    """Where the best plan's dearest exchange runs."""
    from oracle.show.plot import dearest

    try:
        figure = dearest(shown, 0)
    except SpecError:  # there is none, or none that can be drawn
        return None
    return ("Where its dearest exchange runs", "Links shaded by the part of the exchange's time "
            "that they work.", inline(figure, "network"))  # fmt: skip


def inline(figure: Any, name: str) -> Html:
    """A figure as an SVG element that can stand beside others in one page."""
    from oracle.show.plot.style import rendered

    text = rendered(figure, "svg", text=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<title>.*?</title>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'<style type="text/css">.*?</style>', "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(?!glyph)[a-zA-Z_]+\d*_\d+"', "", text)  # groups nobody refers to
    text = re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", text)
    for said, meant in COLOURS.items():
        text = text.replace(said, meant)
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # hundredths of a point
    text = re.sub(r"\n\s*", "\n", text)
    alt = escape(plain(getattr(figure, "alt", "")), quote=True)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return Html(f'{head} role="img" aria-label="{alt}">{rest}')


COLOURS = {
    "#1a1a1b": "currentColor", "#5b5b5e": "var(--faint)", "#d9d9da": "var(--rule)",
    "#ffffff": "var(--paper)", "#ececee": "var(--wait)", "#eeeeef": "var(--wait)",
    "'DejaVu Sans'": "'DejaVu Sans', Verdana, sans-serif",
}  # fmt: skip


def shown_as(heading: str, words: str, picture: Html) -> Html:
    """A picture with its caption."""
    return tag("figure", picture, tag("figcaption", words), aria_label=heading)
