"""Fits the values of a system's storage to rates that tools of storage measured.

All samples are fitted together, each to the term that binds it (`oracle.storage.file_system` has
the same): N nodes, w reads at once on each, operations of s bytes take

    max( s / bandwidth, s / (N per_node), o / metadata, (open + s / stream) / (N w) )

seconds each, o the operations on names (3 to stat, open and close a file, 2 to open and close it, 1
to stat it). A limit that binds no sample is a bound from below, and said to be.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oracle.calibration.spec_block import plain, quantity, rounded
from oracle.readers.logs import Reading
from oracle.readers.storage_samples import StorageSample
from oracle.spec.schema import to_data
from oracle.spec.storage import Disk, SharedFiles, Storage
from oracle.spec.units import show
from oracle.storage.file_system import OPERATIONS

# how many operations on names each operation makes
NAMES = {"files": float(OPERATIONS["files"]), "open": 2.0, "stat": 1.0}
READS = ("files", "read")
SMALL = 2**18  # bytes of a file up to which one size alone tells of opening, not of a stream
MISSED = 2.0  # factor from which on a sample counts as missed
ROUNDS = 50
NEAR = 0.8  # share of the most operations on names a second: slower samples wait for themselves

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limit:
    """A fitted value, and whether samples were seen to reach it."""

    name: str
    value: float
    unit: str
    reached: bool

    @property
    def words(self) -> str:
        bound = "" if self.reached else "at least "
        return f"{self.name} {bound}{show(self.value, self.unit, 4)}"


@dataclass(frozen=True, eq=False)
class StorageFit:
    """What samples say of the files that all nodes share, or of a node's own disks."""

    kind: str  # "shared" or "local"
    samples: tuple[StorageSample, ...]
    fitted: Floats  # operations a second
    limits: tuple[Limit, ...]
    notes: tuple[str, ...]
    source: str

    @property
    def error(self) -> Floats:
        """Fitted / measured - 1 of each sample."""
        measured = np.array([sample.per_second for sample in self.samples])
        return np.asarray(self.fitted / measured - 1, float)

    def value(self, name: str) -> float | None:
        return next((limit.value for limit in self.limits if limit.name == name), None)

    def text(self) -> list[str]:
        """The fit in words: values, how well they do, and what they leave open."""
        subject = "files that all nodes share" if self.kind == "shared" else "a node's own disks"
        lines = ["", f"storage, {subject}: {len(self.samples)} samples"]
        lines += [f"  {limit.words}" for limit in self.limits]
        if len(self.samples):
            lines.append(f"  median error {float(np.median(np.abs(self.error))):.1%}")
        for sample, error in zip(self.samples, self.error, strict=True):
            if not 1 / MISSED <= 1 + error <= MISSED and sample.threads and not sample.least:
                missed = f"  missed: {sample.where}: {sample.words}"
                lines.append(f"{missed}, fitted {error:+.0%} from it")
        return lines + [f"  note: {note}" for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "samples": len(self.samples), "source": self.source,
            "values": {limit.name: {"value": limit.value, "reached": limit.reached}
                       for limit in self.limits},
            "median error": float(np.median(np.abs(self.error))) if len(self.samples) else None,
            "notes": list(self.notes),
        }  # fmt: skip


def kind_of(reading: Reading, kind: str = "") -> str:
    """Whose files a reading is of: as told, as the file itself says, or the shared ones."""
    return kind or str(reading.machine.get("kind", "shared"))


def fits(readings: Sequence[Reading], kind_told: str = "") -> tuple[StorageFit, ...]:
    """A fit for each kind of storage that there are samples of."""
    fits_found = []
    for kind in ("shared", "local"):
        of_kind = [r for r in readings if r.storage and kind_of(r, kind_told) == kind]
        if of_kind:
            fits_found.append(_fit_of_kind(of_kind, kind))
    return tuple(fits_found)


