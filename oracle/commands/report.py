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


def run(args: argparse.Namespace) -> Answer:
    from oracle.spec.files import write

    ranking, content = report_file(args, command_line(args))
    write(Path(args.output), content)
    best = ranking.best.plan if len(ranking) else "no plan fits"
    lines = [*lacks(args, [args.system]), f"{args.output}: {best}, {len(content):,} bytes"]
    return Answer("", 0 if len(ranking) else 1, "\n".join(lines))


def report_file(args: argparse.Namespace, command: str) -> tuple[Ranking, bytes]:
    """Return the recommendation, and the content of the file that shows it."""
    from oracle.show.page import page
    from oracle.show.provenance import specs_read, text_of

    ranking = recommend_.ranked(args)
    read = specs_read(args.model, args.system, args.dataset, args.profile, args.software,
                      args.ideal)  # fmt: skip
    inputs = [(f"{spec.kind} {spec.name}", text_of(spec)) for spec in read]
    return ranking, page(ranking, command, inputs, args).encode()


def command_line(args: argparse.Namespace) -> str:
    """Return the command line, quoted so that it can be typed again."""
    typed = Path(sys.argv[0])
    words = sys.argv[1:]
    if "oracle" not in (typed.name, typed.parent.name):  # called from a program
        size = (
            ("--batch", args.batch) if args.batch else ("--batch-per-device", args.batch_per_device)
        )
        words = ["report", args.model, args.system, "--devices", str(args.devices),
                 *map(str, size), "-o", args.output]  # fmt: skip
    return " ".join(["oracle", *map(shlex.quote, words)])
