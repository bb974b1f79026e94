"""nccl-tests JSON of `-J file.json`, complete or cut off by a killed run.

The file holds the environment of the job. Only variables that steer the library (`NCCL_*`, `UCX_*`)
are kept: others may be secrets. Arguments and host names are not kept either.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from oracle.readers.logs import (
    LARGEST_MESSAGE,
    InputError,
    LogFault,
    Reading,
    Sample,
    host_family,
    kept_environment,
    usable,
)
from oracle.readers.logs.nccl_tests import (
    PROGRAMS,
    TableRow,
    Timing,
    contradicted,
    deduce,
    measured,
    readable,
)
from oracle.spec.strict_json import Unfit, closed, loads

TITLE = "nccl-tests JSON"
PRECEDENCE = 1


def recognises(text: str) -> bool:
    """Return whether a text is an object with the two keys of nccl-tests."""
    head = text[:200].lstrip()
    return head.startswith("{") and '"results"' in text and '"config"' in text


def parse(text: str, path: str) -> Reading:
    """Return the samples of the table in the file."""
    skipped: list[tuple[int, str]] = []
    try:
        try:
            data = loads(text)
        except Unfit:
            raise
        except ValueError as error:
            data = loads(closed(text))
            line = getattr(error, "lineno", 1)
            skipped.append((line, "the file is cut off here: what follows is lost"))
    except (ValueError, RecursionError) as error:
        complaint = (
            str(error) if isinstance(error, Unfit) else "this is not JSON, nor the start of it"
        )
        line = getattr(error, "lineno", 0)
        raise InputError(path, line, complaint, "write it again with -J FILE") from None
    config, results = _part(data, "config"), data.get("results")
    if not isinstance(results, list):
        raise InputError(path, 1, "`results` is not a list", "write it again with -J FILE")
    rows = [_row(k, result, skipped) for k, result in enumerate(results, 1)]
    return _reading(data, config, [row for row in rows if row is not None], path, skipped)


def _part(data: Any, key: str) -> dict[str, Any]:
    value = data.get(key) if isinstance(data, dict) else None
    return value if isinstance(value, dict) else {}


def _row(k: int, result: Any, skipped: list[tuple[int, str]]) -> TableRow | None:
    """Return a result as a row of a table; `skipped` counts results, as JSON has no lines."""
    size = result.get("size") if isinstance(result, dict) else None
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= LARGEST_MESSAGE:
        skipped.append((k, "a result without a message size"))
        return None
    row = TableRow(k, size, str(result.get("type", ""))[:20], None, None, [])
    redop, root = result.get("redop"), result.get("root")
    row.redop = redop if isinstance(redop, str) else None
    row.root = root if isinstance(root, int) else None
    for in_place, key in ((False, "out_of_place"), (True, "in_place")):
        part = _part(result, key)
        values = [part.get(name) for name in ("time", "alg_bw", "bus_bw")]
        if not part:
            continue
        numbers = all(isinstance(v, int | float) and v >= 0 for v in values)
        if not numbers or not usable(float(values[0] or 0) * 1e-6):
            skipped.append((k, f"no usable time {key.replace('_', ' ')}"))
            continue
        wrong = part.get("nwrong", 0)
        time, algbw, busbw = (float(v or 0) for v in values)
        iterations = _part(result, f"{key}_per_iter")
        deviation, mean = iterations.get("stdev_us"), iterations.get("avg_us")
        fit = isinstance(deviation, int | float) and isinstance(mean, int | float) and mean > 0
        spread = float(deviation) / float(mean) if fit and deviation and mean else None
        valid = isinstance(wrong, int) and wrong >= 0
        row.timings.append(
            Timing(time, algbw, busbw, in_place, str(wrong) if valid else "N/A", spread)
        )
    return row if row.timings else None


def _reading(
    data: Any,
    config: Mapping[str, Any],
    rows: list[TableRow],
    path: str,
    skipped: list[tuple[int, str]],
) -> Reading:
    machine = _machine(data, config)
    devices = [d for d in _list(config, "devices") if isinstance(d, dict)]
    names = {str(d.get("hostname")) for d in devices if d.get("group", 0) == _first(devices)}
    groups = len({str(d.get("group", 0)) for d in devices}) or 1
    ranks = len(devices) // groups or None
    nodes = len(names) or None
    operation, deduced = deduce(rows, ranks, _operation(data)) if rows else ("", None)
    if not operation:
        skipped += [(row.line, "the file does not say which operation this is") for row in rows]
        rows = []
    faults = [LogFault(line, "truncated", why, "give the whole file")
              for line, why in skipped if "cut off here" in why]  # fmt: skip
    if _part(data, "out_of_bounds").get("okay") is False:
        complaint = "wrong results: the file says that values were out of bounds"
        faults.append(LogFault(0, "wrong results", complaint, "find out what broke the run"))
    if ranks and rows and operation:
        faults += contradicted(rows, ranks, operation)
    ranks = ranks or deduced
    iterations = config.get("iterations")
    shared = Sample(operation, 0.0, 1.0, ranks, nodes, groups=groups,
                    iterations=iterations if isinstance(iterations, int) else None)  # fmt: skip
    samples = measured(rows, shared, f"{path}:result ", skipped, "nwrong")
    infos = [str(d["device_info"])[:80] for d in devices if isinstance(d.get("device_info"), str)]
    families = dict.fromkeys(host_family(name) for name in sorted(names))
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(faults),
                   devices=tuple((name, 1) for name in dict.fromkeys(infos)),
                   hosts=tuple((name, 1) for name in families))  # fmt: skip


def _first(devices: list[dict[str, Any]]) -> Any:
    return devices[0].get("group", 0) if devices else 0


def _list(part: Mapping[str, Any], key: str) -> list[Any]:
    value = part.get(key)
    return value if isinstance(value, list) else []


def _operation(data: dict[str, Any]) -> str:
    words = [str(word).rpartition("/")[2] for word in _list(data, "args")[:1]]
    return PROGRAMS.get(words[0], "") if words else ""


def _machine(data: dict[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    machine: dict[str, Any] = {"tool": "nccl-tests"}
    start = data.get("start_time")
    if isinstance(start, str) and start[:4].isdecimal():
        machine["date"] = start[:10]
    version = data.get("nccl_version")
    if isinstance(version, int) and 1000 <= version < 10**7:
        machine["nccl"] = readable(version)
    elif isinstance(version, str):
        machine["nccl"] = version[:40]
    for device in _list(config, "devices")[:1]:
        if isinstance(device, dict) and isinstance(device.get("device_info"), str):
            machine["device"] = device["device_info"][:80]
    if environment := kept_environment(_environment(data.get("env"))):
        machine["environment"] = environment
    return machine


def _environment(env: Any) -> list[tuple[str, str]]:
    """Return names and values of a mapping, of `NAME=value` texts, or of name/value objects."""
    if isinstance(env, dict):
        return [(key, str(value)) for key, value in env.items()]
    pairs = []
    for entry in env if isinstance(env, list) else ():
        if isinstance(entry, str):
            name, _, value = entry.partition("=")
            pairs.append((name, value))
        elif isinstance(entry, dict):
            pairs.append((str(entry.get("name", "")), str(entry.get("value", ""))))
    return pairs
