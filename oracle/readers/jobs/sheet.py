"""What the files of a job say: settings by name, each with its place; and what is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from oracle.spec.document import Fault, Place, SpecError

Piece = tuple[str, int]  # a word, and the line where it stands
OPEN, CLOSE = "\ue000", "\ue001"  # around the name of a variable that nothing sets
MOST = 2**40  # of any count; more is a slip
UNKNOWN = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


class Said(NamedTuple):
    """A setting as it was written, and where; the text is empty for a flag alone."""

    text: str
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def canonical(name: str) -> str:
    """One name for all spellings: `--micro-batch-size`, `micro_batch_size`."""
    return name.lstrip("-").replace("-", "_")


@dataclass
class Sheet:
    """Settings of the framework by name, of the launch beside them, and the faults found."""

    texts: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict)  # set by hand
    shell: dict[str, list[Piece]] = field(default_factory=dict)  # by scripts so far
    settings: dict[str, Said] = field(default_factory=dict)
    launch: dict[str, Said] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[tuple[Fault, str]] = field(default_factory=list)  # with the file of each
    asked: set[str] = field(default_factory=set)

    def put(self, name: str, text: str, file: str, line: int) -> None:
        """Note a setting; two files must say the same, the last word of one file counts."""
        name, said = canonical(name), Said(text.strip("\"'"), file, line)
        before = self.settings.get(name)
        if before and before.text != said.text and name not in self.variables:
            where, what = before.place, f"`{name}` is `{show(said.text)}` here"
            if before.file != file:
                self.fault(said, f"{what}, `{show(before.text)}` at {where}", "the same in both")
            else:
                self.notes.append(f"{said.place}: {what}, `{show(before.text)}` at {where}: "
                                  "the last one counts")  # fmt: skip
        self.settings[name] = said

    def started(self, name: str, text: str, file: str, line: int) -> None:
        """Note how many processes are started, the first word of each launcher."""
        self.launch.setdefault(canonical(name), Said(text, file, line))

    def given(self, name: str, text: str) -> None:
        """Put what was set by hand over what the files say."""
        self.settings[canonical(name)] = Said(text, "--set")

    def fault(self, said: Said | None, what: str, hint: str = "", code: str = "E109") -> None:
        file, line = (said.file, said.line) if said else (next(iter(self.texts)), 0)
        lines = self.texts.get(file, "").splitlines()
        row = lines[line - 1] if 0 < line <= len(lines) else ""
        column, length = self._mark(said, row)
        self.faults.append((Fault(code, what, Place(line, column), hint, length), file))

    def _mark(self, said: Said | None, row: str) -> tuple[int, int]:
        """Column and length of a setting's name in its line; else of the line."""
        known = [*self.settings.items(), *self.launch.items()]
        name = next((name for name, other in known if other is said), "").rpartition(".")[2]
        for spelt in filter(None, (name.replace("_", "-"), name)):
            if spelt in row:
                return row.index(spelt) + 1, len(spelt)
        return len(row) - len(row.lstrip()) + 1, max(1, len(row.strip()))

    def check(self) -> None:
        """Refuse a job with faults, all of them at once."""
        if not self.faults:
            return
        files = {file for _, file in self.faults}
        if len(files) == 1:
            file = files.pop()
            raise SpecError(file, [fault for fault, _ in self.faults], self.texts.get(file, ""))
        raise SpecError("job", [
            Fault(fault.code, fault.what, Place(path=f"{file}:{fault.place.line}"), fault.hint)
            for fault, file in self.faults
        ])  # fmt: skip

    # ------------------------------------------------- settings by type

    def has(self, *names: str) -> bool:
        """Whether any of these is set, and not to `False` or `None`."""
        return any(self.said(name) is not None for name in names)

    def said(self, *names: str) -> Said | None:
        """The first of these that is set."""
        self.asked.update(names)
        for name in names:
            found = self.settings.get(name)
            if found is not None and found.text.lower() not in ("none", "false", "null"):
                return found
        return None

    def word(self, *names: str, default: str = "") -> str:
        """The first of these as a word; `default` where nothing known is said."""
        found = self.said(*names)
        if found is None:
            return default
        if unknown := UNKNOWN.search(found.text):
            self._unknown(names[0], found, unknown[1])
            return default
        return found.text or default

    def whole(self, *names: str, default: int | None = None, least: int = 1) -> int | None:
        """The first of these as a whole number."""
        found = self.said(*names)
        return default if found is None else self.as_whole(names[0], found, default, least)

    def as_whole(
        self, name: str, found: Said, default: int | None = None, least: int = 1
    ) -> int | None:
        """What was said as a whole number; a fault where it is none."""
        if unknown := UNKNOWN.search(found.text):
            self._unknown(name, found, unknown[1])
            return default
        text = found.text.replace("_", "")
        if re.fullmatch(r"-?\d{1,15}(\.0+)?", text) and least <= int(text.split(".")[0]) <= MOST:
            return int(text.split(".")[0])
        what = f"`{name}` is `{show(found.text)}`, not a whole number from {least} on"
        self.fault(found, what, code="E105")
        return default

    def required(self, *names: str, hint: str = "") -> int:
        """The first of these as a whole number; its absence is a fault."""
        value = self.whole(*names)
        if value is None and self.said(*names) is None:
            what = f"nothing says `{names[0]}`"
            self.fault(None, what, hint or f"add the file that does, or --set {names[0]}=…", "E103")
        return value or 1

    def _unknown(self, name: str, found: Said, variable: str) -> None:
        plain = re.fullmatch(r"[A-Za-z_]\w*", variable)
        hint = f"--set {variable if plain else name}=…, or add the file that sets it"
        what = f"`{name}` is `{show(found.text)}`, which nothing sets here"
        self.fault(found, what, hint, "E103")


def show(text: str) -> str:
    """A value for a message: variables as they are written, nothing that hides, not long."""
    text = UNKNOWN.sub(lambda m: m[1] if m[1].startswith("$") else f"${m[1]}", text)[:60]
    return "".join(char if char.isprintable() else "·" for char in text)
