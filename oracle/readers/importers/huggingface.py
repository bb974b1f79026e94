"""Hugging Face `config.json`: the common families as a `transformer:` block, or as layers.

Only the file is read; no library is needed and nothing is fetched. Features that the block cannot
express (norms of queries, parallel branches) are left out and named in `Imported.notes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from oracle.readers.config_json import Config
from oracle.readers.families import FAMILIES
from oracle.readers.importers import Imported
from oracle.readers.spec_text import plain_name
from oracle.spec.document import SpecError, refusal, suggest
from oracle.spec.files import read_json


def read(
    source: str | Path, sample: Sequence[int] | None = None, tokens: int | None = None,
    name: str = "", trust: bool = False,
) -> Imported:  # fmt: skip
    """Return the model spec of a config file, or of the folder that holds one.

    `tokens` is another length of the sequence; no `sample` is needed, and no `trust`.
    """
    place = Path(source)
    place = place / "config.json" if place.is_dir() else place
    fields = read_json(place, "config")
    if not isinstance(fields, Mapping):
        raise _stop(place, "a config is a JSON object `{…}`")
    return convert(fields, str(place), tokens, name)


def convert(
    fields: Mapping[str, Any],
    path: str = "config.json",
    sequence: int | None = None,
    name: str = "",
) -> Imported:
    """Return the model spec of a config's fields."""
    kind = fields.get("model_type")
    if not isinstance(kind, str):
        hint = "is this the config.json of a model, not of a tokenizer or a scheduler?"
        raise _stop(path, "`model_type` is missing: it names the family", hint)
    if kind not in FAMILIES:
        nested = fields.get("text_config")
        if isinstance(nested, Mapping) and nested.get("model_type") in FAMILIES:
            text_part = convert(nested, path, sequence, name)
            return Imported(text_part.spec, (*text_part.notes, "only the text part is described"))
        raise _stop(
            path, f"no family `{kind[:60]}` is known here", suggest(kind, sorted(FAMILIES), "known")
        )
    config = Config(path, fields, length=sequence)
    body = FAMILIES[kind](config)
    if config.faults:
        raise SpecError(path, config.faults)
    config_path = Path(path)
    stem = config_path.stem if config_path.stem != "config" else config_path.parent.name
    model_name = plain_name(
        name or config.text("_name_or_path").strip("/").rpartition("/")[2] or stem, kind
    )
    source = f"Hugging Face config.json, model_type {kind}"
    return Imported({"name": model_name, "source": source, **body}, tuple(config.notes))


def _stop(path: Any, complaint: str, hint: str = "") -> SpecError:
    return refusal(str(path), complaint, hint, "E110")