def _fit_of_kind(readings: Sequence[Reading], kind: str) -> StorageFit:
    notes: dict[str, None] = {}
    usable = []
    for sample in (measured for reading in readings for measured in reading.storage):
        if sample.cached:
            notes["what the memory of a node may have served is left out"] = None
        elif sample.nodes is None:
            notes["a log does not say on how many nodes it ran: FILE:nodes=2 does"] = None
        elif sample.operation in ("create", "remove"):
            notes["creating and removing files tells of no reading"] = None
        else:
            usable.append(sample)
    source = plain(", ".join(_source(reading) for reading in readings))
    terms = _Terms(usable, kind)
    terms.solve()
    notes |= dict.fromkeys(terms.notes())
    return StorageFit(kind, tuple(usable), terms.rates(), tuple(terms.limits()), tuple(notes),
                      source)  # fmt: skip


def _source(reading: Reading) -> str:
    date = reading.machine.get("date")
    words = f"{reading.machine.get('tool', reading.format)}: {Path(reading.path).name}"
    return f"{words}, {date}" if date else words


class _Terms:
    """The terms that bind each sample, and the values in them."""

    def __init__(self, samples: Sequence[StorageSample], kind: str) -> None:
        self.samples, self.local = samples, kind == "local"
        self.operation = np.array([sample.operation for sample in samples], dtype=object)
        self.rate = np.array([sample.per_second for sample in samples], float)
        self.size = np.array([sample.size for sample in samples], float)
        self.nodes = np.array([sample.nodes for sample in samples], float)
        self.at_once = np.array([sample.threads or np.inf for sample in samples], float)
        # a loader of unknown threads may have waited for anything
        self.least = np.array([sample.least or sample.threads is None for sample in samples], bool)
        reads = np.isin(self.operation, READS)
        reading = self.nodes[reads]
        lone, most_nodes = reading.min(initial=np.inf), reading.max(initial=0)
        self.one_alone = bool(lone == 1 or most_nodes > lone)  # else only seen together
        names = np.array([NAMES.get(name, 0.0) for name in self.operation])
        # work of each operation for each limit: bytes, bytes of a node, operations on names
        self.work = {
            "bandwidth": np.where(reads & (most_nodes > 1), self.size, 0.0),
            "per_node": np.where(reads, self.size / self.nodes, 0.0),
            "metadata": np.where(self.local, 0.0, names),
            "write": np.where(self.operation == "write",
                              self.size / (self.nodes if self.local else 1.0), 0.0),
        }  # fmt: skip
        self.work = {name: work for name, work in self.work.items() if work.any()}
        self.value = {name: self._largest(name) for name in self.work}
        # samples that wait for one file or block at a time
        self.waits = reads & np.isfinite(self.at_once) & ~self.least
        if (self.waits & (self.operation == "files")).any():
            self.waits &= self.operation == "files"
        self.first = self.per_byte = self.naming = 0.0
        self.few = np.zeros(len(samples), bool)  # on names, too few at once
        self.bound = np.full(len(samples), "", dtype=object)

    def _largest(self, name: str) -> float:
        """The largest value that any sample reached; of names, by samples of names if any."""
        implied = self.rate * self.work[name]
        if name == "metadata" and np.isin(self.operation, ("stat", "open")).any():
            implied = implied[np.isin(self.operation, ("stat", "open"))]
        return float(implied.max())

    def seconds(self) -> dict[str, Floats]:
        """Seconds of one operation by each term."""
        seconds_of = {name: self.work[name] / self.value[name] for name in self.work}
        wait = (self.first + self.per_byte * self.size) / (self.nodes * self.at_once)
        seconds_of["open"] = np.where(np.isin(self.operation, READS), wait, 0.0)
        if "metadata" in self.work:
            seconds_of["naming"] = self.naming * self.work["metadata"] / (self.nodes * self.at_once)
            seconds_of["naming"] *= self.few
        return seconds_of

    def rates(self) -> Floats:
        """Operations a second, as fitted."""
        if not len(self.samples):
            return self.rate
        terms = [*self.seconds().values(), np.full(len(self.rate), 1e-30)]
        return np.asarray(1 / np.max(terms, 0), float)

    def solve(self) -> None:
        """Give each sample to the term that binds it and fit each term to its own, repeatedly."""
        if not len(self.samples):
            return
        self._wait(self.waits & (self.at_once * self.nodes <= self._fewest()))
        self._name()
        for _ in range(ROUNDS):
            before = self.bound.copy()
            terms = self.seconds()
            names = np.array([*terms], dtype=object)
            self.bound = names[np.argmax(np.array([*terms.values()]), 0)]
            for name in self.work:
                bound_here = (self.bound == name) & ~self.least
                if bound_here.any():
                    implied = (self.rate * self.work[name])[bound_here]
                    self.value[name] = float(np.exp(np.log(implied).mean()))
            self._wait(self.waits & (self.bound == "open"))
            if (self.bound == before).all():
                break
        for name in self.work:  # a rate that was reached exists, even if more is possible
            bounds_below = (self.rate * self.work[name])[self.least]
            self.value[name] = max(self.value[name], float(bounds_below.max(initial=0.0)))

    def _name(self) -> None:
        """Fit the seconds of an operation on names, by samples with too few at once."""
        if "metadata" not in self.work or not len(self.samples):
            return
        implied = self.rate * self.work["metadata"]
        self.few = ~np.isin(self.operation, (*READS, "write")) & ~self.least
        self.few &= implied < NEAR * self.value["metadata"]
        if self.few.any():
            waits_each = (self.nodes * self.at_once)[self.few] / implied[self.few]
            self.naming = float(np.exp(np.log(waits_each).mean()))

    def _fewest(self) -> float:
        """The reads under way that are few for each size alike."""
        under = (self.at_once * self.nodes)[self.waits]
        sizes = self.size[self.waits]
        return max((float(under[sizes == size].min()) for size in np.unique(sizes)), default=0.0)

    def _wait(self, bound_here: NDArray[np.bool_]) -> None:
        """Fit the seconds until the first byte, and of each byte after it."""
        from scipy.optimize import nnls

        if not bound_here.any():
            return
        waits_each = (self.nodes * self.at_once / self.rate)[bound_here]  # seconds that one takes
        sizes = self.size[bound_here]
        if self.local or (sizes.max() < 1.5 * sizes.min() and sizes.max() <= SMALL):
            self.first, self.per_byte = float(np.exp(np.log(waits_each).mean())), 0.0
        elif sizes.max() < 1.5 * sizes.min():
            self.first, self.per_byte = 0.0, float(np.exp(np.log(waits_each / sizes).mean()))
        else:
            matrix = np.stack([1 / waits_each, sizes / waits_each], 1)
            scale = matrix.max(0)
            solution, _ = nnls(matrix / scale, np.ones(len(waits_each)))
            self.first, self.per_byte = (solution / scale).tolist()

    def reached(self, name: str) -> bool:
        """Whether samples were bound by a limit, and not by want of reads under way."""
        bound_here = (self.bound == name) & ~self.least & ~self.few
        under = np.where(np.isfinite(self.at_once), self.at_once * self.nodes, 0.0)
        if not bound_here.any():
            return False
        alike = self.work[name] > 0
        fewer = alike & (under < under[bound_here].max()) & (under > 0)
        grew = (self.rate * self.work[name])[fewer]
        if self._told_otherwise(name, bound_here):
            return False
        # rates that grew with what was under way as far as the last tell of no limit
        levelled = (grew > 0.8 * self.value[name]).any() or (self.bound[fewer] == "open").any()
        return bool(len(grew)) and bool(levelled or (self.bound[alike] == name).sum() > 1)

    def _told_otherwise(self, name: str, bound_here: NDArray[np.bool_]) -> bool:
        """Whether other limits, known by other operations, bind the same samples."""
        terms = self.seconds()
        rivals = [rival for rival in self.work
                  if rival != name and ((self.bound == rival) & ~bound_here).any()]  # fmt: skip
        filled = [terms[rival] * self.rate for rival in rivals]
        return bool(filled) and bool((np.max(filled, 0) > 0.95)[bound_here].all())

    def waited(self, name: str) -> bool:
        """Whether the samples nearest to a limit were small, and waited for first bytes."""
        implied = self.rate * self.work[name]
        near = implied >= 0.9 * implied.max()
        small = np.isin(self.operation, READS) & (self.size <= SMALL) & ~self.least
        waits = self.seconds()["open"] * self.rate > 0.9
        return bool((small & waits)[near].all())

    def limits(self) -> list[Limit]:
        """The fitted values as a spec has them."""
        if self.local:
            names = {"per_node": ("read", "B/s"), "write": ("write", "B/s")}
        else:
            names = {"bandwidth": ("bandwidth", "B/s"), "per_node": ("per_node", "B/s"),
                     "metadata": ("metadata", "/s"), "write": ("write", "B/s")}  # fmt: skip
        told_names = [name for name in self.work if name in names and not self.waited(name)
                      and (name != "per_node" or self.one_alone or self.per_byte > 0)]  # fmt: skip
        limits = [Limit(names[name][0], self.value[name], names[name][1], self.reached(name))
                  for name in told_names]  # fmt: skip
        if self.per_byte and "per_node" in told_names:
            ratio = self.value["per_node"] * self.per_byte
            streams = max(
                1.0, round(ratio) if self.reached("per_node") else math.ceil(ratio - 0.05)
            )
            limits.append(Limit("streams", streams, "", True))
            if not self.reached("per_node"):  # a whole number of streams, each as fast as one
                node = Limit("per_node", streams / self.per_byte, "B/s", False)
                limits = [node if limit.name == "per_node" else limit for limit in limits]
        if self.first:
            limits.append(Limit("open", self.first, "s", True))
        return limits

    def notes(self) -> list[str]:
        """What these samples cannot tell."""
        remarks = []
        if self.waits.any() and not (self.operation[self.waits] == "files").any():
            remarks.append("`open` is of blocks of an open file: to open one takes longer")
        if self.work.keys() & {"per_node"} and "bandwidth" not in self.work and not self.local:
            remarks.append("one node read: what all of them have together is not told")
        if self.least.any():
            remarks.append("steps bound some rates, not storage: those are bounds from below")
        return remarks


