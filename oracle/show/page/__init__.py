"""A recommendation as one HTML file, laid out for a phone first.

The first line answers: which plan, how long a step takes, does it fit. Then how sure that is and
why, what to type next, the alternatives, pictures, where each number comes from, the sources.

It opens offline and asks nobody for anything; the content policy allows the one script inside
and no other. Without scripts everything can still be read: they sort and copy, no more.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import TYPE_CHECKING, Any

from oracle.kernels.provenance import MEASURED
from oracle.plan.grammar import read
from oracle.plan.names import short_names
from oracle.predict.memory import ASSUMED
from oracle.show.bibliography import cited
from oracle.show.page.look import SCRIPT, STYLE
from oracle.show.page.markup import Html, join, tag
from oracle.show.plan_words import software_in_words
from oracle.show.rates import sure
from oracle.show.text import SUPERLATIVES, options_of, origins, parts, why_not
from oracle.spec.document import Node, SpecError, load
from oracle.spec.units import number, show
from oracle.writers.export import formats, writer

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking
    from oracle.predict.estimate import Estimate

NUMBERS = ("time", "low", "high", "epoch", "memory", "fits", "best?", "samples/s", "sent",
           "exposed", "bytes", "calls", "group", "φ", "#", "share", "seconds")  # fmt: skip


def page(
    ranking: Ranking, command: str, inputs: Sequence[tuple[str, str]] = (), typed: Any = None
) -> str:
    """The whole file. `inputs` are (name, text) of the specs that went in.

    What was `typed` on a command line is asked again by the commands that it names.
    """
    from oracle.spec.version import __version__

    shown = ranking.estimate if len(ranking.estimate) else ranking.misses
    model, system = shown.model, shown.system
    head = f"{model.title or model.name} on {system.title or system.name}"
    first = headline(ranking) if len(ranking.estimate) else f"No plan fits: {head}"
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = ("default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
              f"form-action 'none'; script-src 'sha256-{digest}'")  # fmt: skip
    data = json.dumps(ranking.to_dict(with_misses=True), allow_nan=False, separators=(",", ":"))
    body = [
        tag("main",
            tag("h1", first),
            tag("p", f"{head}: {ranking.devices:,} devices, {ranking.batch:,} samples an "
                f"iteration, {shown.options.precision}, {shown.options.optimizer_text}"
                + (", ideal assumptions" if shown.options.ideal else
                   f", {software_in_words(shown.options.software)}"), class_="faint"),
            *(tag("p", f"{one['field']}: {one['what']}", class_="faint") for one in shown.warnings),
            [answer(ranking), certainty(ranking), following(ranking, typed), alternatives(ranking),
             drawn(ranking), tables(ranking)] if len(ranking.estimate) else
            [nothing(ranking), drawn(ranking)],
            sources(ranking, inputs),
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
            tag("title", first), Html(f"<style>{STYLE}</style>")),
        tag("body", *body), lang="en",
    )  # fmt: skip


def headline(ranking: Ranking) -> str:
    """The answer in one line: plan, devices, seconds and their interval, does it fit."""
    shown = ranking.estimate
    low, mid, high = (
        show(float(v[0]), "s") for v in (shown.seconds_low, shown.seconds, shown.seconds_high)
    )
    device = shown.system.device
    said = f"{short_names(shown.plans)[0]} on {ranking.devices:,} × {device.title or device.name}: "
    if shown.options.ideal:
        return f"{said}{mid} a step under ideal assumptions"
    return f"{said}{mid} a step ({low} to {high}), fits with {sure(float(shown.fits[0]))}"


def answer(ranking: Ranking) -> Html:
    """The plan in full, and its numbers: how long, does it fit, is it the best."""
    shown = ranking.estimate
    capacity = shown.capacity[0]
    free = capacity - shown.memory[0]
    likely = ranking.likely_best()
    interval = f"{show(shown.seconds_low[0], 's')} to {show(shown.seconds_high[0], 's')} (90 %)"
    room = f"{show(free, 'B')} free"
    tiles = [
        tile(show(float(shown.seconds[0]), "s"), "an iteration",
             "" if shown.options.ideal else interval),
        _done(shown),
        tile(show(shown.memory[0], "B"), f"of {show(capacity, 'B')} a device",
             room if shown.options.ideal else f"{room}, fits with {sure(float(shown.fits[0]))}"),
        tile(f"{likely[0]:.0%}", "likely the fastest of all",
             f"{ranking.fitting} of {ranking.tried} combinations of strategies fit"),
    ]  # fmt: skip
    superlative = SUPERLATIVES[ranking.objective].capitalize()
    return join([
        tag("p", f"{superlative} way to split it:"), tag("code", ranking.best.plan, class_="plan"),
        tag("div", *tiles, class_="tiles"),
    ])  # fmt: skip


def certainty(ranking: Ranking) -> Html:
    """How sure the answer is, what it rests on, and what bounds it."""
    shown = ranking.estimate
    total, light = float(shown.seconds[0]), float(shown.speed_of_light[0])
    biggest = sorted(parts(shown, 0).items(), key=lambda item: -item[1])[:3]
    bound = ", ".join(f"{name} {100 * s / total:.0f} %" for name, s in biggest if s > 0.005 * total)
    said = [f"Bound by {bound}. With every device at its datasheet's peak an iteration would take "
            f"{show(light, 's')}; {light / total:.0%} of that speed is reached.",
            f"It rests on: {origins(shown)}."]  # fmt: skip
    if ranking.tied:
        rival = short_names(shown.plans)[shown.plans.index(ranking.tied[1])]
        said.append(f"It cannot be told from {rival}, the next.")
    if ranking.measure:
        what, share = ranking.measure
        said.append(f"To know better, measure {what}: {share:.0%} of what is open between the "
                    "first two lies there.")  # fmt: skip
    return join([tag("h2", "How sure, and why"), [tag("p", words) for words in said]])


def following(ranking: Ranking, typed: Any = None) -> Html:
    """What to type next: to launch the plan, to see why."""
    shown = ranking.estimate
    names = (shown.model.name, shown.system.name) if typed is None else (typed.model, typed.system)
    same = [*names, "--plan", ranking.best.plan, "--batch", str(ranking.batch)]
    lines = [("Write what a batch system needs to launch it:",
              ["oracle", "export", *_launch(shown, same, options_of(typed, "export")), "-o",
               "job"]),
             ("See what bounds it, and what would change the ranking:",
              ["oracle", "explain", *same, *options_of(typed, "explain")])]  # fmt: skip
    return join([tag("h2", "Next"), [[tag("p", why), tag("pre", _typed(words))]
                                     for why, words in lines]])  # fmt: skip


def _typed(words: Sequence[str]) -> list[Html | str]:
    """A command line; a flag is not broken at its hyphens where a line ends."""
    found: list[Html | str] = []
    for word in words:
        found += [tag("span", quote(word), class_="flag") if word.startswith("-") else quote(word),
                  " "]  # fmt: skip
    return found[:-1]


def _launch(shown: Estimate, asked: Sequence[str], options: Sequence[str]) -> list[str]:
    """A whole job where it is known how the software starts, else what starts a script."""
    run = shown.options.software
    known = run.launch.writer in formats() and hasattr(writer(run.launch.writer), "start")
    if run.name == "plain" or not known:
        return ["slurm", *asked, *options]
    named = [] if "--software" in options else ["--software", run.name]
    return ["job", *asked, *named, *options]


def alternatives(ranking: Ranking) -> Html:
    """All plans beside the best, and why each is behind."""
    shown, likely = ranking.estimate, ranking.likely_best()
    first, names = parts(shown, 0), short_names(shown.plans)
    rates = [float(b / s) for b, s in zip(shown.batch, shown.seconds, strict=True)]
    rows = [
        [row + 1, tag("b", name), seconds(shown.seconds[row]), seconds(shown.seconds_low[row]),
         seconds(shown.seconds_high[row]), (rates[row], f"{rates[row]:,.4g}"),
         nbytes(shown.memory[row]),
         "" if shown.options.ideal else (float(shown.fits[row]), sure(float(shown.fits[row]))),
         (float(likely[row]), f"{likely[row]:.0%}"),
         "" if row == 0 else why_not(first, parts(shown, row))]
        for row, name in enumerate(names)
    ]  # fmt: skip
    heads = ["#", "plan", "time", "low", "high", "samples/s", "memory", "fits", "best?", "why not"]
    full = [[tag("dt", name), tag("dd", tag("code", plan))]
            for name, plan in zip(names, shown.plans, strict=True)]  # fmt: skip
    return join([
        tag("h2", "Alternatives"), tag("p", tag("span", id="as-json")), table(heads, rows),
        tag("details", tag("summary", "The plans in full"), tag("dl", full, class_="key")),
    ])  # fmt: skip


def sources(ranking: Ranking, inputs: Sequence[tuple[str, str]]) -> Html:
    """What the numbers and the equations rest on, in full."""
    found = []
    for name, text in inputs:
        try:
            said = dict.fromkeys(_said(load(text, name)))
        except SpecError:  # what cannot be read names nobody
            continue
        found += [[tag("dt", name), tag("dd", words)] for words in said]
    if len(ranking.estimate):
        for axis in read(ranking.best.plan):
            found += [[tag("dt", axis.name), tag("dd", words)] for words in cited(axis.source)]
    return join([tag("h2", "Sources"), tag("dl", found, class_="key")]) if found else Html("")


def _said(spec: Node) -> Iterator[str]:
    """Every `source:` of a spec, from the top down."""
    for key, inner in spec.entries.items():
        if key == "source" and inner.kind == "scalar":
            yield inner.text.strip()
        else:
            yield from _said(inner)
    for inner in spec.items:
        yield from _said(inner)


def _data(shown: Any) -> str:
    data = shown.model.dataset
    return f"{data.samples:,} samples of {data.title or data.name}"


def _done(shown: Any) -> Html | None:
    """An epoch of a data set, or of text a billion tokens."""
    found = shown.rates()
    if hours := found["device_hours_per_billion_tokens"]:
        took = show(hours * 3600 / float(shown.devices[0]), "s")
        return tile(took, "a billion tokens", f"{number(hours)} device-hours")
    if shown.epoch is None:
        return None
    took = show(shown.epoch[0], "s")
    return tile(
        took,
        f"an epoch of {_data(shown)}",
        f"{number(found['device_hours_per_epoch'])} device-hours",
    )


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
        tag("p", tag("strong", f"None of {ranking.tried} combinations of strategies fits.",
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
    """Where each number of the best plan comes from, and what does not fit."""
    shown = ranking.estimate
    total, held = float(shown.seconds[0]), float(shown.memory[0])
    known = {**shown.origin[0], "bubble": shown.origin[0]["backward"],
             "recompute": shown.origin[0]["forward"]}  # fmt: skip
    made = table(
        ["part", "seconds", "share", "from"],
        [[name, seconds(values[0]), (float(values[0]) / total, f"{values[0] / total:.1%}"),
          origin(known[name])] for name, values in shown.compute.items() if values[0] > 0],
    )  # fmt: skip
    messages = sorted(shown.exchange[0], key=lambda m: -m["exposed"])
    exchanges = table(
        ["exchange", "op", "algorithm", "group", "calls", "bytes", "sent", "exposed", "φ",
         "full links", "from"],
        [[m["what"], m["op"], m["algorithm"], m["group"], (m["calls"], f"{m['calls']:.0f}"),
          nbytes(m["bytes"]), seconds(m["seconds"]), seconds(m["exposed"]),
          (m["phi"], f"{m['phi']:.3g}"), ", ".join(m["full"]), origin(m)] for m in messages],
    )  # fmt: skip
    memory = table(
        ["kind", "bytes", "share", "from"],
        [[kind, nbytes(values[0]), (float(values[0]) / held, f"{values[0] / held:.0%}"),
          "assumed" if kind in ASSUMED else "counted"]
         for kind, values in shown.memory_kinds.items() if values[0] > 0],
    )  # fmt: skip
    misses = ranking.misses
    nearest = table(
        ["plan", "why it does not fit"],
        [[tag("code", plan), "; ".join(broken)]
         for plan, broken in zip(misses.plans, misses.broken, strict=True)],
    )  # fmt: skip
    return join([
        tag("h2", "Where each number comes from"),
        tag("p", "Measured or fitted to measurements, of a datasheet, assumed, or counted from "
            "shapes. Computation:", class_="faint"),
        made, [tag("p", "Exchanges:", class_="faint"), exchanges] if messages else None,
        tag("p", "Memory:", class_="faint"), memory,
        [tag("h2", "What does not fit"), nearest] if len(misses) else None,
    ])  # fmt: skip


def origin(found: Mapping[str, Any]) -> str:
    """Where a number comes from, and whether it lies beyond what was measured."""
    beyond = found["outside"] and found["origin"] in MEASURED
    return f"{found['origin']}{', beyond what was measured' if beyond else ''}"


def seconds(value: Any) -> tuple[float, str]:
    return float(value), show(float(value), "s")


def nbytes(value: Any) -> tuple[float, str]:
    return float(value), show(float(value), "B")


def table(heads: Sequence[str], rows: Sequence[Sequence[Any]]) -> Html:
    """A table that sorts by the numbers behind its words: a cell is text, markup, or both."""

    def cell(value: Any, head: str) -> Html:
        kind = "n" if head in NUMBERS else None
        if isinstance(value, tuple):
            return tag("td", value[1], class_=kind, data_v=repr(value[0]), data_head=head)
        return tag("td", value, class_=kind, data_head=head)

    return tag(
        "div",
        tag("table",
            tag("thead", tag("tr", [tag("th", head, class_="n" if head in NUMBERS else None,
                                        scope="col") for head in heads])),
            tag("tbody", [tag("tr", [cell(v, h) for v, h in zip(row, heads, strict=True)])
                          for row in rows])),
        class_="table cards" if len(heads) > 4 else
        "table" if "why it does not fit" in heads else "table small",
    )  # fmt: skip


def asked(command: str, inputs: Sequence[tuple[str, str]]) -> Html:
    """The command line and the specs, as they were."""
    return join([
        tag("h2", "What went in"), tag("p", "The command:"), tag("pre", command),
        [tag("details", tag("summary", name), tag("pre", text)) for name, text in inputs],
    ])  # fmt: skip


__all__ = ["page"]
