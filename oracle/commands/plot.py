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
    whole_number,
)
from oracle.commands.lacking import lacks, need_room
from oracle.commands.parser import Answer
from oracle.commands.sweep import grid, question
from oracle.spec.document import refusal

Rows = list[dict[str, Any]]


def arguments(parser: argparse.ArgumentParser) -> None:
    kinds = parser.add_subparsers(dest="kind", metavar="KIND", required=True,
                                   help="of figure")  # fmt: skip

    def kind(name: str, description: str) -> argparse.ArgumentParser:
        figure = kinds.add_parser(
            name, help=description, description=description, allow_abbrev=False
        )
        figure.add_argument(
            "-o", "--output", required=True, metavar="FILE", help=".svg, .png or .pdf"
        )
        figure.add_argument("--title", default="", metavar="T", help="of the figure")
        figure.add_argument("--width", type=pixels, default=1200, metavar="PX",
                         help="of the figure, in pixels of a screen; 390 for a phone")  # fmt: skip
        return figure

    for name, description in (("breakdown", "computation and communication, bar by bar"),
                       ("scaling", "time and throughput over devices, with intervals"),
                       ("pareto", "time, memory and device-hours of every plan")):  # fmt: skip
        figure = kind(name, description)
        figure.add_argument(
            "--rows", metavar="FILE", help="of a sweep, instead of MODEL and SYSTEM"
        )
        question(figure)
        _optional(figure)
        if name == "breakdown":
            figure.add_argument("--measured", metavar="FILE", help="CSV: strategy, devices, "
                                "computation, communication in seconds")  # fmt: skip
            figure.add_argument("--free", action="store_true", help="an axis for each strategy")
        if name == "pareto":
            figure.add_argument(
                "--top", type=whole_number, default=40, metavar="K", help="plans a size"
            )
            figure.add_argument("--against", choices=["memory", "money"], default="memory",
                                metavar="A", help="memory, or money")  # fmt: skip
    for name, description in (("parts", "what the time of each plan is made of"),
                       ("memory", "bytes by kind against the capacity")):  # fmt: skip
        figure = kind(name, description)
        prediction_arguments(figure)
        batch_arguments(figure)
        figure.add_argument("--devices", type=whole_number, metavar="N",
                            help="the best plans on N devices")  # fmt: skip
        figure.add_argument("--plan", action="append", default=[], metavar="PLAN",
                            help="to draw; may be given several times")  # fmt: skip
        figure.add_argument("--top", type=whole_number, default=8, metavar="K",
                            help="plans to draw")  # fmt: skip
        if name == "memory":
            figure.add_argument("--over-time", action="store_true",
                                help="of one plan, over an iteration")  # fmt: skip
    figure = kind("measured", "predicted against measured")
    figure.add_argument("file", metavar="FILE", help="CSV or JSON rows: predicted, measured, …")
    for name, description in (
        ("timeline", "what each stage does when"),
        ("roofline", "layers and step under compute, memory, network, storage"),
        ("network", "links under the dearest exchange of a plan"),
        ("waits", "how long each partition of unlike devices is busy, and how long it waits"),
    ):
        figure = kind(name, description)
        prediction_arguments(figure)
        figure.add_argument("--plan", required=True, metavar="PLAN", help="to draw")
        figure.add_argument("--batch", type=whole_number, required=True, metavar="B",
                            help="samples per iteration, all devices")  # fmt: skip
    figure = kind("workflow", "speed-up on more and more nodes: as a product, and honest")
    workflow.question(figure)
    figure = kind("design-network", "networks that could be bought: time, switches, cables")
    design_network.question(figure)
    figure = kind("contention", "the network, and how full each link gets")
    figure.add_argument("system", metavar="SYSTEM", help="a shipped system, or a file")
    figure.add_argument("--plan", metavar="PLAN", help="whose groups talk")
    figure.add_argument("--axes", type=names, default=[], metavar="A,B", help="of the plan")
    figure.add_argument("--devices", type=whole_number, metavar="N", help="in use")
    figure.add_argument("--pattern", type=pattern, metavar="SIZExSTRIDE,…", help="outermost first")
    figure.add_argument("--op", default="allreduce", metavar="OP", help="what the groups do")
    figure.add_argument("--algorithm", metavar="A", help="by which algorithm")
    grow_argument(figure)
    figure.add_argument("--bytes", default="64 MB", metavar="M", help="of one message")


