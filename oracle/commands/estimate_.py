"""Predict one plan or several: seconds with their interval, parts, exchanges, memory."""

from __future__ import annotations

import argparse

from oracle.commands import (
    Answer,
    as_json,
    batch_arguments,
    prediction_arguments,
    prediction_options,
)


def arguments(parser: argparse.ArgumentParser) -> None:
    prediction_arguments(parser)
    parser.add_argument("--plan", action="append", required=True, metavar="PLAN",
                        help='e.g. "data:16 filter:4"; may be given several times')  # fmt: skip
    batch_arguments(parser)


def run(asked: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.plan import parse

    batch = asked.batch
    if batch is None:
        devices = [int(parse(text, 1).devices[0, 0]) for text in asked.plan]
        batch = [max(1, round(asked.batch_per_device * count)) for count in devices]
    found = api.estimate(asked.model, asked.system, asked.plan, batch, **prediction_options(asked))
    code = 0 if found.feasible.any() else 1
    if asked.as_json:
        return Answer(as_json(found.to_dict()), code)
    from oracle.report import estimate_text

    return Answer("\n\n".join(estimate_text(found, row) for row in range(len(found))), code)
