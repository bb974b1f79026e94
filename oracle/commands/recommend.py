"""Rank the ways to split a training over N devices, at the same global batch for every plan.

oracle recommend resnet50 abci --devices 64 --batch 4096
oracle recommend gpt3-175b dgx-a100 --devices 1024 --batch 1536 --without context --top 10
oracle recommend my-model.yaml my-system.yaml --devices 16 --batch-per-device 8 --json
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oracle.commands.arguments import (
    BRIEF,
    batch_arguments,
    names,
    objective_argument,
    prediction_arguments,
    prediction_options,
    result_arguments,
    whole,
)
from oracle.commands.parser import Answer, formatted

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking


def arguments(parser: argparse.ArgumentParser) -> None:
    question(parser)
    result_arguments(parser)


def question(parser: argparse.ArgumentParser) -> None:
    """What is asked, whatever the answer is to look like."""
    prediction_arguments(parser)
    parser.add_argument("--devices", type=whole, required=True, metavar="N",
                        help="to spread it over")  # fmt: skip
    batch_arguments(parser)
    parser.add_argument("--top", type=whole, default=5, metavar="K", help="plans to list")
    objective_argument(parser)
    parser.add_argument("--risk", type=float, default=0.05, metavar="R",
                        help="of running out of memory that is taken")  # fmt: skip
    parser.add_argument("--fastest", action="store_true",
                        help="the fastest first, though a simpler plan be as fast")  # fmt: skip
    parser.add_argument("--only", type=names, default=[], metavar="A,B", help="these strategies")
    parser.add_argument("--without", type=names, default=[], metavar="A,B", help="not these")
    parser.add_argument("--all", action="store_true", dest="everything",
                        help="list infeasible plans too, with what they break")  # fmt: skip


def ranked(asked: argparse.Namespace) -> Ranking:
    """The answer."""
    from oracle import api

    return api.recommend(
        asked.model, asked.system, asked.devices, asked.batch,
        batch_per_device=asked.batch_per_device, top=asked.top, only=asked.only,
        without=asked.without, objective=asked.objective, risk=asked.risk,
        fastest=asked.fastest, **prediction_options(asked),
    )  # fmt: skip


def enough(asked: argparse.Namespace) -> int | None:
    """The first doubling of the devices on which something fits, if there is one."""
    from oracle.spec.catalogue import system

    most = 64 * asked.devices
    most = most if asked.grow else min(system(asked.system).devices, most)
    for count in (asked.devices * 2**k for k in range(1, 7)):
        more = argparse.Namespace(**{**vars(asked), "devices": count, "top": 1})
        if count <= most and len(ranked(more)):
            return int(count)
    return None


def run(asked: argparse.Namespace) -> Answer:
    from oracle.show.provenance import signed
    from oracle.show.text import ranking_text

    ranking = ranked(asked)
    if not len(ranking) and (asked.form or "text") == "text":
        asked.enough = enough(asked)
    return formatted(
        asked, lambda: ranking_text(ranking, asked),
        lambda: signed(ranking.to_dict(asked.everything), asked),
        lambda: ranking.rows(asked.everything), 0 if len(ranking) else 1,
        brief=("rank", *BRIEF, "probability_best"),
    )  # fmt: skip