def _optional(parser: argparse.ArgumentParser) -> None:
    """Make MODEL, SYSTEM and sizes optional, for a figure that may be drawn from rows."""
    for action in parser._actions:
        if action.dest in ("model", "system"):
            action.nargs, action.required = "?", False
        elif action.dest == "devices":
            action.required = False
    for group in parser._mutually_exclusive_groups:
        group.required = False


def pixels(text: str) -> int:
    """Return a figure's width, from a phone's to a poster's."""
    width = whole_number(text)
    if not 320 <= width <= 4000:
        raise argparse.ArgumentTypeError(f"{width} pixels: from 320 to 4,000")
    return width


def pattern(text: str) -> tuple[tuple[int, int], ...]:
    """Return the sizes and strides of `16x4,2x1`: sixteen members four apart, then pairs."""
    if not re.fullmatch(r"\d{1,7}x\d{1,7}(,\d{1,7}x\d{1,7})*", text, re.ASCII):
        raise argparse.ArgumentTypeError(f"`{text}` is not SIZExSTRIDE,…, e.g. 16x4")
    pairs = [tuple(map(int, word.split("x"))) for word in text.split(",")]
    return tuple((size, stride) for size, stride in pairs)


def run(args: argparse.Namespace) -> Answer:
    from oracle.show.plot import SUFFIXES, save

    if args.output.rpartition(".")[2].lower() not in SUFFIXES:
        raise refusal("plot", f"`{args.output}` does not say what kind of picture",
                      "end the name in .svg, .png or .pdf")  # fmt: skip
    figure = figure_of(args)
    return Answer("", 0, "\n".join([*args.left_out, f"{save(figure, args.output)}: {figure.alt}"]))


def figure_of(args: argparse.Namespace, rows: Rows | None = None) -> Any:
    """Return the figure that is asked for; `args.left_out` says what it does not show.

    `rows` are those of `rows_of`, perhaps size by size, for a kind that is drawn from rows.
    """
    has_precision = bool(getattr(args, "precision", None) and getattr(args, "system", None))
    args.left_out = lacks(args, specs(args.system)) if has_precision else []
    if args.kind in FROM_ROWS:
        return FROM_ROWS[args.kind](args, rows_of(args) if rows is None else rows)
    return DRAW[args.kind](args)


def rows_of(args: argparse.Namespace) -> Rows:
    """Return the rows that a figure draws: of a file, or of a sweep over sizes."""
    from oracle.ask.sweep import sweep
    from oracle.show.plot.rows import read_rows

    if args.rows:
        return read_rows(args.rows)
    _need_sizes(args)
    return _spent(args) if args.kind == "pareto" else sweep(grid(args), args.out,
                                                            jobs=args.jobs).rows  # fmt: skip


def _possible(args: argparse.Namespace, rows: Rows) -> None:
    """Note the rows that a figure leaves out as impossible; refuse where all rows are."""
    if args.rows:
        return
    reasons = dict.fromkeys(row["why"] for row in rows if row["status"] == "impossible")
    if reasons and all(row["status"] == "impossible" for row in rows):
        raise refusal("plot", f"nothing to draw: {next(iter(reasons))}")
    args.left_out += [f"left out: {why}" for why in reasons]


def _need_sizes(args: argparse.Namespace) -> None:
    """Refuse a figure without rows, or a model, a system and sizes to sweep."""
    sized = args.devices and (args.batch or args.batch_per_device)
    if not (args.model and args.system and sized):
        raise refusal("plot", "nothing to draw",
                      "MODEL SYSTEM --devices … --batch …, or --rows FILE")  # fmt: skip


