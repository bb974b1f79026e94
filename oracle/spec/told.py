"""A block of a spec said in a line: `50 kh,restart=10 min,elastic`, over what the spec says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, TypeVar

from oracle.spec.changes import rewrite, scalars
from oracle.spec.document import Node, from_data, refusal, suggest
from oracle.spec.running import Checkpoint, Reliability
from oracle.spec.schema import fields_of, read, to_data
from oracle.spec.system import System

S = TypeVar("S", Reliability, Checkpoint)
OFTEN = ("mtbf", "per_1000_node_days")  # that say how often something fails
EXAMPLES = {Reliability: "50 kh,restart=10 min", Checkpoint: "async,every=30 min"}


def block(kind: type[S], text: str, said: S | None, label: str) -> S:
    """The block of a line; what it does not say is as the spec has it.

    A first word without `=` is of the block's first field, any other a field that is so or not.
    """
    known = [name for name in scalars(kind) if name != "of"]
    words = [word.strip() for word in text.split(",")]
    if "" in words:
        raise refusal(label, "nothing stands between two commas", f"e.g. `{EXAMPLES[kind]}`")
    told = []
    for number, word in enumerate(words):
        if "=" in word:
            told.append(tuple(part.strip() for part in word.split("=", 1)))
        elif _switch(kind, word):
            told.append((word, "true"))
        elif number == 0:
            told.append((kind.shorthand, word))
        else:
            hint = suggest(word, known, "fields")
            raise refusal(label, f"`{word}` says nothing of the {label[2:]}", hint)
    anew = {} if said is None else to_data(said)
    if any(key in OFTEN for key, _ in told):  # counted elsewhere, or said here
        anew = {key: value for key, value in anew.items() if key not in (*OFTEN, "of", "factor")}
    node: Node = from_data({**anew, "source": anew.get("source", label)})
    for key, value in told:
        rewrite(node, f"{key}={value}", known, label, EXAMPLES[kind])
    return read(kind, node, label, label=label)


def _switch(kind: Any, word: str) -> bool:
    """Whether a word is a field that is so or not."""
    known = fields_of(kind)
    return word in known and known[word][1] is bool


def as_said(system: System, failures: str | None = None, checkpoint: str | None = None) -> System:
    """The system with what is said of its failures, `none` of them at all, and its checkpoints.

    >>> from oracle.spec.catalogue import system
    >>> found = as_said(system("abci"), "50 kh,restart=10 min", "async,every=30 min")
    >>> found.reliability.mtbf, found.checkpoint.how, found.checkpoint.every
    (180000000.0, 'async', 1800.0)
    """
    if failures == "none":
        system = replace(system, reliability=None)
    elif failures is not None:
        said = block(Reliability, failures, system.reliability, "--failures")
        system = replace(system, reliability=said)
    if checkpoint is not None:
        how = block(Checkpoint, checkpoint, system.checkpoint, "--checkpoint")
        system = replace(system, checkpoint=how)
    return system
