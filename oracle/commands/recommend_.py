"""Rank the ways to split a training over N devices, at the same global batch for every plan."""

from __future__ import annotations

import argparse

from oracle.commands import (
    Answer,
    as_json,
    batch_arguments,
    names,
    prediction_arguments,
    prediction_options,
    whole,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    prediction_arguments(parser)
    parser.add_argument("--devices", type=whole, required=True, metavar="N")
    batch_arguments(parser)
    parser.add_argument("--top", type=whole, default=5, metavar="K", help="plans to list")
    parser.add_argument("--objective", choices=["time", "cost", "memory"], default="time")
    parser.add_argument("--only", type=names, default=[], metavar="A,B", help="these strategies")
    parser.add_argument("--without", type=names, default=[], metavar="A,B", help="not these")
    parser.add_argument("--all", action="store_true", dest="everything",
                        help="list infeasible plans too, with what they break")  # fmt: skip


def run(asked: argparse.Namespace) -> Answer:
    from oracle import api

    ranking = api.recommend(
        asked.model, asked.system, asked.devices, asked.batch,
        batch_per_device=asked.batch_per_device, top=asked.top, only=asked.only,
        without=asked.without, objective=asked.objective, **prediction_options(asked),
    )  # fmt: skip
    code = 0 if len(ranking) else 1
    if asked.as_json:
        return Answer(as_json(ranking.to_dict(asked.everything)), code)
    from oracle.report import ranking_text

    return Answer(ranking_text(ranking, asked), code)
