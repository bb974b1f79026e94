"""Values of a system's storage, fitted to rates that tools of storage measured.

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

from oracle.calibration.spec_block import plain, quantity
from oracle.readers.logs import Reading
from oracle.readers.storage_samples import StorageSample
from oracle.spec.schema import to_data
from oracle.spec.storage import Disk, SharedFiles, Storage
from oracle.spec.units import show
from oracle.storage.file_system import OPERATIONS

# operations on names that each one is
NAMES = {"files": float(OPERATIONS["files"]), "open": 2.0, "stat": 1.0}
READS = ("files", "read")
SMALL = 2**18  # bytes of a file up to which one size alone tells of opening, not of a stream
MISSED = 2.0  # times off, from which a sample is told to be missed
ROUNDS = 50
NEAR = 0.8  # of the most operations on names a second: less waits for itself

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Limit:
    """A value of the fit: what it is, and whether samples were seen to reach it."""

    name: str
    value: float
    unit: str
    reached: bool

    @property
    def words(self) -> str:
        least = "" if self.reached else "at least "
        return f"{self.name} {least}{show(self.value, self.unit, 4)}"


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
        measured = np.array([each.per_second for each in self.samples])
        return np.asarray(self.fitted / measured - 1, float)

    def value(self, name: str) -> float | None:
        return next((each.value for each in self.limits if each.name == name), None)

    def text(self) -> list[str]:
        """In words: values, how well they do, and what they leave open."""
        what = "files that all nodes share" if self.kind == "shared" else "a node's own disks"
        lines = ["", f"storage, {what}: {len(self.samples)} samples"]
        lines += [f"  {each.words}" for each in self.limits]
        if len(self.samples):
            lines.append(f"  median error {float(np.median(np.abs(self.error))):.1%}")
        for each, error in zip(self.samples, self.error, strict=True):
            if not 1 / MISSED <= 1 + error <= MISSED and each.threads and not each.least:
                lines.append(f"  missed: {each.where}: {each.words}, fitted {error:+.0%} from it")
        return lines + [f"  note: {note}" for note in self.notes]

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind, "samples": len(self.samples), "source": self.source,
            "values": {each.name: {"value": each.value, "reached": each.reached}
                       for each in self.limits},
            "median error": float(np.median(np.abs(self.error))) if len(self.samples) else None,
            "notes": list(self.notes),
        }  # fmt: skip


def kind_of(reading: Reading, told: str = "") -> str:
    """Whose files a reading is of: what was told, what the file itself says, or the shared ones."""
    return told or str(reading.machine.get("kind", "shared"))


def fits(readings: Sequence[Reading], told: str = "") -> tuple[StorageFit, ...]:
    """A fit for each kind of storage that there are samples of."""
    found = []
    for kind in ("shared", "local"):
        mine = [each for each in readings if each.storage and kind_of(each, told) == kind]
        if mine:
            found.append(_fit(mine, kind))
    return tuple(found)


def _fit(readings: Sequence[Reading], kind: str) -> StorageFit:
    notes: dict[str, None] = {}
    kept = []
    for sample in (one for reading in readings for one in reading.storage):
        if sample.cached:
            notes["what the memory of a node may have served is left out"] = None
        elif sample.nodes is None:
            notes["a log does not say on how many nodes it ran: FILE:nodes=2 does"] = None
        elif sample.operation in ("create", "remove"):
            notes["creating and removing files tells of no reading"] = None
        else:
            kept.append(sample)
    source = plain(", ".join(_source(each) for each in readings))
    found = _Terms(kept, kind)
    found.solve()
    notes |= dict.fromkeys(found.notes())
    return StorageFit(kind, tuple(kept), found.rates(), tuple(found.limits()), tuple(notes),
                      source)  # fmt: skip


def _source(reading: Reading) -> str:
    date = reading.machine.get("date")
    said = f"{reading.machine.get('tool', reading.format)}: {Path(reading.path).name}"
    return f"{said}, {date}" if date else said


class _Terms:
    """The terms of each sample, and the values in them."""

    def __init__(self, samples: Sequence[StorageSample], kind: str) -> None:
        self.samples, self.local = samples, kind == "local"
        self.of = np.array([each.operation for each in samples], dtype=object)
        self.rate = np.array([each.per_second for each in samples], float)
        self.size = np.array([each.size for each in samples], float)
        self.nodes = np.array([each.nodes for each in samples], float)
        self.at_once = np.array([each.threads or np.inf for each in samples], float)
        # nobody knows what a loader of unknown threads waited for
        self.least = np.array([each.least or each.threads is None for each in samples], bool)
        reads = np.isin(self.of, READS)
        reading = self.nodes[reads]
        lone, many = reading.min(initial=np.inf), reading.max(initial=0)
        self.one_alone = bool(lone == 1 or many > lone)  # else nodes are only seen together
        names = np.array([NAMES.get(each, 0.0) for each in self.of])
        # work of each operation for each limit: bytes, bytes of a node, operations on names
        self.work = {
            "bandwidth": np.where(reads & (many > 1), self.size, 0.0),
            "per_node": np.where(reads, self.size / self.nodes, 0.0),
            "metadata": np.where(self.local, 0.0, names),
            "write": np.where(self.of == "write", self.size / (self.nodes if self.local else 1.0),
                              0.0),
        }  # fmt: skip
        self.work = {name: work for name, work in self.work.items() if work.any()}
        self.value = {name: self._most(name) for name in self.work}
        # those whose wait is of one file or block, by how many of them are under way
        self.waits = reads & np.isfinite(self.at_once) & ~self.least
        if (self.waits & (self.of == "files")).any():
            self.waits &= self.of == "files"
        self.first = self.per_byte = self.naming = 0.0
        self.few = np.zeros(len(samples), bool)  # on names, too few at once to tell of the limit
        self.bound = np.full(len(samples), "", dtype=object)

    def _most(self, name: str) -> float:
        """The largest that any sample reached, where those that only work on names tell of them."""
        implied = self.rate * self.work[name]
        if name == "metadata" and np.isin(self.of, ("stat", "open")).any():
            implied = implied[np.isin(self.of, ("stat", "open"))]
        return float(implied.max())

    def seconds(self) -> dict[str, Floats]:
        """Of one operation, by each term."""
        found = {name: self.work[name] / self.value[name] for name in self.work}
        wait = (self.first + self.per_byte * self.size) / (self.nodes * self.at_once)
        found["open"] = np.where(np.isin(self.of, READS), wait, 0.0)
        if "metadata" in self.work:
            found["naming"] = self.naming * self.work["metadata"] / (self.nodes * self.at_once)
            found["naming"] *= self.few
        return found

    def rates(self) -> Floats:
        """Operations a second, as fitted."""
        if not len(self.samples):
            return self.rate
        terms = [*self.seconds().values(), np.full(len(self.rate), 1e-30)]
        return np.asarray(1 / np.max(terms, 0), float)

    def solve(self) -> None:
        """Give each sample to the term that binds it, fit each term to its own, and again."""
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
                mine = (self.bound == name) & ~self.least
                if mine.any():
                    implied = (self.rate * self.work[name])[mine]
                    self.value[name] = float(np.exp(np.log(implied).mean()))
            self._wait(self.waits & (self.bound == "open"))
            if (self.bound == before).all():
                break
        for name in self.work:  # what was reached is there, whoever else could have had more
            least = (self.rate * self.work[name])[self.least]
            self.value[name] = max(self.value[name], float(least.max(initial=0.0)))

    def _name(self) -> None:
        """Seconds of an operation on names, by those too few at once to come near the limit."""
        if "metadata" not in self.work or not len(self.samples):
            return
        implied = self.rate * self.work["metadata"]
        self.few = ~np.isin(self.of, (*READS, "write")) & ~self.least
        self.few &= implied < NEAR * self.value["metadata"]
        if self.few.any():
            each = (self.nodes * self.at_once)[self.few] / implied[self.few]
            self.naming = float(np.exp(np.log(each).mean()))

    def _fewest(self) -> float:
        """Reads under way that are few for each size alike."""
        under = (self.at_once * self.nodes)[self.waits]
        sizes = self.size[self.waits]
        return max((float(under[sizes == one].min()) for one in np.unique(sizes)), default=0.0)

    def _wait(self, mine: NDArray[np.bool_]) -> None:
        """Seconds until the first byte, and of each byte after it, by the samples they bind."""
        from scipy.optimize import nnls

        if not mine.any():
            return
        each = (self.nodes * self.at_once / self.rate)[mine]  # seconds that one takes
        sizes = self.size[mine]
        if self.local or (sizes.max() < 1.5 * sizes.min() and sizes.max() <= SMALL):
            self.first, self.per_byte = float(np.exp(np.log(each).mean())), 0.0
        elif sizes.max() < 1.5 * sizes.min():
            self.first, self.per_byte = 0.0, float(np.exp(np.log(each / sizes).mean()))
        else:
            matrix = np.stack([1 / each, sizes / each], 1)
            scale = matrix.max(0)
            found, _ = nnls(matrix / scale, np.ones(len(each)))
            self.first, self.per_byte = (found / scale).tolist()

    def reached(self, name: str) -> bool:
        """Whether a sample is bound by it, and another was not for want of reads under way."""
        mine = (self.bound == name) & ~self.least & ~self.few
        under = np.where(np.isfinite(self.at_once), self.at_once * self.nodes, 0.0)
        if not mine.any():
            return False
        alike = self.work[name] > 0
        fewer = alike & (under < under[mine].max()) & (under > 0)
        grew = (self.rate * self.work[name])[fewer]
        if self._told_otherwise(name, mine):
            return False
        # rates that grew with what was under way as far as the last tell of no limit
        levelled = (grew > 0.8 * self.value[name]).any() or (self.bound[fewer] == "open").any()
        return bool(len(grew)) and bool(levelled or (self.bound[alike] == name).sum() > 1)

    def _told_otherwise(self, name: str, mine: NDArray[np.bool_]) -> bool:
        """Whether other limits, which other operations come to as well, bind the same samples."""
        terms = self.seconds()
        others = [terms[other] * self.rate for other in self.work
                  if other != name and ((self.bound == other) & ~mine).any()]  # fmt: skip
        return bool(others) and bool((np.max(others, 0) > 0.95)[mine].all())

    def waited(self, name: str) -> bool:
        """Whether all that came nearest to it were small, and waited for their first bytes."""
        implied = self.rate * self.work[name]
        near = implied >= 0.9 * implied.max()
        small = np.isin(self.of, READS) & (self.size <= SMALL) & ~self.least
        waits = self.seconds()["open"] * self.rate > 0.9
        return bool((small & waits)[near].all())

    def limits(self) -> list[Limit]:
        """The values, as a spec has them."""
        if self.local:
            names = {"per_node": ("read", "B/s"), "write": ("write", "B/s")}
        else:
            names = {"bandwidth": ("bandwidth", "B/s"), "per_node": ("per_node", "B/s"),
                     "metadata": ("metadata", "/s"), "write": ("write", "B/s")}  # fmt: skip
        told = [name for name in self.work if name in names and not self.waited(name)
                and (name != "per_node" or self.one_alone or self.per_byte > 0)]  # fmt: skip
        found = [Limit(names[name][0], self.value[name], names[name][1], self.reached(name))
                 for name in told]  # fmt: skip
        if self.per_byte and "per_node" in told:
            ratio = self.value["per_node"] * self.per_byte
            streams = max(
                1.0, round(ratio) if self.reached("per_node") else math.ceil(ratio - 0.05)
            )
            found.append(Limit("streams", streams, "", True))
            if not self.reached("per_node"):  # so many whole streams, as fast as one is
                node = Limit("per_node", streams / self.per_byte, "B/s", False)
                found = [node if one.name == "per_node" else one for one in found]
        if self.first:
            found.append(Limit("open", self.first, "s", True))
        return found

    def notes(self) -> list[str]:
        """What these samples cannot tell."""
        said = []
        if self.waits.any() and not (self.of[self.waits] == "files").any():
            said.append("`open` is of blocks of an open file: to open one takes longer")
        if self.work.keys() & {"per_node"} and "bandwidth" not in self.work and not self.local:
            said.append("one node read: what all of them have together is not told")
        if self.least.any():
            said.append("steps bound some rates, not storage: those are bounds from below")
        return said


def put(storage: Storage | None, found: Sequence[StorageFit]) -> Storage | None:
    """A system's storage with what was fitted; what was not keeps its value."""
    source = "; ".join(each.source for each in found)
    shared, local = (storage.shared, storage.local) if storage else (None, None)
    for fit in found:
        before = local if fit.kind == "local" else shared
        # a bound from below takes nothing away from what a spec says
        said: dict[str, Any] = {
            each.name: max(_digits(each.value), 0.0 if each.reached
                           else getattr(before, each.name, None) or 0.0)
            for each in fit.limits
        }  # fmt: skip
        if not said:
            continue
        if fit.kind == "local":
            if local is None and "read" not in said:
                continue
            local = replace(local or Disk(said["read"]), **said, source=fit.source)
            continue
        if "streams" in said:
            said["streams"] = int(said["streams"])
        most = max(shared.bandwidth if shared else 0.0, said.get("per_node", 0.0))
        if "bandwidth" not in said and not most:
            continue
        said.setdefault("bandwidth", most)
        shared = replace(shared or SharedFiles(most or said["bandwidth"]), **said,
                         source=fit.source)  # fmt: skip
    if shared is None and local is None:
        return None
    known = f"{storage.source}; " if storage and source not in storage.source else ""
    return Storage(plain(f"{known}as measured: {source}"), shared, local)


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


def block(storage: Storage) -> str:
    """The `storage:` block of a system spec."""
    import yaml

    said: Mapping[str, Any] = to_data(storage)
    said = {each.name: _short(said[each.name]) for each in fields(Storage) if each.name in said}
    return str(yaml.safe_dump({"storage": said}, sort_keys=False, allow_unicode=True, width=99))


def _short(said: Any) -> Any:
    """Quantities in as few digits as say them."""
    if isinstance(said, Mapping):
        return {name: value if name in ("source", "kind") else _short(value)
                for name, value in said.items()}  # fmt: skip
    number, _, unit = said.partition(" ") if isinstance(said, str) else ("", "", "")
    return quantity(float(number), unit) if unit and number[:1].isdigit() else said
