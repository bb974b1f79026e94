"""The YAML text of a model spec, from an imported model."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

WIDE = 96  # characters of a line
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
# words that YAML 1.1 does not read as text
_WORDS = {"true", "false", "null", "yes", "no", "on", "off", "y", "n"}


def plain_name(text: str, otherwise: str = "imported") -> str:
    """Return a name that is safe in YAML, as a file and in a shell: others become dashes.

    >>> plain_name("meta-llama/Llama 2 7b"), plain_name('$(rm -rf /)"')
    ('meta-llama-Llama-2-7b', 'rm-rf')
    """
    plain = re.sub(r"[^A-Za-z0-9_.]+", "-", text[:200]).strip("-._")
    return plain or otherwise


def spec_text(spec: Mapping[str, Any]) -> str:
    """Return the YAML of a spec: one layer a line, blocks indented."""
    lines: list[str] = []
    for key, value in spec.items():
        if key == "layers":
            lines.append("layers:")
            lines += [line for layer in value for line in _layer(layer, "  ")]
        elif isinstance(value, Mapping):
            lines += [f"{key}:", *_wrapped(value)]
        else:
            lines.append(f"{key}: {flow(value)}")
    return "\n".join(lines) + "\n"


def _layer(layer: Any, indent: str) -> list[str]:
    if not (isinstance(layer, Mapping) and "layers" in layer):
        return [f"{indent}- {_entry(layer)}"]
    head = [f"{key}: {flow(value)}" for key, value in layer.items() if key != "layers"]
    lines = [
        f"{indent}{'- ' if i == 0 else '  '}{entry}" for i, entry in enumerate([*head, "layers:"])
    ]
    return lines + [line for inner in layer["layers"] for line in _layer(inner, indent + "    ")]


def _entry(layer: Any) -> str:
    if isinstance(layer, Mapping):
        return ", ".join(f"{key}: {flow(value)}" for key, value in layer.items())
    return flow(layer)


def _wrapped(value: Mapping[str, Any]) -> list[str]:
    lines, line = [], "  {"
    for i, (key, inner) in enumerate(value.items()):
        word = f"{key}: {flow(inner)}" + ("}" if i == len(value) - 1 else ",")
        if len(line) + len(word) > WIDE:
            lines.append(line.rstrip())
            line = "   "
        line += word + " "
    return [*lines, line.rstrip()]


def flow(value: Any) -> str:
    """Return a value on one line; a text that is more than a plain word is quoted."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(flow, value)) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value.lower() not in _WORDS:
        return value
    return json.dumps(value)
