"""The link between a device and its host's memory or disks: copies, counted and played in time.

A copy is made at once; when it would have ended is what is waited for, by whoever needs it: out
and in go on side by side, each copy after those before it, beside all that is computed meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from oracle.executor.loading.throttle import until
from oracle.executor.messages.wire import Traffic, Wire, size_of

WAYS = ("out", "in", "disk", "memory")  # ways whose B/s are played


class HostLink:
    """Copies one rank's tensors to and from the memory, or the disks, of its host."""

    def __init__(self, wire: Wire, speeds: Mapping[str, float] | None = None) -> None:
        self.wire, self.speeds = wire, dict(speeds or {})
        self.free = dict.fromkeys(WAYS, 0.0)  # when each way will have done all copies asked of it
        self.asked: dict[Hashable, float] = {}
        # the context in which tensors beside the device are made
        self.place: Callable[[], AbstractContextManager[None]] = nullcontext
        self._folder: TemporaryDirectory[str] | None = None
        self._files = 0

    # --- room beside the device ----------------------------------------------------------

    def room(self, like: Tensor, count: int, disk: bool = False) -> Tensor:
        """Allocate a flat tensor of zeros in the host's memory, or in a file."""
        with self.place():
            if not disk:
                return torch.zeros(count, dtype=like.dtype)
            self._folder = self._folder or TemporaryDirectory(prefix="oracle-beside-")
            self._files += 1
            name = str(Path(self._folder.name) / str(self._files))
            return torch.from_file(name, shared=True, size=count, dtype=like.dtype).zero_()

    # --- copies --------------------------------------------------------------------------

    def out(self, tensor: Tensor, label: str, disk: bool = False) -> Tensor:
        """Copy a tensor out; the flat copy beside the device."""
        copy = self.room(tensor, tensor.numel(), disk)
        with self.place():
            copy.copy_(tensor.detach().flatten())
        self._count(label, size_of(tensor))
        self._reserve("out", size_of(tensor))
        if disk:
            self._reserve("disk", size_of(tensor))
        return copy

    def sent(self, tensor: Tensor, label: str) -> None:
        """Count a copy out that was already made."""
        self._count(label, size_of(tensor))
        self._reserve("out", size_of(tensor))

    def home(
        self, host_copy: Tensor, into: Tensor, label: str, key: Hashable = None, disk: bool = False
    ) -> None:
        """Copy back into a tensor of the device, waiting until the copy would be there."""
        self.ask(key, size_of(host_copy), disk)
        with self.place():
            shaped = host_copy.view(into.shape)
        with torch.no_grad():
            into.copy_(shaped)
        self._count(label, size_of(host_copy))
        self._wait(self.asked.pop(key))

    def ask(self, key: Hashable, nbytes: float, disk: bool = False) -> None:
        """Begin to bring so many bytes in, unless they are on their way."""
        if key not in self.asked:
            read_by = self._reserve("disk", nbytes) if disk else 0.0
            self.asked[key] = max(self._reserve("in", nbytes), read_by)

    def through(self, way: str, nbytes: float, label: str = "") -> None:
        """Play bytes on a way that this link does not copy over: the disk's, the host memory's."""
        if label:
            self._count(label, nbytes)
        self._wait(self._reserve(way, nbytes))

    def arrived(self) -> None:
        """Wait until all copies out would have arrived."""
        self._wait(max(self.free["out"], self.free["disk"]))

    def _reserve(self, way: str, nbytes: float) -> float:
        now = time.monotonic()
        speed = self.speeds.get(way, 0.0)
        if not speed:
            return now
        self.free[way] = max(now, self.free[way]) + nbytes / speed
        return self.free[way]

    def _wait(self, moment: float) -> None:
        began = self.wire.timer.now()
        until(moment)
        self.wire.timer.exchanged(began, self.wire.timer.now())

    def _count(self, label: str, nbytes: float) -> None:
        entry = self.wire.traffic.setdefault(f"offload: {label}", Traffic("copy", 1))
        entry.calls += 1
        entry.nbytes += nbytes

    def close(self) -> None:
        """Remove the files."""
        if self._folder:
            self._folder.cleanup()
