"""The catalogue of spec files: shipped ones by name, a user's own by path, each read once."""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, cast

from oracle.spec.changes import WORDS, parted, rewrite, scalars
from oracle.spec.dataset import Dataset
from oracle.spec.dates import newest_until
from oracle.spec.device import Device
from oracle.spec.document import (
    Fault,
    Node,
    SpecError,
    from_data,
    load,
    nearest,
    refusal,
    suggest,
)
from oracle.spec.files import LOG, read_text
from oracle.spec.graphs.files import lines_of
from oracle.spec.schema import Clash, fields_of, read
from oracle.spec.software import Software
from oracle.spec.system import Collectives, System
from oracle.spec.what_if import TIMES, supposed

S = TypeVar("S")
FORMER = {"unet3d": "unet3d-kits19"}  # names that files went by
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


def singular(folder: str) -> str:
    """What one file of a folder is: `model` of `models`."""
    return folder if folder == "collectives" else folder.removesuffix("s")


def is_path(name: str) -> bool:
    """Whether a name is one of a file: it has a separator, or the ending of a spec."""
    return name == "-" or name.endswith((".yaml", ".yml", ".json")) or os.sep in name


def name_of(what: Any, folder: str) -> str:
    """The name or path that was given for a spec; a SpecError for anything else."""
    if isinstance(what, str | os.PathLike):
        return os.fspath(what)
    hint = "a shipped name, a path, or a dict of what a file would say"
    if folder == "models":
        hint += "; of a network in PyTorch: oracle import torch MODULE -o model.yaml"
    given = f"a `{type(what).__name__}`"
    raise refusal(singular(folder), f"{given} is no {singular(folder)}", hint, "E104")


def find(name: str, folder: str, beside: Path | None = None) -> Path:
    """The file of a shipped name, or of a path; a SpecError with the nearest name otherwise.

    A path that a spec names is looked for `beside` that spec.
    """
    if is_path(name):
        return Path(name) if beside is None or name == "-" else beside / name
    name = newest_until(name, shipped(folder)) if "@" in name else name
    known = shipped_folder() / folder / f"{FORMER.get(name, name)}.yaml"
    if name and os.path.isfile(known):
        return known
    names = shipped(folder)
    hint = suggest(name, names, f"shipped {folder}")
    if name and os.path.isfile((beside or Path()) / name):
        hint = f"write `.{os.sep}{name}` for the file"
    what = f"no shipped {singular(folder)} is called `{name}`"
    raise refusal(name, what, hint, "E110")


def swapped(model: Any, system: Any) -> tuple[str, str] | None:
    """(model, system) as they were meant, where each stands in the place of the other."""
    if not (isinstance(model, str) and isinstance(system, str)):
        return None
    models, systems = shipped("models"), shipped("systems")
    if model in models or system in systems or not (model in systems or system in models):
        return None
    first, second = (
        name if is_path(name) or name in known else nearest(name, known)
        for name, known in ((system, models), (model, systems))
    )
    return (first, second) if first and second else None


@dataclass(frozen=True, slots=True)
class Source:
    """A file that was read for a spec: what it holds, and the hash of its text."""

    kind: str  # "model", "dataset", "system", "device", "collectives", "graph"
    name: str  # as it was asked for
    path: Path
    sha256: str


_SOURCES: ContextVar[list[Source] | None] = ContextVar("sources", default=None)


@contextmanager
def noted() -> Iterator[list[Source]]:
    """Every file that is read for a spec inside, in that order."""
    found: list[Source] = []
    outer = _SOURCES.get()
    token = _SOURCES.set(found)
    try:
        yield found
    finally:
        _SOURCES.reset(token)
        if outer is not None:
            outer += found


def document(
    what: str | os.PathLike[str] | Mapping[str, Any], folder: str, beside: Path | None = None
) -> tuple[Node, str, str]:
    """(tree, name for messages, text) of a shipped name, a path, or a dict of the same content."""
    if isinstance(what, Mapping):
        return from_data(what), str(what.get("name", singular(folder))), ""
    path = find(name_of(what, folder), folder, beside)
    text = read_text(path)
    if (sources := _SOURCES.get()) is not None:
        sources.append(Source(singular(folder), os.fspath(what), path, digest(text)))
    return load(text, str(path), partly=True), str(path), text


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


