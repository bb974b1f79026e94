"""Our own measurements: JSON lines, appended one by one, so that a killed run keeps them.

The first line is the header, `{"oracle-measurement": 1, ...}`:
    tool        "oracle 0.1.0"
    date        "2026-11-21", of the run
    backend     "gloo", "nccl", "mpi"
    machine     object of facts, text or numbers: device, nodes, software, … (no host names)
Every other line is a sample:
    operation   a name of `readers.logs.OPERATIONS`, or another word if it is no collective
    bytes       as `readers.logs.OPERATIONS` counts them
    seconds     one number, or the list of the iterations' seconds (the slowest rank of each);
                their median is the sample's time
    ranks       of one group;   nodes  that one group spans;   groups  at once (1)
    ranks_per_node, iterations, in_place, dtype, memory ("device", "host"), algorithm, note
or the end mark, `{"end": "complete"}` or `{"end": "incomplete", "why": "..."}`.
NaN, infinity, a negative number, a duplicate or unknown key: the file is refused, with the line.
A last line that was cut off is skipped and counted.
"""

from __future__ import annotations

from typing import Any

from oracle.readers.json_lines import check_keys, object_of
from oracle.readers.logs import LARGEST_MESSAGE, InputError, Reading, Sample, usable

TITLE = "an oracle measurement"
PRECEDENCE = 1
MARK = "oracle-measurement"
HEADER = frozenset((MARK, "tool", "date", "backend", "machine", "note"))
COUNTS = ("ranks", "nodes", "ranks_per_node", "groups", "iterations")
WORDS = ("operation", "dtype", "memory", "algorithm")
KEYS = frozenset((*COUNTS, *WORDS, "bytes", "seconds", "in_place", "note"))
NEEDED = ("operation", "bytes", "seconds", "ranks")


def recognises(text: str) -> bool:
    """Return whether the first line is our header."""
    return f'"{MARK}"' in text[:4096].split("\n", 1)[0]


def parse(text: str, path: str) -> Reading:
    """Return every sample of the file."""
    lines = text.split("\n")
    header = object_of(lines[0], path, 1, text)
    if header is None or header.get(MARK) != 1:
        raise InputError(
            path, 1, "this is not version 1 of our measurements", "update oracle", text
        )
    check_keys(header, HEADER, path, 1, text)
    machine = {k: v for k, v in header.items() if k in ("tool", "date", "backend")}
    facts = header.get("machine", {})
    if not isinstance(facts, dict):
        raise InputError(path, 1, "`machine` is an object of facts", '{"device": "…"}', text)
    machine |= {k: v for k, v in facts.items() if isinstance(v, str | int | float)}
    samples: list[Sample] = []
    skipped: list[tuple[int, str]] = []
    ended = ""
    for line_number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        data = object_of(line, path, line_number, text, may_be_cut=line_number == len(lines))
        if data is None:
            skipped.append(
                (line_number, "the line is cut off: the run was killed while it was written")
            )
        elif "end" in data:
            ended = str(data["end"])
            if ended != "complete":
                skipped.append(
                    (line_number, f"the run did not finish: {str(data.get('why', ''))[:80]}")
                )
        else:
            check_keys(data, KEYS, path, line_number, text)
            samples.append(_sample(data, machine, path, line_number, text))
    if not ended:
        skipped.append((len(lines), "no end mark: the run may have been killed"))
    return Reading(path, TITLE, tuple(samples), machine, tuple(skipped))


def _sample(
    data: dict[str, Any], machine: dict[str, Any], path: str, line_number: int, text: str
) -> Sample:
    def refuse(complaint: str, hint: str = "") -> InputError:
        return InputError(path, line_number, complaint, hint, text)

    for key in NEEDED:
        if key not in data:
            raise refuse(f"`{key}` is missing", f"needed: {', '.join(NEEDED)}")
    counts: dict[str, int | None] = {}
    for key in COUNTS:
        value = data.get(key)
        if value is not None and (type(value) is not int or not 0 < value < 2**31):
            raise refuse(f"`{key}` is a whole number, 1 or more")
        counts[key] = value
    for key in WORDS:
        if not isinstance(data.get(key, ""), str | None):
            raise refuse(f"`{key}` is a word")
    nbytes, seconds = data["bytes"], data["seconds"]
    if type(nbytes) not in (int, float) or not 0 <= nbytes <= LARGEST_MESSAGE:
        raise refuse("`bytes` is a number, 0 or more")
    times = seconds if isinstance(seconds, list) else [seconds]
    if not times or not all(type(t) in (int, float) and usable(t) for t in times):
        raise refuse("`seconds` is a number above 0, or a list of them")
    ordered = sorted(times)
    middle = (ordered[(len(ordered) - 1) // 2] + ordered[len(ordered) // 2]) / 2
    mean = sum(times) / len(times)
    variance = sum((t - mean) ** 2 for t in times) / max(1, len(times) - 1)
    ranks, nodes = counts["ranks"], counts["nodes"]
    return Sample(
        data["operation"], float(nbytes), float(middle), ranks, nodes,
        counts["ranks_per_node"] or (ranks // nodes if ranks and nodes else None),
        bool(data["in_place"]) if "in_place" in data else None, counts["iterations"] or len(times),
        counts["groups"] or 1, data.get("dtype") or "",
        spread=variance**0.5 / mean if len(times) > 1 else None,
        library=str(machine.get("backend", "")), memory=data.get("memory") or "",
        algorithm=data.get("algorithm") or "", where=f"{path}:{line_number}",
    )  # fmt: skip
