"""`--flag value` lines, and the words of a command line as settings."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from oracle.readers.jobs.sheet import Piece, Sheet
from oracle.readers.jobs.tokens import Tokens

TITLE = "arguments, one a line"
PRECEDENCE = 1

_FLAG = re.compile(r"--([A-Za-z][\w.-]*)(?:=(.*))?", re.DOTALL)
_CHOICE = re.compile(r"(activation_checkpoint):(\w+)")  # as torchtitan takes a kind of it


def recognises(text: str) -> bool:
    """Return whether the first word is a flag, or torchtitan's `activation_checkpoint:`."""
    for line in text.splitlines()[:200]:
        if line.strip() and not line.lstrip().startswith("#"):
            return bool(_FLAG.match(line.strip()))
    return False


def parse(text: str, name: str, sheet: Sheet) -> None:
    plain = re.sub(r"(?m)(^|[ \t])#.*$", "", text)
    for flag, value, line in settings_of(Tokens(plain, name, sheet.shell).pieces()):
        sheet.add(flag, value, name, line)


def settings_of(pieces: Iterable[Piece]) -> Iterator[tuple[str, str, int]]:
    """Yield the name, value and line of each flag; the next word, if no flag, is the value."""
    open_flag: tuple[str, int] | None = None
    for word, line in pieces:
        match, choice = _FLAG.fullmatch(word), _CHOICE.fullmatch(word)
        if match or choice:
            if open_flag:
                yield open_flag[0], "", open_flag[1]
            open_flag = None
        if choice:
            yield choice[1], choice[2], line
        elif match and match[2] is None:
            open_flag = match[1], line
        elif match:
            yield match[1], match[2], line
        elif open_flag:
            yield open_flag[0], word, open_flag[1]
            open_flag = None
    if open_flag:
        yield open_flag[0], "", open_flag[1]
