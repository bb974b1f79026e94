"""The spec of a workflow: a model, a search of many trainings, and the length of each."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from oracle.run.searches import Sought, Trials
from oracle.spec.catalogue import document, folder_of, is_path, shipped
from oracle.spec.changes import parted
from oracle.spec.document import Node, Place, from_data, refusal, suggest
from oracle.spec.options import SLOTS
from oracle.spec.precision import PRECISIONS
from oracle.spec.schema import Between, Clash, Count, read

FOLDER = "workflows"
Length = Annotated[float, Between(1e-3, 1e18)]
ENDS = ("epochs", "tokens", "steps", "to_target")
SIZES = ("batch", "max_batch")


@dataclass(frozen=True)
class Workflow:
    """Many trainings of one model, for a search, an ensemble or transfer."""

    model: str  # a shipped name, or a file in the same folder, with its changes
    search: Sought
    name: str = ""
    title: str = ""
    source: str = ""
    trials: Trials | None = None  # or members, children, points
    epochs: Length | None = None  # of one trial
    tokens: Length | None = None
    steps: Length | None = None
    to_target: bool = False  # until the model's target is met, the default
    batch: Count | None = None  # of one trial
    max_batch: Count | None = None  # the largest that is allowed; the fastest up to it is chosen
    plan: str | None = None  # of one trial; by default the fastest
    spread: Annotated[float, Between(0, 1)] | None = None  # of trials' times, 1σ by their mean
    dataset: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    software: str | None = None

    @property
    def length(self) -> float | None:
        """The stated length of a trial; None: until the model's target."""
        return self.epochs or self.tokens or self.steps

    def check(self) -> Iterator[Clash]:
        ends = [name for name in ENDS if getattr(self, name)]
        for name in ends[1:]:
            complaint = f"a trial ends by `{ends[0]}`, and by `{name}` as well"
            yield Clash(name, complaint, "one of the two")
        if self.batch is not None and self.max_batch is not None:
            yield Clash(
                "max_batch", "the batch is said, so that no other is tried", "one of the two"
            )
        if self.steps and self.batch is None:
            complaint = "steps of what batch?"
            yield Clash("steps", complaint, "--batch, or `batch:`")
        for name, names in (("precision", PRECISIONS), ("optimizer", SLOTS)):
            word = str(getattr(self, name) or next(iter(names))).split(",")[0]
            if word not in names:
                yield Clash(name, f"unknown {name} `{word}`", suggest(word, names, "write one of"))
        yield from self.search.search.wrong(self.trials)


def workflow(source: Any, **settings: Any) -> Workflow:
    """Return a workflow by shipped name, path or dict, or of a model, changed by `settings`.

    The settings override those of the file. A SpecError lists every fault of both.
    """
    settings = {key: value for key, value in settings.items() if value not in (None, False)}
    first: Any = source
    changes: tuple[str, ...] = ()
    if not isinstance(source, Mapping):
        first, changes = parted(os.fspath(source))
    if isinstance(source, Mapping) or _of_workflow(first):
        node, name, text = document(first, FOLDER)
        _resolve_paths(node, folder_of(first, name))
        model = node.entries.get("model")
        if changes and model is not None and model.kind == "scalar":
            model.text = ",".join((model.text, *changes))
    else:
        node, name, text = Node(Place(path="the question"), "mapping"), "workflow", ""
        settings = {"model": os.fspath(source), "search": "random", **settings}
    for exclusive in (ENDS, SIZES):  # a setting replaces the others of its kind
        if any(key in settings for key in exclusive):
            for key in exclusive:
                node.entries.pop(key, None)
    if isinstance(settings.get("search"), str):
        settings["search"] = _settings(settings["search"])
    for key, value in settings.items():
        node.entries[key] = from_data(value, key)
        node.keys[key] = Place(path=key)
    return read(Workflow, node, name, text, label="workflow")


def _settings(text: str) -> dict[str, str]:
    """Return `halving,eta=4` as fields of a spec."""
    kind, *changes = text.split(",")
    settings = {"kind": kind}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not value or key in settings:
            complaint = f"`{change}` sets nothing"
            raise refusal("search", complaint, "e.g. `halving,eta=4`", "E112")
        settings[key] = value
    return settings


def _of_workflow(name: str) -> bool:
    """Return whether a name is that of a workflow: shipped, or a file with a `search`."""
    if not is_path(name):
        return name in shipped(FOLDER)
    if not os.path.isfile(name):
        return False
    return "search" in document(name, FOLDER)[0].entries


def _resolve_paths(node: Node, folder: Path | None) -> None:
    """Resolve the files that a workflow names from the workflow's folder."""
    for key in ("model", "dataset", "software"):
        entry = node.entries.get(key)
        if folder is None or entry is None or entry.kind != "scalar":
            continue
        first, *changes = entry.text.split(",")
        if is_path(first) and first != "-" and not os.path.isabs(first):
            entry.text = ",".join((str(folder / first), *changes))
