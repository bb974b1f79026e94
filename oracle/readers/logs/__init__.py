"""Logs of collectives and of storage, topology files: samples and levels; one module a format.

`read(path)` finds the format by content, never by file name. A reader is tolerant of what surrounds
a table (launcher prefixes, warnings, several tables, a run that was killed) and strict about the
numbers in it; what it passes over is counted, with line and reason. A file of no known format is
refused with one message.

Every module of this folder is a format, found by itself. It has `TITLE`,
`recognises(text) -> bool` and `parse(text, path) -> Reading`, and may set `PRECEDENCE`: the first
format that recognises a text reads it, and they are asked by precedence, then by name:

    1   the first characters of a file say what all of it is
    2   measurements, anywhere in a log (what holds where a module sets nothing)
    3   a topology, printed somewhere in a log
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any, NamedTuple

from oracle.readers.storage_samples import StorageSample
from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.files import LOG, bounded, read_bytes
from oracle.spec.strict_json import Unfit, loads

LONGEST_LINE = 4096  # characters of a line that can be part of a table
LARGEST_MESSAGE = 2**62  # bytes of a message; beyond lies only noise
# what benchmarks of MPI call a collective: the name of its function
MPI_CALLS = {
    **{name: name for name in ("allreduce", "reduce", "reduce_scatter", "barrier")},
    **{f"{name}{v}": name for name in ("allgather", "alltoall", "gather", "scatter")
       for v in ("", "v")},
    "reduce_scatter_block": "reduce_scatter", "bcast": "broadcast",
}  # fmt: skip
# collectives of which they count one rank's part, where we count the whole
PARTS = frozenset(("allgather", "alltoall", "gather", "scatter"))

OPERATIONS = {
    "allreduce": "every rank's buffer",
    "reduce_scatter": "all that is scattered",
    "allgather": "all that is gathered",
    "broadcast": "the buffer",
    "reduce": "the buffer",
    "alltoall": "what one rank holds",
    "sendrecv": "what goes to one neighbour",
    "gather": "all that is gathered",
    "scatter": "all that is scattered",
    "barrier": "nothing",
    "halo": "what goes to one neighbour",
    "put": "what goes to one neighbour",  # written into its memory: RDMA, a copy between devices
    "get": "what comes from one neighbour",  # read from its memory
}
PAIRWISE = frozenset(("sendrecv", "put", "get"))  # between two ranks, where no ring is measured
_PREFIX = re.compile(r"^\s*(?:\[\d+,\d+\](?:<std(?:out|err)>)?:?|\d{1,6}:)\s*")


class InputError(SpecError):
    """An input file that cannot be used: where, what is wrong, and what to do."""

    def __init__(self, path: str, line: int, what: str, hint: str = "", text: str = "") -> None:
        self.path, self.line, self.what, self.hint = path, line, what, hint
        super().__init__(path, [Fault("E130", what, Place(line, 1), hint)], text)


class Sample(NamedTuple):
    """One measured call of one operation: `nbytes` as `OPERATIONS` counts them, and seconds.

    A log may hold a quarter of a million: a named tuple is made in a third of the time.
    """

    operation: str
    nbytes: float
    seconds: float
    ranks: int | None = None  # of one group; None: the log does not say
    nodes: int | None = None
    ranks_per_node: int | None = None
    in_place: bool | None = None
    iterations: int | None = None
    groups: int | None = 1  # groups, or pairs, that talked at once; None: the log does not say
    dtype: str = ""
    window: int = 1  # messages in flight; above 1 `seconds` is the time between two of them
    per_rank: bool = False  # `nbytes` is one rank's part, for want of the number of ranks
    spread: float | None = None  # relative standard deviation over iterations or ranks
    library: str = ""  # "nccl", "mpi", "gloo"
    memory: str = ""  # "device" or "host" buffers; "" when the log does not say
    algorithm: str = ""  # when the log forces one
    where: str = ""  # file:line
    direction: str = ""  # of a test of pairs: "one way", or "both ways" at once
    pair: tuple[int, int] | None = None  # the two devices of a node, where each pair is measured
    overlap: float | None = None  # of a call that computes meanwhile: the share that was hidden
    adjacent: bool = False  # each of its groups is of ranks side by side, and fills nodes in turn


class LogFault(NamedTuple):
    """What a log itself shows to be wrong with its run."""

    line: int
    kind: str  # "truncated", "wrong results" or "counts"
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """What one file said: samples, facts of the machine, levels and links; and what was skipped."""

    path: str
    format: str
    samples: tuple[Sample, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)
    skipped: tuple[tuple[int, str], ...] = ()
    levels: tuple[dict[str, Any], ...] = ()  # as a system spec writes them, where it is known
    links: tuple[tuple[str, str, str], ...] = ()  # the graph: from, to, kind
    faults: tuple[LogFault, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()  # each name of a device, and the line that says it
    hosts: tuple[tuple[str, int], ...] = ()  # what the names of hosts begin with, and the line
    interference: tuple[float, ...] = ()  # p50 and p99 of the slowdown by other jobs
    short: dict[str, tuple[float, ...]] = field(default_factory=dict)  # likewise, by a level's key
    nodes: int | None = None  # that the whole job ran on, where the file says so
    storage: tuple[StorageSample, ...] = ()  # rates of files, which are no messages

    def given(
        self, ranks: int | None = None, nodes: int | None = None, pairs: int | None = None
    ) -> Reading:
        """The same reading, with what the file does not say supplied by who ran it.

        `ranks` are all of the job, node by node: a group of fewer lies on its first nodes.
        """
        whole = ranks or max(
            (s.ranks * (s.groups or 1) for s in self.samples if s.ranks), default=0
        )
        samples = tuple(_given(s, ranks, nodes, pairs, whole) for s in self.samples)
        storage = tuple(each._replace(nodes=each.nodes or nodes) for each in self.storage)
        return replace(self, samples=samples, nodes=self.nodes or nodes, storage=storage)

    def stated(
        self, ranks: int | None = None, nodes: int | None = None, pairs: int | None = None
    ) -> Reading:
        """The same for facts said of this very file: what the file itself denies is a fault."""
        known = {
            "ranks": {n for s in self.samples if s.ranks
                      for n in (s.ranks, s.ranks * (s.groups or 1))},
            "nodes": {s.nodes for s in self.samples if s.nodes}
            | {s.nodes for s in self.storage if s.nodes}
            | ({self.nodes} if self.nodes else set()),
            "pairs": {s.groups for s in self.samples if s.operation in PAIRWISE and s.groups},
        }  # fmt: skip
        faults = []
        for word, value in (("ranks", ranks), ("nodes", nodes), ("pairs", pairs)):
            if value and known[word] and value not in known[word]:
                log = " and ".join(map(str, sorted(known[word])))
                what = f"{word}={value} is said of it, and the log has {log}"
                advice = f"leave {word} out, or name the log that was meant"
                faults.append(LogFault(0, "counts", what, advice))
        return replace(self.given(ranks, nodes, pairs), faults=(*self.faults, *faults))

    def counts(self) -> Counter[str]:
        """How many lines were skipped, by reason."""
        return Counter(reason for _, reason in self.skipped)

    def summary(self) -> str:
        """One line of what was found, and one for every reason to skip."""
        told = self.levels or self.storage
        found = [f"{len(self.samples)} samples"] if self.samples or not told else []
        found += [f"{len(self.storage)} samples of storage"] if self.storage else []
        if self.interference:
            factors = " to ".join(f"{x:g}" for x in self.interference)
            found = [f"{factors} × slower among other jobs"]
        found += [f"{len(self.levels)} levels, {len(self.links)} links"] if self.levels else []
        lines = [
            f"{self.path}: {self.format}, {', '.join(found)}, {len(self.skipped)} lines skipped"
        ]
        return "\n".join([*lines, *(f"  {n} × {why}" for why, n in sorted(self.counts().items()))])


def _given(
    sample: Sample, ranks: int | None, nodes: int | None, pairs: int | None, whole: int
) -> Sample:
    pairwise = sample.operation in PAIRWISE
    own = sample.ranks or ranks
    groups = sample.groups or (pairs if pairwise else None)
    said = sample.nodes
    if said is None and nodes is not None:
        members = (own or whole) * (1 if sample.adjacent else groups or 1)
        fewer = whole and members < whole and whole % nodes == 0
        said = -(-members // (whole // nodes)) if fewer else nodes
    gathered = sample.per_rank and own is not None
    return sample._replace(
        ranks=own,
        nodes=said,
        ranks_per_node=own // said if own and said and own % said == 0 else None,
        groups=groups,
        nbytes=sample.nbytes * (own or 1) if gathered else sample.nbytes,
        per_rank=sample.per_rank and not gathered,
    )


def read(path: str | Path) -> Reading:
    """The content of a log or topology file, whatever its format and its name."""
    name = str(path)
    try:
        data = read_bytes(path, "log", LOG)
    except SpecError as error:
        (fault,) = error.faults
        hint = fault.hint or "cut it to the part with the tables" * ("bytes" in fault.what)
        raise InputError(error.name, 0, fault.what, hint) from None
    return parse(data, "standard input" if name == "-" else name)


def parse(data: bytes | str, path: str) -> Reading:
    """The same from bytes already in hand; `path` is for messages only."""
    text = decoded(data, path) if isinstance(data, bytes) else data
    bounded(text, path, "log")
    for each in formats():
        if each.recognises(text):
            found: Reading = each.parse(text, path)
            printed = getattr(each, "PRECEDENCE", 2) == 2 and text[-1:] not in "\n\r}]"
            return _unended(found, text) if printed and not found.faults else found
    known = ", ".join(each.TITLE for each in formats())
    what = "the file is empty" if not text.strip() else "this is nothing that can be read here"
    raise InputError(path, 0, what, f"read are: {known}")


def _unended(found: Reading, text: str) -> Reading:
    """A reading whose file stops within a row of its table: what is printed ends its lines."""
    last = len(text.splitlines())
    ends = [each.where for each in found.samples[-2:]] + [each.where for each in found.storage[-2:]]
    if not any(where.endswith(f":{last}") for where in ends):
        return found
    what = "the last row has no end of line: the file was cut off within it"
    return replace(found, faults=(LogFault(last, "truncated", what, "give the whole log"),))


@cache
def formats() -> tuple[ModuleType, ...]:
    """Every format of this folder, in the order in which they are asked."""
    found = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return tuple(sorted(found, key=lambda m: (getattr(m, "PRECEDENCE", 2), m.__name__)))


def decoded(data: bytes, path: str) -> str:
    """Text of a log: UTF-8, or UTF-16 with its mark; odd bytes are kept as replacement marks."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:4096]:
        raise InputError(path, 0, "this is a binary file", "a log is text")
    return data.decode("utf-8-sig", errors="replace")


