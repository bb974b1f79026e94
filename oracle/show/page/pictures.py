"""Figures inside a page: SVG that takes the page's colours, light or dark, and keeps its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape
from typing import TYPE_CHECKING, Any

from oracle.predict.trace import trace
from oracle.show.page.markup import Html, join, plain, tag
from oracle.show.plot.palette import NAMES
from oracle.spec.document import SpecError

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking
    from oracle.predict.estimate import Estimate

MOST_BOXES = 40_000  # passes of a pipeline that are played
FONTS = "DejaVu Sans, Verdana, sans-serif"
GROUND = ("faint", "rule", "paper", "wait")  # colours that every page has
FINE = 240  # columns of time in which memory is drawn


def figures(ranking: Ranking) -> Iterator[tuple[str, str, Html]]:
    """(heading, what one sees in it, SVG) of each picture of a ranking."""
    from oracle.show.plot import memory, pareto, parts, timeline

    shown = ranking.estimate if len(ranking.estimate) else ranking.misses
    if not len(shown):
        return
    few = shown.take(range(min(len(shown), 8)))
    yield ("What the time is made of", "Each bar is a plan, the first the best. Exchanges count "
           "with what no computation hides; the line is the 90 % interval.",
           both(lambda width: parts(few, width=width, key=False), "time"))  # fmt: skip
    yield ("Memory against the capacity", "Bytes of the fullest device at its worst moment, and "
           "how surely they fit.",
           both(lambda width: memory(few, width=width, key=False), "memory"))  # fmt: skip
    if not len(ranking.estimate):
        return
    if len(shown) > 3:
        rows = [shown.figures(at) for at in range(len(shown))]
        yield ("What there is to choose from", "Down and left is better; ringed plans are beaten "
               "by no other in time, memory and device-hours together.",
               both(lambda width: pareto(rows, width=width), "pareto"))  # fmt: skip
    if _boxes(shown) <= MOST_BOXES:
        yield ("The best plan in time", "One iteration, replayed from the prediction: what each "
               "stage computes, and below it what it sends.",
               both(lambda width: timeline(shown, 0, width=width), "timeline"))  # fmt: skip
        if held := _memory(shown):
            yield held
    if network := _network(shown):
        yield network


def _memory(shown: Estimate) -> tuple[str, str, Html] | None:
    """What is allocated when, under the best plan."""
    from oracle.show.plot import alive

    try:
        drawn = both(lambda width: alive(shown, 0, width=width, columns=FINE), "alive")
    except SpecError:  # what is not played: ideal assumptions, activations that leave
        return None
    return ("Its memory in time", "Bytes of the stage that needs most, by what they are of; the "
            "mark is the worst moment.", drawn)  # fmt: skip


def _boxes(shown: Estimate) -> float:
    """Passes of the first plan, forward and back."""
    found = trace(shown.work[0])
    return 2.0 * found.stages * found.chunks * found.micro_batches


def _network(shown: Estimate) -> tuple[str, str, Html] | None:
    """Where the best plan's dearest exchange runs."""
    from oracle.show.plot import dearest

    try:
        drawn = both(lambda width: dearest(shown, 0, width=width), "network")
    except SpecError:  # there is none, or none that can be drawn
        return None
    return ("Where its dearest exchange runs", "Links shaded by the part of the exchange's time "
            "that they work.", drawn)  # fmt: skip


def both(draw: Callable[[float], Any], name: str) -> Html:
    """A picture for a page and one for a phone, of which a screen shows the one that fits."""
    from oracle.show.plot import PHONE, WIDE

    return join([tag("div", inline(draw(width), f"{name}-{kind}"), class_=kind)
                 for kind, width in (("wide", WIDE), ("narrow", PHONE))])  # fmt: skip


def inline(figure: Any, name: str) -> Html:
    """A figure as an SVG element that can stand beside others in one page."""
    from oracle.show.plot.style import rendered

    text = rendered(figure, "svg", text=True).decode()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r"<title>.*?</title>", "", text, count=1, flags=re.DOTALL)
    text = re.sub(r'<style type="text/css">.*?</style>', "", text, flags=re.DOTALL)
    text = re.sub(r"<!--.*?-->\n?", "", text, flags=re.DOTALL)
    text = re.sub(r' id="(?!glyph)[\w.]+_\d+"', "", text)  # groups nobody refers to
    text = re.sub(r'( id="|url\(#|href="#)', rf"\1{name}-", text)
    text = re.sub("#[0-9a-f]{6}", _variable, text)
    text = re.sub(r'(?<= d=")[^"]*', _path, text)
    text = re.sub(r"(\d\.\d\d)\d+", r"\1", text)  # hundredths of a point
    text = re.sub(r"font-family: [^;\"]*;? ?", "", text)  # said once, below
    text = re.sub(r"stroke-(linejoin: (miter|round)|linecap: (butt|square|round));? ?", "", text)
    text = re.sub(r'style="[^"]*"', lambda found: re.sub("([;:,]) ", r"\1", found.group()), text)
    text = re.sub(r">\s+<", "><", text)
    text = re.sub(r' transform="rotate\(-0 [^"]*"', "", text)
    text = _bare(text).replace("<defs></defs>", "")
    alt = escape(plain(getattr(figure, "alt", "")), quote=True)
    head, _, rest = text.partition(">")
    head = re.sub(r' (width|height)="[^"]*"', "", head)
    return Html(f'{head} role="img" aria-label="{alt}" font-family="{FONTS}">{rest}')


def _bare(text: str) -> str:
    """SVG without groups that say nothing."""
    said: list[bool] = []

    def kept(found: re.Match[str]) -> str:
        if found.group() != "</g>":
            said.append(found.group() != "<g>")
            return found.group() if said[-1] else ""
        return "</g>" if said.pop() else ""

    return re.sub(r"<g(?: [^>]*[^/])?>|</g>", kept, text)


def _path(found: re.Match[str]) -> str:
    """A path to tenths of a point, lines along an axis by one number."""
    parts, at = [], ("", "")
    for letter, said in re.findall(r"([A-Za-z])([^A-Za-z]*)", found.group()):
        numbers = [f"{float(word):.1f}".removesuffix(".0") for word in said.split()]
        if letter == "L" and len(numbers) == 2 and at != ("", ""):
            x, y = numbers
            short = f"V{y}" if x == at[0] else f"H{x}" if y == at[1] else f"L{x} {y}"
            parts.append("" if (x, y) == at else short)
        else:
            parts.append(letter + " ".join(numbers))
        at = (numbers[-2], numbers[-1]) if len(numbers) > 1 else ("", "")
    return "".join(parts)


def _variable(found: re.Match[str]) -> str:
    """A colour of ours as the page's variable, so that it follows light and dark."""
    said = found.group()
    name = next((name for name, (light, _) in NAMES.items() if light == said), "")
    if name in GROUND:
        return f"var(--{name})"
    return "currentColor" if name == "ink" else f"var(--{name},{said})" if name else said


def shown_as(heading: str, words: str, picture: Html) -> Html:
    """A picture with its caption."""
    return tag("figure", picture, tag("figcaption", words), aria_label=heading)
