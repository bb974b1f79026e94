"""The views of a question: each is one command line, and the same in Python."""

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
class ViewPlans:
    """The plans that a search found, best first, and the limits of a picture of them."""

    plans: Sequence[str]
    largest: int  # devices of the system
    width: str = ""  # of a picture, in pixels, where it is not the usual


@dataclass(frozen=True)
class View:
    """One view of a question: its command, and the forms that it comes in."""

    title: str
    caption: str  # what the view shows
    words: Callable[[Question, ViewPlans], list[str]]
    forms: tuple[str, ...] = PICTURE
    searches: bool = False  # anew, so that it takes seconds
    sized: bool = False  # over several numbers of devices, each a search
    needs: bool = True  # plans that a search found


def _ranking(question: Question, plans: ViewPlans) -> list[str]:
    return question.words("recommend")


def _priced_again(question: Question, plans: ViewPlans) -> list[str]:
    return question.of_plans().words("estimate", *_plans(plans.plans))


def _report(question: Question, plans: ViewPlans) -> list[str]:
    return question.words("report", "-o", "report.html")


def _plans(plans: Sequence[str]) -> list[str]:
    return [word for plan in plans for word in ("--plan", plan)]


def _drawn(kind: str, count: int) -> Callable[[Question, ViewPlans], list[str]]:
    """Return the command of a figure of the first plans, which needs no second search."""

    def words(question: Question, searched: ViewPlans) -> list[str]:
        flags = _plans(searched.plans[:count])
        of_plans = question.of_plans()
        return of_plans.words(f"plot {kind}", *flags, *_wide(searched), "-o", f"{kind}.svg",
                              without=("devices", "top"))  # fmt: skip

    return words


def _sizes(
    kind: str, fewer: int, more: int, *also: str
) -> Callable[[Question, ViewPlans], list[str]]:
    """Return the command of a figure over halvings and doublings of the devices."""

    def words(question: Question, searched: ViewPlans) -> list[str]:
        count = int(question["devices"])
        sizes = [count // 2**k for k in range(fewer, 0, -1) if count % 2**k == 0]
        sizes += [
            count * 2**k for k in range(more + 1) if count * 2**k <= max(searched.largest, count)
        ]
        options = [
            "--devices", ",".join(map(str, sizes)), *also, *_wide(searched), "-o", f"{kind}.svg",
        ]  # fmt: skip
        return question.words(f"plot {kind}", *options, without=("devices", "top"))

    return words


def _wide(plans: ViewPlans) -> list[str]:
    return ["--width", plans.width] if plans.width else []


def each_size(words: Sequence[str]) -> list[list[str]]:
    """Return the command line of a sized view for each number of devices, at any width."""
    place = words.index("--devices") + 1
    rest = list(words)
    if "--width" in rest:
        del rest[rest.index("--width") : rest.index("--width") + 2]
    return [[*rest[:place], size, *rest[place + 1 :]] for size in words[place].split(",")]


VIEWS = {
    "ranking": View("Ranking", "Plans that fit, best first, with 90 % intervals.", _ranking,
                    ("json", "csv", "md"), searches=True, needs=False),
    "again": View("Ranking", "The same plans, priced again.", _priced_again, ("json", "csv")),
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
    """Return Python code that does the same as a view's command."""
    from oracle import api

    verb, *rest = words
    args = read(parser_of(verb), rest)
    if name in ("ranking", "report"):
        from oracle.commands.recommend import keywords

        call = called(api.recommend, keywords(args), ("model", "system"))
        if name == "ranking":
            return f"{IMPORT}\n\nranking = {call}\nprint(ranking.table())"
        head = f"from pathlib import Path\n\n{IMPORT}\nfrom oracle.show.page import page"
        last = 'Path("report.html").write_text(page(ranking, ""), encoding="utf-8")'
        return f"{head}\n\nranking = {call}\n{last}"
    if name in ("scaling", "pareto"):
        return _swept(name, args)
    estimated = f"found = {_estimated(args)}"
    if name == "again":
        return f"{IMPORT}\n\n{estimated}\nprint(found.table())"
    from oracle.commands.plot import titled

    draw = {"breakdown": "parts", "network": "dearest"}.get(name, name)
    return (f"{IMPORT}\nfrom oracle.show.plot import {draw}, save\n\n{estimated}\n"
            f"save({draw}(found, title={titled(args)!r}{_pixels(args)}), "
            f"\"{args.output}\")")  # fmt: skip


def _pixels(args: argparse.Namespace) -> str:
    """Return the width of a figure as an argument, unless it is the usual one."""
    from oracle.show.plot import WIDE

    return "" if args.width == WIDE else f", width={args.width}"


def _estimated(args: argparse.Namespace) -> str:
    from oracle import api
    from oracle.commands.arguments import batch_of, prediction_options

    plans = args.plan if isinstance(args.plan, list) else [args.plan]
    batch = args.batch or [batch_of(args, plan) for plan in plans]
    keywords = {"model": args.model, "system": args.system,
                "plan": plans if len(plans) > 1 else plans[0], "batch": batch,
                **prediction_options(args)}  # fmt: skip
    return called(api.estimate, keywords, ("model", "system", "plan"))


class Devices:
    """The variable `devices` in the Python code."""

    def __repr__(self) -> str:
        return "devices"


def _swept(name: str, args: argparse.Namespace) -> str:
    from oracle import api
    from oracle.ask.sweep import numbers
    from oracle.commands.arguments import prediction_options
    from oracle.commands.plot import titled
    from oracle.commands.sweep import grid

    title = titled(args)
    if name == "scaling":
        points = grid(args)
        grid_fields = [f"{field.name}={value!r}" for field in fields(points)
                       if (value := getattr(points, field.name)) != field.default]  # fmt: skip
        return (
            f"from oracle.ask.sweep import Grid, sweep\n"
            f"from oracle.show.plot import save, scaling\n\ngrid = Grid({', '.join(grid_fields)})\n"
            f"save(scaling(sweep(grid).rows, {title!r}{_pixels(args)}), "
            f'"{args.output}")'
        )
    batch = None if args.batch is None else int(args.batch)
    per_device = None if args.batch_per_device is None else float(args.batch_per_device)
    keywords = {"model": args.model, "system": args.system, "devices": Devices(),
                "batch": batch, "batch_per_device": per_device, "top": args.top, "only": args.only,
                "without": args.without, "objective": args.objective,
                **prediction_options(args)}  # fmt: skip
    call = called(api.recommend, keywords, ("model", "system", "devices"))
    return (f"{IMPORT}\nfrom oracle.ask.spending import spent\n"
            f"from oracle.show.plot import save, spending\n\nrows = []\n"
            f"for devices in {numbers(args.devices)!r}:\n    rows += spent({call})\n"
            f"save(spending(rows, {title!r}{_pixels(args)}), \"{args.output}\")")  # fmt: skip
