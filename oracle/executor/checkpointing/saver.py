"""Ways to write a checkpoint: by rank 0 alone, by each rank its part, or by a thread of each rank.

`async` copies what a rank keeps aside, which the training waits for, and writes the copy beside the
training; it is safe when the last rank's is on disk. The next one waits until it is.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from oracle.executor.checkpointing import folder as checkpoints
from oracle.executor.checkpointing.folder import Section, StateFile
from oracle.executor.checkpointing.keeping import Keeping
from oracle.executor.checkpointing.loader import random_state
from oracle.executor.checkpointing.pieces import Piece, TrainingState
from oracle.executor.loading.throttle import Throttle

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

_LOOK = 0.005  # seconds between looks whether all ranks have written


class Saver:
    """Writes checkpoints of one rank's part of a training, and times them."""

    def __init__(
        self, rank: Rank, state: TrainingState | None, keeping: Keeping, throttle: Throttle,
        about: Mapping[str, Any],
    ) -> None:  # fmt: skip
        self.rank, self.state, self.keeping = rank, state, keeping
        self.throttle, self.about = throttle, dict(about)
        self.folder = Path(keeping.folder)
        self.devices = int(rank.agree(float(state.devices if state else 0)))
        self.files = 1 if keeping.way == "rank0" else self.devices
        self.halfway: Callable[[], None] | None = None  # called once, amid the next writing
        self.aside: list[torch.Tensor] = []
        self.thread: threading.Thread | None = None
        self.going: dict[str, Any] = {}  # what the thread is writing
        self.failed: BaseException | None = None

    def save(self, step: int) -> Iterator[dict[str, Any]]:
        """Write a checkpoint; yields what each checkpoint took that is now known to be safe."""
        self.rank.enter("checkpoint", self.keeping.way, step)
        self.rank.agree(0)  # waiting for a slower rank is not part of a checkpoint
        began = time.perf_counter()
        yield from self.finish()
        waited = time.perf_counter() - began
        updates = self.rank.agree(float(self.state.updates if self.state else 0))
        manifest = self.about | {"updates": int(updates)}
        pieces = [*self.state.pieces_to_save()] if self.state else []
        report: dict[str, Any] = {
            "step": step, "at": time.time(), "waited": waited, "pieces": len(pieces),
            "bytes": sum(piece.values.nbytes for piece in pieces)}  # fmt: skip
        random = random_state(self.state.device) if self.state else ""
        if self.keeping.way == "async":
            self._copy(step, pieces, report, random, manifest, began)
            return
        if self.keeping.way == "sharded":
            self._write(step, pieces, report, random)
        elif self.state:
            self._gather(step, pieces, report, random)
        self.rank.agree(0)
        wrote = time.perf_counter()
        if self.rank.rank == 0:
            checkpoints.commit(self.folder, step, manifest, self.keeping.keep)
        self.rank.agree(0)
        ended = time.perf_counter()
        yield report | {
            "commit": ended - wrote,
            "blocking": ended - began,
            "safe_after": ended - began,
            "background": 0.0,
            "safe": time.time(),
        }

    def finish(self) -> Iterator[dict[str, Any]]:
        """Wait for the checkpoint that a thread is writing."""
        if self.thread:
            self.thread.join()
            self.thread = None
            if self.failed:
                raise self.failed
            yield self.going

    # --- each rank what it keeps ---------------------------------------------------------------

    def _write(
        self, step: int, pieces: Sequence[Piece], report: dict[str, Any], random: str
    ) -> None:
        if not self.state:
            return
        began = time.perf_counter()
        file = StateFile(self.folder, step, self.rank.rank, self.throttle)
        self._fill(file, pieces, random)
        report["write"] = time.perf_counter() - began
        self._flush(file, report)

    def _fill(self, file: StateFile, pieces: Sequence[Piece], random: str) -> None:
        for number, piece in enumerate(pieces):
            self._half(number, len(pieces))
            file.add(piece.section, content(piece.values))
        file.random[str(self.rank.rank)] = random

    def _flush(self, file: StateFile, report: dict[str, Any]) -> None:
        began = time.perf_counter()
        file.finish()
        report["flush"] = time.perf_counter() - began

    def _half(self, number: int, count: int) -> None:
        if threading.current_thread() is threading.main_thread():
            self.rank.enter("checkpoint", f"piece {number + 1} of {count}")
        if self.halfway and number >= count // 2:
            self.halfway()

    # --- rank 0 all ----------------------------------------------------------------------------

    def _gather(
        self, step: int, pieces: Sequence[Piece], report: dict[str, Any], random: str
    ) -> None:
        """Send what this rank keeps to rank 0; rank 0 writes as it comes."""
        group, began = self.rank.control, time.perf_counter()
        if self.rank.rank > 0:
            announced = [asdict(replace(p.section, nbytes=p.values.nbytes)) for p in pieces]
            about = json.dumps([random, announced]).encode()
            dist.send(torch.tensor([len(about)]), 0, group=group)
            dist.send(torch.frombuffer(bytearray(about), dtype=torch.uint8), 0, group=group)
            for number, piece in enumerate(pieces):
                self._half(number, len(pieces))
                dist.send(flat(piece.values), 0, group=group)
            report["gather"] = time.perf_counter() - began
            return
        file, gathered = StateFile(self.folder, step, 0, self.throttle), 0.0
        self._fill(file, pieces, random)
        for sender in range(1, self.devices):
            mark = time.perf_counter()
            size = torch.empty(1, dtype=torch.int64)
            dist.recv(size, sender, group=group)
            about = torch.empty(int(size.item()), dtype=torch.uint8)
            dist.recv(about, sender, group=group)
            gathered += time.perf_counter() - mark
            file.random[str(sender)], sections = _sections(about)
            for section in sections:
                mark = time.perf_counter()
                self.rank.enter("checkpoint", f"from rank {sender}")
                values = torch.empty(section.nbytes, dtype=torch.uint8)
                dist.recv(values, sender, group=group)
                gathered += time.perf_counter() - mark
                file.add(section, content(values))
        report |= {"gather": gathered, "write": time.perf_counter() - began - gathered}
        self._flush(file, report)

    # --- a thread of each ----------------------------------------------------------------------

    def _copy(
        self, step: int, pieces: Sequence[Piece], report: dict[str, Any], random: str,
        manifest: Mapping[str, Any], began: float,
    ) -> None:  # fmt: skip
        begun = time.perf_counter()  # the state of this moment is what will be safe later
        if not self.aside:
            self.aside = [torch.empty_like(piece.values, device="cpu") for piece in pieces]
        for copy, piece in zip(self.aside, pieces, strict=True):
            copy.copy_(piece.values)
        copies = [Piece(piece.section, copy)
                  for piece, copy in zip(pieces, self.aside, strict=True)]  # fmt: skip
        copied = time.perf_counter()
        report |= {"copy": copied - begun, "blocking": copied - began}
        self.going = report
        work = threading.Thread(
            target=self._write_in_background,
            args=(step, copies, report, random, manifest, begun),
            daemon=True,
        )
        self.thread = work
        work.start()

    def _write_in_background(
        self, step: int, pieces: Sequence[Piece], report: dict[str, Any], random: str,
        manifest: Mapping[str, Any], began: float,
    ) -> None:  # fmt: skip
        try:
            copied = time.perf_counter()
            self._write(step, pieces, report, random)
            report["background"] = time.perf_counter() - copied
            if self.rank.rank == 0:
                while not checkpoints.all_written(self.folder, step, self.files):
                    time.sleep(_LOOK)
                wrote = time.perf_counter()
                checkpoints.commit(self.folder, step, manifest, self.keeping.keep)
                report["commit"] = time.perf_counter() - wrote
            report |= {"safe_after": time.perf_counter() - began, "safe": time.time()}
        except BaseException as error:  # the waiting step raises it, whatever it is
            self.failed = error


def flat(values: torch.Tensor) -> torch.Tensor:
    """The bytes of a tensor, in this machine's memory."""
    return values.contiguous().view(torch.uint8).cpu()


def content(values: torch.Tensor) -> memoryview:
    return memoryview(flat(values).numpy())


def _sections(about: torch.Tensor) -> tuple[str, list[Section]]:
    """The random state and the sections that another rank announces."""
    from oracle.spec.files import json_of

    random, sections = json_of(bytes(about.numpy()).decode(), "what a rank keeps")
    return random, [Section(**fields) for fields in sections]
