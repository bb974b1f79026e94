"""Explain a strategy, an error code, or what bounds a plan and what would change its place.

oracle explain filter
oracle explain E102
oracle explain --plan "data:16 filter:4" resnet50 abci --batch 1024
"""

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
    parser.add_argument("--plan", metavar="PLAN", help='e.g. "data:16 filter:4"')
    batch_arguments(parser)
    for action in parser._actions:  # a word is enough where no plan is asked for
        if action.dest in ("model", "system"):
            action.nargs, action.required = "?", False
            if action.dest == "model":
                action.metavar = "STRATEGY|CODE|MODEL"
                action.help = "what to explain; with --plan, a shipped model or a file"
    for group in parser._mutually_exclusive_groups:
        group.required = False


def run(asked: argparse.Namespace) -> Answer:
    if asked.plan is None:
        return _words(asked)
    if not asked.system or (asked.batch is None and asked.batch_per_device is None):
        return Answer("", 2, "error: a plan is explained for a MODEL, a SYSTEM and a --batch")
    from oracle import api, explain, prediction
    from oracle.models import model
    from oracle.plan import parse
    from oracle.specs import system

    what, where = model(asked.model, asked.dataset), system(asked.system)
    kept = prediction_options(asked)
    kept.pop("dataset")
    kept["max_memory"] = api._bytes(kept["max_memory"])
    options = prediction.options_for(what, where, **kept)
    batch = asked.batch or max(
        1, round(asked.batch_per_device * int(parse(asked.plan, 1).devices[0, 0]))
    )
    found = explain.plan(what, where, asked.plan, batch, options)
    code = 0 if found.own.shown.feasible[0] else 1
    return Answer(as_json(found.to_dict()) if asked.as_json else found.text(), code)


def _words(asked: argparse.Namespace) -> Answer:
    from oracle.document import CODES
    from oracle.explain import words

    if not asked.model:
        return Answer(words.overview())
    name = words.subject(asked.model)
    if name in CODES:
        text = words.code_text(name)
        return Answer(as_json({"code": name, "means": CODES[name]}) if asked.as_json else text)
    return Answer(as_json(words.strategy(name)) if asked.as_json else words.strategy_text(name))
