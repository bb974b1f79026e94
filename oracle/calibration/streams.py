"""What tests between pairs of ranks tell of a level: the share that streams get, and α.

A stream of messages fills the ports that it goes by, so the largest of many pairs over what the
datasheet's ports carry is the `share` of the bandwidth that messages get; a single small message
is the level's α. Libraries with a cost model of their own count hops otherwise: theirs stays.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from math import ceil
from statistics import median

from oracle.network import nccl
from oracle.readers.logs import PAIRWISE, Reading, Sample
from oracle.spec.system import Level, System

LARGE = 2**20  # bytes from which a stream is taken to fill its ports
SMALL = 8  # bytes up to which a message is all start-up
ABOVE = 1.05  # times a port's datasheet: a faster stream goes by more ports


@dataclass(frozen=True)
class Links:
    """What pairs of ranks reached at one level, with the files that say so."""

    share: float | None
    latency: float | None
    source: str


def links(readings: Iterable[Reading], level: Level, beyond: bool, system: System) -> Links:
    """What the readings' pairs tell of a level; nothing where none went over it alone."""
    streams: dict[int, list[float]] = {}
    starts: list[float] = []
    files: dict[str, None] = {}
    for reading in readings:
        for sample in reading.samples:
            if not _over(sample, beyond):
                continue
            if sample.window > 1 and sample.nbytes >= LARGE:
                pairs = int(sample.groups or 1)
                streams.setdefault(pairs, []).append(pairs * sample.nbytes / sample.seconds)
            elif sample.window == 1 and sample.nbytes <= SMALL and not nccl.serves(system):
                starts.append(sample.seconds)
            else:
                continue
            files[reading.path] = None
    share = None
    if streams:
        pairs = max(streams)
        share = _share(median(streams[pairs]), pairs, level)
    latency = median(starts) if starts else None
    return Links(share, latency, ", ".join(path.rpartition("/")[2] for path in files))


def _over(sample: Sample, beyond: bool) -> bool:
    """Whether a sample is of pairs whose messages all go over the level, one way."""
    if sample.nodes is None or sample.groups is None or sample.pair is not None:
        return False
    one_way = sample.operation in PAIRWISE and sample.direction in ("", "one way")
    return one_way and (sample.nodes > 1) == beyond and (beyond or sample.memory == "device")


def _share(rate: float, pairs: int, level: Level) -> float:
    """The share of the datasheet's bandwidth of the ports that so many pairs fill, or need."""
    ports = level.ports or 1.0
    used = min(ports, max(pairs, ceil(rate / (level.bandwidth * ABOVE))))
    return float(f"{min(1.0, rate / (used * level.bandwidth)):.3g}")
