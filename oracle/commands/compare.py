"""Hold predictions against measurements: accuracy, parts, interval, ranking, regret.

oracle compare RUN.json... MODEL SYSTEM [--at-least 0.9]
"""

from __future__ import annotations

import argparse

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


def run(asked: argparse.Namespace) -> Answer:
    from oracle.spec.document import refusal

    if len(asked.files) < 3:
        hint = "oracle compare run.json resnet50 abci"
        what = "name at least one measurement, then the model and the system"
        raise refusal("compare", what, hint, "E103")
    *files, model, system = asked.files
    from oracle.ask.compare import compare

    try:
        found = compare(
            files, model, system, precision=asked.precision, optimizer=asked.optimizer,
            profile=asked.profile, grow=asked.grow,
        )  # fmt: skip
    except OSError as error:
        raise refusal(files[0], error.strerror or "unreadable", code="E100") from None
    code = 0
    if asked.at_least is not None and float(found.accuracy.mean()) < asked.at_least:
        code = 1
    note = ""
    if asked.plot:
        from oracle.show.plot.against import measured
        from oracle.show.plot.style import save

        rows = [
            {"group": files[0], "label": row["plan"], **row} for row in found.to_dict()["plans"]
        ]
        save(measured(rows, found.predicted.model.name), asked.plot)
        note = f"wrote {asked.plot}"
    from oracle.show.comparison import comparison_text
    from oracle.show.provenance import specs_read, stamped

    read = specs_read(model, system, None, asked.profile)
    return formatted(
        asked, lambda: comparison_text(found), lambda: stamped(found.to_dict(), read), found.rows,
        code, note,
    )  # fmt: skip
