"""Where an answer comes from: the tool, and a hash of everything that was read for it."""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from oracle.spec.catalogue import document
from oracle.spec.files import LOG, read_text
from oracle.spec.version import __version__


@dataclass(frozen=True, slots=True)
class Read:
    """A spec file that was read."""

    kind: str
    name: str
    text: str

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()


def specs_read(
    model: str, system: str, dataset: str | None = None, profile: str | None = None
) -> list[Read]:
    """The model, the system, the data set, and the files that these name in turn."""
    found = list(_read(model, system, dataset))
    if profile:
        found.append(Read("profile", profile, read_text(profile, "profile", LOG)))
    return found


def _read(model: str, system: str, dataset: str | None) -> Iterator[Read]:
    root, _, text = document(model, "models")
    yield Read("model", model, text)
    given = root.entries.get("dataset")
    if dataset or (given is not None and not given.empty):
        name = dataset or given.text  # type: ignore[union-attr]
        yield Read("dataset", name, document(name, "datasets")[2])
    root, _, text = document(system, "systems")
    yield Read("system", system, text)
    for field, folder in (("device", "devices"), ("collectives", "collectives")):
        node = root.entries.get(field)
        for one in (node.items or [node]) if node is not None else ():
            if one.kind == "scalar" and not one.empty:
                yield Read(field, one.text, document(one.text, folder)[2])


def stamped(data: dict[str, Any], read: Iterable[Read] = ()) -> dict[str, Any]:
    """An answer as JSON with what made it and from what."""
    inputs = [{"kind": one.kind, "name": one.name, "sha256": one.sha256} for one in read]
    return {
        "schema": 1, **data, "tool": {"name": "oracle", "version": __version__},
        **({"inputs": inputs} if inputs else {}),
    }  # fmt: skip


def signed(data: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """The same for a command line that names a model and a system."""
    return stamped(data, specs_read(asked.model, asked.system, asked.dataset, asked.profile))
