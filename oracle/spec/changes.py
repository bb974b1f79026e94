"""Fields of a spec that are said anew beside its name: `llama2-70b,sequence=8192,layers=40`."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator, Sequence
from typing import Any, get_args

from oracle.spec.document import Node, Place, refusal, suggest
from oracle.spec.schema import fields_of

WORDS = ("name", "source", "title")  # of a spec, that no answer depends on


def parted(text: str) -> tuple[str, tuple[str, ...]]:
    """A name or file, and what is changed of it; a file whose name has a comma is one file."""
    if "," not in text or os.path.isfile(text):
        return text, ()
    name, *changes = text.split(",")
    return name, tuple(changes)


def rewrite(node: Node, change: str, known: Sequence[str], label: str, example: str) -> None:
    """Write one field anew: `state.moments=bf16`, or its last name where that is the only one."""
    key, equals, value = change.partition("=")
    if not equals or not value:
        raise refusal(label, f"`{change}` changes nothing", f"e.g. `{example}`", "E112")
    whole = [each for each in known if key == each]
    whole = whole or [each for each in known if key == each.rpartition(".")[2]]
    if len(whole) != 1:
        several = (
            f"`{key}` is a field of several groups" if whole else f"no field is called `{key}`"
        )
        hint = " or ".join(f"`{each}`" for each in whole) or suggest(key, known, "fields")
        raise refusal(label, several, hint, "E102")
    *groups, last = whole[0].split(".")
    at = node
    for group in groups:
        place = Place(path=f"{label} {whole[0]}")
        at.keys.setdefault(group, place)
        at = at.entries.setdefault(group, Node(place, "mapping"))
    at.entries[last] = Node(Place(path=f"{label} {change}"), "scalar", value)
    at.keys[last] = Place(path=f"{label} {change}")


def scalars(kind: Any, before: str = "") -> Iterator[str]:
    """Every field of a kind of spec that takes one word or number, by group: `latent.kv_rank`."""
    for name, (_, hint, _) in fields_of(kind).items():
        if (not before and name in WORDS) or getattr(hint, "__origin__", None) is tuple:
            continue
        inner = next((each for each in (hint, *get_args(hint)) if _record(each)), None)
        if inner is not None:
            yield from scalars(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def _record(hint: Any) -> bool:
    return isinstance(hint, type) and dataclasses.is_dataclass(hint)
