"""Which checkpoints a training is asked to keep, and failures that are planted in it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oracle.spec.document import refusal

WAYS = ("rank0", "sharded", "async")
# where a planted failure comes: a rank dies in a step or amid a checkpoint, or it hangs
PLACES = ("step", "checkpoint", "hang")


@dataclass(frozen=True)
class Keeping:
    """How checkpoints are kept: `rank0` gathers and writes all, or each rank writes its own part.

    `async` copies what a rank holds aside, and a thread writes it while the training goes on.
    """

    way: str
    folder: str
    every: int = 5  # steps
    keep: int = 2  # of the newest
    resume: bool = False
    played: Sequence[Any] | None = None  # fields of `throttle.Played`: storage that is played

    @property
    def question_fields(self) -> dict[str, Any]:
        """The fields that results depend on; the folder is none of them."""
        return {"way": self.way, "every": self.every, "keep": self.keep,
                "played": list(self.played) if self.played else None}  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """A planted failure: a rank is killed in a step or amid a checkpoint, or stops for good."""

    step: int
    rank: int
    at: str = "step"


def keeping(text: str, resume: bool = False, played: Sequence[Any] | None = None) -> Keeping:
    """Parse `sharded,every=5,keep=2,to=FOLDER`.

    >>> keeping("async,every=10,to=/scratch/a,b").folder
    '/scratch/a,b'
    """
    example = f"{WAYS[1]},every=5,to=FOLDER; ways: {', '.join(WAYS)}"
    way, *pairs = re.split(r",(?=(?:every|keep|to)=)", text)
    options = dict(pair.split("=", 1) for pair in pairs)
    if way not in WAYS or len(options) < len(pairs):
        raise refusal("options", f"`--checkpoint {text}` is no way to keep checkpoints", example)
    if not options.get("to"):
        problem = "--checkpoint needs a folder, which all ranks see"
        raise refusal("options", problem, f"--checkpoint {text},to=FOLDER")
    counts = {name: options[name] for name in ("every", "keep") if name in options}
    for name, value in counts.items():
        if not re.fullmatch("[1-9][0-9]{0,8}", value):
            raise refusal("options", f"`{name}={value}` is no whole number from 1 on", example)
    numbers = {name: int(value) for name, value in counts.items()}
    folder = str(Path(options["to"]).absolute())
    return Keeping(way, folder, **numbers, resume=resume, played=played)


def planted(text: str, devices: int) -> Planted:
    """Parse `7`, `step=7,rank=1` or `step=5,at=checkpoint`; the last rank fails if none is named.

    >>> planted("7", 4)
    Planted(step=7, rank=3, at='step')
    """
    options = dict(part.partition("=")[::2] if "=" in part else ("step", part)
                   for part in text.split(","))  # fmt: skip
    example = "--fail 7, --fail step=7,rank=1 or --fail step=5,at=checkpoint"
    numbers = {name: options.get(name, "") for name in ("step", "rank") if name in options}
    sound = all(re.fullmatch("[0-9]{1,9}", value) for value in numbers.values())
    place = options.get("at", PLACES[0])
    sound &= "step" in options and place in PLACES
    if not sound or set(options) - {"step", "rank", "at"}:
        raise refusal("options", f"`--fail {text}` is no failure of a rank", example)
    rank = int(numbers.get("rank", devices - 1))
    if rank >= devices:
        problem = f"`--fail {text}`: the plan has ranks 0 to {devices - 1}"
        raise refusal("options", problem, example)
    return Planted(int(numbers["step"]), rank, place)


def refuse_failures(
    failures: Sequence[Mapping[str, Any]], how: Mapping[str, Any] | None, steps: int, joined: bool
) -> None:
    """Raise for failures that could not come, or that nobody would start again after."""
    if failures and how is None:
        problem = "--fail starts again from a checkpoint, and none are kept"
        raise refusal("options", problem, "--checkpoint sharded,every=5,to=FOLDER")
    if failures and joined:
        problem = "--fail starts ranks again, and these ranks are started by another launcher"
        hint = "--local N; or let that launcher start them again, --resume"
        raise refusal("options", problem, hint)
    for failure in (Planted(**fields) for fields in failures):
        if not 1 <= failure.step <= steps:
            raise refusal("options", f"--fail: there are steps 1 to {steps}", "one of them")
        if how and failure.at == "checkpoint" and failure.step % how["every"]:
            problem = f"--fail: no checkpoint is written after step {failure.step}"
            raise refusal("options", problem, f"a multiple of {how['every']}")


def refuse_folder(folder: Path, nbytes: float) -> None:
    """Raise unless checkpoints can be kept there: a folder, no link, with room for them."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            problem = "checkpoints are kept in a folder, and this is a link or a file"
            raise refusal(str(folder), problem, "name the folder itself", "E100")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise refusal(str(folder), "nothing can be written there", "another folder", "E100")
    disk = os.statvfs(folder)
    if nbytes > (free := disk.f_bavail * disk.f_frsize):
        problem = f"checkpoints take {nbytes:.3g} bytes, and {free:.3g} are free"
        raise refusal(str(folder), problem, "another disk, or a smaller keep=", "E100")
