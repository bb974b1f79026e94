"""Loads the newest complete checkpoint back into a training."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from oracle.executor.checkpointing import folder as checkpoints
from oracle.executor.checkpointing.folder import Damaged, SavedState
from oracle.executor.checkpointing.pieces import TrainingState
from oracle.executor.loading.throttle import Throttle
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank


def restore(
    rank: Rank, state: TrainingState | None, folder: Path, throttle: Throttle
) -> tuple[int | None, dict[str, Any]]:
    """Load the newest checkpoint that every rank finds complete: its step, and what that took.

    No step where there is none at all. One that is damaged is passed over, on all ranks.
    """
    began, passed, read = time.perf_counter(), list[str](), 0
    for step in _steps(rank, folder):
        rank.enter("loading", f"checkpoint of step {step}", max(step, 0))
        why, nbytes = "", 0
        try:
            nbytes = load(state, SavedState(folder, step), rank.rank, throttle) if state else 0
        except Damaged as damage:
            why = str(damage)
            passed.append(why)
        if rank.agree(float(bool(why))) == 0:
            rank.agree(0)
            spent = time.perf_counter() - began
            return step, {"seconds": spent, "bytes": nbytes, "passed": passed}
        passed += [] if why else [f"step {step}: damaged, as another rank found"]
        read += 1
        rank.say(f"the checkpoint of step {step} is damaged ({passed[-1]}): the one before is used")
    if read:
        raise refusal(str(folder), f"no checkpoint is whole: {'; '.join(passed)}", "begin anew")
    return None, {"seconds": 0.0, "bytes": 0, "passed": []}


def _steps(rank: Rank, folder: Path) -> list[int]:
    """Steps of all checkpoints, the newest first, as rank 0 sees them."""
    steps_seen = checkpoints.steps(folder) if rank.rank == 0 else []
    count = int(rank.agree(float(len(steps_seen))))
    return [int(rank.agree(float(steps_seen[k] if steps_seen else -1))) for k in range(count)]


def load(state: TrainingState, saved: SavedState, rank: int, throttle: Throttle) -> int:
    """Fill in all state of this rank, bit by bit as it was; returns the bytes that were read."""
    for piece in state.pieces_held():
        need, target = piece.section, piece.values.view(torch.uint8)
        width = piece.values.element_size()
        for section, content in saved.overlapping(need):
            begin, end = max(section.begin, need.begin), min(section.end, need.end)
            part = content[(begin - section.begin) * width : (end - section.begin) * width]
            values = torch.frombuffer(bytearray(part), dtype=torch.uint8)
            target[(begin - need.begin) * width : (end - need.begin) * width].copy_(values)
    played = throttle.played
    (throttle.shared if played and played.shared else throttle.local_read)(saved.read)
    state.resume(int(saved.manifest["updates"]))
    device, _, gpu = saved.random[str(rank)].partition(" ")
    torch.set_rng_state(_numbers(device))
    if gpu:
        torch.cuda.set_rng_state(_numbers(gpu), state.device)
    return saved.read


def random_state(device: torch.device) -> str:
    """The state of this rank's random numbers, as text."""
    states = [torch.get_rng_state()]
    if device.type == "cuda":
        states.append(torch.cuda.get_rng_state(device))
    return " ".join(bytes(state.tolist()).hex() for state in states)


def _numbers(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
