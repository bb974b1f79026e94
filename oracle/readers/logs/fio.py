"""fio, JSON and text: blocks read and written by jobs; jobs that ran at once are added up.

A job waits for `iodepth` blocks at a time where its engine is asynchronous, else for one. Jobs that
read and write at once are skipped, since they measure neither. Direct jobs (`direct=1`) read past
the node's memory; memory may have served other jobs. Text does not tell direct jobs: a job of
`libaio`, which queues nothing that memory serves, counts as direct.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from oracle.readers.logs import InputError, Reading, json_document, lines_of
from oracle.readers.storage_samples import StorageSample, finite, joined, quantity, usable

TITLE = "fio JSON or text"
PRECEDENCE = 1
WAITING = ("sync", "psync", "vsync", "pvsync", "pvsync2", "mmap", "splice", "ftruncate", "falloc")
DIRECTIONS = ("read", "write")

Groups = dict[tuple[Any, ...], list[StorageSample]]  # by group and direction

_NAMED = re.compile(r"(\S.{0,99}?): \(g=(\d{1,6})\): rw=(\w{1,20}), .{0,300}")
_JOB = re.compile(r"(\S.{0,99}?): \(groupid=(\d{1,6}), jobs=(\d{1,6})\): err=\s*(\d{1,6})")
_RATE = re.compile(
    r"\s+(read|write)\s*: (?:io=[\w.]{1,20}, bw=([\w./]{1,30}), iops=\s*([\w.]{1,20})"
    r"|IOPS=([\w.]{1,20}), BW=([\w./]{1,30}))"
)
_LATENCY = re.compile(r"\s+lat \((nsec|usec|msec|sec)\)\s?: min=.{1,80}avg=\s*([\w.]{1,20})")
_SECONDS = {"nsec": 1e-9, "usec": 1e-6, "msec": 1e-3, "sec": 1.0}


def recognises(text: str) -> bool:
    """Return whether a text has fio's version in JSON, or the line of a job."""
    head = text[:65536]
    if '"fio version"' in head:
        return True
    return "rw=" in head and "ioengine=" in head and "(g=" in head


def parse(text: str, path: str) -> Reading:
    """Return a sample for each group of jobs and direction."""
    if '"fio version"' in text[:65536]:
        return _json(text, path)
    return _text(text, path)


def _reading(path: str, groups: Groups, skipped: list[tuple[int, str]], tool: str) -> Reading:
    """Return each group that only read, or only wrote, as one sample."""
    samples = []
    for (*group, way), parts in groups.items():
        opposite = DIRECTIONS[way == "read"]
        sample = joined(parts)
        line = int(sample.where.rpartition(":")[2])
        if (*group, opposite) in groups:
            skipped += [(line, "it read and wrote at once")] if way == "read" else []
        elif not usable(sample):
            skipped.append((line, "no usable rate"))
        else:
            samples.append(sample)
    return Reading(path, TITLE, machine={"tool": tool}, skipped=tuple(skipped),
                   storage=tuple(samples))  # fmt: skip


def _json(text: str, path: str) -> Reading:
    hint = "run it again with --output-format=json --output=FILE"
    begin = text.find("{")
    data = json_document(text[begin : text.rfind("}") + 1], path, hint)
    jobs = data.get("jobs") or data.get("client_stats") if isinstance(data, dict) else None
    if not isinstance(jobs, list):
        raise InputError(path, 1, "`jobs` is not a list", hint)
    base = data.get("global options")
    common = base if isinstance(base, dict) else {}
    skipped: list[tuple[int, str]] = []
    groups: Groups = defaultdict(list)
    entries = [job for job in jobs if isinstance(job, dict) and job.get("jobname") != "All clients"]
    hosts = len({str(job["hostname"]) for job in entries if "hostname" in job}) or 1
    for job_number, job in enumerate(entries, 1):
        if job.get("error"):
            skipped.append((job_number, "the job ended with an error"))
            continue
        own_options = job.get("job options")
        options = {**common, **(own_options if isinstance(own_options, dict) else {})}
        for way in DIRECTIONS:
            if sample := _of_job(job.get(way), way, options, f"{path}:{job_number}"):
                groups[str(job.get("groupid"))[:20], way].append(sample)
    for parts in groups.values():
        parts[:] = [_on(part, hosts) for part in parts]
    return _reading(path, groups, skipped, str(data.get("fio version"))[:40])


