"""Explain a strategy, an error code, or what bounds a plan and what would change its place.

oracle explain filter
oracle explain E102
oracle explain resnet50 abci --devices 64 --batch 4096              the plan that is recommended
oracle explain --plan "data:16 filter:4" resnet50 abci --batch 1024
oracle explain --plan data:16 resnet50 abci --batch 512 --roofline
oracle explain --plan data:16 resnet50 abci --batch 512 --memory
oracle explain --plan data:8 alexnet dgx-1-p100 --batch 2048 --workspace 64MiB,micro=best
"""

from __future__ import annotations

import argparse
from typing import Any

from oracle.commands.arguments import (
    batch_arguments,
    batch_of,
    placement_arguments,
    prediction_arguments,
    prediction_options,
    result_arguments,
    running,
    running_arguments,
    what_if_argument,
    whole_number,
)
from oracle.commands.parser import Answer, Usage, formatted
from oracle.commands.recommend import choice_arguments, ranked


def arguments(parser: argparse.ArgumentParser) -> None:
    prediction_arguments(parser)
    placement_arguments(parser)
    what_if_argument(parser)
    parser.add_argument("--plan", metavar="PLAN", help='e.g. "data:16 filter:4"')
    parser.add_argument("--devices", type=whole_number, metavar="N",
                        help="in place of a plan: the plan recommended for so many")  # fmt: skip
    parser.add_argument("--rank", type=whole_number, default=1, metavar="K",
                        help="of the plans that are recommended, the K-th")  # fmt: skip
    parser.add_argument("--full", action="store_true",
                        help="everything that is known of the plan, in sections")  # fmt: skip
    choice_arguments(parser)
    parser.add_argument("--roofline", action="store_true",
                        help="FLOP against bytes of memory, network and storage")  # fmt: skip
    parser.add_argument(
        "--memory",
        action="store_true",
        help="what is alive when most memory is needed, and what would lower it",
    )
    batch_arguments(parser)
    running_arguments(parser)
    result_arguments(parser)
    for action in parser._actions:  # here the option alone is enough to see what is taken
        if action.dest == "workspace":
            action.nargs, action.const = "?", ""
            action.help = f"what convolutions take, layer by layer; {action.help}"
    for action in parser._actions:  # a word is enough where no plan is asked for
        if action.dest in ("model", "system"):
            action.nargs, action.required = "?", False
            if action.dest == "model":
                action.metavar = "STRATEGY|CODE|MODEL"
                action.help = "what to explain; with --plan, a shipped model or a file"
    for group in parser._mutually_exclusive_groups:
        group.required = False


