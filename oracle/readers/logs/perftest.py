"""perftest (`ib_write_bw`, `ib_read_lat`, `ib_send_bw`, …), text and `--out_json`: one port's rate.

MB/sec and MiB/sec are 2^20 bytes, Gb/sec 10^9 bits; JSON says no unit, so its rate of messages
counts. A bandwidth is kept as the seconds between two messages, with what is in flight (depth ×
queue pairs); a bidirectional one is the sum of both ways. A write is a `put`, a read a `get`, a
send a `sendrecv`; latencies are half a round trip, a read's a whole one. Both ends go through
the adapter, so they count as two nodes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from oracle.readers.logs import (
    LARGEST_MESSAGE,
    InputError,
    LogFault,
    Reading,
    Sample,
    json_document,
    lines_of,
    number,
    unknown_line,
    unprefixed,
    usable,
)

TITLE = "perftest text or JSON"
OPERATIONS = {"rdma_write": "put", "rdma_write_imm": "put", "write": "put", "rdma_read": "get",
              "read": "get", "send": "sendrecv", "send_imm": "sendrecv"}  # fmt: skip
RATES = {"MiB/sec": 2.0**20, "MB/sec": 2.0**20, "Gb/sec": 0.125e9}  # bytes per second
DEPTH = 128  # of the send queue, where the log does not say

_TEST = re.compile(
    r"\s*(RDMA_Write_imm|RDMA_Write|RDMA_Read|Send_imm|Send|Atomic)[ _]([\w ]*)Test\b",
    re.IGNORECASE,
)
_DEVICE = re.compile(r"device name = \[([^\]]{1,80})\]|Using ROCm Device .*Name: ([^,]{1,80}),")
_RATE = re.compile(r"BW average\[([\w/]+)\]")


@dataclass(slots=True)
class PortTest:
    """One test: its operation, the messages in flight, and the columns of its table."""

    operation: str = ""
    why: str = "the heading with the name of the test is missing"
    bidirectional: bool = False
    depth: int = DEPTH
    pairs: int = 1  # queue pairs
    memory: str = "host"
    rate: float | None = None  # bytes per second of one unit; None: the table is of latencies
    open: int = 0  # the line of the last row of a table that is not closed
    table: bool = False


def recognises(text: str) -> bool:
    """Return whether a text has a table of these columns, or the object of `--out_json`."""
    if text[:64].lstrip().startswith("{"):
        return '"test_info"' in text and '"results"' in text
    columns = "#bytes" in text and "#iterations" in text
    return columns and ("BW average[" in text or "t_avg[" in text)


def parse(text: str, path: str) -> Reading:
    """Return the samples of every table in a log."""
    if text[:64].lstrip().startswith("{"):
        return _json(text, path)
    machine: dict[str, Any] = {"tool": "perftest"}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    test = PortTest()
    for line_number, line in lines_of(text, skipped):
        line = unprefixed(line)
        fields = line.split()
        if line.lstrip().startswith("-----"):
            test.open, test.table = 0, False
        elif match := _TEST.match(line):
            test = _test(match[1], match[2])
            test.memory = machine.pop("memory", "host")  # printed before the heading
        elif "#bytes" in line and "#iterations" in line:
            rate = _RATE.search(line)
            test.rate, test.table = RATES.get(rate[1], 0.0) if rate else None, True
        elif test.table and fields[0].isdecimal():
            test.open = line_number
            reason = _row(fields, test, f"{path}:{line_number}", samples)
            if reason:
                skipped.append((line_number, reason))
        elif not _heading(line, test, machine):
            skipped.append((line_number, unknown_line(line)))
    machine.pop("memory", None)
    faults = []
    if test.open:
        complaint = "the table has no closing line: the run was cut off here"
        faults = [
            LogFault(test.open, "truncated", complaint, "run it again, or give the whole log")
        ]
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped), faults=tuple(faults))


def _test(name: str, rest: str) -> PortTest:
    operation = OPERATIONS.get(name.lower(), "")
    why = "" if operation else f"nothing that is priced: {name}"
    return PortTest(operation, why, "Bidirectional" in rest)


def _heading(line: str, test: PortTest, machine: dict[str, Any]) -> bool:
    """Return whether a line is part of the test's heading, and note its facts."""
    has_key = False
    for part in re.split(r"\t+| {3,}(?=[A-Z])", line):
        key, colon, value = (piece.strip() for piece in part.partition(":"))
        if not colon:
            continue
        has_key = True
        if key == "Device" and value:
            machine["port"] = value[:40]
        elif key == "Link type":
            machine["link"] = value[:40]
        elif key == "Number of qps" and value.isdecimal():
            test.pairs = max(1, int(value[:6]))
        elif key.endswith("memory") and value in ("ON", "OFF"):
            test.memory = "device" if value == "ON" else test.memory
        elif key == "TX depth" and value.isdecimal():
            test.depth = max(1, int(value[:6]))
    if match := _DEVICE.search(line):
        machine["device"] = (match[1] or match[2]).strip()
    if match or any(mark in line for mark in ("CUDA", "cuMem", "GPU buffer")):
        test.memory = "device"
        machine["memory"] = "device"  # and of the test whose heading follows
        return True
    return has_key or "address" in line or "***" in line