class Kept:
    """What was built from files, as long as every one of them still says what it said."""

    def __init__(self, most: int) -> None:
        self.most = most
        self._found: dict[Any, tuple[Any, list[Source]]] = {}

    def get(self, key: Any, build: Callable[[], S]) -> S:
        """What `build` makes, or made before of the same files."""
        if key in self._found:
            found, sources = self._found[key]
            if all(_unchanged(source) for source in sources):
                if (outer := _SOURCES.get()) is not None:
                    outer += sources
                return cast(S, found)
        with noted() as sources:
            built = build()
        if len(self._found) >= self.most:
            del self._found[next(iter(self._found))]
        self._found[key] = built, sources
        return built


def _unchanged(source: Source) -> bool:
    try:
        return digest(read_text(source.path)) == source.sha256
    except SpecError:
        return False


_KEPT = Kept(64)


def _spec(kind: type[S], what: Any, beside: Path | None = None) -> S:
    if isinstance(what, kind):
        return what
    if isinstance(what, Mapping):
        return _build(kind, what)
    name = name_of(what, FOLDERS[kind])
    path = find(name, FOLDERS[kind], beside)
    return _KEPT.get((kind, name, path.absolute()), lambda: _build(kind, name, beside))


def _build(kind: type[S], what: Any, beside: Path | None = None) -> S:
    node, name, text = document(what, FOLDERS[kind], beside)
    _open_references(kind, node, folder_of(what, name))
    return read(kind, node, name, text, label=kind.__name__.lower())


def read_again(kind: type[S], body: Mapping[str, Any], beside: Path) -> S:
    """What a file of this content would be in a folder; a SpecError with every fault."""
    node, name, text = document(body, FOLDERS[kind])
    _open_references(kind, node, beside)
    return read(kind, node, name, text, label=kind.__name__.lower())


def folder_of(what: Any, name: str) -> Path | None:
    """The folder that the files which a spec names are beside; nothing of a dict, or of a pipe."""
    return None if isinstance(what, Mapping) or name == "-" else Path(name).parent


def _open_references(kind: type, node: Node, beside: Path | None = None) -> None:
    """`device: v100-sxm2-16gb` and `collectives: abci-nccl` stand for shipped files' content."""
    if kind is System and (parted := node.entries.get("partitions")) is not None:
        _open_partitions(node, parted, beside)
    fitted = node.entries.get("collectives") if kind is System else None
    if fitted is not None and not fitted.empty and fitted.kind != "mapping":
        given = [fitted] if fitted.kind == "scalar" else fitted.items
        opened = Node(fitted.place, "sequence")
        for item in given:
            shared = item.kind == "scalar" and not item.empty
            inner = _referred(item, "collectives", node, beside) if shared else None
            several = inner.entries.get("collectives") if inner else None
            opened.items += several.items if several else [inner or item]
        node.entries["collectives"] = opened
    levels = node.entries.get("levels") if kind is System else None
    for level in levels.items if levels is not None else ():
        graph = level.entries.get("graph")
        if graph is not None and graph.kind == "scalar" and not graph.empty:
            level.entries["graph"] = _drawn(graph, beside)
    entry = node.entries.get("device") if kind is System else None
    if entry is not None and entry.kind == "scalar" and not entry.empty:
        node.entries["device"] = _referred(entry, "devices", node, beside)


def _open_partitions(node: Node, parted: Node, beside: Path | None) -> None:
    """The systems that partitions name; the first says what the file itself is silent on.

    Of partitions of one system all that it says, of several its device and its network.
    """
    named: dict[str, Node] = {}
    for item in parted.items:
        entry = item.entries.get("system")
        if entry is None or entry.kind != "scalar" or entry.empty:
            continue
        if entry.text not in named:
            named[entry.text] = _referred(entry, "systems", node, beside)
        item.entries["system"] = named[entry.text]
    first = next(iter(named.values()), None)
    if first is None or first.kind != "mapping":
        return
    told = first.entries if len(named) == 1 else ("device", "levels")
    for key in told:
        if key in first.entries and key not in (*WORDS, "nodes", "partitions"):
            node.entries.setdefault(key, first.entries[key])
            node.keys.setdefault(key, first.keys.get(key, first.place))


def note_unknown(root: Node, field: str, folder: str) -> None:
    """A fault of the tree where a field names a shipped file that there is not."""
    entry = root.entries.get(field)
    if entry is None or entry.kind != "scalar" or entry.empty or is_path(entry.text):
        return
    if FORMER.get(entry.text, entry.text) not in (names := shipped(folder)):
        hint = suggest(entry.text, names, f"shipped {folder}")
        what = f"no shipped {singular(folder)} is called `{entry.text}`"
        root.faults.append(Fault("E110", what, entry.place, hint, len(entry.text)))


