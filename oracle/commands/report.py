"""A recommendation as one HTML file that opens anywhere, offline.

oracle report resnet50 abci --devices 64 --batch 4096 -o report.html
"""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from oracle.commands import recommend as recommend_
from oracle.commands.lacking import lacks
from oracle.commands.parser import Answer

if TYPE_CHECKING:
    from oracle.ask.ranking import Ranking


def arguments(parser: argparse.ArgumentParser) -> None:
    recommend_.question(parser)
    parser.set_defaults(top=20)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help=".html")


def run(asked: argparse.Namespace) -> Answer:
    from oracle.spec.files import write

    ranking, content = made(asked, command_line(asked))
    write(Path(asked.output), content)
    best = ranking.best.plan if len(ranking) else "no plan fits"
    said = [*lacks(asked, [asked.system]), f"{asked.output}: {best}, {len(content):,} bytes"]
    return Answer("", 0 if len(ranking) else 1, "\n".join(said))


def made(asked: argparse.Namespace, command: str) -> tuple[Ranking, bytes]:
    """The recommendation, and the file that shows it."""
    from oracle.show.page import page
    from oracle.show.provenance import specs_read, text_of

    ranking = recommend_.ranked(asked)
    read = specs_read(asked.model, asked.system, asked.dataset, asked.profile, asked.software,
                      asked.ideal)  # fmt: skip
    inputs = [(f"{one.kind} {one.name}", text_of(one)) for one in read]
    return ranking, page(ranking, command, inputs, asked).encode()


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
