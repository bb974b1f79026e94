"""A recommendation as one HTML file that opens anywhere, offline.

oracle report resnet50 abci --devices 64 --batch 4096 -o report.html
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import Any

from oracle.commands import Answer, prediction_options, recommend_


def arguments(parser: argparse.ArgumentParser) -> None:
    recommend_.arguments(parser)
    parser.set_defaults(top=20)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=".html")


def run(asked: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.page import page
    from oracle.sweep.ledger import write

    ranking = api.recommend(
        asked.model, asked.system, asked.devices, asked.batch,
        batch_per_device=asked.batch_per_device, top=asked.top, only=asked.only,
        without=asked.without, objective=asked.objective, **prediction_options(asked),
    )  # fmt: skip
    content = page(ranking, command_line(asked), inputs(asked, ranking)).encode()
    write(Path(asked.output), content)
    best = ranking.best if len(ranking) else "no plan fits"
    return Answer("", 0 if len(ranking) else 1, f"{asked.output}: {best}, {len(content):,} bytes")


def command_line(asked: argparse.Namespace) -> str:
    """What was typed, so that it can be typed again."""
    typed = Path(sys.argv[0])
    words = sys.argv[1:]
    if "oracle" not in (typed.name, typed.parent.name):  # called from a program
        size = (
            ("--batch", asked.batch)
            if asked.batch
            else ("--batch-per-device", asked.batch_per_device)
        )
        words = ["report", asked.model, asked.system, "--devices", str(asked.devices),
                 *map(str, size), "-o", asked.output]  # fmt: skip
    return " ".join(["oracle", *map(shlex.quote, words)])


def inputs(asked: argparse.Namespace, ranking: Any) -> list[tuple[str, str]]:
    """(name, text) of every spec that was read."""
    from oracle import specs
    from oracle.document import read_text

    shown = ranking.estimate if len(ranking) else ranking.misses
    found = [(f"model {asked.model}", specs.find(asked.model, "models")),
             (f"system {asked.system}", specs.find(asked.system, "systems"))]  # fmt: skip
    for kind, name in (
        ("devices", shown.system.device.name),
        ("datasets", asked.dataset or getattr(shown.model.dataset, "name", "")),
    ):
        known = specs.shipped(kind)
        if name in known:
            found.append((f"{kind[:-1]} {name}", known[name]))
        elif name and Path(name).is_file():
            found.append((f"{kind[:-1]} {name}", Path(name)))
    return [(name, read_text(place)) for name, place in found]
