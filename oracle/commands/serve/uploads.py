"""What is dropped on the page: a spec, a Hugging Face config, a log; kept while the page lives.

A file goes under a name made of its content; the name that it came with is only shown. What it
is, is found by what it holds, and it is read by the readers of the command line, in a process that
may open nothing but these files. Nothing of it is ever run.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.commands.serve.job import Said
from oracle.commands.serve.question import NAMED, FieldError
from oracle.spec import strict_json
from oracle.spec.files import write

MOST = 64  # files that are kept
CODE = (".py", ".pyc", ".pt", ".pth", ".pkl", ".pickle", ".so", ".sh", ".ipynb")
Ask = Callable[[Sequence[str], str], Awaitable[Said]]


@dataclass(frozen=True)
class Upload:
    """A spec that came from outside, under the name that its file has here."""

    kind: str  # "models", "systems", "datasets", "software"
    told: str  # what was read, in words


class Uploads:
    """Specs that were dropped, the latest `MOST` of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kept: OrderedDict[str, Upload] = OrderedDict()

    def kinds(self) -> dict[str, str]:
        """Name -> kind."""
        return {name: one.kind for name, one in self.kept.items()}

    async def take(self, name: str, content: bytes, system: str, ask: Ask) -> tuple[str, Upload]:
        """Keep what was dropped; a FieldError says why it cannot be used."""
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
        if new in self.kept:
            return new, self.kept[new]
        kind = _kind(suffix, text)
        came = new if kind == "spec" else f"{Path(new).stem}.{kind}"
        write(self.folder / came, text.encode())
        try:
            found = await self._read(kind, came, new, system, ask)
        except FieldError:
            (self.folder / new).unlink(missing_ok=True)
            raise
        finally:
            if came != new:
                (self.folder / came).unlink(missing_ok=True)
        self.kept[new] = found
        while len(self.kept) > MOST:
            (self.folder / self.kept.popitem(last=False)[0]).unlink(missing_ok=True)
        return new, found

    async def _read(self, kind: str, came: str, new: str, system: str, ask: Ask) -> Upload:
        if kind == "json":
            said = await _sound(ask(["import", "huggingface", came, "-o", new], "text"))
            return Upload("models", _told(said, new))
        if kind == "log":
            said = await _sound(ask(["calibrate", came, "--onto", system, "-o", new], "text"))
            if said["code"]:
                raise FieldError("drop", said.get("note") or "nothing of this log could be fitted")
            return Upload("systems", _told(said, new))
        said = await _sound(ask(["specs", "check", new], "json"))
        [file] = strict_json.loads(said["text"])["files"]
        if not file["sound"]:
            raise _faulty(file["faults"])
        if file["kind"] not in NAMED.values():
            raise FieldError("drop", f"{file['kind']}: of these a page has no use by themselves")
        return Upload(file["kind"], f"a sound spec of {file['kind']}")


def _kind(suffix: str, text: str) -> str:
    """`json`: a config of Hugging Face; `spec`; `log`."""
    if suffix in (".yaml", ".yml"):
        return "spec"
    fields: Any = None
    if text.lstrip().startswith("{"):
        try:
            fields = strict_json.loads(text)
        except (ValueError, RecursionError):
            return "log"  # lines of JSON, say
    if isinstance(fields, dict) and "model_type" in fields:
        return "json"
    return "spec" if isinstance(fields, dict) and {"name", "source"} <= set(fields) else "log"


async def _sound(answer: Awaitable[Said]) -> Said:
    """An answer without faults."""
    said = await answer
    if "fault" in said:
        raise _faulty(said["fault"])
    if "crash" in said:
        raise FieldError("drop", "reading it ended in a fault of oracle; the terminal says more")
    return said


def _faulty(faults: Sequence[Mapping[str, Any]]) -> FieldError:
    """Every fault with its line and hint."""
    words = [f"line {one['line']}: " * bool(one["line"]) + one["what"]
             + f" ({one['hint']})" * bool(one["hint"]) for one in faults]  # fmt: skip
    return FieldError("drop", "; ".join(words[:20]))


def _told(said: Said, new: str) -> str:
    """What a reader said, without the name of the file here."""
    lines = [*said.get("note", "").splitlines(), *said.get("text", "").splitlines()[:3]]
    return "\n".join(line for line in lines if new not in line)
