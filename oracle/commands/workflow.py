"""Many trainings on N nodes, a search, an ensemble or transfer: how many at once, how large each.

oracle workflow resnet50 abci --nodes 128 --trials 272 --epochs 90 --max-batch 4096
oracle workflow resnet50 abci --nodes 128 --search genetic --trials 272 --epochs 90 --max-batch 4096
oracle workflow resnet50 abci --nodes 64 --search halving,regroup=true --trials 256 --to-target
oracle workflow resnet50 abci --nodes 16 --search ensemble --trials 5
oracle workflow gpt2 dgx-a100 --nodes 32 --search transfer,share=0.1 --trials 12 --tokens 10B \\
    --max-batch 512
oracle workflow my-hpo.yaml abci --nodes 2..1024 --table      as a product of factors, and as it is
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oracle.commands.arguments import (
    length_arguments,
    prediction_arguments,
    result_arguments,
    running,
    whole_number,
)
from oracle.commands.parser import Answer, formatted

if TYPE_CHECKING:
    from oracle.ask.trials import Trials

BRIEF = ("nodes", "at_once", "data", "model", "batch", "search_speedup", "data_speedup",
         "model_speedup", "product", "honest", "overstated", "seconds")  # fmt: skip
# options that a workflow's file may say too
SAID = ("search", "trials", "epochs", "tokens", "steps", "to_target", "batch", "max_batch", "plan",
        "spread", "dataset", "precision", "optimizer", "software")  # fmt: skip
MORE = ("ideal", "max_memory", "gamma", "algorithm", "profile", "any_plan", "reading", "shuffle")


def per_trial(text: str) -> float:
    """Return a spread of trials' times, as a share of their mean."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"`{text}` is not a spread from 0 to 1, e.g. 0.1")
    return value


def arguments(parser: argparse.ArgumentParser) -> None:
    question(parser)
    parser.add_argument("--table", action="store_true",
                        help="of speed-ups: factors, their product, the honest one")  # fmt: skip
    result_arguments(parser)


def question(parser: argparse.ArgumentParser) -> None:
    """Add the options of the question, whatever form its answer has."""
    prediction_arguments(parser)
    for action in parser._actions:
        if action.dest == "model":
            action.help = "a model, or a workflow's file"
    parser.add_argument("--nodes", required=True, metavar="RANGE", help="e.g. 128, or 2..2048")
    parser.add_argument("--search", metavar="S", help="random, grid, halving, genetic, ensemble or "
                        "transfer; with settings, `halving,eta=4`")  # fmt: skip
    parser.add_argument("--trials", type=whole_number, metavar="R",
                        help="in all; members of an ensemble, children of a parent")  # fmt: skip
    length_arguments(parser)
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--max-batch", type=whole_number, metavar="B", help="largest worth having")
    size.add_argument("--batch", type=whole_number, metavar="B", help="of every trial")
    parser.add_argument("--plan", metavar="PLAN", help="of every trial (default: the fastest)")
    parser.add_argument("--spread", type=per_trial, metavar="V",
                        help="of trials' times, 1σ by their mean")  # fmt: skip


def opened_by(args: argparse.Namespace) -> tuple[Trials, tuple[int, ...]]:
    """Return the trials that a command line asks for, and the numbers of nodes."""
    from oracle.ask.sweep import numbers
    from oracle.ask.trials import opened
    from oracle.spec.catalogue import system
    from oracle.spec.document import SpecError, refusal

    try:
        nodes = numbers(args.nodes)
    except SpecError as error:
        raise refusal("nodes", error.faults[0].what, error.faults[0].hint) from None
    if not nodes:
        raise refusal("workflow", "no number of nodes is said", "--nodes 128, or --nodes 2..2048")
    if len(nodes) == 1 and getattr(args, "table", True):
        nodes = numbers(f"1..{nodes[0]}") + nodes
    campaign_options = {name: getattr(args, name) for name in SAID}
    trials = opened(args.model, running(args, system(args.system)), campaign_options, nodes,
                    grow=args.grow, **{name: getattr(args, name) for name in MORE})  # fmt: skip
    return trials, tuple(dict.fromkeys(nodes))


def run(args: argparse.Namespace) -> Answer:
    from oracle.ask.combined import combined
    from oracle.ask.workflow import campaign
    from oracle.show.provenance import resolved, stamped
    from oracle.show.workflow import campaign_text, combined_text
    from oracle.spec.catalogue import noted

    with noted() as read:
        trials, nodes = opened_by(args)
    if args.table or len(nodes) > 1:
        table = combined(trials, nodes)
        campaigns, rows = [line.campaign for line in table.lines], table.rows()
        code = 0 if any(planned.parts for planned in campaigns) else 1
    else:
        table, campaigns = None, [campaign(trials, nodes[0])]
        rows, code = campaigns[0].rows(), 0 if campaigns[0].parts else 1

    def data() -> dict[str, Any]:
        body: dict[str, Any] = {"campaigns": [line.to_dict() for line in campaigns]}
        if table is not None:
            body["table"] = rows
        sources = list(dict.fromkeys(read))
        return {**stamped(body, sources), "options": resolved(usual_of(trials), args)}

    return formatted(
        args,
        lambda: combined_text(table, args) if table else campaign_text(campaigns[0], args),
        data, lambda: rows, code, brief=BRIEF if table else None,
    )  # fmt: skip


def usual_of(trials: Trials) -> dict[str, Any]:
    """Return the options that the model decides where the user says none."""
    options, data = trials.options, trials.model.dataset
    return {"precision": options.precision, "optimizer": options.optimizer,
            "software": options.software.label, "dataset": data.name if data else None}  # fmt: skip
