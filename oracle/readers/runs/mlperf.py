"""MLPerf's log lines: `:::MLLOG {"key": …, "value": …, "time_ms": …, "metadata": …}`.

Steps are `train_step_time` (seconds) or `throughput` (samples a second) of `tracked_stats`, or
else the time between the ends of blocks, by the samples between them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from oracle.readers.runs import RunLog
from oracle.readers.runs.steady import timing
from oracle.spec.strict_json import loads

TITLE = "MLPerf's log"
PRECEDENCE = 1
MARK = ":::MLLOG"
LONGEST = 2**14
KNOWN = {
    "global_batch_size": "batch", "max_sequence_length": "sequence", "tensor_parallelism": "tensor",
    "pipeline_parallelism": "pipeline", "context_parallelism": "context", "number_of_ranks":
    "devices", "num_accelerators": "devices",
}  # fmt: skip


def recognises(text: str) -> bool:
    return MARK in text


def parse(text: str, path: str) -> RunLog:
    settings: dict[str, float] = {}
    steps: list[float] = []
    rates: list[float] = []
    ends: list[tuple[float, float]] = []  # seconds, samples
    for line in _lines(text):
        key, value, more = str(line.get("key")), line.get("value"), line.get("metadata")
        if key in KNOWN and _is_number(value):
            settings[KNOWN[key]] = float(line["value"])
        elif key == "tracked_stats" and isinstance(value, Mapping):
            for name, values in (("train_step_time", steps), ("throughput", rates)):
                if _is_number(value.get(name)):
                    values.append(float(value[name]))
        elif key in ("block_stop", "epoch_stop") and isinstance(more, Mapping):
            samples = more.get("samples_count", more.get("step"))
            if _is_number(samples) and _is_number(line.get("time_ms")):
                ends.append((float(line["time_ms"]) / 1e3, float(samples)))
    batch = settings.get("batch", 0.0)
    if not steps and batch:
        steps = [batch / rate for rate in rates if rate > 0]
    if not steps and batch:
        blocks = pairwise(ends)
        steps = [batch * (after[0] - before[0]) / (after[1] - before[1])
                 for before, after in blocks if after[1] > before[1]]  # fmt: skip
    return RunLog(path, TITLE, timing(steps), settings=settings)


def _lines(text: str) -> Iterator[Mapping[str, Any]]:
    for match in re.finditer(rf"{MARK}\s*(\{{[^\n]{{0,{LONGEST}}})", text):
        try:
            line = loads(match[1].strip())
        except (ValueError, RecursionError):
            continue
        if isinstance(line, dict):
            yield line


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < 1e15
