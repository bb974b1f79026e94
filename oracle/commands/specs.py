"""List, show, check and begin model, system, software, device, data set and workflow files.

oracle specs list [models|systems|software|devices|datasets|workflows]
oracle specs show NAME
oracle specs basis [SYSTEM...]     what of a system is measured, and what the rest stands on
oracle specs check FILE...
oracle specs new system|model|software|dataset|device     asks, or takes flags; a commented file
oracle specs schema models|systems|software|devices|datasets|workflows     JSON Schema, for editors
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oracle.commands import new_spec
from oracle.commands.arguments import result_arguments
from oracle.commands.parser import Answer, as_json, formatted
from oracle.spec.document import SpecError, refusal, suggest

FAULT = ("code", "what", "line", "column", "hint", "file")
FOLDERS = ("models", "systems", "devices", "datasets", "software", "workflows")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=["list", "show", "basis", "check", "new", "schema"],
                        metavar="list|show|basis|check|new|schema", help="what to do")  # fmt: skip
    parser.add_argument("names", nargs="*", metavar="NAME",
                        help="shipped names, or files; of `new` a kind")  # fmt: skip
    parser.add_argument(
        "--kind", choices=FOLDERS, help="what a checked file is; told by its fields"
    )
    result_arguments(parser)
    new_spec.arguments(parser)


def run(asked: argparse.Namespace) -> Answer:
    if asked.what == "new":
        return new_spec.new(asked, opened)
    if strays := [f"`--{key}`" for key in new_spec.given(asked)]:
        what = f"{', '.join(strays)} is for `oracle specs new`, not `{asked.what}`"
        raise refusal("specs", what, "see `oracle specs --help`", "E112")
    if asked.what == "list":
        return listed(asked)
    if asked.what == "basis":
        return founded(asked)
    if not asked.names:
        what = f"`oracle specs {asked.what}` takes at least one name"
        raise refusal("specs", what, "see `oracle specs --help`", "E112")
    return {"show": shown, "check": checked, "schema": schema}[asked.what](asked)


def listed(asked: argparse.Namespace) -> Answer:
    from oracle.spec.catalogue import shipped

    wanted = [f for f in FOLDERS if not asked.names or f in asked.names]
    if not wanted:
        raise _unknown(asked.names[0], FOLDERS)
    found = {folder: sorted(shipped(folder)) for folder in wanted}
    rows = [{"kind": folder, "name": name} for folder, names in found.items() for name in names]
    lines = [f"{folder}: {' '.join(names)}" for folder, names in found.items()]
    return formatted(asked, lambda: "\n".join(lines), lambda: found, lambda: rows)


def shown(asked: argparse.Namespace) -> Answer:
    from oracle.spec.catalogue import is_path, shipped
    from oracle.spec.files import read_text

    texts = []
    for name in asked.names:
        paths = [shipped(folder)[name] for folder in FOLDERS if name in shipped(folder)]
        if not paths and not is_path(name):
            raise _unknown(name, [n for folder in FOLDERS for n in shipped(folder)])
        texts += [read_text(path).rstrip() for path in paths or [Path(name)]]
    return Answer("\n---\n".join(texts))


def founded(asked: argparse.Namespace) -> Answer:
    """What the numbers of systems stand on, part by part; of those shipped if none is named."""
    from oracle.spec import catalogue
    from oracle.spec.basis import basis

    rows = [{"system": name, "part": one.part, "basis": one.short, "told": one.told}
            for name in asked.names or catalogue.shipped("systems")
            for one in basis(catalogue.system(name))]  # fmt: skip

    def text() -> str:
        if asked.names:
            return "\n".join(f"{row['system']}, {row['part']}: {row['basis']}\n"
                             f"  {row['told']}" for row in rows)  # fmt: skip
        names = dict.fromkeys(row["system"] for row in rows)
        return "\n".join(
            f"{name}: " + "; ".join(f"{row['part']} {row['basis']}" for row in rows
                                    if row["system"] == name) for name in names)  # fmt: skip

    return formatted(asked, text, lambda: {"schema": 1, "systems": rows}, lambda: rows)


def checked(asked: argparse.Namespace) -> Answer:
    from oracle.spec import catalogue

    lines, errors, warned = [], [], []
    files: list[dict[str, Any]] = []
    for name in asked.names:
        kind = asked.kind
        try:
            kind = kind or kind_of(name)
            strange = _strange(name, kind, opened(kind, name))
            lines.append(f"{name}: a sound {catalogue.singular(kind)} spec")
            warned += ["warning: {}:{line}: {field}: {what}; {hint}".format(name, **one)
                       for one in strange]  # fmt: skip
            files.append({"name": name, "kind": kind, "sound": True, "faults": [],
                          "warnings": strange})  # fmt: skip
        except SpecError as error:
            errors.append(str(error))
            faults = [
                {"code": fault.code, "what": fault.what, "line": fault.place.line,
                 "column": fault.place.column, "hint": fault.hint, "file": one.name}
                for one in error.every() for fault in one.faults
            ]  # fmt: skip
            files.append({"name": name, "kind": kind, "sound": False, "faults": faults,
                          "warnings": []})  # fmt: skip
    rows = [{"name": file["name"], "kind": file["kind"], **fault} for file in files
            for fault in file["faults"] or [dict.fromkeys(FAULT)]]  # fmt: skip
    said = "\n\n".join([*errors, *warned]) if (asked.form or "text") == "text" else ""
    return formatted(
        asked, lambda: "\n".join(lines), lambda: {"schema": 1, "files": files}, lambda: rows,
        2 if errors else 0, said,
    )  # fmt: skip


def _strange(name: str, kind: str, spec: object) -> list[dict[str, Any]]:
    """Values that no machine is known to have, with the line where each stands."""
    from oracle.spec.catalogue import document
    from oracle.spec.plausible import warnings

    found: list[dict[str, Any]] = []
    for one in warnings(spec) if kind in ("systems", "devices", "datasets") else ():
        place = document(name, kind)[0].at(one.field).place
        found.append({"field": one.field, "what": one.what, "line": place.line,
                      "column": place.column, "hint": one.hint})  # fmt: skip
    return found


def schema(asked: argparse.Namespace) -> Answer:
    if asked.names[0] not in FOLDERS:
        raise _unknown(asked.names[0], FOLDERS)
    return Answer(as_json(schema_of(asked.names[0])))


def schema_of(kind: str) -> dict[str, Any]:
    """The JSON Schema of a kind of spec file."""
    from oracle.models.build import Network
    from oracle.run.workflow import Workflow
    from oracle.spec.dataset import Dataset
    from oracle.spec.device import Device
    from oracle.spec.json_schema import json_schema
    from oracle.spec.software import Software
    from oracle.spec.system import System

    kinds = {"models": Network, "systems": System, "devices": Device, "datasets": Dataset,
             "software": Software, "workflows": Workflow}  # fmt: skip
    return json_schema(kinds[kind], f"oracle {kind}")


def kind_of(name: str) -> str:
    """What a file is meant to be, by the fields only one kind has."""
    from oracle.spec.catalogue import document, shipped

    for folder in FOLDERS:
        if name in shipped(folder):
            return folder
    node, _, _ = document(name, "models")
    fields = set(node.entries)
    if "search" in fields:
        return "workflows"
    if fields & {"layers", "transformer", "input"}:
        return "models"
    if fields & {"levels", "collectives"}:
        return "systems"
    if fields & {"peak", "memory_bandwidth"}:  # before software, which has `kernels` too
        return "devices"
    if fields & {"exchange", "gather", "launch", "kernels", "state", "framework"}:
        return "software"
    return "datasets" if "samples" in fields else "systems"


def opened(kind: str, name: str) -> object:
    from oracle.models.model import model as load_model
    from oracle.plan.launchable import software
    from oracle.run.workflow import workflow
    from oracle.spec import catalogue

    read: dict[str, Any] = {
        "models": load_model,
        "systems": catalogue.system,
        "devices": catalogue.device,
        "datasets": catalogue.dataset,
        "software": software,
        "workflows": workflow,
    }
    return read[kind](name)


def _unknown(name: str, known: Iterable[str]) -> SpecError:
    return refusal("specs", f"nothing is called `{name}`", suggest(name, known), "E110")
