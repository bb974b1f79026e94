"""torchtitan's TOML, as settings `parallelism.tensor_parallel_degree`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from oracle.readers.jobs.sheet import Sheet
from oracle.spec.files import toml_of

TITLE = "torchtitan configuration (TOML)"
PRECEDENCE = 1
TABLES = ("parallelism", "training", "activation_checkpoint", "model", "job", "optimizer")

_TABLE = re.compile(r"^\s*\[\s*([\w.]+)\s*\]", re.MULTILINE)


def recognises(text: str) -> bool:
    tables = _TABLE.findall(text[: 2**18])
    return sum(name in TABLES for name in tables) >= 1 and "=" in text


def parse(text: str, name: str, sheet: Sheet) -> None:
    for path, value in _leaves(toml_of(text, name)):
        sheet.add(path, value, name, _line(text, path))


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    for key, value in tree.items():
        inner = f"{path}.{key}" if path else str(key)
        if isinstance(value, Mapping):
            yield from _leaves(value, inner)
        elif isinstance(value, list):
            yield inner, ",".join(map(str, value))
        else:
            yield inner, str(value)


def _line(text: str, path: str) -> int:
    table, _, key = path.rpartition(".")
    inside = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _TABLE.match(line):
            inside = header[1]
        if inside == table and re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line):
            return number
    return 1
