"""Write a model spec from a torch module, an ONNX file or a Hugging Face config; read a job.

oracle import huggingface CONFIG.json -o model.yaml       (--tokens T: another length)
oracle import torch package.module:factory --input 3,224,224 --trust-code -o model.yaml
oracle import torch package.module:factory --tokens 2048 --trust-code
oracle import torch package.module:factory --input 13 --input words:26 --trust-code   two inputs
oracle import onnx MODEL.onnx -o model.yaml
oracle import job train.sh ds_config.json --system dgx-a100   what it takes, does it fit, is
oracle import job train.sbatch --set TP=8 -o launch/          anything better; or as files
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oracle.commands.arguments import samples_or_max, whole_number
from oracle.commands.parser import Answer, as_json

if TYPE_CHECKING:
    from oracle.readers.importers import Imported


def arguments(parser: argparse.ArgumentParser) -> None:
    from oracle.readers.importers import formats

    known_formats = [*formats(), "job"]
    parser.add_argument(
        "format", choices=known_formats, metavar="FORMAT", help=", ".join(known_formats)
    )
    parser.add_argument("what", metavar="WHAT", nargs="+",
                        help="a file, package.module:factory, the files of a job")  # fmt: skip
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="where to write, a folder for a job; else it is printed")  # fmt: skip
    parser.add_argument("--force", action="store_true", help="write over a file that is there")
    parser.add_argument("--name", default="", help="of the model; else as the file says")
    parser.add_argument(
        "--input",
        type=extents,
        metavar="C,H,W",
        action="append",
        help="shape of one sample; again for each further input, words:T of words",
    )
    parser.add_argument(
        "--tokens", type=whole_number, metavar="T", help="words in a sample, instead"
    )
    parser.add_argument("--trust-code", action="store_true", help="run the code that is named")
    parser.add_argument("--dataset", metavar="D", help="the data set it is usually trained on")
    parser.add_argument("--json", action="store_true", dest="as_json", help="the same as JSON")
    job = parser.add_argument_group("options of a job")
    job.add_argument("--system", metavar="S", help="predict it there, and look for better plans")
    job.add_argument("--devices", type=whole_number, metavar="N", help="where the files do not say")
    job.add_argument("--model", metavar="M", help="a model spec, where the files do not say it")
    job.add_argument("--software", metavar="S", help="that runs it; else as the flags suggest")
    job.add_argument("--set", action="append", default=[], type=setting, metavar="NAME=VALUE",
                     dest="variables", help="a variable of a script, or an argument")  # fmt: skip
    job.add_argument("--batch", type=samples_or_max, metavar="B",
                     help="another batch; max: of the largest micro-batches that fit")  # fmt: skip


def extents(text: str) -> tuple[int | str, ...]:
    """Return the shape of an option: `3,224,224` or `3x224x224`; of words, `words:26`."""
    kind, colon, shape = text.rpartition(":")
    words = shape.replace("x", ",").split(",")
    if not 1 <= len(words) <= 4 or kind not in ("", "words"):
        raise argparse.ArgumentTypeError(f"`{text}` is not a shape such as 3,224,224 or words:26")
    sizes = tuple(whole_number(word.strip()) for word in words)
    return (kind, *sizes) if colon else sizes


def setting(text: str) -> tuple[str, str]:
    """Return the name and the value of `TP=4`."""
    name, equals, value = text.partition("=")
    if not equals or not name.strip():
        raise argparse.ArgumentTypeError(f"`{text}` sets nothing: write NAME=VALUE")
    return name.strip(), value


def run(args: argparse.Namespace) -> Answer:
    if args.format == "job":
        from oracle.commands.job import answer

        return answer(args)
    from oracle.models.model import model
    from oracle.readers.spec_text import spec_text
    from oracle.spec.units import show

    imported_model = imported(args)
    spec = dict(imported_model.spec)
    if args.dataset:
        spec = {"name": spec.pop("name"), "source": spec.pop("source"), "dataset": args.dataset,
                **spec}  # fmt: skip
    loaded = model(spec)  # every fault of what was read is said now, not later
    text = as_json(spec) if args.as_json else spec_text(spec).rstrip()
    notes = [
        f"{spec['name']}: {loaded.parameters:,.0f} parameters, "
        f"{show(loaded.flop, 'FLOP')} a sample, both passes",
        *(f"note: {note}" for note in imported_model.notes),
    ]
    if not args.output:
        return Answer(text, note="\n".join(notes))
    from oracle.writers.export import put

    put({args.output: text + "\n"}, force=args.force)
    return Answer(note="\n".join([*notes, f"written to {args.output}"]))


def imported(args: argparse.Namespace) -> Imported:
    """Return the model that the reader of the named format makes."""
    from oracle.readers.importers import importer
    from oracle.spec.document import refusal

    if len(args.what) > 1:
        raise refusal("import", f"{len(args.what)} names for one model", "one, or `import job`")
    shapes = args.input or [None]
    if args.format != "torch" and (len(shapes) > 1 or "words" in (shapes[0] or ())):
        complaint = "several inputs, or words, are read from torch alone"
        raise refusal("import", complaint, "one --input")
    sample = shapes if len(shapes) > 1 else shapes[0]
    imported_model: Imported = importer(args.format).read(
        args.what[0], sample=sample, tokens=args.tokens, name=args.name, trust=args.trust_code
    )
    return imported_model
