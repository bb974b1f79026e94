"""The one door for files: regular and bounded when they are read, whole or not there when written.

Nothing else in `oracle` opens a file to read it (a test says so). A pipe, a device or a folder is
refused before it is opened, so nobody waits for a writer that never comes; a size is checked before
and while reading, since a file may grow and a file of the kernel says 0. TOML and JSON that come
out are as deep as a person nests them, and are read in time that grows with their length.
"""

from __future__ import annotations

import csv
import errno
import io
import os
import re
import stat
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias

from oracle.spec import strict_json
from oracle.spec.document import Fault, Place, SpecError, refusal

if TYPE_CHECKING:
    import sqlite3

SPEC, SETTINGS, LOG, ROWS = 2**20, 2**16, 2**24, 2**24  # bytes, at most
TRACE = 2**28  # likewise of a profiler's, unpacked or not
QUERY = 2000  # million steps that looking into a database takes, at most
WIDEST = 2**13  # commas of a line of a table, at most
LINE, LINES, CELLS, COLUMNS = 2**24, 2**20, 2**20, 512  # of a text, of a table, at most
DEEPEST = 16  # tables and lists of a TOML text, one in the other
_BREAK = re.compile(r"[\n\r\x0b\x0c\x1c-\x1e\x85\u2028\u2029]")  # as `str.splitlines` has it
_TOML = re.compile(r'"(?:[^"\\\n]++|\\.)*+"|\'[^\'\n]*+\'|#[^\n]*+|[][{}]|\n')
_DOTTED = re.compile(  # Python's reader takes time by the square of the parts
    r"""(?<![\w"'-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){16}"""
)

Name: TypeAlias = str | os.PathLike[str]
_WITHIN: ContextVar[tuple[Path, ...]] = ContextVar("within", default=())


