"""Figures: `oracle plot KIND … -o FILE.svg|png|pdf`.

oracle plot breakdown  resnet50 abci --devices 16..1024 --batch-per-device 32 --each data,filter -o b.svg
oracle plot scaling    resnet50 abci --devices 1..1024 --batch-per-device 32 --each data,pipeline -o s.svg
oracle plot scaling    --rows runs/gpt3/result.csv -o s.svg
oracle plot parts      gpt3-175b dgx-a100 --devices 1024 --batch 1536 -o w.svg
oracle plot memory     gpt3-175b dgx-a100 --devices 1024 --batch 1536 -o m.svg
oracle plot memory     gpt3-175b dgx-a100 --plan "pipeline:8,segments=16 tensor:8" --batch 16 --over-time -o t.svg
oracle plot pareto     gpt3-175b dgx-a100 --devices 256..1024 --batch 1536 -o p.svg
oracle plot pareto     llama3-8b dgx-h100 --devices 64..512 --batch 512 --against money -o p.svg
oracle plot measured   compared.csv -o a.svg          columns: predicted, measured [, group, label]
oracle plot timeline   gpt3-175b dgx-a100 --plan "pipeline:8,segments=16 tensor:8" --batch 16 -o t.svg
oracle plot roofline   resnet50 abci --plan data:16 --batch 512 -o l.svg
oracle plot network    resnet50 abci --plan "data:16 filter:4" --batch 1024 -o n.svg
oracle plot waits      resnet50 v100-slow-node --plan data:128 --batch 8192 -o u.svg
oracle plot workflow   resnet50 abci --nodes 1..1024 --search ensemble --trials 8 -o h.svg
oracle plot design-network --devices 1024 --ports 36 --for resnet50,gpt3-175b -o d.svg
oracle plot contention abci --plan "data:16 filter:4" --axes data --width 390 -o c.svg
oracle plot contention abci --devices 64 --pattern 16x4 --op allreduce --algorithm ring -o c.svg
"""  # noqa: E501  (lines to copy and paste)

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Sequence
from typing import Any

from oracle.commands import design_network, workflow
from oracle.commands.arguments import (
    batch_arguments,
    batch_of,
    grow_argument,
    names,
    prediction_arguments,
    prediction_options,
    specs,
    whole,
)
from oracle.commands.lacking import lacks, need_room
from oracle.commands.parser import Answer
from oracle.commands.sweep import grid, question
from oracle.spec.document import refusal

Rows = list[dict[str, Any]]


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True,
                                   help="of figure")  # fmt: skip

    def kind(name: str, what: str) -> argparse.ArgumentParser:
        one = kinds.add_parser(name, help=what, description=what, allow_abbrev=False)
        one.add_argument("-o", "--output", required=True, metavar="FILE", help=".svg, .png or .pdf")
        one.add_argument("--title", default="", metavar="T", help="of the figure")
        one.add_argument("--width", type=pixels, default=1200, metavar="PX",
                         help="of the figure, in pixels of a screen; 390 for a phone")  # fmt: skip
        return one

    for name, what in (("breakdown", "computation and communication, bar by bar"),
                       ("scaling", "time and throughput over devices, with intervals"),
                       ("pareto", "time, memory and device-hours of every plan")):  # fmt: skip
        one = kind(name, what)
        one.add_argument("--rows", metavar="FILE", help="of a sweep, instead of MODEL and SYSTEM")
        question(one)
        _optional(one)
        if name == "breakdown":
            one.add_argument("--measured", metavar="FILE", help="CSV: strategy, devices, "
                             "computation, communication in seconds")  # fmt: skip
            one.add_argument("--free", action="store_true", help="an axis for each strategy")
        if name == "pareto":
            one.add_argument("--top", type=whole, default=40, metavar="K", help="plans a size")
            one.add_argument("--against", choices=["memory", "money"], default="memory",
                             metavar="A", help="memory, or money")  # fmt: skip
    for name, what in (("parts", "what the time of each plan is made of"),
                       ("memory", "bytes by kind against the capacity")):  # fmt: skip
        one = kind(name, what)
        prediction_arguments(one)
        batch_arguments(one)
        one.add_argument("--devices", type=whole, metavar="N", help="the best plans on N devices")
        one.add_argument("--plan", action="append", default=[], metavar="PLAN",
                         help="to draw; may be given several times")  # fmt: skip
        one.add_argument("--top", type=whole, default=8, metavar="K", help="plans to draw")
        if name == "memory":
            one.add_argument("--over-time", action="store_true",
                             help="of one plan, over an iteration")  # fmt: skip
    one = kind("measured", "predicted against measured")
    one.add_argument("file", metavar="FILE", help="CSV or JSON rows: predicted, measured, …")
    for name, what in (
        ("timeline", "what each stage does when"),
        ("roofline", "layers and step under compute, memory, network, storage"),
        ("network", "links under the dearest exchange of a plan"),
        ("waits", "how long each partition of unlike devices is busy, and how long it waits"),
    ):
        one = kind(name, what)
        prediction_arguments(one)
        one.add_argument("--plan", required=True, metavar="PLAN", help="to draw")
        one.add_argument("--batch", type=whole, required=True, metavar="B",
                         help="samples per iteration, all devices")  # fmt: skip
    one = kind("workflow", "speed-up on more and more nodes: as a product, and honest")
    workflow.question(one)
    one = kind("design-network", "networks that could be bought: time, switches, cables")
    design_network.question(one)
    one = kind("contention", "the network, and how full each link gets")
    one.add_argument("system", metavar="SYSTEM", help="a shipped system, or a file")
    one.add_argument("--plan", metavar="PLAN", help="whose groups talk")
    one.add_argument("--axes", type=names, default=[], metavar="A,B", help="of the plan")
    one.add_argument("--devices", type=whole, metavar="N", help="in use")
    one.add_argument("--pattern", type=pattern, metavar="SIZExSTRIDE,…", help="outermost first")
    one.add_argument("--op", default="allreduce", metavar="OP", help="what the groups do")
    one.add_argument("--algorithm", metavar="A", help="by which algorithm")
    grow_argument(one)
    one.add_argument("--bytes", default="64 MB", metavar="M", help="of one message")


