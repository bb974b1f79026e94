"""What the numbers of a system stand on: measurements, logs, datasheets, or what is assumed.

`measured`    timed on such a machine: kernels, streams of messages, disks
`calibrated`  fitted to logs of its collectives
`datasheet`   as its makers or its users' guide say
`assumed`     taken from machines of the same kind; `in part` where a source says so of some of it
`not said`    the file has none
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from oracle.spec.device import Device
from oracle.spec.system import Level, System

WORDS = ("measured", "calibrated", "datasheet", "assumed", "not said")
PARTS = ("kernels", "inside a node", "between nodes", "storage")
KNOWN = ("measured", "fitted")  # origins of curves that were timed on the device itself


@dataclass(frozen=True, slots=True)
class Basis:
    """What one part of a system stands on, and by whose word."""

    part: str  # of PARTS
    word: str  # of WORDS
    in_part: bool  # whether some of it is assumed beside
    told: str

    @property
    def short(self) -> str:
        """The word, and whether some of it is assumed."""
        return f"{self.word}, in part assumed" if self.in_part else self.word


def basis(system: System) -> Iterator[Basis]:
    """The kernels of its device, its links by place, its storage; of partitions the weakest."""
    if not system.partitions:
        yield from _alone(system)
        return
    every = [one for each in dict.fromkeys(part.system for part in system.partitions)
             for one in _alone(each)]  # fmt: skip
    for part in PARTS:
        mine = [one for one in every if one.part == part]
        if mine:
            word = max((one.word for one in mine), key=WORDS.index)
            told = "; ".join(dict.fromkeys(one.told for one in mine))
            yield Basis(part, word, any(one.in_part for one in mine), told)


def _alone(system: System) -> Iterator[Basis]:
    yield _kernels(system.device)
    inner, outer = system.levels[: system.inside], system.levels[system.inside :]
    for part, levels in (("inside a node", inner), ("between nodes", outer)):
        if levels:
            yield _links(system, part, levels)
    if system.storage is None:
        yield Basis("storage", "not said", False, "no file system or disk is said")
        return
    source = system.storage.source
    word = "measured" if "measured" in source else "datasheet"
    yield Basis("storage", word, "assumed" in source, source)


def _kernels(device: Device) -> Basis:
    """Of curves: which families were timed on the device, and which are others' or nobody's."""
    known: dict[str, set[str]] = {}
    rest: dict[str, None] = {}
    for curve in device.kernels:
        if curve.origin in KNOWN:
            known.setdefault(curve.source, set()).add(curve.family)
        else:
            rest[curve.family] = None
    timed = {family for families in known.values() for family in families}
    others = [family for family in rest if family not in timed]
    told = [f"{', '.join(sorted(families))}: {source}" for source, families in known.items()]
    if others:
        told.append(f"assumed: {', '.join(others)}")
    told = told or ["assumed: round figures of measured devices"]
    return Basis("kernels", "measured" if known else "assumed", bool(known and others),
                 "; ".join(told))  # fmt: skip


def _links(system: System, part: str, levels: Sequence[Level]) -> Basis:
    """Of levels: logs of collectives before streams of messages before what their makers say."""
    names = {level.name for level in levels}
    fitted = [(one.level, one.source) for one in system.library]
    fitted += [(one.level, one.source) for one in system.collectives]
    logs = dict.fromkeys(source for level, source in fitted if level in names)
    assumed = any("assumed" in level.source for level in levels)
    if logs:
        return Basis(part, "calibrated", assumed, "; ".join(logs))
    told = "; ".join(f"{level.name}: {level.source}" for level in levels)
    measured = any(level.share is not None or "measured" in level.source for level in levels)
    return Basis(part, "measured" if measured else "datasheet", assumed, told)
