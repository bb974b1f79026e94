"""`oracle calibrate convergence RUNS…`: epochs by batch from a user's own trainings."""

from __future__ import annotations

import argparse
from pathlib import Path

from oracle.commands.parser import Answer, Usage, formatted


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `calibrate convergence`."""
    options = parser.add_argument_group("runs to a target (`calibrate convergence RUNS.csv …`)")
    options.add_argument(
        "--target", metavar="WORDS", help="of runs that name none, `75.9 %% top-1`"
    )
    options.add_argument("--dataset", metavar="D", help="whose samples an epoch has")


def run(args: argparse.Namespace) -> Answer:
    """Return the law of each optimizer and target, or write a model's spec with the laws."""
    from oracle.calibration.convergence import block, fitted, merged, text
    from oracle.readers.trainings import read
    from oracle.show.provenance import files_read, stamped

    paths = args.files[1:]
    if not paths:
        raise Usage("name a table of runs: oracle calibrate convergence RUNS.csv")
    if args.output and not args.onto:
        raise Usage("--onto MODEL: a new spec is that of a model")
    tables = [read(path) for path in paths]
    runs = [run for table in tables for run in table.runs]
    source = f"fit of e₀ (1 + B/B_c) to {', '.join(Path(path).name for path in paths)}"
    fits = fitted(runs, source, args.optimizer or "", args.target or "", samples_of(args))
    unread = dict.fromkeys(name for table in tables for name in table.unread)
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    entries = [fit.entry for fit in fits]
    written = block(entries)
    if args.output:
        from oracle.models.model import network

        spec, _, _, original = network(args.onto)
        write(args.output, original, block(merged(spec.convergence, entries)))
        notes.append(f"wrote {args.output}: name it where a MODEL is asked for")
    summary = "\n".join(text(fit) for fit in fits)
    return formatted(
        args, lambda: summary if args.output else f"{summary}\n\n{written}",
        lambda: stamped({"convergence": [fit.to_dict() for fit in fits], "block": written},
                        files_read(paths)),
        lambda: [{key: value for key, value in fit.to_dict().items()
                  if not isinstance(value, list)} for fit in fits],
        0, "\n".join(notes),
    )  # fmt: skip


def samples_of(args: argparse.Namespace) -> float | None:
    """Return the samples of an epoch, where a data set or a model with one is named."""
    if args.dataset:
        from oracle.spec.catalogue import dataset

        return float(dataset(args.dataset).samples)
    if args.onto:
        from oracle.models.model import model

        data = model(args.onto).dataset
        return None if data is None else float(data.samples)
    return None


def write(path: str, original: str, entries: str) -> None:
    """Write a model's own text with the new block, once it reads as a sound spec."""
    from oracle.calibration.spec_block import with_block
    from oracle.models.build import Network
    from oracle.spec.document import load
    from oracle.spec.schema import read
    from oracle.writers.export import put

    text = with_block(original, entries)
    read(Network, load(text, path, partly=True), path, text, label="model")
    put({path: text})
