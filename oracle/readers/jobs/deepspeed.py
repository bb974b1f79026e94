"""DeepSpeed's JSON, as settings `deepspeed.zero_optimization.stage`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from oracle.readers.jobs.sheet import Sheet
from oracle.spec import strict_json
from oracle.spec.document import Fault, Place, SpecError

TITLE = "DeepSpeed configuration (JSON)"
PRECEDENCE = 1
KNOWN = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
         "zero_optimization", "bf16", "fp16", "tensor_parallel", "pipeline")  # fmt: skip


def recognises(text: str) -> bool:
    return text.lstrip()[:1] == "{" and any(f'"{name}"' in text for name in KNOWN)


def parse(text: str, name: str, sheet: Sheet, first: int = 1) -> None:
    """Add the settings of a JSON object whose text begins on the line `first` of its file."""
    try:
        content = strict_json.loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 0) + first - 1
        complaint = f"not JSON that can be trusted: {getattr(error, 'msg', error)}"
        place = Place(line, getattr(error, "colno", 0))
        raise SpecError(
            name, [Fault("E101", complaint, place)], sheet.texts.get(name, text)
        ) from None
    if not isinstance(content, Mapping):
        raise SpecError(name, [Fault("E104", "a configuration is `{…}`", Place(first, 1))], text)
    lines = text.splitlines()
    for path, value in _leaves(content):
        sheet.add(f"deepspeed.{path}", value, name, _line(lines, path) + first - 1)


def _leaves(tree: Mapping[str, Any], path: str = "", depth: int = 0) -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping) and depth < 8:
            yield inner, ""  # the group itself is a setting
            yield from _leaves(value, inner, depth + 1)
        else:
            yield inner, "True" if value is True else str(value)


def _line(lines: list[str], path: str) -> int:
    """Return the line of a key, searched after the lines of the groups that hold it."""
    place = 0
    for key in path.split("."):
        quoted_key = re.compile(rf'"{re.escape(key)}"\s*:')
        place = next((i for i in range(place, len(lines)) if quoted_key.search(lines[i])), place)
    return place + 1
