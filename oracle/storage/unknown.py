"""The numbers that are assumed where a spec is silent, and how far off they may be.

Each number has a factor: with a probability of 90 % the truth lies between a factor below and a
factor above. All are assumed, and said to be wherever they count.

    metadata 45 k/s      a metadata server answers 20 to 100 thousand operations a second
    requests 5,500 /s    Amazon S3, at least so many GETs a second for each partitioned prefix
    per_node 1.7 GB/s    one client gets 1 to 3 GB/s
    streams 4, open 1 ms             a file has its first byte after a few round trips to servers
    a disk's write 0.6 of its read, open 0.1 ms        flash
    host 8 cores and 3 times the memory of its devices, for each       DGX-1, DGX A100, DGX H100,
                         Summit, ABCI have 5 to 16 cores a device, 2 to 6 times the memory
    records of 1 GB      WebDataset, on its shards
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from oracle.spec.dataset import Dataset
from oracle.spec.storage import HOST_BANDWIDTH, Disk, Host, SharedFiles
from oracle.spec.system import System

# value, factor
SHARED: dict[str, tuple[float, float]] = {
    "per_node": (1.7e9, 2.0), "streams": (4, 2.0), "open": (1e-3, 3.0), "metadata": (45e3, 2.2),
}  # fmt: skip
REQUESTS = (5500.0, 3.0)  # of an object store
WRITTEN = (1.0, 2.0)  # of the bandwidth that shared files are read with
DISK: dict[str, tuple[float, float]] = {"open": (1e-4, 3.0)}
FLASH = (0.6, 1.7)  # of the bandwidth that a disk is read with
CORES, MEMORY = (8, 2.0), (3.0, 2.0)  # of a device; of a device's own
HOST: dict[str, tuple[float, float]] = {"bandwidth": (HOST_BANDWIDTH, 3.0)}
PACKED = 1e9  # bytes of a file of many samples
CACHED = 0.7  # of a host's memory: the rest is that of its processes


@dataclass(frozen=True, eq=False)
class Assumed:
    """A number that no spec said."""

    key: str  # as in a spec: `storage.shared.open`
    factor: float  # how far off, either way, with a probability of 90 %


@dataclass(frozen=True, eq=False)
class Machine:
    """The storage of a system, every number of it known or assumed."""

    shared: SharedFiles | None
    local: Disk | None
    host: Host
    ports: float  # B/s of a node's network, one way
    latency: float  # α of it
    assumed: tuple[Assumed, ...] = ()

    @classmethod
    def of(cls, system: System, ports: float, latency: float) -> Machine:
        storage, assumed = system.storage, []
        shared, local = (storage.shared, storage.local) if storage else (None, None)
        if shared is not None:
            defaults = {**SHARED, "write": (WRITTEN[0] * shared.bandwidth, WRITTEN[1])}
            if shared.kind == "objects":
                defaults["metadata"] = REQUESTS
            shared, filled_in = _filled(shared, defaults, "storage.shared")
            # no client gets more than all together
            shared = replace(shared, per_node=min(shared.per_node or 0.0, shared.bandwidth))
            assumed += filled_in
        if local is not None:
            local, filled_in = _filled(local, {**DISK, "write": (FLASH[0] * local.read, FLASH[1])},
                                       "storage.local")  # fmt: skip
            assumed += filled_in
        host = system.host
        if host is None:
            devices = system.per_host
            cores, memory = CORES[0] * devices, MEMORY[0] * system.device.memory * devices
            host = Host(memory, int(cores), "assumed")
            assumed += [Assumed("host.cores", CORES[1]), Assumed("host.memory", MEMORY[1])]
        host, filled_in = _filled(host, HOST, "host")
        return cls(shared, local, host, ports, latency, (*assumed, *filled_in))

    @property
    def cache(self) -> float:
        """Bytes of files that a node's memory keeps."""
        return CACHED * self.host.memory

    def turned(self, key: str, by: float) -> Machine:
        """The same machine with one of its numbers multiplied."""
        *_, place, name = ("storage", *key.split("."))[-2:]
        part = getattr(self, place)
        return replace(self, **{place: replace(part, **{name: getattr(part, name) * by})})


@dataclass(frozen=True, eq=False)
class Samples:
    """A data set as it lies on disk, every number of it known or assumed."""

    count: float
    size: float  # bytes of all
    files: float
    directories: float = 1.0
    parts: bool = True  # whether a part of a sample can be read alone
    spread: float = 0.0
    compression: float = 1.0
    unpack: float = float("inf")  # bytes a second of one core
    decode: float = 0.0  # seconds of one core, a sample
    assumed: tuple[str, ...] = ()

    @classmethod
    def of(cls, data: Dataset) -> Samples | None:
        """Return the samples of a data set; None where nobody says how large the data set is."""
        if not data.size:
            return None
        assumed = [name for name in ("files", "decode") if getattr(data, name) is None]
        holds_many = data.format in ("records", "hdf5", "array")
        files = data.files or (max(1.0, data.size / PACKED) if holds_many else data.samples)
        return cls(
            float(data.samples), data.size, float(files), float(data.directories or 1),
            data.format in (None, "hdf5", "array"), data.spread, data.compression,
            data.unpack or float("inf"), data.decode or 0.0, tuple(assumed),
        )  # fmt: skip

    @property
    def each(self) -> float:
        """Bytes of a sample."""
        return self.size / self.count

    @property
    def opens(self) -> float:
        """Files of a sample: one and more, or a part of one."""
        return self.files / self.count


def _filled(spec: Any, defaults: dict[str, tuple[float, float]], prefix: str) -> Any:
    """Return the spec with defaults for what it does not say, and the list of these defaults."""
    silent = {name: pair for name, pair in defaults.items() if getattr(spec, name) is None}
    complete = replace(spec, **{name: value for name, (value, _) in silent.items()})
    return complete, [Assumed(f"{prefix}.{name}", factor) for name, (_, factor) in silent.items()]