def _breakdown(args: argparse.Namespace, rows: Rows) -> Any:
    from oracle.show.plot import bar, breakdown
    from oracle.show.plot.rows import SWEPT, columns, read_bars

    _possible(args, rows)
    if rows and "way" in rows[0]:
        columns(rows, SWEPT, args.rows or "the sweep")
        rows = [bar(row) for row in rows]
    else:
        columns(rows, ("group", "devices", "computation", "communication"), str(args.rows))
    measured = read_bars(args.measured) if args.measured else []
    drawn = {(row["group"], row["devices"]) for row in rows}
    measured = [row for row in measured if (row["group"], row["devices"]) in drawn]
    return breakdown(rows, measured, args.title or titled(args), args.free, args.width)


def _scaling(args: argparse.Namespace, rows: Rows) -> Any:
    from oracle.show.plot import scaling
    from oracle.show.plot.rows import SWEPT, columns

    _possible(args, rows)
    columns(rows, SWEPT, args.rows or "the sweep")
    return scaling(rows, args.title or titled(args), args.width)


def titled(args: argparse.Namespace) -> str:
    """Return the title of a figure: what it is of, in words."""
    if args.kind in ("timeline", "roofline", "network", "waits"):
        return _of_plan(args, args.plan)
    if args.kind in ("parts", "memory"):
        return f"{args.model} on {args.system}"
    if args.rows:
        return ""
    size = f"{args.batch} samples" if args.batch else f"{args.batch_per_device} samples a device"
    model, system_ = (text.replace(",", ", ") for text in (args.model, args.system))
    return f"{model} on {system_}, {size}"


def _of_plan(args: argparse.Namespace, plan: str) -> str:
    """Return a title of a plan's short name, model and system; the key has the plan in full."""
    from oracle.plan.names import short_names

    return f"{short_names([plan])[0]}: {args.model} on {args.system}"


def _pareto(args: argparse.Namespace, rows: Rows) -> Any:
    from oracle.show.plot import pareto, spending
    from oracle.show.plot.rows import columns

    if args.rows:
        if args.against == "money":
            raise refusal("plot", "rows of a sweep say no price", "MODEL SYSTEM --devices …")
        columns(rows, ("plan", "devices", "seconds", "memory", "capacity"), args.rows)
    draw = {"memory": pareto, "money": spending}[args.against]
    return draw(rows, args.title or titled(args), width=args.width)


def _spent(args: argparse.Namespace) -> Rows:
    """Return rows with time, memory and money of the plans of each size."""
    from oracle import api
    from oracle.ask.spending import spent

    for flag, value in (("--each", args.each), ("--plan", args.plan),
                        ("--what-if", args.what_if)):  # fmt: skip
        if value:
            complaint = f"`pareto` draws every plan of a system and takes no `{flag}`"
            raise refusal("plot", complaint, "`--only` and `--without`; or `oracle plot scaling`")
    rows: Rows = []
    for point in grid(args).points():
        ranking = api.recommend(
            point.model, point.system, point.devices, point.batch, top=args.top, only=args.only,
            without=args.without, objective=args.objective, **prediction_options(args),
        )  # fmt: skip
        rows += spent(ranking)
    return rows


def _plans(args: argparse.Namespace) -> Any:
    from oracle import api
    from oracle.show import plot

    options = prediction_options(args)
    if args.plan:
        need_room(args, args.plan)
        batch = args.batch or [batch_of(args, plan) for plan in args.plan]
        estimate = api.estimate(args.model, args.system, args.plan, batch, **options)
    elif args.devices:
        ranking = api.recommend(
            args.model, args.system, args.devices, args.batch,
            batch_per_device=args.batch_per_device, top=args.top, **options,
        )  # fmt: skip
        estimate = ranking.estimate if len(ranking) else ranking.misses
    else:
        raise refusal("plot", "no plan to draw", "--devices N or --plan PLAN")
    if getattr(args, "over_time", False):
        if args.plan and len(args.plan) > 1:
            raise refusal("plot", "memory over time is of one plan", "one --plan PLAN")
        if not len(estimate):
            raise refusal("plot", "no plan to draw", "--plan PLAN")
        title = args.title or _of_plan(args, estimate.plans[0])
        return plot.alive(estimate, 0, title, args.width)
    draw = {"parts": plot.parts, "memory": plot.memory}[args.kind]
    return draw(estimate, args.title or titled(args), args.width)


