"""Elements of an XML text, one by one: no DTD, bounded depth, no tree."""

from __future__ import annotations

from collections.abc import Callable
from xml.parsers import expat

from oracle.spec.graphs.graph import Unread

DEEPEST, MOST = 64, 400_000


def events(
    text: str, start: Callable[[str, dict[str, str], int], None],
    end: Callable[[str, str, int], None],
) -> None:  # fmt: skip
    """Call `start(name, attributes, line)` and `end(name, text inside, line)` of each element."""
    parser = expat.ParserCreate(namespace_separator=" ")
    words: list[list[str]] = []
    count = 0

    def begun(name: str, said: dict[str, str]) -> None:
        nonlocal count
        count += 1
        if len(words) > DEEPEST or count > MOST:
            raise Unread(parser.CurrentLineNumber, "nested too deeply, or too many elements")
        words.append([])
        start(name.rpartition(" ")[2], said, parser.CurrentLineNumber)

    def ended(name: str) -> None:
        inside = "".join(words.pop()).strip()
        end(name.rpartition(" ")[2], inside, parser.CurrentLineNumber)

    def data(some: str) -> None:
        if words and sum(map(len, words[-1])) < 1000:
            words[-1].append(some)

    def doctype(*_: object) -> None:
        raise Unread(parser.CurrentLineNumber, "a DTD is not read", "delete it")

    parser.StartElementHandler, parser.EndElementHandler = begun, ended
    parser.CharacterDataHandler, parser.StartDoctypeDeclHandler = data, doctype
    try:
        parser.Parse(text.encode("utf-8", errors="replace"), True)
    except expat.ExpatError as error:
        why = expat.ErrorString(error.code)
        raise Unread(error.lineno, f"this is not whole XML: {why}", "write it again") from None
    except LookupError as error:  # an encoding it names and nobody has
        raise Unread(1, f"this XML cannot be read: {error}") from None
