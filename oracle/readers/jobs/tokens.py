"""A shell script's text as commands of words, with the known values of their variables.

Words keep the line where they were written, also through a variable. A variable that no script
sets stays marked by its name. Quotes join nothing here: a launch is read as its flags.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from oracle.readers.jobs.conditions import arithmetic
from oracle.readers.jobs.sheet import CLOSE, OPEN, Piece
from oracle.spec.document import Fault, Place, SpecError

Values = dict[str, list[Piece]]
MOST_WORDS, LONGEST, DEEPEST = 20_000, 2**18, 12
_NAME = re.compile(r"[A-Za-z_]\w*|[@*#?$!\d-]")
_INSIDE = re.compile(r"([A-Za-z_]\w*|[@*?\d])(?:\[([^\]]{0,20})\])?(.*)", re.DOTALL)
_HEREDOC = re.compile(r"<<(-?)\s*([\"']?)(\w+)\2")
_RUN = re.compile(r"[^\s\\$`\"']+")  # plain characters: between quotes, and beside them
_BARE = re.compile(r"[^\s\\$`\"'();|&<>]+")
_ARRAY = re.compile(r"[A-Za-z_]\w*\+?=")


@dataclass
class Command:
    """The words up to `;`, `|`, `&&` or the end of the line, and what ended it."""

    words: list[list[Piece]] = field(default_factory=list)  # each word split at blanks
    end: str = ""
    line: int = 0
    body: str = ""  # of a here-document
    body_line: int = 0

    @property
    def pieces(self) -> list[Piece]:
        return [piece for word in self.words for piece in word if piece[0]]


class Tokens:
    """A reader of one text; values are those at the time when a command is read."""

    def __init__(self, text: str, name: str, values: Values, line: int = 1, depth: int = 0) -> None:
        self.text, self.name, self.values = text, name, values
        self.place, self.line, self.depth = 0, line, depth
        self.word: list[tuple[list[str], int]] = []  # the pieces of the current word, in parts
        self.glue = False  # whether the next text joins the last piece
        self.spent = 0

    def commands(self) -> Iterator[Command]:
        while self.place < len(self.text):
            command = self._command()
            if command.words or command.end not in ("", "\n"):
                yield command

    def pieces(self) -> list[Piece]:
        """Return the text as the words of one value."""
        self.word, self.glue = [], False
        while self.place < len(self.text):
            self._quoted("")
        return [piece for piece in self._joined() if piece[0]]

    def _command(self) -> Command:
        command, heredocs, dropped = Command(line=self.line), [], False
        inside = 0  # arrays are words up to their bracket
        while self.place < len(self.text):
            char, two = self.text[self.place], self.text[self.place : self.place + 2]
            if two == "\\\n":
                self._skip(2)
            elif char in " \t\r" or (char == "\n" and inside):
                self._skip(1)
            elif char == "#":
                self._skip(len(self._upto("\n")))
            elif heredoc := _HEREDOC.match(self.text, self.place):
                heredocs.append((heredoc[3], bool(heredoc[1])))
                self._skip(len(heredoc[0]))
            elif char in "<>":
                dropped = True
                self._skip(1)
            elif not inside and (ends := self._end(char, two)):
                command.end = ends
                break
            elif char == ")" and inside:
                inside -= 1
                self._skip(1)
            elif char in "()":
                self._skip(1)
            else:
                word = self._whole_word()
                opens = self.text[self.place : self.place + 1] == "("
                if opens and len(word) == 1 and _ARRAY.fullmatch(word[0][0]):
                    self._skip(1)
                    inside += 1
                if inside and command.words and not opens:
                    command.words[-1] += [("", self.line), *word]
                elif not dropped:
                    command.words.append(word)
                dropped = False
        for mark, tabs in heredocs:
            self._document(command, mark, tabs)
        return command

    def _end(self, char: str, two: str) -> str:
        if two in ("&&", "||", ";;"):
            self._skip(2)
            return two
        if char in ";|&\n" or (char == ")" and self.text[self.place - 1 : self.place] != "("):
            if two == "&>":
                return ""
            self._skip(1)
            return char
        return ""

    def _document(self, command: Command, mark: str, tabs: bool) -> None:
        command.body_line, lines = self.line, []
        while self.place < len(self.text):
            row = self._upto("\n")
            self._skip(len(row) + 1)
            if (row.strip() if tabs else row.rstrip("\r")) == mark:
                break
            lines.append(row)
        command.body = "\n".join(lines)

    def _whole_word(self) -> list[Piece]:
        self.word, self.glue, self.spent = [], False, 0
        start = self.place
        while self.place < len(self.text):
            char = self.text[self.place]
            if char in " \t\r\n;|&()<>" and self.text[self.place : self.place + 2] != "\\\n":
                break
            if char in "\"'":
                self._skip(1)
                while self.place < len(self.text) and self.text[self.place] != char:
                    self._quoted(char)
                self._skip(1)
                self.glue = self.glue and bool(self.word)
            else:
                self._quoted("")
        if self.place == start:
            self._skip(1)
        return self._joined() or [("", self.line)]

    def _quoted(self, quote: str) -> None:
        """Read one step inside quotes, or in a plain word."""
        char, two = self.text[self.place], self.text[self.place : self.place + 2]
        if two == "\\\n":
            self._skip(2)
        elif char in " \t\r\n":
            if not self.word:
                self._add("")
            self.glue = False
            self._skip(1)
        elif char == "\\" and len(two) == 2:
            self._add(two[1])
            self._skip(2)
        elif char == "$":
            self._add_pieces(self._value())
        elif char == "`":
            self._skip(1)
            inner = self._upto("`")
            self._skip(len(inner) + 1)
            self._add(f"{OPEN}`{inner[:40]}`{CLOSE}")
        else:
            match = (_RUN if quote else _BARE).match(self.text, self.place)
            text = match[0] if match else char
            self._add(text)
            self._skip(len(text))

    def _skip(self, count: int) -> None:
        self.line += self.text.count("\n", self.place, self.place + count)
        self.place += count

    def _upto(self, mark: str) -> str:
        end = self.text.find(mark, self.place)
        return self.text[self.place : end if end >= 0 else len(self.text)]

    def _add(self, text: str, line: int = 0) -> None:
        if self.glue and self.word:
            self.word[-1][0].append(text)
        else:
            self.word.append(([text], line or self.line))
        self.glue = True
        self.spent += len(text) + 1
        if len(self.word) > MOST_WORDS or self.spent > LONGEST:
            complaint = "its variables grow beyond what a command line can hold"
            raise SpecError(self.name, [Fault("E108", complaint, Place(self.line, 1))])

    def _joined(self) -> list[Piece]:
        return [("".join(parts), line) for parts, line in self.word]

    def _add_pieces(self, pieces: list[Piece]) -> None:
        """Add a variable's words: the first joins the text before it, the last the text after."""
        for i, (text, line) in enumerate(pieces):
            if i:
                self.glue = False
            self._add(text, line)

    # ------------------------------------------------- values

    def _value(self) -> list[Piece]:
        """Read the value that begins with `$`."""
        if self.text.startswith("$((", self.place):
            inner = self._balanced(3, "(", ")", 2)
            return self._calculated(inner)
        if self.text.startswith("$(", self.place):
            inner = self._balanced(2, "(", ")")
            return [(f"{OPEN}$({inner[:40]}){CLOSE}", self.line)]
        if self.text.startswith("${", self.place):
            return self._braced(self._balanced(2, "{", "}"))
        match = _NAME.match(self.text, self.place + 1)
        self._skip(1 + (len(match[0]) if match else 0))
        if match is None:
            return [("$", self.line)]
        return self._named(match[0])

    def _balanced(self, head: int, opens: str, closes: str, tail: int = 1) -> str:
        """Return the text in brackets, and step over it."""
        self._skip(head)
        depth, end = tail, self.place
        for end in range(self.place, min(len(self.text), self.place + LONGEST)):
            depth += (self.text[end] == opens) - (self.text[end] == closes)
            if depth == 0:
                break
        inner = self.text[self.place : end]
        self._skip(len(inner) + 1)
        return inner[:-1] if tail == 2 else inner

    def _calculated(self, inner: str) -> list[Piece]:
        plain = re.sub(r"\$\{?(\w+)\}?", r"\1", inner[:1000])
        total = arithmetic(plain, lambda name: self._text(self._named(name)))
        unknown = re.search(rf"{OPEN}([^{CLOSE}]*){CLOSE}", "".join(
            self._text(self._named(name)) for name in re.findall(r"[A-Za-z_]\w*", plain)
        ))  # fmt: skip
        name = unknown[1] if unknown else f"$(({inner[:40]}))"
        return [(f"{OPEN}{name}{CLOSE}" if total is None else str(total), self.line)]

    def _named(self, name: str) -> list[Piece]:
        if name in ("@", "*"):
            return []
        value = self.values.get(name)
        return [(f"{OPEN}{name}{CLOSE}", self.line)] if value is None else value

    def _braced(self, inner: str) -> list[Piece]:
        match = _INSIDE.fullmatch(inner)
        if not match:
            return [(f"{OPEN}${{{inner[:40]}}}{CLOSE}", self.line)]
        name, index, rest = match.groups()
        value = None if name in ("@", "*") else self.values.get(name)
        if value is not None and index and index.isdigit():
            value = value[int(index) : int(index) + 1]
        sign = re.match(r":?[-=+?]", rest)
        if sign is None:
            if rest and value:  # cut or replaced
                return [(f"{OPEN}${{{inner[:40]}}}{CLOSE}", self.line)]
            return self._named(name) if value is None else value
        is_set = value is not None and (self._text(value) != "" or sign[0][0] != ":")
        is_set = is_set and OPEN not in self._text(value or [])
        if sign[0][-1] == "?":
            return self._named(name)
        if sign[0][-1] == "+":
            return self._otherwise(rest[len(sign[0]) :]) if is_set else []
        return (value or []) if is_set else self._otherwise(rest[len(sign[0]) :])

    def _otherwise(self, text: str) -> list[Piece]:
        if self.depth > DEEPEST or len(text) > MOST_WORDS:
            return []
        text = text.replace('"', "").replace("'", "")
        return Tokens(text, self.name, self.values, self.line, self.depth + 1).pieces()

    @staticmethod
    def _text(pieces: list[Piece]) -> str:
        return " ".join(text for text, _ in pieces)