def _row(fields: list[str], test: PortTest, place: str, samples: list[Sample]) -> str:
    """Add the sample of a row, or say why there is none."""
    if test.why:
        return test.why
    size = number(fields[0])
    column = 3 if test.rate is not None else 5
    value = number(fields[column]) if len(fields) > column else None
    if value is None or size is None:
        return "the row ends before its number"
    deviation = number(fields[6]) if test.rate is None and len(fields) > 6 else None
    return _add(size, value, number(fields[1]), deviation, test, place, samples)


def _add(
    size: float, value: float, count: float | None, deviation: float | None, test: PortTest,
    place: str, samples: list[Sample],
) -> str:  # fmt: skip
    seconds, window = value * 1e-6, 1
    if test.rate is not None:
        ways = 2 if test.bidirectional else 1
        seconds = size * ways / (value * test.rate) if value * test.rate > 0 else 0.0
        window = test.depth * test.pairs
    if not usable(seconds) or size > LARGEST_MESSAGE:
        return "no usable time"
    samples.append(Sample(
        test.operation, size, seconds, 2, 2, 1,
        iterations=int(min(count or 0, 1e9)) or None,
        window=window,
        spread=deviation / value if deviation and value else None,
        library="verbs",
        memory=test.memory,
        where=place,
        direction="both ways" if test.bidirectional else "one way",
    ))  # fmt: skip
    return ""


def _json(text: str, path: str) -> Reading:
    """Return the result of a file of `--out_json`."""
    data = json_document(text, path, "write it again with --out_json")
    info = data.get("test_info") if isinstance(data, dict) else None
    results = data.get("results") if isinstance(data, dict) else None
    if not isinstance(info, dict) or not isinstance(results, dict):
        complaint = "`test_info` and `results` are not objects"
        raise InputError(path, 1, complaint, "write it again with --out_json")
    match = _TEST.match(str(info.get("test", "")))
    test = _test(match[1], match[2].replace("_", " ")) if match else PortTest()
    queues, memory = info.get("Number_of_qps"), str(info.get("Use_ROCm_memory", "OFF"))
    test.pairs = queues if type(queues) is int and 0 < queues < 10**6 else 1
    test.memory = "device" if "cuda_device" in info or memory == "ON" else "host"
    rate = results.get("MsgRate")  # the file does not say the unit of its bandwidths
    size, count = (_figure(results.get(name)) for name in ("MsgSize", "n_iterations"))
    value = _figure(results.get("t_avg") if rate is None else rate)
    machine = {"tool": "perftest", "port": str(info.get("Device", ""))[:40]}
    samples: list[Sample] = []
    why = test.why
    if not why and (size is None or not value):
        why = "a result without its numbers"
    if not why and size is not None and value:
        if rate is not None:
            test.rate, value = 1.0, size * value * 1e6
        why = _add(size, value, count, None, test, f"{path}:result 1", samples)
    skipped = ((1, why),) if why else ()
    return Reading(path, TITLE, tuple(samples), machine, skipped)


def _figure(value: Any) -> float | None:
    """Return a number of a JSON file, 0 or more, or None."""
    return float(value) if type(value) in (int, float) and value >= 0 else None
