"""Write a model spec from a torch module, an ONNX file or a Hugging Face config.

oracle import huggingface CONFIG.json -o model.yaml       (--tokens T: another length)
oracle import torch package.module:factory --input 3,224,224 --trust-code -o model.yaml
oracle import torch package.module:factory --tokens 2048 --trust-code
oracle import onnx MODEL.onnx -o model.yaml
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oracle.commands.arguments import whole
from oracle.commands.parser import Answer, as_json

if TYPE_CHECKING:
    from oracle.readers.importers import Imported


def arguments(parser: argparse.ArgumentParser) -> None:
    from oracle.readers.importers import formats

    known = formats()
    parser.add_argument("format", choices=known, metavar="FORMAT", help=", ".join(known))
    parser.add_argument("what", metavar="WHAT", help="a file, or package.module:factory for torch")
    parser.add_argument("-o", "--output", metavar="FILE", help="where to write; else it is printed")
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    parser.add_argument("--name", default="", help="of the model; else as the file says")
    parser.add_argument("--input", type=extents, metavar="C,H,W", help="shape of one sample")
    parser.add_argument("--tokens", type=whole, metavar="T", help="words in a sample, instead")
    parser.add_argument("--trust-code", action="store_true", help="run the code that is named")
    parser.add_argument("--dataset", metavar="D", help="the data set it is usually trained on")
    parser.add_argument("--json", action="store_true", dest="as_json", help="the spec as JSON")


def extents(text: str) -> tuple[int, ...]:
    """A shape as an option takes it: `3,224,224` or `3x224x224`."""
    words = text.replace("x", ",").split(",")
    if not 1 <= len(words) <= 4:
        raise argparse.ArgumentTypeError(f"`{text}` is not a shape such as 3,224,224")
    return tuple(whole(word.strip()) for word in words)


def run(asked: argparse.Namespace) -> Answer:
    from oracle.models.model import model
    from oracle.readers.spec_text import spec_text
    from oracle.spec.units import show

    found = imported(asked)
    spec = dict(found.spec)
    if asked.dataset:
        spec = {"name": spec.pop("name"), "source": spec.pop("source"), "dataset": asked.dataset,
                **spec}  # fmt: skip
    loaded = model(spec)  # every fault of what was read is said now, not later
    text = as_json(spec) if asked.as_json else spec_text(spec).rstrip()
    notes = [
        f"{spec['name']}: {loaded.parameters:,.0f} parameters, "
        f"{show(loaded.flop, 'FLOP')} a sample, both passes",
        *(f"note: {note}" for note in found.notes),
    ]
    if not asked.output:
        return Answer(text, note="\n".join(notes))
    from oracle.writers.export import put

    put({asked.output: text + "\n"}, force=asked.force)
    return Answer(note="\n".join([*notes, f"written to {asked.output}"]))


def imported(asked: argparse.Namespace) -> Imported:
    """The spec by the reader of the format that was named."""
    from oracle.readers.importers import importer

    found: Imported = importer(asked.format).read(
        asked.what, sample=asked.input, tokens=asked.tokens, name=asked.name,
        trust=asked.trust_code,
    )  # fmt: skip
    return found
