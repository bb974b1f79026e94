"""fio, JSON and text: blocks read and written by jobs, those that ran at once added up.

A job waits for `iodepth` blocks at a time where its engine is asynchronous, else for one. What
reads and writes at once tells of neither, and is passed over. Direct jobs (`direct=1`) read past
the node's memory, and memory may have served the others. Text does not say which a job was: one of
`libaio`, which queues nothing that memory serves, counts as direct.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from oracle.readers.logs import InputError, Reading, lines_of, whole_json
from oracle.readers.storage_samples import StorageSample, finite, joined, quantity, usable

TITLE = "fio JSON or text"
PRECEDENCE = 1
WAITING = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "ftruncate", "falloc")
DIRECTIONS = ("read", "write")

Found = dict[tuple[Any, ...], list[StorageSample]]  # by group and direction

_NAMED = re.compile(r"(\S.{0,99}?): \(g=(\d{1,6})\): rw=(\w{1,20}), .{0,300}")
_JOB = re.compile(r"(\S.{0,99}?): \(groupid=(\d{1,6}), jobs=(\d{1,6})\): err=\s*(\d{1,6})")
_RATE = re.compile(
    r"\s+(read|write)\s*: (?:io=[\w.]{1,20}, bw=([\w./]{1,30}), iops=\s*([\w.]{1,20})"
    r"|IOPS=([\w.]{1,20}), BW=([\w./]{1,30}))"
)
_LATENCY = re.compile(r"\s+lat \((nsec|usec|msec|sec)\)\s?: min=.{1,80}avg=\s*([\w.]{1,20})")
_SECONDS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0}


def recognises(text: str) -> bool:
    """Its version in JSON, or the line of a job in text."""
    head = text[:65536]
    if '"fio version"' in head:
        return True
    return "rw=" in head and "ioengine=" in head and "(g=" in head


def parse(text: str, path: str) -> Reading:
    """A sample for each group of jobs and direction."""
    if '"fio version"' in text[:65536]:
        return _json(text, path)
    return _text(text, path)


def _reading(path: str, found: Found, skipped: list[tuple[int, str]], tool: str) -> Reading:
    """Groups that only read, or only wrote, each as one sample."""
    samples = []
    for (*group, way), parts in found.items():
        other = DIRECTIONS[way == "read"]
        one = joined(parts)
        line = int(one.where.rpartition(":")[2])
        if (*group, other) in found:
            skipped += [(line, "it read and wrote at once")] if way == "read" else []
        elif not usable(one):
            skipped.append((line, "no usable rate"))
        else:
            samples.append(one)
    return Reading(path, TITLE, machine={"tool": tool}, skipped=tuple(skipped),
                   storage=tuple(samples))  # fmt: skip


def _json(text: str, path: str) -> Reading:
    hint = "run it again with --output-format=json --output=FILE"
    begin = text.find("{")
    data = whole_json(text[begin : text.rfind("}") + 1], path, hint)
    jobs = data.get("jobs") or data.get("client_stats") if isinstance(data, dict) else None
    if not isinstance(jobs, list):
        raise InputError(path, 1, "`jobs` is not a list", hint)
    base = data.get("global options")
    common = base if isinstance(base, dict) else {}
    skipped: list[tuple[int, str]] = []
    found: Found = defaultdict(list)
    entries = [job for job in jobs if isinstance(job, dict) and job.get("jobname") != "All clients"]
    hosts = len({str(job["hostname"]) for job in entries if "hostname" in job}) or 1
    for at, job in enumerate(entries, 1):
        if job.get("error"):
            skipped.append((at, "the job ended with an error"))
            continue
        own = job.get("job options")
        options = {**common, **(own if isinstance(own, dict) else {})}
        for way in DIRECTIONS:
            if sample := _of_job(job.get(way), way, options, f"{path}:{at}"):
                found[str(job.get("groupid"))[:20], way].append(sample)
    for parts in found.values():
        parts[:] = [_on(part, hosts) for part in parts]
    return _reading(path, found, skipped, str(data.get("fio version"))[:40])


def _on(part: StorageSample, hosts: int) -> StorageSample:
    """A job of one of so many hosts: threads are those of one."""
    if part.threads is None or hosts == 1:
        return part._replace(nodes=hosts)
    return part._replace(nodes=hosts, threads=max(1, part.threads // hosts))


def _of_job(said: Any, way: str, options: Mapping[str, Any], where: str) -> StorageSample | None:
    if not isinstance(said, dict):
        return None
    rate = finite(said.get("bw_bytes")) or 1024 * finite(said.get("bw"))
    count = finite(said.get("iops"))
    if not (rate and count):
        return None
    latency = None
    for key, scale in (("lat_ns", 1e-9), ("lat", 1e-6), ("clat_ns", 1e-9), ("clat", 1e-6)):
        timed = said.get(key)
        if latency is None and isinstance(timed, dict) and finite(timed.get("mean")):
            latency = finite(timed.get("mean")) * scale
    together = str(options.get("group_reporting", "0")) in ("1", "")
    jobs = _whole(options.get("numjobs")) if together else 1
    threads = jobs * _deep(str(options.get("ioengine", "psync")), _whole(options.get("iodepth")))
    cached = str(options.get("direct", "0")) not in ("1", "")
    return StorageSample(way, count, rate / count, threads, 1, latency, cached=cached, where=where)


def _deep(engine: str, depth: int) -> int:
    return 1 if engine in WAITING else depth


def _whole(value: Any) -> int:
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) else 1


def _text(text: str, path: str) -> Reading:
    skipped: list[tuple[int, str]] = []
    deep: dict[str, int] = {}
    direct: set[str] = set()
    found: Found = defaultdict(list)
    job: tuple[str, int] | None = None
    last: list[StorageSample] | None = None
    tool = "fio"
    for at, line in lines_of(text, skipped):
        if named := _NAMED.match(line):
            deep[named[2]] = max(deep.get(named[2], 1), _depth(line))
            direct |= {named[2]} if "ioengine=libaio" in line else set()
        elif line.startswith("fio-"):
            tool = line.strip()[:40]
        elif begun := _JOB.match(line):
            job, last = (begun[2], int(begun[3])), None
            if int(begun[4]):
                skipped.append((at, "the job ended with an error"))
                job = None
        elif job and (rate := _RATE.match(line)):
            threads, cached = job[1] * deep.get(job[0], 1), job[0] not in direct
            if one := _of_line(rate, threads, cached, f"{path}:{at}"):
                last = found[job[0], rate[1]]
                last.append(one)
        elif last and (timed := _LATENCY.match(line)):
            mean = quantity(timed[2])
            if mean:
                last[-1] = last[-1]._replace(latency=mean * _SECONDS[timed[1]])
    return _reading(path, found, skipped, tool)


def _depth(line: str) -> int:
    engine = re.search(r"ioengine=(\w{1,30})", line)
    depth = re.search(r"iodepth=(\d{1,6})", line)
    return _deep(engine[1] if engine else "", _whole(depth[1] if depth else 1))


def _of_line(rate: re.Match[str], threads: int, cached: bool, where: str) -> StorageSample | None:
    """What a line says; before 3.0 its KB are of 1,024 bytes."""
    way, old, old_count, count, new = rate.groups()
    moved, times = quantity(old or new, 1024 if old else 1000), quantity(old_count or count)
    if not (moved and times and threads):
        return None
    return StorageSample(way, times, moved / times, threads, 1, None, cached, where=where)
