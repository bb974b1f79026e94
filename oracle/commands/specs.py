"""List, show, check and begin model, system, software, device, data set and workflow files.

oracle specs list [models|systems|software|devices|datasets|workflows]
oracle specs show NAME
oracle specs basis [SYSTEM...]     which parts of a system are measured, and the basis of the rest
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


def run(args: argparse.Namespace) -> Answer:
    if args.what == "new":
        return new_spec.new(args, opened)
    if strays := [f"`--{key}`" for key in new_spec.flag_answers(args)]:
        complaint = f"{', '.join(strays)} is for `oracle specs new`, not `{args.what}`"
        raise refusal("specs", complaint, "see `oracle specs --help`", "E112")
    if args.what == "list":
        return listed(args)
    if args.what == "basis":
        return founded(args)
    if not args.names:
        complaint = f"`oracle specs {args.what}` takes at least one name"
        raise refusal("specs", complaint, "see `oracle specs --help`", "E112")
    return {"show": spec_texts, "check": checked, "schema": schema}[args.what](args)


def listed(args: argparse.Namespace) -> Answer:
    from oracle.show.layout import within
    from oracle.spec.catalogue import shipped

    folders = [f for f in FOLDERS if not args.names or f in args.names]
    if not folders:
        raise _unknown(args.names[0], FOLDERS)
    names_by_folder = {folder: sorted(shipped(folder)) for folder in folders}
    rows = [
        {"kind": folder, "name": name}
        for folder, names in names_by_folder.items()
        for name in names
    ]
    lines = [f"{folder}: {' '.join(names)}" for folder, names in names_by_folder.items()]
    return formatted(args, lambda: within("\n".join(lines)), lambda: names_by_folder, lambda: rows)


def spec_texts(args: argparse.Namespace) -> Answer:
    from oracle.spec.catalogue import is_path, shipped
    from oracle.spec.files import read_text

    texts = []
    for name in args.names:
        paths = [shipped(folder)[name] for folder in FOLDERS if name in shipped(folder)]
        if not paths and not is_path(name):
            raise _unknown(name, [n for folder in FOLDERS for n in shipped(folder)])
        texts += [read_text(path).rstrip() for path in paths or [Path(name)]]
    return Answer("\n---\n".join(texts))


def founded(args: argparse.Namespace) -> Answer:
    """Return the basis of systems' numbers, part by part; of all shipped ones if none is named."""
    from oracle.show.layout import within
    from oracle.spec import catalogue
    from oracle.spec.basis import basis

    rows = [{"system": name, "part": entry.part, "basis": entry.short, "told": entry.told}
            for name in args.names or catalogue.shipped("systems")
            for entry in basis(catalogue.system(name))]  # fmt: skip

    def text() -> str:
        if args.names:
            return "\n".join(f"{row['system']}, {row['part']}: {row['basis']}\n"
                             f"  {row['told']}" for row in rows)  # fmt: skip
        names = dict.fromkeys(row["system"] for row in rows)
        return "\n".join(
            f"{name}: " + "; ".join(f"{row['part']} {row['basis']}" for row in rows
                                    if row["system"] == name) for name in names)  # fmt: skip

    data = {"schema": 1, "systems": rows}
    return formatted(args, lambda: within(text()), lambda: data, lambda: rows)


def checked(args: argparse.Namespace) -> Answer:
    from oracle.spec import catalogue

    lines, errors, warned = [], [], []
    files: list[dict[str, Any]] = []
    for name in args.names:
        kind = args.kind
        try:
            kind = kind or kind_of(name)
            implausible = _implausible(name, kind, opened(kind, name))
            lines.append(f"{name}: a sound {catalogue.singular(kind)} spec")
            warned += ["warning: {}:{line}: {field}: {what}; {hint}".format(name, **warning)
                       for warning in implausible]  # fmt: skip
            files.append({"name": name, "kind": kind, "sound": True, "faults": [],
                          "warnings": implausible})  # fmt: skip
        except SpecError as error:
            errors.append(str(error))
            faults = [
                {"code": fault.code, "what": fault.what, "line": fault.place.line,
                 "column": fault.place.column, "hint": fault.hint, "file": part.name}
                for part in error.every() for fault in part.faults
            ]  # fmt: skip
            files.append({"name": name, "kind": kind, "sound": False, "faults": faults,
                          "warnings": []})  # fmt: skip
    rows = [{"name": file["name"], "kind": file["kind"], **fault} for file in files
            for fault in file["faults"] or [dict.fromkeys(FAULT)]]  # fmt: skip
    note = "\n\n".join([*errors, *warned]) if (args.form or "text") == "text" else ""
    return formatted(
        args, lambda: "\n".join(lines), lambda: {"schema": 1, "files": files}, lambda: rows,
        2 if errors else 0, note,
    )  # fmt: skip


def _implausible(name: str, kind: str, spec: object) -> list[dict[str, Any]]:
    """Return the values that no machine is known to have, each with its line."""
    from oracle.spec.catalogue import document
    from oracle.spec.plausible import warnings

    rows: list[dict[str, Any]] = []
    for warning in warnings(spec) if kind in ("systems", "devices", "datasets") else ():
        place = document(name, kind)[0].at(warning.field).place
        rows.append({"field": warning.field, "what": warning.what, "line": place.line,
                     "column": place.column, "hint": warning.hint})  # fmt: skip
    return rows


def schema(args: argparse.Namespace) -> Answer:
    if args.names[0] not in FOLDERS:
        raise _unknown(args.names[0], FOLDERS)
    return Answer(as_json(schema_of(args.names[0])))


def schema_of(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of spec file."""
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
    """Return the kind that a file is meant to be, by the fields that only one kind has."""
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


def _unknown(name: str, names: Iterable[str]) -> SpecError:
    return refusal("specs", f"nothing is called `{name}`", suggest(name, names), "E110")
