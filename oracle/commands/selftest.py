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

from oracle.commands.arguments import result_arguments, whole_number
from oracle.commands.launching import ended, launch_arguments, launched, need_torch
from oracle.commands.parser import Answer, formatted
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.selftest import Selftest

FOLDER = "oracle-selftest.parts"  # where ranks that a launcher started meet


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--gpu", action="store_true", help="prove this node's GPUs, over NCCL")
    parser.add_argument("--system", metavar="SYSTEM", help="whose file says what links should do")
    parser.add_argument("--seconds", type=whole_number, default=120, metavar="S",
                        help="that plans may take on ranks; 120")  # fmt: skip
    launch_arguments(parser)
    parser.set_defaults(backend=None)
    result_arguments(parser)


def run(args: argparse.Namespace) -> Answer:
    from importlib.util import find_spec

    from oracle.ask.selftest import selftest
    from oracle.executor.ranks.world import recognise

    on_ranks = args.gpu or args.local is not None or args.backend or recognise(os.environ)
    if not on_ranks:
        extras = {"torch": "run, measure", "matplotlib": "plot", "onnx": "import onnx",
                  "pyarrow": "sweep --format parquet", "dask": "sweep --dask"}  # fmt: skip
        missing = [f"{name} ({verbs})" for name, verbs in extras.items() if find_spec(name) is None]
        note = f"not installed, and only needed for what follows it: {', '.join(missing)}"
        return _answer(args, selftest(), note if missing else "")
    need_torch()
    return _on_ranks(args)


def _answer(args: argparse.Namespace, outcome: Selftest, note: str = "") -> Answer:
    from oracle.show.checks import selftest_text
    from oracle.show.layout import within
    from oracle.show.provenance import stamped

    return formatted(
        args, lambda: within(selftest_text(outcome)), lambda: stamped(outcome.to_dict()),
        outcome.rows, 0 if outcome.sound else 1, note,
    )  # fmt: skip


def _on_ranks(args: argparse.Namespace) -> Answer:
    """Return the answer for the installation and for the ranks, started here or by a launcher."""
    from oracle.ask.proved import checks
    from oracle.ask.selftest import Selftest, selftest
    from oracle.executor.proof.machine import proof_of, prove
    from oracle.spec.catalogue import system

    on_system = system(args.system) if args.system else None
    with _folder(args) as (how, parts):
        outcome = prove(parts, seconds=float(args.seconds), **how)
        if not (outcome.complete and outcome.leads):
            return ended(outcome, "")
        proof = proof_of(parts)
    title = f"this installation, on {proof.ranks} ranks of {proof.device},"
    tried = (*selftest().checks, *checks(proof, on_system))
    return _answer(args, Selftest(tried, title, outcome.seconds))


@contextmanager
def _folder(args: argparse.Namespace) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield how ranks are started, and the folder of their results, which is removed after."""
    from tempfile import TemporaryDirectory

    from oracle.executor.measure.hardware import gpus
    from oracle.executor.ranks.world import recognise

    how, gpu_count = launched(args), gpus(Path("/"))
    how["backend"] = args.backend or ("nccl" if args.gpu else "gloo")
    if args.gpu and not gpu_count:
        raise refusal("options", "--gpu: no GPU of NVIDIA's driver is seen here",
                      "--local 4 proves the executor on processors")  # fmt: skip
    if how["ranks"] is None and (world := recognise(os.environ)):
        yield how, Path(FOLDER)
        if world.rank == 0:
            shutil.rmtree(FOLDER, ignore_errors=True)
        return
    how["ranks"] = how["ranks"] or max(gpu_count, 1)
    with TemporaryDirectory(prefix="oracle-selftest-") as folder:
        yield how, Path(folder)
