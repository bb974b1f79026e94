"""DLIO: `summary.json` of a run, or its log: samples a second that a loader gave emulated steps.

A sample's bytes are those of its rates. Where accelerators were busy (utilisation of 90 % and more)
the steps bound the rate, and storage may be faster. From the second epoch on memory may serve files
that fit into it: then the first epoch alone counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from oracle.readers.logs import InputError, Reading, json_document, lines_of, number
from oracle.readers.storage_samples import StorageSample, finite, usable

TITLE = "DLIO summary or log"
PRECEDENCE = 1
BUSY = 90.0  # % of utilisation, from which the steps bound the rate
SAMPLES, BYTES = "train_throughput_mean_samples_per_second", "train_io_mean_MB_per_second"

_METRIC = re.compile(r".{0,80}?\[METRIC\] ([A-Z][^:]{3,60}): ([\d.]{1,30})")


def recognises(text: str) -> bool:
    """Return whether a text has a summary's keys, or the closing lines of a log."""
    if text[:64].lstrip().startswith("{"):
        return f'"{SAMPLES}"' in text and '"metric"' in text
    return "[METRIC] Training Throughput (samples/second)" in text


def parse(text: str, path: str) -> Reading:
    """Return one sample: files that the loader opened."""
    sample, why = _summary(text, path) if text[:64].lstrip().startswith("{") else _log(text)
    place = f"{path}:1"
    good = sample is not None and usable(sample)
    skipped = () if good else ((1, why or "no usable rate"),)
    return Reading(path, TITLE, machine={"tool": "DLIO"}, skipped=skipped,
                   storage=(sample._replace(where=place),) if sample and good else ())  # fmt: skip


def _summary(text: str, path: str) -> tuple[StorageSample | None, str]:
    data = json_document(text, path, "give the summary.json of a run that ended")
    metric = data.get("metric") if isinstance(data, dict) else None
    if not isinstance(metric, dict):
        raise InputError(path, 1, "`metric` is no object", "give the summary.json of a run")
    mean, moved = finite(metric.get(SAMPLES)), finite(metric.get(BYTES))
    if not mean:
        return None, "no samples a second"
    rate, used = mean, finite(metric.get("train_au_mean_percentage"))
    if cached := _any(data.get("potential_caching")):
        rate, used, cached = _first(metric, rate, used)
    return _sample(rate, moved / mean, used, _whole_number(data.get("num_hosts")),
                   _whole_number(data.get("num_samples_per_file")), cached), ""  # fmt: skip


def _first(metric: Mapping[str, Any], rate: float, used: float) -> tuple[float, float, bool]:
    """Return samples a second, utilisation, and if memory may have served, of one epoch."""
    epochs = metric.get("train_throughput_samples_per_second")
    shares = metric.get("train_au_percentage")
    if isinstance(epochs, list) and epochs and finite(epochs[0]):
        busy = finite(shares[0]) if isinstance(shares, list) and shares else used
        return finite(epochs[0]), busy, False
    return rate, used, True


def _sample(
    rate: float, mebibytes: float, used: float, nodes: int | None, samples_a_file: int | None,
    cached: bool,
) -> StorageSample:  # fmt: skip
    """Return a rate of files, or of bytes where a file holds many samples."""
    size = mebibytes * 2**20
    operation = "files" if samples_a_file in (None, 1) else "read"
    return StorageSample(operation, rate, size, None, nodes, None, cached, least=used >= BUSY)


def _log(text: str) -> tuple[StorageSample | None, str]:
    metrics: dict[str, float] = {}
    for _, line in lines_of(text, []):
        if (match := _METRIC.match(line)) and (value := number(match[2])) is not None:
            metrics[match[1]] = value
    rate = metrics.get("Training Throughput (samples/second)", 0.0)
    moved = metrics.get("Training I/O Throughput (MB/second)", 0.0)
    used = next((v for k, v in metrics.items() if k.startswith("Training Accelerator Util")), 0.0)
    if not rate:
        return None, "no samples a second"
    return _sample(rate, moved / rate, used, None, None, False), ""


def _any(flags: Any) -> bool:
    return any(flags) if isinstance(flags, list) else bool(flags)


def _whole_number(value: Any) -> int | None:
    return value if type(value) is int and 0 < value < 2**31 else None
