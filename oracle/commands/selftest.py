"""Is this installation sound? Recompute what is known from elsewhere; a few seconds.

    oracle selftest
    oracle selftest --gpu --system dgx-a100     # and this node's devices: two minutes
    srun -N2 oracle selftest --gpu              # … and the nodes of a job
    oracle selftest --local 4                   # the same among four processes, without a device

The published cost table, a network simulator's times, laws that every prediction obeys. With
`--gpu` or `--local N` the executor runs here too: every exchange must deliver what was sent, plans
of every strategy must train as one device does, and memory and links are timed; with `--system`
beside what its file says of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.commands.arguments import result_arguments, whole
from oracle.commands.launching import ended, launch_arguments, launched, need_torch
from oracle.commands.parser import Answer, formatted
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.selftest import Selftest

FOLDER = "oracle-selftest.parts"  # where ranks that a launcher started meet


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="prove this node's GPUs, over NCCL")
    parser.add_argument("--system", metavar="SYSTEM", help="whose file says what links should do")
    parser.add_argument("--seconds", type=whole, default=120, metavar="S",
                        help="that plans may take on ranks; 120")  # fmt: skip
    launch_arguments(parser)
    parser.set_defaults(backend=None)
    result_arguments(parser)


def run(asked: argparse.Namespace) -> Answer:
    from importlib.util import find_spec

    from oracle.ask.selftest import selftest
    from oracle.executor.ranks.world import recognise

    on_ranks = asked.gpu or asked.local is not None or asked.backend or recognise(os.environ)
    if not on_ranks:
        extras = {"torch": "run, measure", "matplotlib": "plot", "onnx": "import onnx",
                  "pyarrow": "sweep --format parquet", "dask": "sweep --dask"}  # fmt: skip
        missing = [f"{name} ({verbs})" for name, verbs in extras.items() if find_spec(name) is None]
        note = f"not installed, and only needed for what follows it: {', '.join(missing)}"
        return _answer(asked, selftest(), note if missing else "")
    need_torch()
    return _on_ranks(asked)


def _answer(asked: argparse.Namespace, found: Selftest, note: str = "") -> Answer:
    from oracle.show.checks import selftest_text
    from oracle.show.provenance import stamped

    return formatted(
        asked, lambda: selftest_text(found), lambda: stamped(found.to_dict()), found.rows,
        0 if found.sound else 1, note,
    )  # fmt: skip


def _on_ranks(asked: argparse.Namespace) -> Answer:
    """The installation, and the ranks that are started here or that a launcher started."""
    from oracle.ask.proved import checks
    from oracle.ask.selftest import Selftest, selftest
    from oracle.executor.proof.machine import proof_of, prove
    from oracle.spec.catalogue import system

    where = system(asked.system) if asked.system else None
    with _folder(asked) as (how, parts):
        outcome = prove(parts, seconds=float(asked.seconds), **how)
        if not (outcome.complete and outcome.leads):
            return ended(outcome, "")
        proof = proof_of(parts)
    here = f"this installation, on {proof.ranks} ranks of {proof.device},"
    tried = (*selftest().checks, *checks(proof, where))
    return _answer(asked, Selftest(tried, here, outcome.seconds))


@contextmanager
def _folder(asked: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Path]]:
    """How ranks are started, and where they leave what they found: nothing is kept of it."""
    from tempfile import TemporaryDirectory

    from oracle.executor.measure.hardware import gpus
    from oracle.executor.ranks.world import recognise

    how, there = launched(asked), gpus(Path("/"))
    how["backend"] = asked.backend or ("nccl" if asked.gpu else "gloo")
    if asked.gpu and not there:
        raise refusal("options", "--gpu: no GPU of NVIDIA's driver is seen here",
                      "--local 4 proves the executor on processors")  # fmt: skip
    if how["ranks"] is None and (world := recognise(os.environ)):
        yield how, Path(FOLDER)
        if world.rank == 0:
            shutil.rmtree(FOLDER, ignore_errors=True)
        return
    how["ranks"] = how["ranks"] or max(there, 1)
    with TemporaryDirectory(prefix="oracle-selftest-") as folder:
        yield how, Path(folder)
