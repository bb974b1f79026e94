"""Logs of collectives and of storage, topology files: samples and levels; one module a format.

`read(path)` finds the format by content, never by file name. A reader is tolerant of text around
a table (launcher prefixes, warnings, several tables, a run that was killed) and strict about the
numbers in it; the lines that it skips are counted, with line and reason. A file of no known format
is refused with one message.

Every module of this folder is a format. It has `TITLE`, `recognises(text) -> bool` and
`parse(text, path) -> Reading`, and may set `PRECEDENCE`: the first format that recognises a text
reads it, in order of precedence, then of name:

    1   the first characters of a file tell the format of all of it
    2   measurements, anywhere in a log (the default)
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
LARGEST_MESSAGE = 2**62  # bytes of a message; a larger one is noise
# the names of collectives in benchmarks of MPI: those of its functions
MPI_CALLS = {
    **{name: name for name in ("allreduce", "reduce", "reduce_scatter", "barrier")},
    **{f"{name}{v}": name for name in ("allgather", "alltoall", "gather", "scatter")
       for v in ("", "v")},
    "reduce_scatter_block": "reduce_scatter", "bcast": "broadcast",
}  # fmt: skip
# collectives of which they count one rank's part, and we count all parts
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
    """An error of an input file: the line, the complaint, and what to do."""

    def __init__(
        self, path: str, line: int, complaint: str, hint: str = "", text: str = ""
    ) -> None:
        self.path, self.line, self.what, self.hint = path, line, complaint, hint
        super().__init__(path, [Fault("E130", complaint, Place(line, 1), hint)], text)


class Sample(NamedTuple):
    """One measured call of one operation: `nbytes` as `OPERATIONS` counts them, and seconds.

    A log may hold a quarter of a million: a named tuple takes a third of a dataclass's time.
    """

    operation: str
    nbytes: float
    seconds: float
    ranks: int | None = None  # of one group; None: the log does not say
    nodes: int | None = None
    ranks_per_node: int | None = None
    in_place: bool | None = None
    iterations: int | None = None
    groups: int | None = 1  # groups, or pairs, that sent at once; None: the log does not say
    dtype: str = ""
    window: int = 1  # messages in flight; above 1 `seconds` is the time between two of them
    per_rank: bool = False  # `nbytes` is one rank's part, since the number of ranks is unknown
    spread: float | None = None  # relative standard deviation over iterations or ranks
    library: str = ""  # "nccl", "mpi", "gloo"
    memory: str = ""  # "device" or "host" buffers; "" when the log does not say
    algorithm: str = ""  # when the run forces one
    where: str = ""  # file:line
    direction: str = ""  # of a test of pairs: "one way", or "both ways" at once
    pair: tuple[int, int] | None = None  # the two devices of a node, where each pair is measured
    overlap: float | None = None  # of a call that computes meanwhile: the hidden share
    adjacent: bool = False  # each group has consecutive ranks, which fill nodes in turn


class LogFault(NamedTuple):
    """A fault of a run that its own log shows."""

    line: int
    kind: str  # "truncated", "wrong results" or "counts"
    what: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Reading:
    """The content of one file: samples, facts of the machine, levels and links, skipped lines."""

    path: str
    format: str
    samples: tuple[Sample, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)
    skipped: tuple[tuple[int, str], ...] = ()
    levels: tuple[dict[str, Any], ...] = ()  # as a system spec writes them, where known
    links: tuple[tuple[str, str, str], ...] = ()  # the graph: from, to, kind
    faults: tuple[LogFault, ...] = ()
    devices: tuple[tuple[str, int], ...] = ()  # each name of a device, and its line
    hosts: tuple[tuple[str, int], ...] = ()  # each beginning of hosts' names, and its line
    interference: tuple[float, ...] = ()  # p50 and p99 of the slowdown by other jobs
    short: dict[str, tuple[float, ...]] = field(
        default_factory=dict
    )  # the same of short messages, by a level's key
    nodes: int | None = None  # of the whole job, where the file says so
    storage: tuple[StorageSample, ...] = ()  # rates of files, which are no messages

    def with_facts(
        self, ranks: int | None = None, nodes: int | None = None, pairs: int | None = None
    ) -> Reading:
        """Return the reading with facts of the user where the file states none.

        `ranks` are all of the job, node by node: a smaller group is on its first nodes.
        """
        all_ranks = ranks or max(
            (s.ranks * (s.groups or 1) for s in self.samples if s.ranks), default=0
        )
        samples = tuple(_with_facts(s, ranks, nodes, pairs, all_ranks) for s in self.samples)
        storage = tuple(sample._replace(nodes=sample.nodes or nodes) for sample in self.storage)
        return replace(self, samples=samples, nodes=self.nodes or nodes, storage=storage)

    def checked_with_facts(
        self, ranks: int | None = None, nodes: int | None = None, pairs: int | None = None
    ) -> Reading:
        """Return the reading with facts about this very file; a contradiction is a fault."""
        in_log = {
            "ranks": {n for s in self.samples if s.ranks
                      for n in (s.ranks, s.ranks * (s.groups or 1))},
            "nodes": {s.nodes for s in self.samples if s.nodes}
            | {s.nodes for s in self.storage if s.nodes}
            | ({self.nodes} if self.nodes else set()),
            "pairs": {s.groups for s in self.samples if s.operation in PAIRWISE and s.groups},
        }  # fmt: skip
        faults = []
        for word, value in (("ranks", ranks), ("nodes", nodes), ("pairs", pairs)):
            if value and in_log[word] and value not in in_log[word]:
                log = " and ".join(map(str, sorted(in_log[word])))
                complaint = f"{word}={value} is said of it, and the log has {log}"
                advice = f"leave {word} out, or name the log that was meant"
                faults.append(LogFault(0, "counts", complaint, advice))
        return replace(self.with_facts(ranks, nodes, pairs), faults=(*self.faults, *faults))

    def counts(self) -> Counter[str]:
        """Return the number of skipped lines, by reason."""
        return Counter(reason for _, reason in self.skipped)

    def summary(self) -> str:
        """Return one line on the content, and one for every reason to skip lines."""
        other_content = self.levels or self.storage
        contents = [f"{len(self.samples)} samples"] if self.samples or not other_content else []
        contents += [f"{len(self.storage)} samples of storage"] if self.storage else []
        if self.interference:
            factors = " to ".join(f"{x:g}" for x in self.interference)
            contents = [f"{factors} × slower among other jobs"]
        contents += [f"{len(self.levels)} levels, {len(self.links)} links"] if self.levels else []
        lines = [
            f"{self.path}: {self.format}, {', '.join(contents)}, {len(self.skipped)} lines skipped"
        ]
        return "\n".join([*lines, *(f"  {n} × {why}" for why, n in sorted(self.counts().items()))])


def _with_facts(
    sample: Sample, ranks: int | None, nodes: int | None, pairs: int | None, all_ranks: int
) -> Sample:
    pairwise = sample.operation in PAIRWISE
    group_ranks = sample.ranks or ranks
    groups = sample.groups or (pairs if pairwise else None)
    node_count = sample.nodes
    if node_count is None and nodes is not None:
        members = (group_ranks or all_ranks) * (1 if sample.adjacent else groups or 1)
        fewer = all_ranks and members < all_ranks and all_ranks % nodes == 0
        node_count = -(-members // (all_ranks // nodes)) if fewer else nodes
    gathered = sample.per_rank and group_ranks is not None
    return sample._replace(
        ranks=group_ranks,
        nodes=node_count,
        ranks_per_node=group_ranks // node_count
        if group_ranks and node_count and group_ranks % node_count == 0
        else None,
        groups=groups,
        nbytes=sample.nbytes * (group_ranks or 1) if gathered else sample.nbytes,
        per_rank=sample.per_rank and not gathered,
    )


def read(path: str | Path) -> Reading:
    """Return the content of a log or topology file, whatever its format and its name."""
    name = str(path)
    try:
        data = read_bytes(path, "log", LOG)
    except SpecError as error:
        (fault,) = error.faults
        hint = fault.hint or "cut it to the part with the tables" * ("bytes" in fault.what)
        raise InputError(error.name, 0, fault.what, hint) from None
    return parse(data, "standard input" if name == "-" else name)


def parse(data: bytes | str, path: str) -> Reading:
    """Return the content of bytes or text; `path` is for messages only."""
    text = decoded(data, path) if isinstance(data, bytes) else data
    bounded(text, path, "log")
    for format_ in formats():
        if format_.recognises(text):
            reading: Reading = format_.parse(text, path)
            printed = getattr(format_, "PRECEDENCE", 2) == 2 and text[-1:] not in "\n\r}]"
            return _unended(reading, text) if printed and not reading.faults else reading
    titles = ", ".join(format_.TITLE for format_ in formats())
    complaint = "the file is empty" if not text.strip() else "this is nothing that can be read here"
    raise InputError(path, 0, complaint, f"read are: {titles}")


def _unended(reading: Reading, text: str) -> Reading:
    """Return a reading with a fault if its file stops within a row: printed rows end lines."""
    last = len(text.splitlines())
    ends = [sample.where for sample in reading.samples[-2:]] + [
        sample.where for sample in reading.storage[-2:]
    ]
    if not any(place.endswith(f":{last}") for place in ends):
        return reading
    complaint = "the last row has no end of line: the file was cut off within it"
    return replace(reading, faults=(LogFault(last, "truncated", complaint, "give the whole log"),))


@cache
def formats() -> tuple[ModuleType, ...]:
    """Return every format of this folder, in the order in which they try a text."""
    modules = [import_module(f"{__name__}.{entry.name}") for entry in iter_modules(__path__)]
    return tuple(sorted(modules, key=lambda m: (getattr(m, "PRECEDENCE", 2), m.__name__)))


def decoded(data: bytes, path: str) -> str:
    """Return the text of a log, UTF-8 or UTF-16 with its mark; odd bytes become marks."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", errors="replace")
    if b"\0" in data[:4096]:
        raise InputError(path, 0, "this is a binary file", "a log is text")
    return data.decode("utf-8-sig", errors="replace")


