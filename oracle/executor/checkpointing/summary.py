"""What checkpoints, failures and restarts took, out of the records of all ranks.

    seconds = progress + checkpoints + lost + detection + restart + other

Seconds run from the first timed step to the end: progress is that of steps that count, once each;
lost is work that was done again, from the checkpoint that was gone back to until the failure;
detection lasts until the launcher knows, restart from then until the first step. A checkpoint takes
as long as the slowest rank waits for it; beside the training it is written on.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.executor import records

Records = Mapping[str, Sequence[Mapping[str, Any]]]
PARTS = ("blocking", "waited", "copy", "gather", "write", "flush", "commit", "background",
         "safe_after")  # fmt: skip


@dataclass(frozen=True)
class Recovery:
    """Checkpoints and failures of a training, as a measurement shows them."""

    checkpoints: dict[str, Any]
    failures: tuple[dict[str, Any], ...]
    goodput: dict[str, float]

    def as_json(self) -> dict[str, Any]:
        return {"checkpoints": self.checkpoints, "failures": list(self.failures),
                "goodput": self.goodput}  # fmt: skip

    @classmethod
    def from_json(cls, entry: Mapping[str, Any]) -> Recovery | None:
        """Of a measurement's file; None where no checkpoints were kept."""
        if "checkpoints" not in entry:
            return None
        numbers = [entry["goodput"], entry["checkpoints"].get("seconds", {})]
        if any(type(value) not in (int, float) or not -1e9 < value < 1e9
               for each in numbers for value in each.values()):  # fmt: skip
            raise ValueError("not all seconds of its checkpoints and failures are numbers")
        return cls(dict(entry["checkpoints"]), tuple(entry["failures"]), dict(entry["goodput"]))


def summary(
    parts: Path, size: int, run: str, how: Mapping[str, Any], again: Sequence[Mapping[str, Any]]
) -> Recovery:
    """All of one training, whose records begin with `run`."""
    whole = records.of_all_ranks(parts, size)
    found = {key.removeprefix(f"{run}/"): of for key, of in whole.items()
             if key.startswith(f"{run}/")}  # fmt: skip
    failures = tuple(_failure(found, _dies(parts, run, one), one) for one in again)
    begun = [int(key.removeprefix("begin ")) for key in found if key.startswith("begin ")]
    # an earlier run may have left results, which this one went on from
    since = again[0]["attempt"] if again else max(begun, default=0)
    each = sorted(_checkpoints(found, since), key=lambda one: one["at"])
    where = found[f"begin {max(begun, default=0)}"][0] if begun else {}
    how = {**how, **{name: where[name] for name in ("file_system", "nodes") if where}}
    return Recovery(_all(how, each), failures, _goodput(found, each, failures, since))


def _dies(parts: Path, run: str, one: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last words of the rank that died."""
    key = f"{run}/dies {one['attempt']}"
    lines = records.lines(parts / f"rank-{one['rank']:05d}.jsonl")
    return next(line for line in lines if line.get("key") == key)


def _checkpoints(found: Records, since: int) -> Iterator[dict[str, Any]]:
    for key, of in found.items():
        if key.startswith("checkpoint ") and int(key.split()[1]) >= since:
            yield {"step": of[0]["step"], "at": of[0]["at"],
                   "bytes": sum(rank["bytes"] for rank in of),
                   "pieces": sum(rank["pieces"] for rank in of),
                   **{part: max(rank.get(part, 0.0) for rank in of) for part in PARTS}}  # fmt: skip


def _all(how: Mapping[str, Any], each: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How they were kept, and medians over all of them."""
    said = {name: value for name, value in how.items() if name != "played"} | {"count": len(each)}
    if not each:
        return said
    middle = {part: statistics.median(one[part] for one in each) for part in PARTS}
    shown = [{name: value for name, value in one.items() if name != "at"} for one in each]
    return said | {"bytes": each[-1]["bytes"], "seconds": middle, "each": shown}


def _begun(found: Records, attempt: int, step: int) -> float | None:
    """When a step began that this start of the ranks went through."""
    for key in (f"again {attempt} step {step}", f"step {step}"):
        for of in found.get(key, ()):
            if of["start"] == attempt:
                return float(of["at"])
    return None


def _failure(found: Records, died: Mapping[str, Any], one: Mapping[str, Any]) -> dict[str, Any]:
    """A failure, from the death of a rank until the first step after it."""
    attempt = one["attempt"]
    known = {"rank": one["rank"], "step": one["step"], "at": one["at"],
             "detection": one["noticed"] - died["at"]}  # fmt: skip
    after = found.get(f"begin {attempt + 1}")
    if after is None:  # it was the last that happened
        return known
    begun, entered = (max(rank[name] for rank in after) for name in ("at", "entered"))
    loading = max(rank["load"].get("seconds", 0.0) for rank in after)
    first = max(1, after[0]["first"])
    back = _begun(found, attempt, first) or died["began"]
    return known | {
        "restart": begun - one["noticed"],
        "parts": {"ending": one["ended"] - one["noticed"], "starting": entered - one["ended"],
                  "loading": loading, "building": begun - entered - loading},
        "from": first - 1,
        "passed": list(dict.fromkeys(why for rank in after for why in rank["load"]["passed"]))
        if after[0]["load"] else [],
        "read": sum(rank["load"].get("bytes", 0) for rank in after),
        "again": {"steps": died["step"] - first + (died["place"] == "checkpoint"),
                  "seconds": died["at"] - back},
    }  # fmt: skip


def _goodput(
    found: Records, each: Sequence[Mapping[str, Any]], failures: Sequence[Mapping[str, Any]],
    since: int,
) -> dict[str, float]:  # fmt: skip
    """Where the seconds of the whole training went."""
    kept: dict[int, float] = {}
    stamps, each_step = [], dict[tuple[int, int], tuple[float, float]]()
    for key, of in found.items():  # of a step that was done twice the last counts
        named = re.fullmatch(r"(again \d+ )?step (\d+)", key)
        if named and of[0]["start"] >= since:
            number, began = int(named[2]), min(rank["at"] for rank in of)
            kept[number] = max(rank["seconds"] for rank in of)
            stamps.append(began)
            each_step[of[0]["start"], number] = began, kept[number]
    ends = [rank["at"] for key, of in found.items() if key.startswith("end ") for rank in of]
    if not ends or not stamps or max(ends) < max(stamps):
        return {}
    seconds = max(ends) - min(stamps)
    parts = {
        "progress": sum(kept.values()),
        "checkpoints": sum(one["blocking"] for one in each),
        "lost": sum(one.get("again", {}).get("seconds", 0.0) for one in failures),
        "detection": sum(one["detection"] for one in failures),
        "restart": sum(one.get("restart", 0.0) for one in failures),
    }
    rest = {"other": seconds - sum(parts.values()), "share": parts["progress"] / seconds,
            "between": _between(each_step, {one["step"] for one in each})}  # fmt: skip
    return {"seconds": seconds, "steps": len(kept), "last": max(kept), **parts, **rest}


def _between(steps: Mapping[tuple[int, int], tuple[float, float]], saved: set[int]) -> float:
    """Seconds from the end of a step to the next, while the executor writes down what it took."""
    found = [steps[start, number + 1][0] - began - took
             for (start, number), (began, took) in steps.items()
             if number not in saved and (start, number + 1) in steps]  # fmt: skip
    return max(0.0, statistics.median(found)) if found else 0.0
