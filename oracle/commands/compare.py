"""Hold predictions against measurements: accuracy, parts, interval, ranking, regret.

oracle compare RUN.json... MODEL SYSTEM [--at-least 0.9]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from oracle.commands.arguments import (
    grow_argument,
    profile_argument,
    recipe_arguments,
    result_arguments,
)
from oracle.commands.parser import Answer, formatted


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", metavar="RUN.json … MODEL SYSTEM",
                        help="measurements, then what they are compared with")  # fmt: skip
    parser.add_argument("--at-least", type=float, metavar="A",
                        help="exit 1 if the mean accuracy is lower")  # fmt: skip
    recipe_arguments(parser)
    profile_argument(parser)
    grow_argument(parser)
    parser.add_argument("--plot", metavar="FILE", help="predicted against measured, as a figure")
    result_arguments(parser)


def run(args: argparse.Namespace) -> Answer:
    from oracle.spec.document import refusal

    if len(args.files) < 3:
        hint = "oracle compare run.json resnet50 abci"
        complaint = "name at least one measurement, then the model and the system"
        raise refusal("compare", complaint, hint, "E103")
    *files, model, system = args.files
    from oracle.ask.compare import compare

    try:
        comparison = compare(
            files, model, system, precision=args.precision, optimizer=args.optimizer,
            profile=args.profile, grow=args.grow,
        )  # fmt: skip
    except OSError as error:
        raise refusal(files[0], error.strerror or "unreadable", code="E100") from None
    code = 0
    if args.at_least is not None and float(comparison.accuracy.mean()) < args.at_least:
        code = 1
    note = ""
    if args.plot:
        from oracle.show.plot.against import measured
        from oracle.show.plot.style import save

        rows = [
            {"group": files[0], "label": row["plan"], **row}
            for row in comparison.to_dict()["plans"]
        ]
        save(measured(rows, comparison.predicted.model.name), args.plot)
        note = f"wrote {args.plot}"
    from oracle.show.comparison import comparison_text
    from oracle.show.provenance import specs_read, stamped

    read = specs_read(model, system, None, args.profile)
    return formatted(
        args, lambda: comparison_text(comparison, _next(files, model, system)),
        lambda: stamped(comparison.to_dict(), read), comparison.rows, code, note,
    )  # fmt: skip


def _next(files: Sequence[str], model: str, system: str) -> str:
    """Return the command that makes a profile of the measurements, for better predictions."""
    from oracle.show.layout import command

    return command([("oracle calibrate run",), *((file,) for file in files), (model,), (system,),
                    ("-o", "my-profile.yaml")])  # fmt: skip