def number(text: str) -> float | None:
    """A finite, non-negative number, or None: never NaN, infinity or `1_000`."""
    if len(text) > 40 or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def lines_of(text: str, skipped: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """(number, line) of what may be of a table: not blank, and not too long, which is noted."""
    for at, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST_LINE and not line.isspace():
            skipped.append((at, f"a line of more than {LONGEST_LINE} characters"))
        elif line and not line.isspace():
            yield at, line


def whole_json(text: str, path: str, hint: str) -> Any:
    """The document that a tool wrote as JSON; an InputError with the hint where it is none."""
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        what = str(error) if isinstance(error, Unfit) else "this is not JSON to its end"
        raise InputError(path, line, what, hint) from None


def unprefixed(line: str) -> str:
    """A line without what a launcher put before it (`[1,0]<stdout>:`, `0:`)."""
    return _PREFIX.sub("", line) if "[" in line or ":" in line else line


def host_family(host: str) -> str:
    """What the hosts of one machine have in common: their name up to its first number.

    >>> host_family("g0037"), host_family("slurm-gb200-207-171"), host_family("ip-10-0-3-2")
    ('g', 'slurm-gb', 'ip-')
    """
    return re.split(r"\d", host.partition(".")[0], maxsplit=1)[0]


def usable(seconds: float) -> bool:
    """Whether a time can be one: a picosecond to thirty years."""
    return 1e-12 < seconds < 1e9


def unknown_line(line: str) -> str:
    """The reason to skip a line that is part of no table."""
    for mark, what in (("UCX ", "a message of UCX"), ("NCCL ", "a message of NCCL")):
        if mark in line:
            return what
    return "not part of a table"


def kept_environment(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """The variables that steer the library; every other one may be a secret and is dropped."""
    return {k: v for k, v in sorted(pairs) if k.startswith(("NCCL_", "UCX_"))}


def sizes(samples: Iterable[Sample]) -> Mapping[str, int]:
    """How many samples there are of each operation."""
    return Counter(sample.operation for sample in samples)
