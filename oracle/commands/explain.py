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
    whole,
)
from oracle.commands.parser import Answer, Usage, formatted
from oracle.commands.recommend import choice_arguments, ranked


def arguments(parser: argparse.ArgumentParser) -> None:
    prediction_arguments(parser)
    placement_arguments(parser)
    what_if_argument(parser)
    parser.add_argument("--plan", metavar="PLAN", help='e.g. "data:16 filter:4"')
    parser.add_argument("--devices", type=whole, metavar="N",
                        help="in place of a plan: what is recommended for so many")  # fmt: skip
    parser.add_argument("--rank", type=whole, default=1, metavar="K",
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


def run(asked: argparse.Namespace) -> Answer:
    if asked.memory and asked.roofline:
        return Answer("", 2, "error: `--memory` and `--roofline` are two answers: ask for one")
    if asked.plan is None and asked.devices is None:
        return _lacking(asked) if asked.system or asked.memory or asked.roofline else _words(asked)
    if not asked.system or (asked.batch is None and asked.batch_per_device is None):
        return Answer("", 2, "error: a plan is explained for a MODEL, a SYSTEM and a --batch")
    if asked.plan is None:
        asked.plan = _recommended(asked)
    from oracle.ask.explain.explanation import explain
    from oracle.ask.placing import on_nodes
    from oracle.models.model import model
    from oracle.predict.defaults import options_for, room_for
    from oracle.show.explanation import explanation_text
    from oracle.spec.catalogue import system

    what, where = model(asked.model, asked.dataset), system(asked.system)
    kept = prediction_options(asked)
    kept.pop("dataset")
    kept["workspace"] = kept["workspace"] or None
    where = on_nodes(where, asked.nodes)
    where = running(asked, room_for(where, [asked.plan], kept.pop("grow")))
    if asked.profile is not None:
        from oracle.calibration.run_profile import opened

        kept["profile"] = opened(
            asked.profile, what, where, asked.precision, asked.optimizer, asked.software
        )
    options = options_for(what, where, **kept)
    batch = batch_of(asked, asked.plan)
    if asked.workspace is not None and asked.form != "json":  # what else there is, nobody asks
        return _workspaces(asked, what, where, batch, options)
    found = explain(what, where, asked.plan, batch, options, asked.place or "block")
    code = 0 if found.own.shown.feasible[0] else 1
    from oracle.show.provenance import signed

    if asked.memory:
        from oracle.ask.explain.memory import peak
        from oracle.show.memory import memory_text

        most = peak(found.own.shown)
        return formatted(
            asked,
            lambda: memory_text(found.own.shown, most),
            lambda: {**signed(found.to_dict(), asked), "memory": most.to_dict()},
            most.rows,
            code,
        )
    if asked.workspace is not None:
        from oracle.ask.explain.workspaces import workspaces

        data = {**signed(found.to_dict(), asked),
                "workspaces": workspaces(found.own.shown).to_dict()}  # fmt: skip
        return formatted(asked, lambda: "", lambda: data, list, code)
    if asked.roofline:
        from oracle.ask.explain.roofline import roofline
        from oracle.show.roofline import roofline_text

        roofed = roofline(found.own.shown)
        return formatted(
            asked,
            lambda: roofline_text(found.own.shown, roofed),
            lambda: {**signed(found.to_dict(), asked), "roofline": roofed.to_dict()},
            roofed.rows,
            code,
        )
    return formatted(
        asked,
        lambda: explanation_text(found, asked.full, _next(asked)),
        lambda: signed(found.to_dict(), asked),
        found.rows,
        code,
    )


def _next(asked: argparse.Namespace) -> str:
    """The same question again, answered in full."""
    from oracle.show.first_screen import command, grouped

    words = [word for word in asked.words if word not in ("-v", "--verbose")]
    return command([("oracle explain",), *grouped([*words, "--full"])])


def _lacking(asked: argparse.Namespace) -> Answer:
    return Answer("", 2, "error: nothing to explain\n  hint: --plan PLAN, or --devices N for the "
                  "plan that is recommended, of a MODEL and SYSTEM")  # fmt: skip


def _recommended(asked: argparse.Namespace) -> str:
    """The plan that `oracle recommend` lists at this rank for the same question."""
    asked.top = max(asked.rank, 5)
    ranking = ranked(asked)
    if len(ranking) < asked.rank:
        fit = f"{len(ranking)} plans are listed" if len(ranking) else "no plan fits"
        raise Usage(f"there is no plan {asked.rank} to explain: {fit}")
    return str(ranking.estimate.plans[asked.rank - 1])


def _workspaces(
    asked: argparse.Namespace, what: Any, where: Any, batch: int, options: Any
) -> Answer:
    """What convolutions take, without a look at what would be better."""
    from oracle.ask.explain.workspaces import workspaces
    from oracle.predict.estimate import estimate
    from oracle.show.workspaces import workspaces_text

    shown = estimate(what, where, asked.plan, batch, options)
    taken = workspaces(shown)
    return formatted(
        asked, lambda: workspaces_text(shown, taken), dict, taken.rows,
        0 if shown.feasible[0] else 1,
    )  # fmt: skip


def _words(asked: argparse.Namespace) -> Answer:
    from oracle.plan.strategies import strategies
    from oracle.show import manual
    from oracle.spec.document import CODES

    if not asked.model:
        every = [{"code": code, "means": what} for code, what in CODES.items()]
        data = {"strategies": [manual.strategy(name) for name in strategies()], "codes": every}
        return formatted(asked, manual.overview, lambda: data, lambda: every)
    name = manual.subject(asked.model)
    if name in CODES:
        one = {"code": name, "means": CODES[name]}
        return formatted(asked, lambda: manual.code_text(name), lambda: one, lambda: [one])
    return formatted(
        asked, lambda: manual.strategy_text(name), lambda: manual.strategy(name),
        lambda: manual.strategy(name)["knobs"],
    )  # fmt: skip
