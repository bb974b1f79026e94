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
# how a planted failure comes: a rank dies in a step or while a checkpoint is written, or it hangs
PLACES = ("step", "checkpoint", "hang")


@dataclass(frozen=True)
class Keeping:
    """How checkpoints are kept: `rank0` gathers and writes all, or each rank what it holds.

    `async` copies what a rank holds aside, and a thread writes it while the training goes on.
    """

    way: str
    folder: str
    every: int = 5  # steps
    keep: int = 2  # of the newest
    resume: bool = False
    played: Sequence[Any] | None = None  # of `throttle.Played`: storage that is played

    @property
    def said(self) -> dict[str, Any]:
        """What results belong to; the folder is no part of it."""
        return {"way": self.way, "every": self.every, "keep": self.keep,
                "played": list(self.played) if self.played else None}  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """A rank is killed in a step, or halfway through the checkpoint after it; or stops for good."""

    step: int
    rank: int
    at: str = "step"


def keeping(text: str, resume: bool = False, played: Sequence[Any] | None = None) -> Keeping:
    """What `sharded,every=5,keep=2,to=FOLDER` asks for.

    >>> keeping("async,every=10,to=/scratch/a,b").folder
    '/scratch/a,b'
    """
    example = f"{WAYS[1]},every=5,to=FOLDER; ways: {', '.join(WAYS)}"
    way, *pairs = re.split(r",(?=(?:every|keep|to)=)", text)
    said = dict(pair.split("=", 1) for pair in pairs)
    if way not in WAYS or len(said) < len(pairs):
        raise refusal("options", f"`--checkpoint {text}` is no way to keep checkpoints", example)
    if not said.get("to"):
        what = "--checkpoint needs a folder, which all ranks see"
        raise refusal("options", what, f"--checkpoint {text},to=FOLDER")
    counts = {name: said[name] for name in ("every", "keep") if name in said}
    for name, value in counts.items():
        if not re.fullmatch("[1-9][0-9]{0,8}", value):
            raise refusal("options", f"`{name}={value}` is no whole number from 1 on", example)
    numbers = {name: int(value) for name, value in counts.items()}
    return Keeping(way, str(Path(said["to"]).absolute()), **numbers, resume=resume, played=played)


def planted(text: str, devices: int) -> Planted:
    """What `7`, `step=7,rank=1` or `step=5,at=checkpoint` plants; of the last rank if not said.

    >>> planted("7", 4)
    Planted(step=7, rank=3, at='step')
    """
    said = dict(part.partition("=")[::2] if "=" in part else ("step", part)
                for part in text.split(","))  # fmt: skip
    example = "--fail 7, --fail step=7,rank=1 or --fail step=5,at=checkpoint"
    numbers = {name: said.get(name, "") for name in ("step", "rank") if name in said}
    sound = all(re.fullmatch("[0-9]{1,9}", value) for value in numbers.values())
    at = said.get("at", PLACES[0])
    if not sound or set(said) - {"step", "rank", "at"} or "step" not in said or at not in PLACES:
        raise refusal("options", f"`--fail {text}` is no failure of a rank", example)
    rank = int(numbers.get("rank", devices - 1))
    if rank >= devices:
        what = f"`--fail {text}`: the plan has ranks 0 to {devices - 1}"
        raise refusal("options", what, example)
    return Planted(int(numbers["step"]), rank, at)


def refuse_failures(
    failures: Sequence[Mapping[str, Any]], how: Mapping[str, Any] | None, steps: int, joined: bool
) -> None:
    """Raise for failures that could not come, or that nobody would start again after."""
    if failures and how is None:
        what = "--fail starts again from a checkpoint, and none are kept"
        raise refusal("options", what, "--checkpoint sharded,every=5,to=FOLDER")
    if failures and joined:
        what = "--fail starts ranks again, and these ranks are started by another launcher"
        raise refusal("options", what, "--local N; or let that launcher start them again, --resume")
    for one in (Planted(**each) for each in failures):
        if not 1 <= one.step <= steps:
            raise refusal("options", f"--fail: there are steps 1 to {steps}", "one of them")
        if how and one.at == "checkpoint" and one.step % how["every"]:
            what = f"--fail: no checkpoint is written after step {one.step}"
            raise refusal("options", what, f"a multiple of {how['every']}")


def refuse_folder(folder: Path, nbytes: float) -> None:
    """Raise unless checkpoints can be kept there: a folder, no link, with room for them."""
    try:
        if not stat.S_ISDIR(os.lstat(folder).st_mode):
            what = "checkpoints are kept in a folder, and this is a link or a file"
            raise refusal(str(folder), what, "name the folder itself", "E100")
    except FileNotFoundError:
        folder.mkdir(parents=True, exist_ok=True)
    if not os.access(folder, os.W_OK | os.X_OK):
        raise refusal(str(folder), "nothing can be written there", "another folder", "E100")
    found = os.statvfs(folder)
    if nbytes > (free := found.f_bavail * found.f_frsize):
        what = f"checkpoints take {nbytes:.3g} bytes, and {free:.3g} are free"
        raise refusal(str(folder), what, "another disk, or a smaller keep=", "E100")
