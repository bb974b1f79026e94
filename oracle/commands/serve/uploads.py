"""Files that are dropped on the page: specs, Hugging Face configs, logs; kept while the page lives.

A file is stored under a name made of its content; its own name is only shown. Its content decides
its kind, and the command line's readers read it, in a process that may open no other files. Nothing
of it is ever run.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.commands.serve.job import JobAnswer
from oracle.commands.serve.question import NAMED, FieldError
from oracle.spec import strict_json
from oracle.spec.files import write

LIMIT = 64  # files that are kept
CODE = (".py", ".pyc", ".pt", ".pth", ".pkl", ".pickle", ".so", ".sh", ".ipynb")
Ask = Callable[[Sequence[str], str], Awaitable[JobAnswer]]


@dataclass(frozen=True)
class Upload:
    """A spec that came from outside."""

    kind: str  # "models", "systems", "datasets", "software"
    summary: str  # of the file, in words


class Uploads:
    """The latest `LIMIT` specs that were dropped on the page."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.by_name: OrderedDict[str, Upload] = OrderedDict()

    def kinds(self) -> dict[str, str]:
        """Return the kind of each spec, by name."""
        return {name: upload.kind for name, upload in self.by_name.items()}

    async def take(self, name: str, content: bytes, system: str, ask: Ask) -> tuple[str, Upload]:
        """Keep a dropped file, or raise a FieldError that says why it cannot be used."""
        suffix = Path(name).suffix.lower()
        if suffix in CODE:
            raise FieldError("drop", f"`{suffix}` is code, and code is not run here: "
                             "`oracle import` reads it on the command line")  # fmt: skip
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise FieldError("drop", "this is not a text: a spec, a config.json or a log") from None
        stem = re.sub(r"[^a-z0-9]+", "-", Path(name).stem.lower())[:32].strip("-") or "dropped"
        new = f"{stem}-{hashlib.sha256(content + system.encode()).hexdigest()[:8]}.yaml"
        if new in self.by_name:
            return new, self.by_name[new]
        kind = _kind(suffix, text)
        stored_as = new if kind == "spec" else f"{Path(new).stem}.{kind}"
        write(self.folder / stored_as, text.encode())
        try:
            upload = await self._read(kind, stored_as, new, system, ask)
        except FieldError:
            (self.folder / new).unlink(missing_ok=True)
            raise
        finally:
            if stored_as != new:
                (self.folder / stored_as).unlink(missing_ok=True)
        self.by_name[new] = upload
        while len(self.by_name) > LIMIT:
            (self.folder / self.by_name.popitem(last=False)[0]).unlink(missing_ok=True)
        return new, upload

    async def _read(self, kind: str, stored_as: str, new: str, system: str, ask: Ask) -> Upload:
        if kind == "json":
            answer = await _sound(ask(["import", "huggingface", stored_as, "-o", new], "text"))
            return Upload("models", _summary(answer, new))
        if kind == "log":
            answer = await _sound(
                ask(["calibrate", stored_as, "--onto", system, "-o", new], "text")
            )
            if answer["code"]:
                raise FieldError(
                    "drop", answer.get("note") or "nothing of this log could be fitted"
                )
            return Upload("systems", _summary(answer, new))
        answer = await _sound(ask(["specs", "check", new], "json"))
        [file] = strict_json.loads(answer["text"])["files"]
        if not file["sound"]:
            raise _faulty(file["faults"])
        if file["kind"] not in NAMED.values():
            raise FieldError("drop", f"{file['kind']}: of these a page has no use by themselves")
        return Upload(file["kind"], f"a sound spec of {file['kind']}")


def _kind(suffix: str, text: str) -> str:
    """Return the kind of a file: `json` (a config of Hugging Face), `spec` or `log`."""
    if suffix in (".yaml", ".yml"):
        return "spec"
    fields: Any = None
    if text.lstrip().startswith("{"):
        try:
            fields = strict_json.loads(text)
        except (ValueError, RecursionError):
            return "log"  # perhaps lines of JSON
    if isinstance(fields, dict) and "model_type" in fields:
        return "json"
    return "spec" if isinstance(fields, dict) and {"name", "source"} <= set(fields) else "log"


async def _sound(answer: Awaitable[JobAnswer]) -> JobAnswer:
    """Return an answer, or raise its faults."""
    result = await answer
    if "fault" in result:
        raise _faulty(result["fault"])
    if "crash" in result:
        raise FieldError("drop", "reading it ended in a fault of oracle; the terminal says more")
    return result


def _faulty(faults: Sequence[Mapping[str, Any]]) -> FieldError:
    """Return an error with every fault, its line and its hint."""
    words = [f"line {fault['line']}: " * bool(fault["line"]) + fault["what"]
             + f" ({fault['hint']})" * bool(fault["hint"]) for fault in faults]  # fmt: skip
    return FieldError("drop", "; ".join(words[:20]))


def _summary(answer: JobAnswer, new: str) -> str:
    """Return the lines that a reader printed, without those that name the stored file."""
    lines = [*answer.get("note", "").splitlines(), *answer.get("text", "").splitlines()[:3]]
    return "\n".join(line for line in lines if new not in line)
