"""`oracle calibrate convergence RUNS…`: epochs by batch from a user's own trainings."""

from __future__ import annotations

import argparse
from pathlib import Path

from oracle.commands.parser import Answer, Usage, formatted


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `calibrate convergence` takes beside files."""
    own = parser.add_argument_group("runs to a target (`calibrate convergence RUNS.csv …`)")
    own.add_argument("--target", metavar="WORDS", help="of runs that name none, `75.9 %% top-1`")
    own.add_argument("--dataset", metavar="D", help="whose samples an epoch has")


def run(asked: argparse.Namespace) -> Answer:
    """The law of each optimizer and target, told; or a model's spec with it, written."""
    from oracle.calibration.convergence import block, fitted, merged, text
    from oracle.readers.trainings import read
    from oracle.show.provenance import files_read, stamped

    paths = asked.files[1:]
    if not paths:
        raise Usage("name a table of runs: oracle calibrate convergence RUNS.csv")
    if asked.output and not asked.onto:
        raise Usage("--onto MODEL: a new spec is that of a model")
    tables = [read(path) for path in paths]
    runs = [run for table in tables for run in table.runs]
    source = f"fit of e₀ (1 + B/B_c) to {', '.join(Path(path).name for path in paths)}"
    found = fitted(runs, source, asked.optimizer or "", asked.target or "", samples_of(asked))
    unread = dict.fromkeys(name for table in tables for name in table.unread)
    notes = [f"not read: {', '.join(unread)}"] if unread else []
    new = [each.entry for each in found]
    written = block(new)
    if asked.output:
        from oracle.models.model import network

        spec, _, _, original = network(asked.onto)
        write(asked.output, original, block(merged(spec.convergence, new)))
        notes.append(f"wrote {asked.output}: name it where a MODEL is asked for")
    told = "\n".join(text(each) for each in found)
    return formatted(
        asked, lambda: told if asked.output else f"{told}\n\n{written}",
        lambda: stamped({"convergence": [each.to_dict() for each in found], "block": written},
                        files_read(paths)),
        lambda: [{key: value for key, value in each.to_dict().items()
                  if not isinstance(value, list)} for each in found],
        0, "\n".join(notes),
    )  # fmt: skip


def samples_of(asked: argparse.Namespace) -> float | None:
    """Samples of an epoch, where somebody says of which data set."""
    if asked.dataset:
        from oracle.spec.catalogue import dataset

        return float(dataset(asked.dataset).samples)
    if asked.onto:
        from oracle.models.model import model

        found = model(asked.onto).dataset
        return None if found is None else float(found.samples)
    return None


def write(path: str, original: str, entries: str) -> None:
    """A model's own text with the new block; it is read before it is put in its place."""
    from oracle.calibration.spec_block import with_block
    from oracle.models.build import Network
    from oracle.spec.document import load
    from oracle.spec.schema import read
    from oracle.writers.export import put

    text = with_block(original, entries)
    read(Network, load(text, path, partly=True), path, text, label="model")
    put({path: text})
