"""How verbs that run on this machine start their ranks, and how such a run ends."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from oracle.commands.arguments import whole
from oracle.commands.parser import Answer, formatted, group
from oracle.spec.document import refusal


def launch_arguments(parser: argparse.ArgumentParser) -> None:
    """How ranks are started and watched."""
    ranks = group(parser, "how ranks are started")
    ranks.add_argument("--local", type=whole, metavar="N", help="start N ranks on this machine")
    known = "gloo, nccl or mpi; ordered: gloo that keeps to NCCL's order"
    ranks.add_argument("--backend", default="gloo", metavar="B", help=known)
    ranks.add_argument("--timeout", type=float, default=60.0, metavar="S",
                       help="seconds after which a silent rank is called stalled")  # fmt: skip


def launched(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of the executor's functions."""
    return {"ranks": asked.local, "backend": asked.backend or "gloo", "timeout": asked.timeout,
            "say": teller(asked.quiet)}  # fmt: skip


def teller(quiet: bool) -> Any:
    """Progress to standard error, one line each."""
    return (lambda text: None) if quiet else (lambda text: sys.stderr.write(f"{text}\n"))


def ended(outcome: Any, what: str) -> Answer:
    """The answer of a launch: what was written, or which rank failed at what."""
    note = outcome.message if outcome.speaks else ""
    done = what if outcome.complete and outcome.leads else ""
    return Answer("", outcome.code, "\n".join(part for part in (done, note) if part))


def need_torch() -> None:
    """PyTorch is an extra: say how to get it."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        hint = "pip install 'oracle-training[run]'"
        what = "PyTorch is not installed; measuring and running need it"
        raise refusal("torch", what, hint, "E100")


def written_answer(
    asked: argparse.Namespace, data: Mapping[str, Any], rows: Iterable[Mapping[str, Any]],
    note: str, text: str = "",
) -> Answer:  # fmt: skip
    """The answer of a measurement that is complete, in the form that was asked for."""
    from oracle.show.provenance import stamped

    said = {"output": asked.output, "complete": True, **data}
    return formatted(asked, lambda: text, lambda: stamped(said), lambda: rows, 0, note)