def number(text: str) -> float | None:
    """Return a finite, non-negative number, or None: never NaN, infinity or `1_000`."""
    if len(text) > 40 or "_" in text:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < math.inf else None


def lines_of(text: str, skipped: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank; note lines that are too long."""
    for line_number, line in enumerate(text.splitlines(), 1):
        if len(line) > LONGEST_LINE and not line.isspace():
            skipped.append((line_number, f"a line of more than {LONGEST_LINE} characters"))
        elif line and not line.isspace():
            yield line_number, line


def json_document(text: str, path: str, hint: str) -> Any:
    """Return the JSON document of a tool, or raise an InputError with the hint."""
    try:
        return loads(text)
    except (ValueError, RecursionError) as error:
        line = getattr(error, "lineno", 1)
        complaint = str(error) if isinstance(error, Unfit) else "this is not JSON to its end"
        raise InputError(path, line, complaint, hint) from None


def unprefixed(line: str) -> str:
    """Return a line without a launcher's prefix (`[1,0]<stdout>:`, `0:`)."""
    return _PREFIX.sub("", line) if "[" in line or ":" in line else line


def host_family(host: str) -> str:
    """Return the common part of the names of a machine's hosts, up to the first number.

    >>> host_family("g0037"), host_family("slurm-gb200-207-171"), host_family("ip-10-0-3-2")
    ('g', 'slurm-gb', 'ip-')
    """
    return re.split(r"\d", host.partition(".")[0], maxsplit=1)[0]


def usable(seconds: float) -> bool:
    """Return whether a time is possible: from a picosecond to thirty years."""
    return 1e-12 < seconds < 1e9


def unknown_line(line: str) -> str:
    """Return the reason to skip a line that is part of no table."""
    for mark, reason in (("UCX ", "a message of UCX"), ("NCCL ", "a message of NCCL")):
        if mark in line:
            return reason
    return "not part of a table"


def kept_environment(pairs: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return the variables that steer the library; others may be secrets and are dropped."""
    return {k: v for k, v in sorted(pairs) if k.startswith(("NCCL_", "UCX_"))}


def sizes(samples: Iterable[Sample]) -> Mapping[str, int]:
    """Return the number of samples of each operation."""
    return Counter(sample.operation for sample in samples)
