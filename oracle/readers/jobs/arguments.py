"""`--flag value` lines, and how the words of a command line become settings."""

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
    """Whether the first thing said is a flag, or torchtitan's own word."""
    for line in text.splitlines()[:200]:
        if line.strip() and not line.lstrip().startswith("#"):
            return bool(_FLAG.match(line.strip()))
    return False


def parse(text: str, name: str, sheet: Sheet) -> None:
    plain = re.sub(r"(?m)(^|[ \t])#.*$", "", text)
    for flag, value, line in settings_of(Tokens(plain, name, sheet.shell).pieces()):
        sheet.put(flag, value, name, line)


def settings_of(pieces: Iterable[Piece]) -> Iterator[tuple[str, str, int]]:
    """(name, value, line) of each flag: the word after it, if that is no flag itself."""
    open_flag: tuple[str, int] | None = None
    for word, line in pieces:
        found, choice = _FLAG.fullmatch(word), _CHOICE.fullmatch(word)
        if found or choice:
            if open_flag:
                yield open_flag[0], "", open_flag[1]
            open_flag = None
        if choice:
            yield choice[1], choice[2], line
        elif found and found[2] is None:
            open_flag = found[1], line
        elif found:
            yield found[1], found[2], line
        elif open_flag:
            yield open_flag[0], word, open_flag[1]
            open_flag = None
    if open_flag:
        yield open_flag[0], "", open_flag[1]