def _drawn(entry: Node, beside: Path | None) -> Node:
    """The lines of the graph in a file that a scalar names, beside the spec."""
    path = Path(entry.text) if beside is None else beside / entry.text
    text = read_text(path, "graph", LOG)
    if (sources := _SOURCES.get()) is not None:
        sources.append(Source("graph", entry.text, path, digest(text)))
    items = [Node(entry.place, "scalar", line) for line in lines_of(text, str(path))]
    return Node(entry.place, "sequence", items=items)


def _referred(entry: Node, folder: str, root: Node, beside: Path | None) -> Node:
    """The tree of the shipped file, or of the path, that a scalar names, where it is sound."""
    if not is_path(entry.text) and entry.text not in shipped(folder):
        hint = suggest(entry.text, shipped(folder), f"shipped {folder}")
        what = f"no shipped {folder} file is called `{entry.text}`"
        root.faults.append(Fault("E110", what, entry.place, hint, len(entry.text)))
        return Node(entry.place, "refused")
    kinds: dict[str, type] = {"devices": Device, "systems": System}
    try:
        inner, where, body = document(entry.text, folder, beside)
        if folder == "systems":
            _open_references(System, inner, folder_of(entry.text, where))
        read(kinds.get(folder, Collectives), inner, where, body, label=folder)
    except SpecError as error:  # the file that names it has faults of its own, perhaps
        root.within.append(error)
        return Node(entry.place, "refused")
    return inner


def dataset(what: Any, beside: Path | None = None) -> Dataset:
    """A data set by shipped name, path, or dict."""
    return _spec(Dataset, what, beside)


def system(what: Any) -> System:
    """A system by shipped name, path, or dict; after a name, fields to change.

    `dgx-h100,price=2.5 USD/h,pue=1.1`; of its device too: `device.power.busy=600 W`. What would be
    if is written `network*=2,memory*=0.5`, by the factors of `oracle.spec.what_if`.
    """
    if isinstance(what, System | Mapping):
        return _spec(System, what)
    named, changes = parted(name_of(what, "systems"))
    if not changes:
        return _spec(System, named)

    factors = [change for change in changes if TIMES in change]
    fields = [change for change in changes if TIMES not in change]

    def written() -> System:
        node, name, text = document(named, "systems")
        _open_references(System, node, folder_of(named, name))
        for change in fields:
            rewrite(node, change, list(scalars(System)), "system", "dgx-h100,price=2.5 USD/h")
        return _called(read(System, node, name, text, label="system"), fields)

    def build() -> System:
        if not factors:
            return written()
        found = system(",".join((named, *fields)))
        for change in factors:
            found = supposed(found, change.replace(TIMES, "="))
        return _called(found, factors)

    path = find(named, FOLDERS[System])
    return _KEPT.get((System, path.absolute(), *changes), build)


def _called(found: System, changes: Sequence[str]) -> System:
    """A system by its name and what is changed of it."""
    title = ", ".join((found.title or found.name, *changes)).replace(TIMES, " × ")
    return dataclasses.replace(found, name=",".join((found.name, *changes)), title=title)


def device(what: Any) -> Device:
    """A device by shipped name, path, or dict."""
    return _spec(Device, what)


def software(what: Any, also: Callable[[Software], Iterable[Clash]] | None = None) -> Software:
    """Software by name, path or dict; after a name, fields to change: `nemo,gradients=bf16`.

    `nemo@26.02` is the newest file of a family until a date.

    `also` finds what is wrong beside the types.
    """
    if isinstance(what, Software):
        return what
    if isinstance(what, Mapping):
        node, name, text = document(what, "software")
        return read(Software, node, name, text, label="software", also=also)
    named, *changes = name_of(what, "software").split(",")

    def build() -> Software:
        node, name, text = document(named, "software")
        for change in changes:
            rewrite(node, change, software_fields(), "--software", "nemo,gradients=bf16")
        found = read(Software, node, name, text, label="software", also=also)
        return found.but(changed=tuple(changes)) if changes else found

    path = find(named, "software")
    return _KEPT.get((Software, path.absolute(), *changes, also), build)


def software_fields() -> list[str]:
    """Every field of a software spec that takes one word or number, by group: `state.moments`."""
    found = []
    for group, (_, hint, _) in fields_of(Software).items():
        inner = fields_of(cast(Any, hint)) if dataclasses.is_dataclass(hint) else {}
        found += [f"{group}.{name}" for name in inner if name != "source"] or [group]
    return [each for each in found if each not in ("name", "source", "title")]
