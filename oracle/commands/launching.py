"""How verbs that run on this machine start their ranks, and how such a run ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from oracle.commands.arguments import whole_number
from oracle.commands.parser import Answer, formatted, group
from oracle.spec.document import refusal


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of how ranks are started and watched."""
    ranks = group(parser, "how ranks are started")
    ranks.add_argument(
        "--local", type=whole_number, metavar="N", help="start N ranks on this machine"
    )
    backends = "gloo, nccl or mpi; ordered: gloo that keeps to NCCL's order"
    ranks.add_argument("--backend", default="gloo", metavar="B", help=backends)
    ranks.add_argument("--timeout", type=float, default=60.0, metavar="S",
                       help="seconds after which a silent rank is called stalled")  # fmt: skip


def launched(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as keyword arguments of the executor's functions."""
    return {"ranks": args.local, "backend": args.backend or "gloo", "timeout": args.timeout,
            "say": teller(args.quiet)}  # fmt: skip


def teller(quiet: bool) -> Any:
    """Return a function that writes lines of progress to standard error, or none if quiet."""
    return (lambda text: None) if quiet else (lambda text: sys.stderr.write(f"{text}\n"))


def ended(outcome: Any, written_line: str) -> Answer:
    """Return the answer of a launch: what was written, or which rank failed at what."""
    note = outcome.message if outcome.speaks else ""
    done = written_line if outcome.complete and outcome.leads else ""
    return Answer("", outcome.code, "\n".join(part for part in (done, note) if part))


def need_torch() -> None:
    """Refuse to go on without PyTorch, an extra, and say how to install it."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        hint = "pip install 'oracle-training[run]'"
        complaint = "PyTorch is not installed; measuring and running need it"
        raise refusal("torch", complaint, hint, "E100")


def written_answer(
    args: argparse.Namespace, data: Mapping[str, Any], rows: Iterable[Mapping[str, Any]],
    note: str, text: str = "",
) -> Answer:  # fmt: skip
    """Return the answer of a complete measurement, in the form of `args.form`."""
    from oracle.show.provenance import stamped

    answer = {"output": args.output, "complete": True, **data}
    return formatted(args, lambda: text, lambda: stamped(answer), lambda: rows, 0, note)
