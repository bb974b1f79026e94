"""Where an answer comes from: the tool, the files read for it, and who set each option."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oracle.spec.catalogue import Source, noted
from oracle.spec.files import LOG, TRACE, read_bytes, read_text
from oracle.spec.version import __version__

KINDS = ("model", "dataset", "system", "device", "collectives", "software", "profile", "file")
# options that an answer depends on, by their long names
OPTIONS = ("dataset", "max-memory", "precision", "optimizer", "ideal", "gamma", "algorithm",
           "profile", "software", "any", "reading", "shuffle", "epochs", "grow", "objective",
           "workspace", "risk", "fastest", "top", "only", "without", "batch", "batch-per-device",
           "devices", "plan", "nodes", "search", "trials", "max-batch", "spread")  # fmt: skip
KEPT_AS = {"any": "any_plan"}  # where an option is kept under another name than its own


def specs_read(
    model: str, system: str, dataset: str | None = None, profile: str | None = None,
    software: str | None = None, ideal: bool = False,
) -> list[Source]:  # fmt: skip
    """The model, the system, the data set, the software, and the files that these name in turn."""
    from oracle.models.model import model as load_model
    from oracle.predict.defaults import options_for
    from oracle.spec import catalogue

    with noted() as found:
        what, where = load_model(model, dataset), catalogue.system(system)
        if software or not ideal:
            catalogue.software(software or options_for(what, where).software.name)
    if dataset:  # the model's own was not used
        found = [one for one in found if one.kind != "dataset" or one.name == dataset]
    if profile:
        found += files_read([profile], "profile")
    return sorted(dict.fromkeys(found), key=lambda one: KINDS.index(one.kind))


def files_read(paths: Iterable[str], kind: str = "file") -> list[Source]:
    """Files that were read beside specs: logs, measurements, those of a job."""
    return [
        Source(kind, path, Path(path), hashlib.sha256(read_bytes(path, kind, TRACE)).hexdigest())
        for path in paths if path != "-"
    ]  # fmt: skip


def inputs_of(
    asked: argparse.Namespace, models: Iterable[str], systems: Sequence[str]
) -> list[Source]:
    """The files that were read for a command line on these models and systems, each once."""
    also = (getattr(asked, name, None) for name in ("dataset", "profile", "software", "ideal"))
    dataset, profile, software, ideal = also
    found = [
        one for model in models for system in systems
        for one in specs_read(model, system, dataset, profile, software, bool(ideal))
    ]  # fmt: skip
    return sorted(dict.fromkeys(found), key=lambda one: KINDS.index(one.kind))


def text_of(one: Source) -> str:
    """What a file holds that was read."""
    return read_text(one.path, one.kind, LOG)


def usual(asked: argparse.Namespace) -> dict[str, Any]:
    """What the model makes of options that nobody said."""
    from oracle.models.model import model as load_model
    from oracle.predict.defaults import options_for
    from oracle.spec import catalogue

    said: dict[str, Any] = {
        name: getattr(asked, name, None) for name in ("precision", "optimizer", "software")
    }
    model, system = load_model(asked.model, asked.dataset), catalogue.system(asked.system)
    options = options_for(model, system, **said, ideal=bool(getattr(asked, "ideal", False)))
    return {
        "precision": options.precision, "optimizer": options.optimizer_text,
        "software": options.software.label,
        "dataset": model.dataset.name if model.dataset else None,
    }  # fmt: skip


def resolved(data: dict[str, Any], asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Of each option its value, and who set it: the command line, a file of settings, the model."""
    found: dict[str, dict[str, Any]] = {}
    for name in OPTIONS:
        key = KEPT_AS.get(name, name.replace("-", "_"))
        if not hasattr(asked, key):
            continue
        value, origin = getattr(asked, key), getattr(asked, "origins", {}).get(name, "default")
        if value is None and data.get(key) is not None:  # not said: as is usual for the model
            value, origin = data[key], "model"
        if value not in (None, []):
            found[name] = {"value": value, "origin": origin}
    return found


def stamped(data: dict[str, Any], read: Iterable[Source] = ()) -> dict[str, Any]:
    """An answer as JSON with what made it and from what."""
    inputs = [{"kind": one.kind, "name": one.name, "sha256": one.sha256} for one in read]
    return {
        "schema": 1, **data, "tool": {"name": "oracle", "version": __version__},
        **({"inputs": inputs} if inputs else {}),
    }  # fmt: skip


def signed(data: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The same for a command line that names a model and a system, with its options."""
    read = specs_read(asked.model, asked.system, asked.dataset, asked.profile, asked.software,
                      asked.ideal)  # fmt: skip
    return {**stamped(data, read), "options": resolved(data, asked)}
