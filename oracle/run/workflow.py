"""A workflow as a spec says it: a model, a search of many trainings, how long each of them is."""

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

    model: str  # a shipped one, a file beside this one, each with its changes
    search: Sought
    name: str = ""
    title: str = ""
    source: str = ""
    trials: Trials | None = None  # or members, children, points
    epochs: Length | None = None  # of one trial
    tokens: Length | None = None
    steps: Length | None = None
    to_target: bool = False  # until the model's target is met; so where nobody says how long
    batch: Count | None = None  # of one trial
    max_batch: Count | None = None  # the largest worth having; the fastest up to it is chosen
    plan: str | None = None  # of one trial; the fastest is chosen where nobody says
    spread: Annotated[float, Between(0, 1)] | None = None  # of trials' times, 1σ by their mean
    dataset: str | None = None
    precision: str | None = None
    optimizer: str | None = None
    software: str | None = None

    @property
    def length(self) -> float | None:
        """How long a trial is, in what was said; None: to the model's target."""
        return self.epochs or self.tokens or self.steps

    def check(self) -> Iterator[Clash]:
        said = [name for name in ENDS if getattr(self, name)]
        for name in said[1:]:
            what = f"a trial ends by `{said[0]}`, and by `{name}` as well"
            yield Clash(name, what, "one of the two")
        if self.batch is not None and self.max_batch is not None:
            yield Clash(
                "max_batch", "the batch is said, so that no other is tried", "one of the two"
            )
        if self.steps and self.batch is None:
            what = "steps of what batch?"
            yield Clash("steps", what, "--batch, or `batch:`")
        for name, known in (("precision", PRECISIONS), ("optimizer", SLOTS)):
            word = str(getattr(self, name) or next(iter(known))).split(",")[0]
            if word not in known:
                yield Clash(name, f"unknown {name} `{word}`", suggest(word, known, "write one of"))
        yield from self.search.search.wrong(self.trials)


def workflow(what: Any, **said: Any) -> Workflow:
    """A workflow by shipped name, path or dict, or of a model; with what is `said` beside it.

    What is said counts before what the file says. A SpecError lists every fault of both.
    """
    said = {key: value for key, value in said.items() if value not in (None, False)}
    first: Any = what
    changes: tuple[str, ...] = ()
    if not isinstance(what, Mapping):
        first, changes = parted(os.fspath(what))
    if isinstance(what, Mapping) or _of_workflow(first):
        node, name, text = document(first, FOLDER)
        _beside(node, folder_of(first, name))
        model = node.entries.get("model")
        if changes and model is not None and model.kind == "scalar":
            model.text = ",".join((model.text, *changes))
    else:
        node, name, text = Node(Place(path="the question"), "mapping"), "workflow", ""
        said = {"model": os.fspath(what), "search": "random", **said}
    for several in (ENDS, SIZES):  # one of them is said, and said anew
        if any(key in said for key in several):
            for key in several:
                node.entries.pop(key, None)
    if isinstance(said.get("search"), str):
        said["search"] = _settings(said["search"])
    for key, value in said.items():
        node.entries[key] = from_data(value, key)
        node.keys[key] = Place(path=key)
    return read(Workflow, node, name, text, label="workflow")


def _settings(text: str) -> dict[str, str]:
    """`halving,eta=4` as a spec says it."""
    kind, *changes = text.split(",")
    found = {"kind": kind}
    for change in changes:
        key, equals, value = change.partition("=")
        if not equals or not value or key in found:
            what = f"`{change}` sets nothing"
            raise refusal("search", what, "e.g. `halving,eta=4`", "E112")
        found[key] = value
    return found


def _of_workflow(name: str) -> bool:
    """Whether a name is of a workflow's file: a shipped one, or one that says a `search`."""
    if not is_path(name):
        return name in shipped(FOLDER)
    if not os.path.isfile(name):
        return False
    return "search" in document(name, FOLDER)[0].entries


def _beside(node: Node, folder: Path | None) -> None:
    """Files that a workflow names are looked for beside it."""
    for key in ("model", "dataset", "software"):
        entry = node.entries.get(key)
        if folder is None or entry is None or entry.kind != "scalar":
            continue
        first, *changes = entry.text.split(",")
        if is_path(first) and first != "-" and not os.path.isabs(first):
            entry.text = ",".join((str(folder / first), *changes))