def run(args: argparse.Namespace) -> Answer:
    if args.memory and args.roofline:
        return Answer("", 2, "error: `--memory` and `--roofline` are two answers: ask for one")
    if args.plan is None and args.devices is None:
        return _lacking(args) if args.system or args.memory or args.roofline else _words(args)
    if not args.system or (args.batch is None and args.batch_per_device is None):
        return Answer("", 2, "error: a plan is explained for a MODEL, a SYSTEM and a --batch")
    if args.plan is None:
        args.plan = _recommended(args)
    from oracle.ask.explain.explanation import explain
    from oracle.ask.placing import on_nodes
    from oracle.models.model import model
    from oracle.predict.defaults import options_for, room_for
    from oracle.show.explanation import explanation_text
    from oracle.spec.catalogue import system

    net, on_system = model(args.model, args.dataset), system(args.system)
    keywords = prediction_options(args)
    keywords.pop("dataset")
    keywords["workspace"] = keywords["workspace"] or None
    on_system = on_nodes(on_system, args.nodes)
    on_system = running(args, room_for(on_system, [args.plan], keywords.pop("grow")))
    if args.profile is not None:
        from oracle.calibration.run_profile import opened

        keywords["profile"] = opened(
            args.profile, net, on_system, args.precision, args.optimizer, args.software
        )
    options = options_for(net, on_system, **keywords)
    batch = batch_of(args, args.plan)
    if args.workspace is not None and args.form != "json":  # the text shows workspaces alone
        return _workspaces(args, net, on_system, batch, options)
    explanation = explain(net, on_system, args.plan, batch, options, args.place or "block")
    code = 0 if explanation.own.shown.feasible[0] else 1
    from oracle.show.provenance import signed

    if args.memory:
        from oracle.ask.explain.memory import peak
        from oracle.show.memory import memory_text

        peak_memory = peak(explanation.own.shown)
        return formatted(
            args,
            lambda: memory_text(explanation.own.shown, peak_memory),
            lambda: {**signed(explanation.to_dict(), args), "memory": peak_memory.to_dict()},
            peak_memory.rows,
            code,
        )
    if args.workspace is not None:
        from oracle.ask.explain.workspaces import workspaces

        data = {**signed(explanation.to_dict(), args),
                "workspaces": workspaces(explanation.own.shown).to_dict()}  # fmt: skip
        return formatted(args, lambda: "", lambda: data, list, code)
    if args.roofline:
        from oracle.ask.explain.roofline import roofline
        from oracle.show.roofline import roofline_text

        roofed = roofline(explanation.own.shown)
        return formatted(
            args,
            lambda: roofline_text(explanation.own.shown, roofed),
            lambda: {**signed(explanation.to_dict(), args), "roofline": roofed.to_dict()},
            roofed.rows,
            code,
        )
    return formatted(
        args, lambda: explanation_text(explanation, args.full, _next(args)),
        lambda: signed(explanation.to_dict(), args), explanation.rows, code,
    )  # fmt: skip


def _next(args: argparse.Namespace) -> str:
    """Return the command that answers the same question in full."""
    from oracle.show.layout import command, grouped

    words = [word for word in args.words if word not in ("-v", "--verbose")]
    return command([("oracle explain",), *grouped([*words, "--full"])])


def _lacking(args: argparse.Namespace) -> Answer:
    return Answer("", 2, "error: nothing to explain\n  hint: --plan PLAN, or --devices N for the "
                  "plan that is recommended, of a MODEL and SYSTEM")  # fmt: skip


def _recommended(args: argparse.Namespace) -> str:
    """Return the plan that `oracle recommend` lists at `--rank` for the same question."""
    args.top = max(args.rank, 5)
    ranking = ranked(args)
    if len(ranking) < args.rank:
        fit = f"{len(ranking)} plans are listed" if len(ranking) else "no plan fits"
        raise Usage(f"there is no plan {args.rank} to explain: {fit}")
    return str(ranking.estimate.plans[args.rank - 1])


def _workspaces(
    args: argparse.Namespace, net: Any, on_system: Any, batch: int, options: Any
) -> Answer:
    """Return the workspaces of convolutions, without the rest of an explanation."""
    from oracle.ask.explain.workspaces import workspaces
    from oracle.predict.estimate import estimate
    from oracle.show.workspaces import workspaces_text

    predicted = estimate(net, on_system, args.plan, batch, options)
    workspace_rows = workspaces(predicted)
    return formatted(
        args, lambda: workspaces_text(predicted, workspace_rows), dict, workspace_rows.rows,
        0 if predicted.feasible[0] else 1,
    )  # fmt: skip


def _words(args: argparse.Namespace) -> Answer:
    from oracle.plan.strategies import strategies
    from oracle.show import manual
    from oracle.spec.document import CODES

    if not args.model:
        codes = [{"code": code, "means": meaning} for code, meaning in CODES.items()]
        data = {"strategies": [manual.strategy(name) for name in strategies()], "codes": codes}
        return formatted(args, manual.overview, lambda: data, lambda: codes)
    name = manual.subject(args.model)
    if name in CODES:
        row = {"code": name, "means": CODES[name]}
        return formatted(args, lambda: manual.code_text(name), lambda: row, lambda: [row])
    return formatted(
        args, lambda: manual.strategy_text(name), lambda: manual.strategy(name),
        lambda: manual.strategy(name)["knobs"],
    )  # fmt: skip
