"""The catalogue of spec files: shipped ones by name, a user's own by path, each read once."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar, cast

from oracle.spec.dataset import Dataset
from oracle.spec.device import Device
from oracle.spec.document import (
    Fault,
    Node,
    Place,
    from_data,
    load,
    read_text,
    refusal,
    suggest,
)
from oracle.spec.schema import Clash, fields_of, read
from oracle.spec.software import Software
from oracle.spec.system import Collectives, System

S = TypeVar("S")
FOLDERS: dict[type, str] = {
    Dataset: "datasets", Device: "devices", System: "systems", Software: "software",
}  # fmt: skip


def shipped_folder() -> Path:
    """The folder of shipped specs: inside the wheel, or beside the package in a checkout."""
    inside = Path(__file__).parent / "shipped"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "specs"


def shipped(folder: str) -> dict[str, Path]:
    """Name -> file, of the specs that come with the package."""
    return {path.stem: path for path in sorted((shipped_folder() / folder).glob("*.yaml"))}


def kind(folder: str) -> str:
    """What one file of a folder is: `model` of `models`."""
    return folder.removesuffix("s")


def find(name: str, folder: str) -> Path:
    """The file of a shipped name, or of a path; a SpecError with the nearest name otherwise."""
    named = name == "-" or name.endswith((".yaml", ".yml", ".json"))
    if named or os.sep in name or os.path.isfile(name):
        return Path(name)
    known = shipped_folder() / folder / f"{name}.yaml"
    if os.path.basename(name) == name and os.path.isfile(known):
        return known
    names = shipped(folder)
    hint = suggest(name, names, f"shipped {folder}")
    what = f"no shipped {kind(folder)} is called `{name}`, and there is no such file"
    raise refusal(name, what, hint, "E110")


def document(
    what: str | os.PathLike[str] | Mapping[str, Any], folder: str
) -> tuple[Node, str, str]:
    """(tree, name for messages, text) of a shipped name, a path, or a dict of the same content."""
    if isinstance(what, Mapping):
        return from_data(what), str(what.get("name", kind(folder))), ""
    path = find(os.fspath(what), folder)
    text = read_text(path)
    return load(text, str(path), partly=True), str(path), text


def _spec(kind: type[S], what: Any) -> S:
    if isinstance(what, kind):
        return what
    if isinstance(what, Mapping):
        return _build(kind, what)
    path = find(os.fspath(what), FOLDERS[kind])
    stamp = path.stat().st_mtime_ns if os.path.isfile(path) else 0
    found: S = _cached(cast(Any, kind), str(path), stamp)
    return found


@lru_cache(maxsize=64)
def _cached(kind: type, path: str, stamp: int) -> Any:
    return _build(kind, path)


def _build(kind: type[S], what: Any) -> S:
    node, name, text = document(what, FOLDERS[kind])
    _open_references(kind, node)
    return read(kind, node, name, text, label=kind.__name__.lower())


def _open_references(kind: type, node: Node) -> None:
    """`device: v100-sxm2-16gb` and `collectives: abci-nccl` stand for shipped files' content."""
    fitted = node.entries.get("collectives") if kind is System else None
    if fitted is not None and not fitted.empty and fitted.kind != "mapping":
        given = [fitted] if fitted.kind == "scalar" else fitted.items
        opened = Node(fitted.place, "sequence")
        for item in given:
            shared = item.kind == "scalar" and not item.empty
            inner = _referred(item, "collectives", node) if shared else None
            several = inner.entries.get("collectives") if inner else None
            opened.items += several.items if several else [inner or item]
        node.entries["collectives"] = opened
    entry = node.entries.get("device") if kind is System else None
    if entry is not None and entry.kind == "scalar" and not entry.empty:
        node.entries["device"] = _referred(entry, "devices", node)


def _referred(entry: Node, folder: str, root: Node) -> Node:
    """The tree of the shipped file, or of the path, that a scalar names; sound by itself."""
    if entry.text not in shipped(folder) and not entry.text.endswith((".yaml", ".yml")):
        hint = suggest(entry.text, shipped(folder), f"shipped {folder}")
        what = f"no shipped {folder} file is called `{entry.text}`"
        root.faults.append(Fault("E110", what, entry.place, hint, len(entry.text)))
        return Node(entry.place, "refused")
    inner, where, body = document(entry.text, folder)
    read(Device if folder == "devices" else Collectives, inner, where, body, label=folder)
    return inner


def dataset(what: Any) -> Dataset:
    """A data set by shipped name, path, or dict."""
    return _spec(Dataset, what)


def system(what: Any) -> System:
    """A system by shipped name, path, or dict."""
    return _spec(System, what)


def device(what: Any) -> Device:
    """A device by shipped name, path, or dict."""
    return _spec(Device, what)


def software(what: Any, also: Callable[[Software], Iterable[Clash]] | None = None) -> Software:
    """Software by name, path or dict; after a name, fields to change: `nemo,gradients=bf16`.

    `also` finds what is wrong beside the types.
    """
    if isinstance(what, Software):
        return what
    if isinstance(what, Mapping):
        node, name, text = document(what, "software")
        return read(Software, node, name, text, label="software", also=also)
    named, *changes = os.fspath(what).split(",")
    node, name, text = document(named, "software")
    for change in changes:
        _change(node, change)
    found = read(Software, node, name, text, label="software", also=also)
    return found.but(changed=tuple(changes)) if changes else found


def _change(node: Node, change: str) -> None:
    """Write one field anew: `state.moments=bf16`, or its last name where that is the only one."""
    key, equals, value = change.partition("=")
    if not equals or not value:
        hint = "e.g. `nemo,gradients=bf16`"
        raise refusal("--software", f"`{change}` changes nothing", hint, "E112")
    known = software_fields()
    whole = [each for each in known if key in (each, each.rpartition(".")[2])]
    if len(whole) != 1:
        several = (
            f"`{key}` is a field of several groups" if whole else f"no field is called `{key}`"
        )
        hint = " or ".join(f"`{each}`" for each in whole) or suggest(key, known, "fields")
        raise refusal("--software", several, hint, "E102")
    *groups, last = whole[0].split(".")
    at = node
    for group in groups:
        place = Place(path=f"software {whole[0]}")
        at = at.entries.setdefault(group, Node(place, "mapping"))
        node.keys.setdefault(group, place)
    at.entries[last] = Node(Place(path=f"--software {change}"), "scalar", value)
    at.keys[last] = Place(path=f"--software {change}")


def software_fields() -> list[str]:
    """Every field of a software spec that takes one word or number, by group: `state.moments`."""
    found = []
    for group, (_, hint, _) in fields_of(Software).items():
        inner = fields_of(cast(Any, hint)) if dataclasses.is_dataclass(hint) else {}
        found += [f"{group}.{name}" for name in inner if name != "source"] or [group]
    return [each for each in found if each not in ("name", "source", "title")]
