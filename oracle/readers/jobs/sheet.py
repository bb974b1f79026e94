"""The settings of a job's files by name, each with its place, and their faults."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from oracle.spec.document import Fault, Place, SpecError

Piece = tuple[str, int]  # a word, and the line where it stands
OPEN, CLOSE = "\ue000", "\ue001"  # around the name of a variable that nothing sets
LARGEST = 2**40  # of any count; a larger one is a slip
UNKNOWN = re.compile(f"{OPEN}([^{CLOSE}]*){CLOSE}")


class Setting(NamedTuple):
    """A setting as it was written, and its place; the text is empty for a flag alone."""

    text: str
    file: str = ""
    line: int = 0

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


def canonical(name: str) -> str:
    """Return one name for all spellings: `--micro-batch-size`, `micro_batch_size`."""
    return name.lstrip("-").replace("-", "_")


@dataclass
class Sheet:
    """The settings of the framework and of the launch by name, and their faults."""

    texts: dict[str, str]
    variables: dict[str, str] = field(default_factory=dict)  # set by hand
    shell: dict[str, list[Piece]] = field(default_factory=dict)  # set by scripts so far
    settings: dict[str, Setting] = field(default_factory=dict)
    launch: dict[str, Setting] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    faults: list[tuple[Fault, str]] = field(default_factory=list)  # with the file of each
    names_read: set[str] = field(default_factory=set)

    def add(self, name: str, text: str, file: str, line: int) -> None:
        """Add a setting; two files must agree, and the last line of one file counts."""
        name, new = canonical(name), Setting(text.strip("\"'"), file, line)
        before = self.settings.get(name)
        if before and before.text != new.text and name not in self.variables:
            place, statement = before.place, f"`{name}` is `{show(new.text)}` here"
            if before.file != file:
                self.fault(
                    new, f"{statement}, `{show(before.text)}` at {place}", "the same in both"
                )
            else:
                self.notes.append(f"{new.place}: {statement}, `{show(before.text)}` at {place}: "
                                  "the last one counts")  # fmt: skip
        self.settings[name] = new

    def started(self, name: str, text: str, file: str, line: int) -> None:
        """Note a setting of the launch; the first one of each name counts."""
        self.launch.setdefault(canonical(name), Setting(text, file, line))

    def override(self, name: str, text: str) -> None:
        """Set by hand what the files set otherwise."""
        self.settings[canonical(name)] = Setting(text, "--set")

    def fault(
        self, cause: Setting | None, complaint: str, hint: str = "", code: str = "E109"
    ) -> None:
        file, line = (cause.file, cause.line) if cause else (next(iter(self.texts)), 0)
        lines = self.texts.get(file, "").splitlines()
        row = lines[line - 1] if 0 < line <= len(lines) else ""
        column, length = self._mark(cause, row)
        self.faults.append((Fault(code, complaint, Place(line, column), hint, length), file))

    def _mark(self, cause: Setting | None, row: str) -> tuple[int, int]:
        """Return column and length of a setting's name in its line, or of the line."""
        named_settings = [*self.settings.items(), *self.launch.items()]
        name = next((name for name, setting in named_settings if setting is cause), "").rpartition(
            "."
        )[2]
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
        """Return whether any of these is set, and not to `False` or `None`."""
        return any(self.setting(name) is not None for name in names)

    def setting(self, *names: str) -> Setting | None:
        """Return the first of these settings that is set."""
        self.names_read.update(names)
        for name in names:
            setting = self.settings.get(name)
            if setting is not None and setting.text.lower() not in ("none", "false", "null"):
                return setting
        return None

    def word(self, *names: str, default: str = "") -> str:
        """Return the first of these as a word, or `default` where none has a known value."""
        setting = self.setting(*names)
        if setting is None:
            return default
        if unknown := UNKNOWN.search(setting.text):
            self._unknown(names[0], setting, unknown[1])
            return default
        return setting.text or default

    def whole_number(
        self, *names: str, default: int | None = None, smallest: int = 1
    ) -> int | None:
        """Return the first of these as a whole number."""
        setting = self.setting(*names)
        return (
            default
            if setting is None
            else self.as_whole_number(names[0], setting, default, smallest)
        )

    def as_whole_number(
        self, name: str, setting: Setting, default: int | None = None, smallest: int = 1
    ) -> int | None:
        """Return a setting as a whole number; note a fault where it is none."""
        if unknown := UNKNOWN.search(setting.text):
            self._unknown(name, setting, unknown[1])
            return default
        text = setting.text.replace("_", "")
        if (
            re.fullmatch(r"-?\d{1,15}(\.0+)?", text)
            and smallest <= int(text.split(".")[0]) <= LARGEST
        ):
            return int(text.split(".")[0])
        complaint = f"`{name}` is `{show(setting.text)}`, not a whole number from {smallest} on"
        self.fault(setting, complaint, code="E105")
        return default

    def required(self, *names: str, hint: str = "") -> int:
        """Return the first of these as a whole number; its absence is a fault."""
        value = self.whole_number(*names)
        if value is None and self.setting(*names) is None:
            complaint = f"nothing says `{names[0]}`"
            self.fault(
                None, complaint, hint or f"add the file that does, or --set {names[0]}=…", "E103"
            )
        return value or 1

    def _unknown(self, name: str, setting: Setting, variable: str) -> None:
        plain = re.fullmatch(r"[A-Za-z_]\w*", variable)
        hint = f"--set {variable if plain else name}=…, or add the file that sets it"
        complaint = f"`{name}` is `{show(setting.text)}`, which nothing sets here"
        self.fault(setting, complaint, hint, "E103")


def show(text: str) -> str:
    """Return a value for a message: variables as written, only printable, not long."""
    text = UNKNOWN.sub(lambda m: m[1] if m[1].startswith("$") else f"${m[1]}", text)[:60]
    return "".join(char if char.isprintable() else "·" for char in text)
