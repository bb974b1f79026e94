"""Models of other tools in place of a spec, and sizes of micro-batches in place of their number.

Another tool's MODEL is read as `oracle import` reads it, with a line that says how. Its spec is
kept in the user's cache, under a name made of its content, so that the commands that an answer
names can be typed as they stand.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from oracle.commands.parser import Usage
from oracle.spec.files import cache_folder, read_json, write


def foreign_format(path: Path) -> str:
    """Return the format of a file that is no spec: `huggingface`, `onnx`, or nothing."""
    if path.suffix == ".onnx":
        return "onnx"
    if path.suffix != ".json":
        return ""
    try:
        content = read_json(path, "config")
    except (OSError, ValueError):  # whoever reads it as a spec says what is wrong with it
        return ""
    foreign = isinstance(content, dict) and {"model_type", "architectures"} & content.keys()
    return "huggingface" if foreign else ""


def read_foreign(request: argparse.Namespace) -> list[str]:
    """Put a spec in place of another tool's model, and return how it was read, in lines."""
    model_name = getattr(request, "model", None)
    if not isinstance(model_name, str) or not model_name or model_name == "-":
        return []
    name, comma, changes = model_name.partition(",")
    path = Path(name)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file() or not (kind := foreign_format(path)):
        return []
    from oracle.models.model import model
    from oracle.readers.importers import importer
    from oracle.readers.spec_text import spec_text

    tokens = getattr(request, "sequence", None)
    imported = importer(kind).read(str(path), sample=None, tokens=tokens, name="", trust=False)
    if tokens:
        request.sequence = None
    parameters = model(imported.spec).parameters
    title = path.resolve().parent.name if path.name == "config.json" else path.stem
    spec_path = keep(spec_text(imported.spec), str(imported.spec.get("name") or title))
    request.model = f"{spec_path}{comma}{changes}"
    command = f"oracle import {kind} {path}{f' --tokens {tokens}' * bool(tokens)}"
    return [
        f"read {path} as `{command}` does: {parameters:,.0f} parameters",
        *(f"note: {note}" for note in imported.notes),
        f"to change it: {command} -o my-model.yaml",
    ]


def keep(text: str, name: str) -> Path:
    """Write a spec into the user's cache, unless it is there, and return where."""
    from oracle.spec.catalogue import digest

    plain = "".join(char if char.isalnum() or char in ".-_" else "-" for char in name)
    path = cache_folder() / "models" / f"{plain}-{digest(text)[:8]}.yaml"
    if not path.is_file():
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, f"{text.rstrip()}\n".encode())
    return path


def micro_batches(request: argparse.Namespace) -> None:
    """Write `micro=k` of a plan, samples of a micro-batch, as the micro-batches of this batch."""
    plan_option = getattr(request, "plan", None)
    plans = [plan_option] if isinstance(plan_option, str) else list(plan_option or ())
    if not any("micro=" in plan for plan in plans):
        return
    from oracle.ask.largest import in_micro_batches

    if not isinstance(getattr(request, "batch", None), int):
        raise Usage("`micro=` of a plan needs --batch B, a number, which it cuts")
    written = [in_micro_batches(plan, request.batch) for plan in plans]
    request.plan = written[0] if isinstance(plan_option, str) else written
