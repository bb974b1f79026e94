"""How long checkpoints, failures and restarts took, from the records of all ranks.

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

from oracle.executor.ranks import records

Record = Mapping[str, Any]
Records = Mapping[str, Sequence[Record]]
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
        """The recovery in a measurement's file; None where no checkpoints were kept."""
        if "checkpoints" not in entry:
            return None
        numbers = [entry["goodput"], entry["checkpoints"].get("seconds", {})]
        if any(type(value) not in (int, float) or not -1e9 < value < 1e9
               for seconds_of in numbers for value in seconds_of.values()):  # fmt: skip
            raise ValueError("not all seconds of its checkpoints and failures are numbers")
        return cls(dict(entry["checkpoints"]), tuple(entry["failures"]), dict(entry["goodput"]))


def summary(
    parts: Path, size: int, run: str, how: Mapping[str, Any], noticed: Sequence[Mapping[str, Any]]
) -> Recovery:
    """The recovery of one training, whose records begin with `run`."""
    records_of = records.of_all_ranks(parts, size)
    training = {key.removeprefix(f"{run}/"): ranks for key, ranks in records_of.items()
                if key.startswith(f"{run}/")}  # fmt: skip
    failures = tuple(_failure(training, _dies(parts, run, failure), failure) for failure in noticed)
    begun = [int(key.removeprefix("begin ")) for key in training if key.startswith("begin ")]
    # an earlier run may have left results that this run went on from
    since = noticed[0]["attempt"] if noticed else max(begun, default=0)
    checkpoints = sorted(_checkpoints(training, since), key=lambda checkpoint: checkpoint["at"])
    first_begin = training[f"begin {max(begun, default=0)}"][0] if begun else {}
    how = {**how, **{name: first_begin[name] for name in ("file_system", "nodes") if first_begin}}
    goodput = _goodput(training, checkpoints, failures, since)
    return Recovery(_all(how, checkpoints), failures, goodput)


def _dies(parts: Path, run: str, failure: Mapping[str, Any]) -> Mapping[str, Any]:
    """The last words of the rank that died."""
    key = f"{run}/dies {failure['attempt']}"
    lines = records.lines(parts / f"rank-{failure['rank']:05d}.jsonl")
    return next(line for line in lines if line.get("key") == key)


def _checkpoints(training: Records, since: int) -> Iterator[dict[str, Any]]:
    for key, ranks in training.items():
        if key.startswith("checkpoint ") and int(key.split()[1]) >= since:
            yield {
                "step": ranks[0]["step"],
                "at": ranks[0]["at"],
                "bytes": sum(rank["bytes"] for rank in ranks),
                "pieces": sum(rank["pieces"] for rank in ranks),
                **{part: max(rank.get(part, 0.0) for rank in ranks) for part in PARTS},
            }


def _all(how: Record, checkpoints: Sequence[Record]) -> dict[str, Any]:
    """How checkpoints were kept, and medians over all of them."""
    fields = {name: value for name, value in how.items() if name != "played"}
    fields["count"] = len(checkpoints)
    if not checkpoints:
        return fields
    medians = {part: statistics.median(saved[part] for saved in checkpoints) for part in PARTS}
    listed = [{name: value for name, value in saved.items() if name != "at"}
              for saved in checkpoints]  # fmt: skip
    return fields | {"bytes": checkpoints[-1]["bytes"], "seconds": medians, "each": listed}


def _begun(training: Records, attempt: int, step: int) -> float | None:
    """When a step began that was run after this start of the ranks."""
    for key in (f"again {attempt} step {step}", f"step {step}"):
        for record in training.get(key, ()):
            if record["start"] == attempt:
                return float(record["at"])
    return None


def _failure(training: Records, died: Record, failure: Record) -> dict[str, Any]:
    """One failure, from the death of a rank until the first step after it."""
    attempt = failure["attempt"]
    fields = {"rank": failure["rank"], "step": failure["step"], "at": failure["at"],
              "detection": failure["noticed"] - died["at"]}  # fmt: skip
    after = training.get(f"begin {attempt + 1}")
    if after is None:  # the failure was the last event
        return fields
    begun, entered = (max(rank[name] for rank in after) for name in ("at", "entered"))
    loading = max(rank["load"].get("seconds", 0.0) for rank in after)
    first = max(1, after[0]["first"])
    back = _begun(training, attempt, first) or died["began"]
    return fields | {
        "restart": begun - failure["noticed"],
        "parts": {"ending": failure["ended"] - failure["noticed"],
                  "starting": entered - failure["ended"],
                  "loading": loading, "building": begun - entered - loading},
        "from": first - 1,
        "passed": list(dict.fromkeys(why for rank in after for why in rank["load"]["passed"]))
        if after[0]["load"] else [],
        "read": sum(rank["load"].get("bytes", 0) for rank in after),
        "again": {"steps": died["step"] - first + (died["place"] == "checkpoint"),
                  "seconds": died["at"] - back},
    }  # fmt: skip


def _goodput(
    training: Records, checkpoints: Sequence[Record], failures: Sequence[Record], since: int
) -> dict[str, float]:
    """Where the seconds of the whole training went."""
    seconds_of_step: dict[int, float] = {}
    stamps, each_step = [], dict[tuple[int, int], tuple[float, float]]()
    for key, ranks in training.items():  # of a step that ran twice the last counts
        named = re.fullmatch(r"(again \d+ )?step (\d+)", key)
        if named and ranks[0]["start"] >= since:
            number, began = int(named[2]), min(rank["at"] for rank in ranks)
            seconds_of_step[number] = max(rank["seconds"] for rank in ranks)
            stamps.append(began)
            each_step[ranks[0]["start"], number] = began, seconds_of_step[number]
    ends = [rank["at"] for key in training if key.startswith("end ") for rank in training[key]]
    if not ends or not stamps or max(ends) < max(stamps):
        return {}
    seconds = max(ends) - min(stamps)
    parts = {
        "progress": sum(seconds_of_step.values()),
        "checkpoints": sum(entry["blocking"] for entry in checkpoints),
        "lost": sum(entry.get("again", {}).get("seconds", 0.0) for entry in failures),
        "detection": sum(entry["detection"] for entry in failures),
        "restart": sum(entry.get("restart", 0.0) for entry in failures),
    }
    rest = {"other": seconds - sum(parts.values()), "share": parts["progress"] / seconds,
            "between": _between(each_step, {entry["step"] for entry in checkpoints})}  # fmt: skip
    steps = {"steps": len(seconds_of_step), "last": max(seconds_of_step)}
    return {"seconds": seconds, **steps, **parts, **rest}


def _between(steps: Mapping[tuple[int, int], tuple[float, float]], saved: set[int]) -> float:
    """Seconds from the end of a step to the next, while the executor writes down what it took."""
    gaps = [steps[start, number + 1][0] - began - took
            for (start, number), (began, took) in steps.items()
            if number not in saved and (start, number + 1) in steps]  # fmt: skip
    return max(0.0, statistics.median(gaps)) if gaps else 0.0