def with_fits(storage: Storage | None, fits_found: Sequence[StorageFit]) -> Storage | None:
    """The system's storage with the fitted values; others stay."""
    source = "; ".join(limit.source for limit in fits_found)
    shared, local = (storage.shared, storage.local) if storage else (None, None)
    for fit in fits_found:
        before = local if fit.kind == "local" else shared
        # a bound from below takes nothing away from what a spec says
        values: dict[str, Any] = {
            limit.name: max(rounded(limit.value, 4), 0.0 if limit.reached
                            else getattr(before, limit.name, None) or 0.0)
            for limit in fit.limits
        }  # fmt: skip
        if not values:
            continue
        if fit.kind == "local":
            if local is None and "read" not in values:
                continue
            local = replace(local or Disk(values["read"]), **values, source=fit.source)
            continue
        if "streams" in values:
            values["streams"] = int(values["streams"])
        bandwidth = max(shared.bandwidth if shared else 0.0, values.get("per_node", 0.0))
        if "bandwidth" not in values and not bandwidth:
            continue
        values.setdefault("bandwidth", bandwidth)
        shared = replace(shared or SharedFiles(bandwidth or values["bandwidth"]), **values,
                         source=fit.source)  # fmt: skip
    if shared is None and local is None:
        return None
    earlier_source = f"{storage.source}; " if storage and source not in storage.source else ""
    return Storage(plain(f"{earlier_source}as measured: {source}"), shared, local)


def block(storage: Storage) -> str:
    """The `storage:` block of a system spec."""
    import yaml

    values: Mapping[str, Any] = to_data(storage)
    names = [field.name for field in fields(Storage) if field.name in values]
    data = {name: _in_few_digits(values[name]) for name in names}
    return str(yaml.safe_dump({"storage": data}, sort_keys=False, allow_unicode=True, width=99))


def _in_few_digits(value: Any) -> Any:
    """The quantities in as few digits as keep them."""
    if isinstance(value, Mapping):
        return {name: part if name in ("source", "kind") else _in_few_digits(part)
                for name, part in value.items()}  # fmt: skip
    number, _, unit = value.partition(" ") if isinstance(value, str) else ("", "", "")
    return quantity(float(number), unit) if unit and number[:1].isdigit() else value
