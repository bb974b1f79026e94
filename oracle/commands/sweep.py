"""Scaling curves and what-if questions: a row for every point, resumable with --out.

oracle sweep resnet50 abci --devices 1..1024 --batch-per-device 64
oracle sweep resnet50,vgg16 abci --devices 4..256 --batch 4096 --each data,filter,data+filter
oracle sweep gpt3-175b dgx-a100,dgx-h100 --devices 512,1024 --batch 1536 --out runs/gpt3
oracle sweep resnet50 abci --devices 64 --batch 4096 --what-if network=2 --what-if memory=0.5
oracle sweep … --out DIR --shard $SLURM_ARRAY_TASK_ID/$SLURM_ARRAY_TASK_COUNT    (--array=1-N)

Ranges: `1..1024` doubles, `1..64:all` takes every number, `8..64:8` every eighth, `8,16,24` these.
Kill it whenever you like: the same command goes on where it was.
"""

from __future__ import annotations

import argparse
import re
import shlex
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from oracle.commands.arguments import (
    lasting,
    names,
    objective_argument,
    prediction_arguments,
    result_arguments,
    specs,
    whole_number,
)
from oracle.commands.lacking import lacks
from oracle.commands.parser import Answer, as_json, with_config
from oracle.spec.document import refusal

LOG_EVERY = 30.0  # seconds between two lines of progress in a log


def arguments(parser: argparse.ArgumentParser) -> None:
    question(parser)
    parser.add_argument("--shard", type=share, default=(1, 1), metavar="I/N",
                        help="the I-th of N tasks that share --out")  # fmt: skip
    parser.add_argument("--dask", metavar="ADDRESS", help="of a scheduler; `local` starts one")
    result_arguments(parser, ["text", "json", "csv", "md", "parquet"])


def question(parser: argparse.ArgumentParser) -> None:
    """Add the options of the question, whatever form its answer has."""
    prediction_arguments(parser)
    for action in parser._actions:  # every process reads them anew
        if action.dest in ("model", "system"):
            action.type = lasting
    parser.add_argument("--devices", required=True, metavar="RANGE", help="e.g. 1..1024")
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--batch", metavar="RANGE", help="samples per iteration, all devices")
    size.add_argument("--batch-per-device", metavar="LIST", help="samples per device")
    parser.add_argument(
        "--each",
        type=names,
        default=[],
        metavar="A,B+C",
        help="a curve for each family of strategies; the best plan otherwise",
    )
    parser.add_argument(
        "--plan",
        action="append",
        default=[],
        metavar="PLAN",
        help='a curve of a plan with one degree left open: "data:* filter:4"',
    )
    parser.add_argument("--what-if", action="append", default=[], metavar="X=K,…",
                        help="beside the system as it is: network, latency, memory, "
                        "memory-bandwidth, kernels or launch times K")  # fmt: skip
    objective_argument(parser)
    parser.add_argument("--only", type=names, default=[], metavar="A,B", help="these strategies")
    parser.add_argument("--without", type=names, default=[], metavar="A,B", help="not these")
    parser.add_argument(
        "--jobs", type=whole_number, metavar="J", help="processes (default: all cores)"
    )
    parser.add_argument("--out", metavar="DIR", help="keep rows here as they come")


def share(text: str) -> tuple[int, int]:
    """Return the number of a task and of all tasks: `2/16`, the second of sixteen."""
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise argparse.ArgumentTypeError(f"`{text}` is not i/n with i from 1 to n")
    return int(match[1]), int(match[2])


def grid(args: argparse.Namespace) -> Any:
    """Return the grid of points that a command line asks for."""
    from oracle.ask.sweep import Grid, numbers, sizes
    from oracle.predict.defaults import memory_limit

    total = args.batch is not None
    batches = numbers(args.batch) if total else sizes(args.batch_per_device)
    ways = [f"each:{family}" for family in args.each] + [f"plan:{plan}" for plan in args.plan]
    ways = list(dict.fromkeys(ways))
    return Grid(
        specs(args.model), specs(args.system), numbers(args.devices),
        tuple(map(float, batches)), args.batch is None, ("", *dict.fromkeys(args.what_if)),
        tuple(ways) or ("best",), args.dataset, args.precision, args.optimizer, args.ideal,
        memory_limit(args.max_memory), args.gamma, args.algorithm, args.objective,
        tuple(args.only), tuple(args.without), args.profile, args.software, args.any_plan,
        args.reading, args.shuffle, args.epochs, args.grow, args.workspace,
    )  # fmt: skip


