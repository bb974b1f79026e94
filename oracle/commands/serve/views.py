"""What can be seen of a question: each view is one command line, and the same in Python."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from oracle.commands.parser import parser_of
from oracle.commands.serve.question import Question, called, read

DRAWN = 8  # plans of a picture of several
PICTURE = ("svg", "png")
IMPORT = "import oracle"


@dataclass(frozen=True)
class Found:
    """What a search told that pictures are of: the plans, best first, and how far sizes go."""

    plans: Sequence[str]
    most: int  # devices of the system
    width: str = ""  # of a picture, in pixels, where it is not the usual


@dataclass(frozen=True)
class View:
    """A way to look: its command, and the forms in which it can be had."""

    title: str
    told: str  # what one sees there
    words: Callable[[Question, Found], list[str]]
    forms: tuple[str, ...] = PICTURE
    searches: bool = False  # anew, so that it takes seconds
    sized: bool = False  # over several numbers of devices, each a search
    needs: bool = True  # plans that a search found


def _ranking(asked: Question, found: Found) -> list[str]:
    return asked.words("recommend")


def _again(asked: Question, found: Found) -> list[str]:
    return asked.of_plans().words("estimate", *_plans(found.plans))


def _report(asked: Question, found: Found) -> list[str]:
    return asked.words("report", "-o", "report.html")


def _plans(plans: Sequence[str]) -> list[str]:
    return [word for plan in plans for word in ("--plan", plan)]


def _drawn(kind: str, plans: int) -> Callable[[Question, Found], list[str]]:
    """A figure of the first plans, so that nothing is searched again."""

    def words(asked: Question, found: Found) -> list[str]:
        shown = _plans(found.plans[:plans])
        whole = asked.of_plans()
        return whole.words(f"plot {kind}", *shown, *_wide(found), "-o", f"{kind}.svg",
                           without=("devices", "top"))  # fmt: skip

    return words


def _sizes(kind: str, fewer: int, more: int, *also: str) -> Callable[[Question, Found], list[str]]:
    """A figure over so many halvings and doublings of the devices."""

    def words(asked: Question, found: Found) -> list[str]:
        count = int(asked["devices"])
        sizes = [count // 2**k for k in range(fewer, 0, -1) if count % 2**k == 0]
        sizes += [count * 2**k for k in range(more + 1) if count * 2**k <= max(found.most, count)]
        said = ["--devices", ",".join(map(str, sizes)), *also, *_wide(found), "-o", f"{kind}.svg"]
        return asked.words(f"plot {kind}", *said, without=("devices", "top"))

    return words


def _wide(found: Found) -> list[str]:
    return ["--width", found.width] if found.width else []


def each_size(words: Sequence[str]) -> list[list[str]]:
    """The command line of a sized view for each of its numbers of devices, at any width."""
    at = words.index("--devices") + 1
    rest = list(words)
    if "--width" in rest:
        del rest[rest.index("--width") : rest.index("--width") + 2]
    return [[*rest[:at], size, *rest[at + 1 :]] for size in words[at].split(",")]


VIEWS = {
    "ranking": View("Ranking", "Plans that fit, best first, with 90 % intervals.", _ranking,
                    ("json", "csv", "md"), searches=True, needs=False),
    "again": View("Ranking", "The same plans, priced again.", _again, ("json", "csv")),
    "breakdown": View("Breakdown", "What an iteration of each plan is made of.",
                      _drawn("parts", DRAWN)),
    "memory": View("Memory", "Bytes of the fullest device by kind, against its capacity.",
                   _drawn("memory", DRAWN)),
    "timeline": View("Timeline", "One iteration of the plan, stage by stage.",
                     _drawn("timeline", 1)),
    "network": View("Network", "Links, shaded by how long the dearest exchange works them.",
                    _drawn("network", 1)),
    "scaling": View("Scaling", "Time and throughput of the best plan on fewer and more devices.",
                    _sizes("scaling", 3, 2), searches=True, sized=True, needs=False),
    "pareto": View("Time and money", "Every plan on fewer and more devices; ringed ones are "
                   "beaten by no other in both.",
                   _sizes("pareto", 1, 1, "--top", "12", "--against", "money"),
                   searches=True, sized=True, needs=False),
    "report": View("Report", "All of it as one file that opens anywhere.", _report, ("html",),
                   searches=True, needs=False),
}  # fmt: skip


def python(name: str, words: Sequence[str]) -> str:
    """What a view's command does, as Python to copy."""
    from oracle import api

    verb, *rest = words
    asked = read(parser_of(verb), rest)
    if name in ("ranking", "report"):
        from oracle.commands.recommend import keywords

        told = called(api.recommend, keywords(asked), ("model", "system"))
        if name == "ranking":
            return f"{IMPORT}\n\nranking = {told}\nprint(ranking.table())"
        head = f"from pathlib import Path\n\n{IMPORT}\nfrom oracle.show.page import page"
        last = 'Path("report.html").write_text(page(ranking, ""), encoding="utf-8")'
        return f"{head}\n\nranking = {told}\n{last}"
    if name in ("scaling", "pareto"):
        return _swept(name, asked)
    estimated = f"found = {_estimated(asked)}"
    if name == "again":
        return f"{IMPORT}\n\n{estimated}\nprint(found.table())"
    from oracle.commands.plot import titled

    draw = {"breakdown": "parts", "network": "dearest"}.get(name, name)
    return (f"{IMPORT}\nfrom oracle.show.plot import {draw}, save\n\n{estimated}\n"
            f"save({draw}(found, title={titled(asked)!r}{_pixels(asked)}), "
            f"\"{asked.output}\")")  # fmt: skip


