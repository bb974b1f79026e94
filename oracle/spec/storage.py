"""Where samples come from and checkpoints go: a shared file system, a node's own disks, its host.

What is not said is unknown: `oracle.storage` says what it takes in its place, and how far off that
may be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from oracle.spec.schema import Clash, Count, Fraction
from oracle.spec.units import Bytes, BytesPerSecond, PerSecond, Seconds


@dataclass(frozen=True, slots=True)
class SharedFiles:
    """A file system or an object store that all nodes read from."""

    shorthand: ClassVar[str] = "bandwidth"

    bandwidth: BytesPerSecond  # reading, all nodes together
    write: BytesPerSecond | None = None  # likewise writing
    per_node: BytesPerSecond | None = None  # of one node, with as many reads as it takes
    streams: Count | None = None  # reads at once with which a node comes to that
    open: Seconds | None = None  # from asking for a file until its first byte
    metadata: PerSecond | None = None  # file operations (stat, open, close), all nodes together
    kind: Literal["files", "objects"] = "files"  # objects are got by name: nobody lists or opens
    source: str = ""


@dataclass(frozen=True, slots=True)
class Disk:
    """The disks of one node, all together."""

    shorthand: ClassVar[str] = "read"

    read: BytesPerSecond
    write: BytesPerSecond | None = None
    capacity: Bytes | None = None
    open: Seconds | None = None  # from asking for a file until its first byte
    source: str = ""


HOST_BANDWIDTH = 1e11  # of a host's memory, where nobody says; known to a factor of three


@dataclass(frozen=True, slots=True)
class Host:
    """What a node has beside its devices: its memory keeps files, its cores unpack samples."""

    memory: Bytes
    cores: Count
    source: str
    share_for_loading: Fraction = 0.8  # of the cores; the rest launches kernels
    bandwidth: BytesPerSecond | None = None  # of its memory
    link: BytesPerSecond | None = None  # of a port, to the devices behind it, one way
    shared_by: Count = 1  # devices behind a port


@dataclass(frozen=True, slots=True)
class Storage:
    """The storage of a system; `bandwidth` and `metadata` alone are those of its shared files."""

    source: str
    shared: SharedFiles | None = None
    local: Disk | None = None
    bandwidth: BytesPerSecond | None = field(default=None, repr=False)
    metadata: PerSecond | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if self.shared is None and self.bandwidth is not None:
            shared = SharedFiles(self.bandwidth, metadata=self.metadata)
            object.__setattr__(self, "shared", shared)
            object.__setattr__(self, "bandwidth", None)
            object.__setattr__(self, "metadata", None)

    def check(self) -> Iterator[Clash]:
        hint = "write it inside `shared`"
        for name in ("bandwidth", "metadata"):
            if getattr(self, name) is not None and self.shared is not None:
                yield Clash(name, f"`{name}` stands beside `shared`, which has its own", hint)
        if self.shared is None and self.metadata is not None:
            yield Clash("metadata", "operations a second of no shared file system", hint)
        if self.shared is None and self.local is None:
            what = "neither shared files nor disks are said"
            yield Clash("source", what, "write `shared:` or `local:`")