def cache_folder() -> Path:
    """The user's folder of files that may be deleted at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "oracle")


@contextmanager
def only_within(*folders: Path) -> Iterator[None]:
    """Inside, files of these folders alone are read, whatever link or path leads elsewhere."""
    token = _WITHIN.set(tuple(folder.resolve() for folder in folders))
    try:
        yield
    finally:
        _WITHIN.reset(token)


def _need_within(path: Name) -> None:
    """Refuse a file of another folder, where files are bound to some."""
    folders = _WITHIN.get()
    if folders and not any(Path(path).resolve().is_relative_to(each) for each in folders):
        hint = "put its content in place of its name"
        raise refusal(Path(path).name, "files of this machine are not read here", hint, "E100")


def opened(path: Name, what: str, most: int, *, links: bool = True) -> BinaryIO:
    """A regular file to read; a SpecError says why it cannot be had.

    Without `links` the name itself may not be a symbolic link to somewhere else.
    """
    _need_within(path)
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    try:
        fault, hint = _unfit(os.stat(path, follow_symlinks=links), what, most)
        if not fault:
            file = os.fdopen(os.open(path, flags | (0 if links else os.O_NOFOLLOW)), "rb")
            fault, hint = _unfit(os.fstat(file.fileno()), what, most)  # it may be another by now
            if not fault:
                return file
            file.close()
    except FileNotFoundError:
        fault, hint = "there is no such file", ""
    except (OSError, ValueError) as error:  # no permission, a loop of links, a zero in the name
        fault, hint = getattr(error, "strerror", None) or str(error), ""
    raise refusal(str(path) or "a file without a name", fault, hint, "E100")


def read_bytes(path: Name, what: str = "file", most: int = SPEC, *, links: bool = True) -> bytes:
    """The content of a regular file, or of standard input (`-`)."""
    if str(path) == "-":
        _need_within(path)
        return _standard_input(what, most)
    with opened(path, what, most, links=links) as file:
        content = file.read(most + 1)
        if content is None:  # a file of the kernel that would have us wait
            raise refusal(str(path), "it has nothing to read now", code="E100")
        if len(content) > most:
            raise refusal(str(path), f"longer than a {what} may be ({most} bytes)", code="E100")
        return content


def read_lines(path: Name, what: str, *, links: bool = True) -> Iterator[bytes]:
    """The lines of a long file one by one, ends included; none may be longer than `LINE`."""
    with opened(path, what, sys.maxsize, links=links) as file:
        while line := file.readline(LINE + 1):
            if len(line) > LINE:
                raise refusal(str(path), f"a line of more than {LINE} bytes", code="E100")
            yield line


def _unfit(found: os.stat_result, what: str, most: int) -> tuple[str, str]:
    """(why a file is not read, what to do instead), both empty where it is."""
    if stat.S_ISDIR(found.st_mode):
        return "this is a folder, not a regular file", f"name a {what}"
    if stat.S_ISLNK(found.st_mode):
        return "this is a symbolic link, not a regular file", "put the file itself there"
    if not stat.S_ISREG(found.st_mode):
        hint = "write `-` for what is piped in, where that is taken; or keep it in a file"
        return "this is not a regular file", hint
    if found.st_size > most:
        return f"{found.st_size} bytes is more than a {what} may have ({most})", ""
    return "", ""


@cache
def _standard_input(what: str, most: int) -> bytes:
    """What was piped in, read once."""
    fault = ""
    if sys.stdin is None or sys.stdin.closed:
        fault = "standard input is closed"
    else:
        try:
            content = sys.stdin.buffer.read(most + 1)
        except (OSError, ValueError) as error:
            fault = getattr(error, "strerror", None) or str(error)
        else:
            if len(content) <= most:
                return content
            fault = f"more than a {what} may have ({most} bytes)"
    raise refusal("standard input", fault, code="E100")


def read_text(
    path: Name, what: str = "spec file", most: int = SPEC, *,
    links: bool = True, errors: str = "strict",
) -> str:  # fmt: skip
    """The same as text: UTF-8, in a bounded number of lines."""
    name = "standard input" if str(path) == "-" else str(path)
    try:
        text = read_bytes(path, what, most, links=links).decode("utf-8-sig", errors)
    except UnicodeDecodeError as error:
        raise refusal(name, f"byte {error.start} is not UTF-8 text", code="E100") from None
    bounded(text, name, what)
    return text


def bounded(text: str, name: str, what: str) -> None:
    """Refuse a text of more lines than `LINES`."""
    if len(text) > LINES and sum(1 for _ in _BREAK.finditer(text)) > LINES:
        raise refusal(name, f"more lines than a {what} may have ({LINES})", code="E100")


def unpacked(data: bytes, name: str, most: int = TRACE) -> bytes:
    """What gzip packed, in however many parts; never more than `most` bytes of it."""
    found, rest = bytearray(), data
    while rest:
        part = zlib.decompressobj(wbits=31)
        found += part.decompress(rest, most + 1 - len(found))
        if len(found) > most:
            raise refusal(name, f"unpacks to more than {most} bytes", "fewer steps", "E100")
        if not part.eof:
            raise EOFError
        rest = part.unused_data.lstrip(b"\0")
    return bytes(found)


@contextmanager
def database(data: bytes) -> Iterator[sqlite3.Connection]:
    """The SQLite database in bytes that were read, to be looked at only, in bounded time."""
    import sqlite3

    with closing(sqlite3.connect(":memory:")) as found:
        found.deserialize(data)
        found.execute("PRAGMA query_only = on")
        found.execute("PRAGMA trusted_schema = off")
        left = iter(range(QUERY))
        found.set_progress_handler(lambda: next(left, None) is None, 10**6)
        yield found


def read_json(path: Name, what: str = "file", most: int = SPEC, *, links: bool = True) -> Any:
    """The value of a JSON file; a SpecError with the place where it is none."""
    return json_of(read_text(path, what, most, links=links), str(path))


def json_of(text: str, name: str) -> Any:
    """The value of a JSON text, as `strict_json` reads it."""
    try:
        return strict_json.loads(text)
    except (ValueError, RecursionError) as error:
        said = f"not JSON that can be trusted: {getattr(error, 'msg', error)}"
        place = Place(getattr(error, "lineno", 0), getattr(error, "colno", 0))
        raise SpecError(name, [Fault("E101", said, place)], text) from None


def csv_of(text: str, name: str) -> tuple[list[str], Iterator[tuple[int, dict[str, str]]]]:
    """The columns of a CSV text, and its rows with the line where each ends.

    A carriage return ends a line wherever it stands outside quotes, as spreadsheets have it.
    """

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=None):
            if line.count(",") > WIDEST:  # before there are as many cells
                raise refused(f"a line of more than {WIDEST} commas")
            yield line

    rows = csv.reader(lines())

    def refused(what: str) -> SpecError:
        return SpecError(name, [Fault("E101", what, Place(rows.line_num, 1))], text)

    def found(columns: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
        left = CELLS
        try:
            for cells in rows:
                left -= len(columns)
                if left < 0:
                    raise refused(f"more cells than a table may have ({CELLS})")
                if cells:
                    yield rows.line_num, dict(zip(columns, cells, strict=False))
        except csv.Error as error:
            raise refused(f"this is not CSV: {error}") from None

    try:
        columns = next(rows, [])
    except csv.Error as error:
        raise refused(f"this is not CSV: {error}") from None
    if len(columns) > COLUMNS:
        raise refused(f"more columns than a table may have ({COLUMNS})")
    return columns, found(columns)


def toml_of(text: str, name: str) -> dict[str, Any]:
    """The tables of a TOML text."""
    import tomllib

    if dotted := _DOTTED.search(text):
        place = Place(text.count("\n", 0, dotted.start()) + 1, 1)
        what = f"a key of more than {DEEPEST} parts"
        raise SpecError(name, [Fault("E108", what, place)], text)
    depth, line = 0, 1
    for match in _TOML.finditer(text):
        mark = match[0]
        depth += (mark in "[{") - (mark in "]}") if mark != "\n" else 0
        line += mark == "\n"
        if depth > DEEPEST:
            fault = Fault("E108", f"nested more than {DEEPEST} deep", Place(line, 1))
            raise SpecError(name, [fault], text)
    try:
        return tomllib.loads(text)
    except ValueError as error:  # also of a number of more digits than Python reads
        at = re.search(r"line (\d+), column (\d+)", str(error))
        place = Place(int(at[1]), int(at[2])) if at else Place(text.count("\n") + 1, 1)
        what = re.sub(r"\s*\(at .*\)$", "", str(error))
        raise SpecError(name, [Fault("E101", what, place, "this is not TOML")], text) from None


def write(place: Path, content: bytes) -> None:
    """Put a file in its place in one step; a device or a pipe is simply written to."""
    if place.is_dir():  # also the place without a name, which is the folder at hand
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(place))
    if place.exists() and not place.is_file():
        place.write_bytes(content)
        return
    beside = place.with_name(f".{place.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        with beside.open("xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(place)
    except OSError as error:  # of the file that was asked for, not of the one beside it
        raise OSError(error.errno, error.strerror, str(place)) from None
    finally:
        beside.unlink(missing_ok=True)
    folder = os.open(place.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