def _pixels(asked: argparse.Namespace) -> str:
    """The width of a figure as an argument, where it is not the usual."""
    from oracle.show.plot import WIDE

    return "" if asked.width == WIDE else f", width={asked.width}"


def _estimated(asked: argparse.Namespace) -> str:
    from oracle import api
    from oracle.commands.arguments import batch_of, prediction_options

    plans = asked.plan if isinstance(asked.plan, list) else [asked.plan]
    batch = asked.batch or [batch_of(asked, plan) for plan in plans]
    said = {"model": asked.model, "system": asked.system,
            "plan": plans if len(plans) > 1 else plans[0], "batch": batch,
            **prediction_options(asked)}  # fmt: skip
    return called(api.estimate, said, ("model", "system", "plan"))


class Devices:
    """A name in the Python that is shown."""

    def __repr__(self) -> str:
        return "devices"


def _swept(name: str, asked: argparse.Namespace) -> str:
    from oracle import api
    from oracle.ask.sweep import numbers
    from oracle.commands.arguments import prediction_options
    from oracle.commands.plot import titled
    from oracle.commands.sweep import grid

    title = titled(asked)
    if name == "scaling":
        asked_for = grid(asked)
        said = [f"{one.name}={value!r}" for one in fields(asked_for)
                if (value := getattr(asked_for, one.name)) != one.default]  # fmt: skip
        return (f"from oracle.ask.sweep import Grid, sweep\n"
                f"from oracle.show.plot import save, scaling\n\ngrid = Grid({', '.join(said)})\n"
                f"save(scaling(sweep(grid).rows, {title!r}{_pixels(asked)}), "
                f"\"{asked.output}\")")  # fmt: skip
    batch = None if asked.batch is None else int(asked.batch)
    each = None if asked.batch_per_device is None else float(asked.batch_per_device)
    keywords = {"model": asked.model, "system": asked.system, "devices": Devices(),
                "batch": batch, "batch_per_device": each, "top": asked.top, "only": asked.only,
                "without": asked.without, "objective": asked.objective,
                **prediction_options(asked)}  # fmt: skip
    told = called(api.recommend, keywords, ("model", "system", "devices"))
    return (f"{IMPORT}\nfrom oracle.ask.spending import spent\n"
            f"from oracle.show.plot import save, spending\n\nrows = []\n"
            f"for devices in {numbers(asked.devices)!r}:\n    rows += spent({told})\n"
            f"save(spending(rows, {title!r}{_pixels(asked)}), \"{asked.output}\")")  # fmt: skip