def _on(part: StorageSample, hosts: int) -> StorageSample:
    """Return a job of one of `hosts`, with the threads of one host."""
    if part.threads is None or hosts == 1:
        return part._replace(nodes=hosts)
    return part._replace(nodes=hosts, threads=max(1, part.threads // hosts))


def _of_job(results: Any, way: str, options: Mapping[str, Any], place: str) -> StorageSample | None:
    if not isinstance(results, dict):
        return None
    rate = finite(results.get("bw_bytes")) or 1024 * finite(results.get("bw"))
    count = finite(results.get("iops"))
    if not (rate and count):
        return None
    latency = None
    for key, scale in (("lat_ns", 1e-9), ("lat", 1e-6), ("clat_ns", 1e-9), ("clat", 1e-6)):
        timed = results.get(key)
        if latency is None and isinstance(timed, dict) and finite(timed.get("mean")):
            latency = finite(timed.get("mean")) * scale
    together = str(options.get("group_reporting", "0")) in ("1", "")
    jobs = _whole_number(options.get("numjobs")) if together else 1
    threads = jobs * _deep(
        str(options.get("ioengine", "psync")), _whole_number(options.get("iodepth"))
    )
    cached = str(options.get("direct", "0")) not in ("1", "")
    return StorageSample(way, count, rate / count, threads, 1, latency, cached=cached, where=place)


def _deep(engine: str, depth: int) -> int:
    return 1 if engine in WAITING else depth


def _whole_number(value: Any) -> int:
    text = str(value)
    return int(text) if re.fullmatch(r"[0-9]{1,6}", text) and int(text) else 1


def _text(text: str, path: str) -> Reading:
    skipped: list[tuple[int, str]] = []
    deep: dict[str, int] = {}
    direct: set[str] = set()
    groups: Groups = defaultdict(list)
    job: tuple[str, int] | None = None
    last: list[StorageSample] | None = None
    tool = "fio"
    for line_number, line in lines_of(text, skipped):
        if named := _NAMED.match(line):
            deep[named[2]] = max(deep.get(named[2], 1), _depth(line))
            direct |= {named[2]} if "ioengine=libaio" in line else set()
        elif line.startswith("fio-"):
            tool = line.strip()[:40]
        elif begun := _JOB.match(line):
            job, last = (begun[2], int(begun[3])), None
            if int(begun[4]):
                skipped.append((line_number, "the job ended with an error"))
                job = None
        elif job and (rate := _RATE.match(line)):
            threads, cached = job[1] * deep.get(job[0], 1), job[0] not in direct
            if sample := _of_line(rate, threads, cached, f"{path}:{line_number}"):
                last = groups[job[0], rate[1]]
                last.append(sample)
        elif last and (timed := _LATENCY.match(line)):
            mean = quantity(timed[2])
            if mean:
                last[-1] = last[-1]._replace(latency=mean * _SECONDS[timed[1]])
    return _reading(path, groups, skipped, tool)


def _depth(line: str) -> int:
    engine = re.search(r"ioengine=(\w{1,30})", line)
    depth = re.search(r"iodepth=(\d{1,6})", line)
    return _deep(engine[1] if engine else "", _whole_number(depth[1] if depth else 1))


def _of_line(rate: re.Match[str], threads: int, cached: bool, place: str) -> StorageSample | None:
    """Return the sample of a line; before 3.0 its KB are of 1,024 bytes."""
    way, old, old_count, count, new = rate.groups()
    moved, times = quantity(old or new, 1024 if old else 1000), quantity(old_count or count)
    if not (moved and times and threads):
        return None
    return StorageSample(way, times, moved / times, threads, 1, None, cached, where=place)
