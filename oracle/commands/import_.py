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
    from oracle.readers.config_json import Imported

FORMATS = ("torch", "onnx", "huggingface")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("format", choices=FORMATS, metavar="FORMAT", help=", ".join(FORMATS))
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
    from oracle.readers.network import spec_text
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
    if asked.format == "huggingface":
        from oracle.readers import huggingface

        return huggingface.read(asked.what, asked.tokens, asked.name)
    needs(asked.format)
    if asked.format == "onnx":
        from oracle.readers import onnx

        return onnx.read(asked.what, asked.input, asked.tokens, asked.name)
    from oracle.readers import torch

    sample = (asked.tokens,) if asked.tokens else asked.input or (3, 224, 224)
    return torch.read(asked.what, sample, tokens=bool(asked.tokens), trust=asked.trust_code,
                      name=asked.name)  # fmt: skip


def needs(package: str) -> None:
    """A plain sentence where an optional package is missing."""
    from importlib.util import find_spec

    from oracle.spec.document import refusal

    if find_spec(package) is None:
        what = f"reading {package} models needs the package `{package}`"
        hint = "pip install 'oracle-training[onnx]'" if package == "onnx" else "pip install torch"
        raise refusal("import", what, hint, "E100")