def _measured(args: argparse.Namespace) -> Any:
    from oracle.show.plot import measured
    from oracle.show.plot.rows import columns, read_rows

    rows = read_rows(args.file)
    columns(rows, ("predicted", "measured"), args.file)
    return measured(rows, args.title, width=min(args.width, 760))


def _plan(args: argparse.Namespace) -> Any:
    from oracle import api
    from oracle.show import plot

    need_room(args, [args.plan])
    estimate = api.estimate(
        args.model, args.system, [args.plan], args.batch, **prediction_options(args)
    )
    draw = {"timeline": plot.timeline, "roofline": plot.roofline, "network": plot.dearest,
            "waits": plot.waits}[args.kind]  # fmt: skip
    return draw(estimate, 0, args.title or titled(args), args.width)


def _workflow(args: argparse.Namespace) -> Any:
    from oracle.ask.combined import combined
    from oracle.show import plot

    trials, nodes = workflow.opened_by(args)
    title = args.title or f"{args.model} on {args.system}"
    return plot.combined(combined(trials, nodes).rows(), title, args.width)


def _designs(args: argparse.Namespace) -> Any:
    from oracle.show import plot

    designs = design_network.designed(args)
    devices = designs.wanted.nodes * designs.wanted.devices
    return plot.designs(designs.rows(), args.title or f"{args.models} on {devices:,} devices, "
                        f"switches of {args.ports} ports", args.width)  # fmt: skip


def _contention(args: argparse.Namespace) -> Any:
    from oracle.show.plot import contention
    from oracle.spec.catalogue import system
    from oracle.spec.units import parse as quantity

    on_system = system(args.system)
    try:
        nbytes = quantity(args.bytes, "B")
    except ValueError as error:
        raise refusal("plot", str(error), "e.g. --bytes '64 MB'") from None
    groups, devices = args.pattern, args.devices
    if args.plan and not args.axes:
        raise refusal("plot", f"what `{args.plan}` sends depends on the model",
                      "`oracle plot network MODEL SYSTEM --plan PLAN`, or --axes A")  # fmt: skip
    if args.plan:
        groups, devices = groups_of(args.plan, args.axes)
    elif groups is None or devices is None:
        hint = "--plan PLAN [--axes A], or --devices N --pattern 16x4"
        raise refusal("plot", "no groups to draw", hint)
    on_system = on_system.of_size(devices, args.grow)
    try:
        return contention(on_system, groups, devices, args.op, args.algorithm, nbytes, args.title,
                          args.width)  # fmt: skip
    except ValueError as error:
        raise refusal("plot", str(error)) from None


def groups_of(plan: str, axes: Sequence[str]) -> tuple[tuple[tuple[int, int], ...], int]:
    """Return the groups along some axes of a plan, by default the outermost that is split."""
    from oracle.plan.mesh import Groups
    from oracle.plan.plan import parse

    table = parse(plan, 1.0)
    split = [axis.name for axis in table.axes if axis.multiplies and axis.degree[0, 0] > 1]
    axis_names = tuple(axes) or tuple(split[:1])
    unknown = [name for name in axis_names if name not in split]
    if unknown or not axis_names:
        hint = f"--axes {','.join(split)}" if split else "a plan with a degree above 1"
        complaint = f"`{plan}` does not split {', '.join(unknown) or 'anything'}"
        raise refusal("plot", complaint, hint)
    return Groups(table)(axis_names).patterns[0]


FROM_ROWS: dict[str, Callable[[argparse.Namespace, Rows], Any]] = {
    "breakdown": _breakdown, "scaling": _scaling, "pareto": _pareto,
}  # fmt: skip
DRAW: dict[str, Callable[[argparse.Namespace], Any]] = {
    "parts": _plans, "memory": _plans, "measured": _measured, "timeline": _plan, "roofline": _plan,
    "network": _plan, "waits": _plan, "workflow": _workflow, "design-network": _designs,
    "contention": _contention,
}  # fmt: skip
