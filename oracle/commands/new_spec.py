"""The answer of `specs new`: a spec file of one's own, from flags or from answers at a terminal.

On a terminal the user is asked every question that no flag answers; Enter takes the usual value
and `-` leaves a line out. Elsewhere the flags have to say what is not usual.
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
    """Add a flag for each question, one flag where several kinds ask the question."""
    pairs = [(kind, entry) for kind, asked_of_kind in QUESTIONS.items() for entry in asked_of_kind]
    kinds_by_key: dict[str, list[str]] = {}
    for kind, entry in pairs:
        kinds_by_key.setdefault(entry.key, []).append(kind)
    groups: dict[str, Any] = {}
    for kind, entry in pairs:
        if kinds_by_key[entry.key][0] != kind:
            continue
        title = (
            f"new {kind}" if len(kinds_by_key[entry.key]) == 1 else f"new {', '.join(QUESTIONS)}"
        )
        if len(kinds_by_key[entry.key]) in range(2, len(QUESTIONS)):
            title = f"new {' or '.join(kinds_by_key[entry.key])}"
        if title not in groups:
            groups[title] = parser.add_argument_group(title)
        usually = f" (default: {entry.usual})" if entry.usual and "{" not in entry.usual else ""
        groups[title].add_argument(f"--{entry.key}", metavar="V", dest=f"new_{entry.key}",
                                   help=f"{entry.asks}{usually}".replace("%", "%%"))  # fmt: skip


def flag_answers(args: argparse.Namespace) -> dict[str, str]:
    """Return the answers that flags give, by the key of the question."""
    answers = {name.removeprefix("new_"): value for name, value in vars(args).items()
               if name.startswith("new_")}  # fmt: skip
    return {key: value for key, value in answers.items() if value is not None}


def new(args: argparse.Namespace, opened: Callable[[str, str], object]) -> Answer:
    """Write a new spec file, once `opened(kind, path)` has read it without a fault."""
    from oracle.spec.document import refusal
    from oracle.writers.export import put

    if len(args.names) != 1:
        complaint = "`oracle specs new` writes one file of one kind"
        raise refusal("specs new", complaint, f"write one of {', '.join(QUESTIONS)}", "E112")
    kind, answers_by_flag = args.names[0], flag_answers(args)
    questions(kind)
    if os.isatty(0) and os.isatty(2):
        answers_by_flag = from_a_terminal(kind, answers_by_flag)
    answers = answered(kind, answers_by_flag)
    path = Path(args.to or f"{answers['name']}.yaml")
    args.to = None
    if path.suffix not in (".yaml", ".yml"):
        raise refusal(str(path), "a spec file ends in .yaml", f"-o {path}.yaml", "E131")
    if path.exists() or path.is_symlink():
        complaint = "there is such a file already, and it stays as it is"
        raise refusal(str(path), complaint, "name another: -o FILE.yaml", "E131")
    content = text(kind, answers)
    sound(kind, path, content, opened)
    put({str(path): content})
    typed_path = path if path.is_absolute() or path.parts[0] == ".." else f"./{path}"
    file = {"name": str(path), "kind": folder(kind), "sound": True, "faults": [], "warnings": []}
    return formatted(
        args, lambda: f"wrote {path}, a sound {kind} spec; each line says where to look it up\n"
        f"next: {NEXT[kind].format(path=typed_path)}", lambda: {"schema": 1, "files": [file]},
        lambda: [{"name": file["name"], "kind": file["kind"]}],
    )  # fmt: skip


def sound(kind: str, path: Path, content: str, opened: Callable[[str, str], object]) -> None:
    """Refuse a content that would not be a sound file, quoting its lines."""
    from oracle.writers.export import put

    path.parent.mkdir(parents=True, exist_ok=True)
    trial_path = path.with_name(f".{path.stem}.new.yaml")  # a spec may name files beside it
    put({str(trial_path): content}, force=True)
    try:
        opened(folder(kind), str(trial_path))
    except SpecError as error:
        if error.name != str(trial_path):
            raise
        raise SpecError(str(path), error.faults, error.text) from None
    finally:
        with contextlib.suppress(OSError):
            trial_path.unlink()


def from_a_terminal(kind: str, answers_by_flag: dict[str, str]) -> dict[str, str]:
    """Return the answers of flags and of the terminal; a faulty answer is asked for again."""
    answers: dict[str, str] = {}
    for entry in questions(kind):
        if not entry.concerns(answers):
            continue
        answer = answers_by_flag.get(entry.key, "")
        while not answer:
            otherwise = usual(entry, answers) or (OPEN if entry.open else "")
            hint = f" [{otherwise}]" if otherwise else ""
            example = f", e.g. {entry.example}" if entry.example else ""
            sys.stderr.write(f"{entry.key}: {entry.comment}{example}{hint}\n> ")
            sys.stderr.flush()
            try:
                answer = input().strip() or otherwise
            except EOFError:
                raise KeyboardInterrupt from None
            if answer != OPEN or not entry.open:
                for fault in entry.faults(answer) if answer else ():
                    sys.stderr.write(f"  {fault.what}; {fault.hint}\n".replace("; \n", "\n"))
                    answer = ""
        answers[entry.key] = answer
    return {**answers_by_flag, **answers}
