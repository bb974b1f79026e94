"""JSON Schema: of spec files, for editors; and of answers, for programs that read `--json`.

oracle schema                list what there is
oracle schema recommend      of what `oracle recommend --json` prints
oracle schema systems        of a system file; also models, devices, datasets, …
"""

from __future__ import annotations

import argparse

from oracle.commands.parser import Answer, as_json
from oracle.commands.specs import FOLDERS


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="a verb, or a kind of spec file")
    parser.add_argument("-o", "--output", dest="to", metavar="FILE",
                        help="write it there, whole or not at all; - prints it")  # fmt: skip


def run(args: argparse.Namespace) -> Answer:
    from oracle.commands import specs as specs_
    from oracle.show.contract import ANSWERS, answer
    from oracle.show.layout import within
    from oracle.spec.document import refusal, suggest

    if args.name is None:
        return Answer(within(f"specs: {' '.join(FOLDERS)}\nanswers: {' '.join(ANSWERS)}"))
    if args.name in ANSWERS:
        return Answer(as_json(answer(args.name)))
    if args.name in FOLDERS:
        return Answer(as_json(specs_.schema_of(args.name)))
    complaint = f"there is no schema of `{args.name}`"
    hint = suggest(args.name, [*FOLDERS, *ANSWERS], "write one of")
    raise refusal("schema", complaint, hint, "E110")
