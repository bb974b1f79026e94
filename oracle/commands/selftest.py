"""Is this installation sound? Recompute what is known from elsewhere; a few seconds.

The published cost table, a network simulator's times, laws that every prediction obeys.

oracle selftest
"""

from __future__ import annotations

import argparse

from oracle.commands.arguments import result_arguments
from oracle.commands.parser import Answer, formatted


def arguments(parser: argparse.ArgumentParser) -> None:
    result_arguments(parser)


def run(asked: argparse.Namespace) -> Answer:
    from importlib.util import find_spec

    from oracle.ask.selftest import selftest
    from oracle.show.checks import selftest_text
    from oracle.show.provenance import stamped

    found = selftest()
    extras = {"torch": "run, measure", "matplotlib": "plot", "onnx": "import onnx",
              "pyarrow": "sweep --format parquet", "dask": "sweep --dask"}  # fmt: skip
    missing = [f"{name} ({verbs})" for name, verbs in extras.items() if find_spec(name) is None]
    note = f"not installed, and only needed for what follows it: {', '.join(missing)}"
    return formatted(
        asked, lambda: selftest_text(found), lambda: stamped(found.to_dict()), found.rows,
        0 if found.sound else 1, note if missing else "",
    )  # fmt: skip