def run(args: argparse.Namespace) -> Answer:
    from oracle.ask.sweep import sweep, written
    from oracle.show.sweep import sweep_text

    questions, remarks = grid(args), "\n".join(lacks(args, specs(args.system)))
    form = args.form or ("csv" if args.out else "text")
    if args.shard != (1, 1) and not args.out:
        raise refusal("sweep", "tasks that share a sweep need a folder to share", "--out DIR")
    if form == "parquet" and not args.out:
        raise refusal("sweep", "a parquet file needs a place", "--out DIR")
    with interruptions() as caught:
        result = sweep(
            questions, args.out, jobs=args.jobs, shard=args.shard, dask=args.dask,
            form=form if form != "text" else "csv", stop=lambda: bool(caught),
            progress=(lambda *_: None) if args.quiet else progress(),
        )  # fmt: skip
    if sys.stderr.isatty() and not args.quiet:
        sys.stderr.write("\r\x1b[K")
    count = f"{len(result.rows)} of {len(questions)} rows"
    if caught:
        resume = "; the same command goes on from there" if args.out else ""
        return Answer("", 128 + caught[0], f"interrupted after {count}{resume}")
    if not result.complete:
        return Answer("", 0, f"{count} in {args.out}; the last task puts them together")
    code = 0 if any(row["status"] == "ok" for row in result.rows) else 1
    if args.out:
        table = (
            sweep_text(result.rows) if form in ("text", "csv") and len(result.rows) <= 100 else ""
        )
        notes = [remarks, f"{count} in {result.place}"]
        if table and len(questions.devices) > 1:
            figure = shlex.join(["--rows", str(result.place), "-o", "scaling.svg"])
            notes.append(f"next: oracle plot scaling {figure}")
        return Answer(table, code, "\n".join(filter(None, notes)))
    if form == "text":
        return Answer(sweep_text(result.rows), code, remarks)
    if form == "json":
        from oracle.show.provenance import inputs_of, resolved, stamped

        read = inputs_of(args, specs(args.model), specs(args.system))
        data = stamped({"rows": [dict(row) for row in result.rows]}, read)
        data |= {"options": resolved({}, args)}
        return Answer(as_json(with_config(data, args)), code, remarks)
    return Answer(written(result.rows, form).decode().rstrip("\n"), code, remarks)


@contextmanager
def interruptions() -> Iterator[list[int]]:
    """Yield the signals caught so far: the first lets a row finish, the second ends at once."""
    caught: list[int] = []

    def note(number: int, frame: FrameType | None) -> None:
        if caught:
            raise KeyboardInterrupt
        caught.append(number)

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield caught
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def progress() -> Callable[[int, int, float], None]:
    """Return a function that writes rows done, rate and time left to standard error."""
    terminal = sys.stderr.isatty()
    begin = last = time.monotonic()
    first: list[tuple[int, float]] = []

    def say(done: int, size: int, seconds: float) -> None:
        nonlocal last
        now = time.monotonic()
        first[:] = first or [(done, seconds)]  # processes take a while to begin
        over = terminal and done == size and last > begin
        if not over and (now - begin < 2 or now - last < (0.2 if terminal else LOG_EVERY)):
            return
        last = now
        rate = (done - first[0][0]) / max(seconds - first[0][1], 1e-9)
        pace = f", {rate:.3g} a second, {(size - done) / rate:.0f} s left" if rate else ""
        line = f"{done} of {size} rows{pace}"
        sys.stderr.write(f"\r\x1b[K{'' if over else line}" if terminal else line + "\n")
        sys.stderr.flush()

    return say