def _optional(parser: argparse.ArgumentParser) -> None:
    """MODEL, SYSTEM and sizes need not be said where rows are read."""
    for action in parser._actions:
        if action.dest in ("model", "system"):
            action.nargs, action.required = "?", False
        elif action.dest == "devices":
            action.required = False
    for group in parser._mutually_exclusive_groups:
        group.required = False


def pixels(text: str) -> int:
    """A figure's width: as small as a phone, as large as a poster."""
    found = whole(text)
    if not 320 <= found <= 4000:
        raise argparse.ArgumentTypeError(f"{found} pixels: from 320 to 4,000")
    return found


def pattern(text: str) -> tuple[tuple[int, int], ...]:
    """`16x4,2x1`: sixteen members four apart, each with its neighbour."""
    if not re.fullmatch(r"\d{1,7}x\d{1,7}(,\d{1,7}x\d{1,7})*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"`{text}` is not SIZExSTRIDE,…, e.g. 16x4")
    pairs = [tuple(map(int, word.split("x"))) for word in text.split(",")]
    return tuple((size, stride) for size, stride in pairs)


def run(asked: argparse.Namespace) -> Answer:
    from oracle.show.plot import SUFFIXES, save

    if asked.output.rpartition(".")[2].lower() not in SUFFIXES:
        raise refusal("plot", f"`{asked.output}` does not say what kind of picture",
                       "end the name in .svg, .png or .pdf")  # fmt: skip
    figure = figure_of(asked)
    place = save(figure, asked.output)
    return Answer("", 0, "\n".join([*asked.left_out, f"{place}: {figure.alt}"]))


def figure_of(asked: argparse.Namespace, rows: Rows | None = None) -> Any:
    """The figure that is asked for; `asked.left_out` says what it does not show.

    `rows`: what `rows_of` found, perhaps size by size, of a kind that is drawn from rows.
    """
    said = bool(getattr(asked, "precision", None) and getattr(asked, "system", None))
    asked.left_out = lacks(asked, specs(asked.system)) if said else []
    if asked.kind in FROM_ROWS:
        return FROM_ROWS[asked.kind](asked, rows_of(asked) if rows is None else rows)
    return DRAW[asked.kind](asked)


def rows_of(asked: argparse.Namespace) -> Rows:
    """What a kind of figure that is drawn from rows has to draw; each size has its own."""
    from oracle.ask.sweep import sweep
    from oracle.show.plot.rows import read_rows

    if asked.rows:
        return read_rows(asked.rows)
    _need_sizes(asked)
    return _spent(asked) if asked.kind == "pareto" else sweep(grid(asked), asked.out,
                                                              jobs=asked.jobs).rows  # fmt: skip


def _possible(asked: argparse.Namespace, rows: Rows) -> None:
    """Say what is left out of a picture of swept rows; refuse where that is all."""
    if asked.rows:
        return
    reasons = dict.fromkeys(row["why"] for row in rows if row["status"] == "impossible")
    if reasons and all(row["status"] == "impossible" for row in rows):
        raise refusal("plot", f"nothing to draw: {next(iter(reasons))}")
    asked.left_out += [f"left out: {why}" for why in reasons]


def _need_sizes(asked: argparse.Namespace) -> None:
    """What a sweep is over must be said where no rows are read."""
    sized = asked.devices and (asked.batch or asked.batch_per_device)
    if not (asked.model and asked.system and sized):
        hint = "MODEL SYSTEM --devices … --batch …, or --rows FILE"
        raise refusal("plot", "nothing to draw", hint)


def _breakdown(asked: argparse.Namespace, rows: Rows) -> Any:
    from oracle.show.plot import bar, breakdown
    from oracle.show.plot.rows import SWEPT, columns, read_bars

    _possible(asked, rows)
    if rows and "way" in rows[0]:
        columns(rows, SWEPT, asked.rows or "the sweep")
        rows = [bar(row) for row in rows]
    else:
        columns(rows, ("group", "devices", "computation", "communication"), str(asked.rows))
    measured = read_bars(asked.measured) if asked.measured else []
    shown = {(row["group"], row["devices"]) for row in rows}
    measured = [row for row in measured if (row["group"], row["devices"]) in shown]
    return breakdown(rows, measured, asked.title or titled(asked), asked.free, asked.width)


def _scaling(asked: argparse.Namespace, rows: Rows) -> Any:
    from oracle.show.plot import scaling
    from oracle.show.plot.rows import SWEPT, columns

    _possible(asked, rows)
    columns(rows, SWEPT, asked.rows or "the sweep")
    return scaling(rows, asked.title or titled(asked), asked.width)


def titled(asked: argparse.Namespace) -> str:
    """What a figure is of, in words."""
    if asked.kind in ("timeline", "roofline", "network", "waits"):
        return _of_plan(asked, asked.plan)
    if asked.kind in ("parts", "memory"):
        return f"{asked.model} on {asked.system}"
    if asked.rows:
        return ""
    size = f"{asked.batch} samples" if asked.batch else f"{asked.batch_per_device} samples a device"
    model, system_ = (text.replace(",", ", ") for text in (asked.model, asked.system))
    return f"{model} on {system_}, {size}"


def _of_plan(asked: argparse.Namespace, plan: str) -> str:
    """A plan's short name, the model, the system: the figure's key has the plan in full."""
    from oracle.plan.names import short_names

    return f"{short_names([plan])[0]}: {asked.model} on {asked.system}"


def _pareto(asked: argparse.Namespace, rows: Rows) -> Any:
    from oracle.show.plot import pareto, spending
    from oracle.show.plot.rows import columns

    if asked.rows:
        if asked.against == "money":
            raise refusal("plot", "rows of a sweep say no price", "MODEL SYSTEM --devices …")
        columns(rows, ("plan", "devices", "seconds", "memory", "capacity"), asked.rows)
    draw = {"memory": pareto, "money": spending}[asked.against]
    return draw(rows, asked.title or titled(asked), width=asked.width)


def _spent(asked: argparse.Namespace) -> Rows:
    """Time, memory and money of the plans of each size."""
    from oracle import api
    from oracle.ask.spending import spent

    for flag, value in (("--each", asked.each), ("--plan", asked.plan),
                        ("--what-if", asked.what_if)):  # fmt: skip
        if value:
            what = f"`pareto` draws every plan of a system and takes no `{flag}`"
            raise refusal("plot", what, "`--only` and `--without`; or `oracle plot scaling`")
    found: Rows = []
    for point in grid(asked).points():
        ranking = api.recommend(
            point.model, point.system, point.devices, point.batch, top=asked.top, only=asked.only,
            without=asked.without, objective=asked.objective, **prediction_options(asked),
        )  # fmt: skip
        found += spent(ranking)
    return found


def _plans(asked: argparse.Namespace) -> Any:
    from oracle import api
    from oracle.show import plot

    options = prediction_options(asked)
    if asked.plan:
        need_room(asked, asked.plan)
        batch = asked.batch or [batch_of(asked, plan) for plan in asked.plan]
        shown = api.estimate(asked.model, asked.system, asked.plan, batch, **options)
    elif asked.devices:
        ranking = api.recommend(
            asked.model,
            asked.system,
            asked.devices,
            asked.batch,
            batch_per_device=asked.batch_per_device,
            top=asked.top,
            **options,
        )
        shown = ranking.estimate if len(ranking) else ranking.misses
    else:
        raise refusal("plot", "no plan to draw", "--devices N or --plan PLAN")
    if getattr(asked, "over_time", False):
        if asked.plan and len(asked.plan) > 1:
            raise refusal("plot", "memory over time is of one plan", "one --plan PLAN")
        if not len(shown):
            raise refusal("plot", "no plan to draw", "--plan PLAN")
        title = asked.title or _of_plan(asked, shown.plans[0])
        return plot.alive(shown, 0, title, asked.width)
    draw = {"parts": plot.parts, "memory": plot.memory}[asked.kind]
    return draw(shown, asked.title or titled(asked), asked.width)


def _measured(asked: argparse.Namespace) -> Any:
    from oracle.show.plot import measured
    from oracle.show.plot.rows import columns, read_rows

    rows = read_rows(asked.file)
    columns(rows, ("predicted", "measured"), asked.file)
    return measured(rows, asked.title, width=min(asked.width, 760))


def _plan(asked: argparse.Namespace) -> Any:
    from oracle import api
    from oracle.show import plot

    need_room(asked, [asked.plan])
    shown = api.estimate(
        asked.model, asked.system, [asked.plan], asked.batch, **prediction_options(asked)
    )
    draw = {"timeline": plot.timeline, "roofline": plot.roofline, "network": plot.dearest,
            "waits": plot.waits}[asked.kind]  # fmt: skip
    return draw(shown, 0, asked.title or titled(asked), asked.width)


def _workflow(asked: argparse.Namespace) -> Any:
    from oracle.ask.combined import combined
    from oracle.show import plot

    trials, nodes = workflow.opened_by(asked)
    rows = combined(trials, nodes).rows()
    return plot.combined(rows, asked.title or f"{asked.model} on {asked.system}", asked.width)


def _designs(asked: argparse.Namespace) -> Any:
    from oracle.show import plot

    found = design_network.designed(asked)
    devices = found.wanted.nodes * found.wanted.devices
    return plot.designs(found.rows(), asked.title or f"{asked.models} on {devices:,} devices, "
                        f"switches of {asked.ports} ports", asked.width)  # fmt: skip


def _contention(asked: argparse.Namespace) -> Any:
    from oracle.show.plot import contention
    from oracle.spec.catalogue import system
    from oracle.spec.units import parse as quantity

    where = system(asked.system)
    try:
        nbytes = quantity(asked.bytes, "B")
    except ValueError as error:
        raise refusal("plot", str(error), "e.g. --bytes '64 MB'") from None
    what, devices = asked.pattern, asked.devices
    if asked.plan and not asked.axes:
        raise refusal("plot", f"what `{asked.plan}` sends depends on the model",
                      "`oracle plot network MODEL SYSTEM --plan PLAN`, or --axes A")  # fmt: skip
    if asked.plan:
        what, devices = groups_of(asked.plan, asked.axes)
    elif what is None or devices is None:
        raise refusal(
            "plot", "no groups to draw", "--plan PLAN [--axes A], or --devices N --pattern 16x4"
        )
    where = where.of_size(devices, asked.grow)
    try:
        return contention(where, what, devices, asked.op, asked.algorithm, nbytes, asked.title,
                          asked.width)  # fmt: skip
    except ValueError as error:
        raise refusal("plot", str(error)) from None


def groups_of(plan: str, axes: Sequence[str]) -> tuple[tuple[tuple[int, int], ...], int]:
    """The groups along some axes of a plan: the outermost that is split, if none is named."""
    from oracle.plan.mesh import Groups
    from oracle.plan.plan import parse

    table = parse(plan, 1.0)
    split = [axis.name for axis in table.axes if axis.multiplies and axis.degree[0, 0] > 1]
    wanted = tuple(axes) or tuple(split[:1])
    unknown = [name for name in wanted if name not in split]
    if unknown or not wanted:
        raise refusal(
            "plot",
            f"`{plan}` does not split {', '.join(unknown) or 'anything'}",
            f"--axes {','.join(split)}" if split else "a plan with a degree above 1",
        )
    return Groups(table)(wanted).patterns[0]


FROM_ROWS: dict[str, Callable[[argparse.Namespace, Rows], Any]] = {
    "breakdown": _breakdown, "scaling": _scaling, "pareto": _pareto,
}  # fmt: skip
DRAW: dict[str, Callable[[argparse.Namespace], Any]] = {
    "parts": _plans, "memory": _plans, "measured": _measured, "timeline": _plan, "roofline": _plan,
    "network": _plan, "waits": _plan, "workflow": _workflow, "design-network": _designs,
    "contention": _contention,
}  # fmt: skip
