"""A recommendation as one HTML file: answer first, then pictures, tables, and what went in.

It opens offline and asks nobody for anything; the content policy allows the one script inside
and no other. Without scripts everything can still be read: they sort and copy, no more.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from oracle.show.page.look import SCRIPT, STYLE
from oracle.show.page.markup import Html, join, tag
from oracle.show.text import SUPERLATIVES, origins, parts, why_not
from oracle.spec.document import SpecError
from oracle.spec.units import show

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking

NUMBERS = ("time", "low", "high", "epoch", "memory", "best?", "samples/s", "sent", "exposed",
           "bytes", "calls", "group", "φ", "#", "share", "seconds")  # fmt: skip


def page(ranking: Ranking, command: str, inputs: Sequence[tuple[str, str]] = ()) -> str:
    """The whole file. `inputs` are (name, text) of the specs that went in."""
    from oracle.spec.version import __version__

    shown = ranking.estimate if len(ranking.estimate) else ranking.misses
    model, system = shown.model, shown.system
    head = f"{model.title or model.name} on {system.title or system.name}"
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = ("default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
              f"form-action 'none'; script-src 'sha256-{digest}'")  # fmt: skip
    data = json.dumps(ranking.to_dict(with_misses=True), allow_nan=False)
    body = [
        tag("main",
            tag("h1", head),
            tag("p", f"{ranking.devices:,} devices, {ranking.batch:,} samples an iteration, "
                f"{shown.options.precision}, {shown.options.optimizer_text}"
                + (", ideal assumptions" if shown.options.ideal else ""), class_="faint"),
            *(tag("p", f"{one['field']}: {one['what']}", class_="faint") for one in shown.warnings),
            answer(ranking) if len(ranking.estimate) else nothing(ranking),
            drawn(ranking),
            tables(ranking) if len(ranking.estimate) else None,
            asked(command, inputs)),
        tag("footer", tag("p", f"oracle {__version__}. Marks of origin: "
                          f"{origins(shown)}.", class_="faint")),
        Html('<script type="application/json" id="data">'
             + data.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
             + "</script>"),
        Html(f"<script>{SCRIPT}</script>"),
    ]  # fmt: skip
    return "<!DOCTYPE html>\n" + tag(
        "html",
        tag("head", tag("meta", charset="utf-8"),
            tag("meta", http_equiv="Content-Security-Policy", content=policy),
            tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
            tag("meta", name="referrer", content="no-referrer"),
            tag("title", head), Html(f"<style>{STYLE}</style>")),
        tag("body", *body), lang="en",
    )  # fmt: skip


def answer(ranking: Ranking) -> Html:
    """The first screen: the plan, how long, does it fit, how sure."""
    shown = ranking.estimate
    capacity = shown.capacity[0]
    free = capacity - shown.memory[0]
    likely = ranking.likely_best()
    total, light = float(shown.seconds[0]), float(shown.speed_of_light[0])
    biggest = sorted(parts(shown, 0).items(), key=lambda item: -item[1])[:3]
    bound = ", ".join(f"{name} {100 * s / total:.0f} %" for name, s in biggest if s > 0.005 * total)
    interval = f"{show(shown.seconds_low[0], 's')} to {show(shown.seconds_high[0], 's')} (90 %)"
    tiles = [
        tile(show(total, "s"), "an iteration", "" if shown.options.ideal else interval),
        _done(shown),
        tile(show(shown.memory[0], "B"), f"of {show(capacity, 'B')} a device",
             f"{show(free, 'B')} free"),
        tile(f"{likely[0]:.0%}", "likely the fastest of these",
             f"{ranking.fitting} of {ranking.tried} products of strategies fit"),
    ]  # fmt: skip
    superlative = SUPERLATIVES[ranking.objective].capitalize()
    return join([
        tag("p", f"{superlative} way to split it:"), tag("code", ranking.best.plan, class_="plan"),
        tag("div", *tiles, class_="tiles"), tag("p", f"Bound by {bound}. With every device at "
        f"its datasheet's peak an iteration would take {show(light, 's')}; {light / total:.0%} of "
        "that speed is reached."),
    ])  # fmt: skip


def _data(shown: Any) -> str:
    data = shown.model.dataset
    return f"{data.samples:,} samples of {data.title or data.name}"


def _done(shown: Any) -> Html | None:
    """An epoch of a data set, or of text a billion tokens."""
    found = shown.rates()
    if hours := found["device_hours_per_billion_tokens"]:
        took = show(hours * 3600 / float(shown.devices[0]), "s")
        return tile(took, "a billion tokens", _hours(hours))
    if shown.epoch is None:
        return None
    took = show(shown.epoch[0], "s")
    return tile(took, f"an epoch of {_data(shown)}", _hours(found["device_hours_per_epoch"]))


def _hours(hours: float) -> str:
    return f"{hours:,.0f} device-hours" if hours >= 100 else f"{hours:.3g} device-hours"


def tile(number: str, what: str, more: str = "") -> Html:
    return tag("div", tag("b", number), tag("span", what), tag("span", more) if more else None,
               class_="tile")  # fmt: skip


def nothing(ranking: Ranking) -> Html:
    """When no plan fits: what comes nearest, and by how much it misses."""
    rows = [
        tag("li", tag("code", plan), tag("ul", [tag("li", words) for words in broken]))
        for plan, broken in zip(ranking.misses.plans, ranking.misses.broken, strict=True)
    ]
    return join([
        tag("p", tag("strong", f"None of {ranking.tried} products of strategies fits.",
                     class_="warn"), " Nearest misses:"),
        tag("ul", rows),
        tag("p", "Try more devices, a smaller batch, or a narrower precision."),
    ])  # fmt: skip


def drawn(ranking: Ranking) -> Html:
    """The figures, or a line that says why there are none."""
    from oracle.show.page.pictures import figures, shown_as

    try:
        found = [join([tag("h2", heading), shown_as(heading, words, picture)])
                 for heading, words, picture in figures(ranking)]  # fmt: skip
    except SpecError as error:
        if "matplotlib" not in str(error):
            raise
        return tag("p", "Figures are left out: matplotlib is not installed "
                   "(pip install 'oracle-training[plot]').", class_="faint")  # fmt: skip
    return join(found)


def tables(ranking: Ranking) -> Html:
    """All plans, the exchanges and the memory of the best, and what does not fit."""
    shown, likely = ranking.estimate, ranking.likely_best()
    first = parts(shown, 0)
    rates = [float(b / s) for b, s in zip(shown.batch, shown.seconds, strict=True)]
    plans = table(
        ["#", "plan", "time", "low", "high", "samples/s", "memory", "best?", "why not"],
        [[row + 1, tag("code", plan), seconds(shown.seconds[row]), seconds(shown.seconds_low[row]),
          seconds(shown.seconds_high[row]),
          (rates[row], f"{rates[row]:,.4g}"),
          nbytes(shown.memory[row]), (float(likely[row]), f"{likely[row]:.0%}"),
          "" if row == 0 else why_not(first, parts(shown, row))]
         for row, plan in enumerate(shown.plans)],
    )  # fmt: skip
    messages = sorted(shown.exchange[0], key=lambda m: -m["exposed"])
    exchanges = table(
        ["exchange", "op", "algorithm", "group", "calls", "bytes", "sent", "exposed", "φ",
         "full links"],
        [[m["what"], m["op"], m["algorithm"], m["group"], (m["calls"], f"{m['calls']:.0f}"),
          nbytes(m["bytes"]), seconds(m["seconds"]), seconds(m["exposed"]),
          (m["phi"], f"{m['phi']:.3g}"), ", ".join(m["full"])] for m in messages],
    )  # fmt: skip
    total = float(shown.memory[0])
    memory = table(
        ["kind", "bytes", "share"],
        [[kind, nbytes(values[0]), (float(values[0]) / total, f"{values[0] / total:.0%}")]
         for kind, values in shown.memory_kinds.items() if values[0] > 0],
    )  # fmt: skip
    made = table(
        ["part", "seconds", "share"],
        [[name, seconds(s), (s / float(shown.seconds[0]), f"{s / float(shown.seconds[0]):.1%}")]
         for name, s in sorted(first.items(), key=lambda item: -item[1]) if s > 0],
    )  # fmt: skip
    misses = ranking.misses
    nearest = table(
        ["plan", "why it does not fit"],
        [[tag("code", plan), "; ".join(broken)]
         for plan, broken in zip(misses.plans, misses.broken, strict=True)],
    )  # fmt: skip
    return join([
        tag("h2", "Plans"), tag("p", tag("span", id="as-json")), plans,
        tag("h2", "The best plan, part by part"), made,
        [tag("h2", "Its exchanges"), exchanges] if messages else None,
        tag("h2", "Its memory"), memory,
        [tag("h2", "What does not fit"), nearest] if len(misses) else None,
    ])  # fmt: skip


def seconds(value: Any) -> tuple[float, str]:
    return float(value), show(float(value), "s")


def nbytes(value: Any) -> tuple[float, str]:
    return float(value), show(float(value), "B")


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Html:
    """A table that sorts by the numbers behind its words: a cell is text, markup, or both."""

    def cell(value: Any, head: str) -> Html:
        kind = "n" if head in NUMBERS else None
        if isinstance(value, tuple):
            return tag("td", value[1], class_=kind, data_v=repr(value[0]))
        return tag("td", value, class_=kind)

    return tag(
        "div",
        tag("table",
            tag("thead", tag("tr", [tag("th", head, class_="n" if head in NUMBERS else None,
                                        scope="col") for head in heads])),
            tag("tbody", [tag("tr", [cell(v, h) for v, h in zip(row, heads, strict=True)])
                          for row in rows])),
        class_="table" if len(heads) > 3 or "why it does not fit" in heads else "table small",
    )  # fmt: skip


def asked(command: str, inputs: Sequence[tuple[str, str]]) -> Html:
    """The command line and the specs, as they were."""
    return join([
        tag("h2", "What went in"), tag("p", "The command:"), tag("pre", command),
        [tag("details", tag("summary", name), tag("pre", text)) for name, text in inputs],
    ])  # fmt: skip


__all__ = ["page"]
