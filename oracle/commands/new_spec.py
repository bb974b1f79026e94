"""The answer of `specs new`: a spec file of one's own, from flags or from what a terminal says.

On a terminal every question that no flag answers is asked, Enter takes what is usual and `-`
leaves a line out; elsewhere the flags have to say what is not usual.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oracle.commands.parser import Answer, formatted
from oracle.spec.document import SpecError
from oracle.writers.blank import OPEN, QUESTIONS, answered, folder, questions, text, usual

NEXT = {
    "system": "oracle recommend MODEL {path} --devices N --batch B",
    "device": "oracle specs new system --device {path}",
    "model": "oracle recommend {path} SYSTEM --devices N --batch B",
    "software": "oracle recommend MODEL SYSTEM --software {path} --devices N --batch B",
    "dataset": "oracle recommend MODEL SYSTEM --dataset {path} --devices N --batch B",
}


def arguments(parser: argparse.ArgumentParser) -> None:
    """A flag for each question, once where several kinds ask it."""
    asked = [(kind, one) for kind, known in QUESTIONS.items() for one in known]
    of: dict[str, list[str]] = {}
    for kind, one in asked:
        of.setdefault(one.key, []).append(kind)
    groups: dict[str, Any] = {}
    for kind, one in asked:
        if of[one.key][0] != kind:
            continue
        title = f"new {kind}" if len(of[one.key]) == 1 else f"new {', '.join(QUESTIONS)}"
        if len(of[one.key]) in range(2, len(QUESTIONS)):
            title = f"new {' or '.join(of[one.key])}"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        usually = f" (default: {one.usual})" if one.usual and "{" not in one.usual else ""
        groups[title].add_argument(f"--{one.key}", metavar="V", dest=f"new_{one.key}",
                                   help=f"{one.asks}{usually}".replace("%", "%%"))  # fmt: skip


def given(asked: argparse.Namespace) -> dict[str, str]:
    """What the flags said."""
    told = {name.removeprefix("new_"): value for name, value in vars(asked).items()
            if name.startswith("new_")}  # fmt: skip
    return {key: value for key, value in told.items() if value is not None}


def new(asked: argparse.Namespace, opened: Callable[[str, str], object]) -> Answer:
    """Write a file that `opened(kind, path)` finds nothing wrong with."""
    from oracle.spec.document import refusal
    from oracle.writers.export import put

    if len(asked.names) != 1:
        what = "`oracle specs new` writes one file of one kind"
        raise refusal("specs new", what, f"write one of {', '.join(QUESTIONS)}", "E112")
    kind, said = asked.names[0], given(asked)
    questions(kind)
    if os.isatty(0) and os.isatty(2):
        said = from_a_terminal(kind, said)
    answers = answered(kind, said)
    path = Path(asked.to or f"{answers['name']}.yaml")
    asked.to = None
    if path.suffix not in (".yaml", ".yml"):
        raise refusal(str(path), "a spec file ends in .yaml", f"-o {path}.yaml", "E131")
    if path.exists() or path.is_symlink():
        what = "there is such a file already, and it stays as it is"
        raise refusal(str(path), what, "name another: -o FILE.yaml", "E131")
    content = text(kind, answers)
    sound(kind, path, content, opened)
    put({str(path): content})
    shown = path if path.is_absolute() or path.parts[0] == ".." else f"./{path}"
    file = {"name": str(path), "kind": folder(kind), "sound": True, "faults": [], "warnings": []}
    return formatted(
        asked, lambda: f"wrote {path}, a sound {kind} spec; each line says where to look it up\n"
        f"next: {NEXT[kind].format(path=shown)}", lambda: {"schema": 1, "files": [file]},
        lambda: [{"name": file["name"], "kind": file["kind"]}],
    )  # fmt: skip


def sound(kind: str, path: Path, content: str, opened: Callable[[str, str], object]) -> None:
    """Refuse what would be no sound file, with the lines that it would have."""
    from oracle.writers.export import put

    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.new.yaml")  # a spec may name files beside it
    put({str(beside): content}, force=True)
    try:
        opened(folder(kind), str(beside))
    except SpecError as error:
        if error.name != str(beside):
            raise
        raise SpecError(str(path), error.faults, error.text) from None
    finally:
        with contextlib.suppress(OSError):
            beside.unlink()


def from_a_terminal(kind: str, said: dict[str, str]) -> dict[str, str]:
    """The flags' answers, and one to every other question; what cannot be is asked again."""
    answers: dict[str, str] = {}
    for one in questions(kind):
        if not one.concerns(answers):
            continue
        answer = said.get(one.key, "")
        while not answer:
            otherwise = usual(one, answers) or (OPEN if one.open else "")
            hint = f" [{otherwise}]" if otherwise else ""
            example = f", e.g. {one.example}" if one.example else ""
            sys.stderr.write(f"{one.key}: {one.comment}{example}{hint}\n> ")
            sys.stderr.flush()
            try:
                answer = input().strip() or otherwise
            except EOFError:
                raise KeyboardInterrupt from None
            if answer != OPEN or not one.open:
                for fault in one.faults(answer) if answer else ():
                    sys.stderr.write(f"  {fault.what}; {fault.hint}\n".replace("; \n", "\n"))
                    answer = ""
        answers[one.key] = answer
    return {**said, **answers}
