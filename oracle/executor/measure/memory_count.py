"""Counts the bytes of tensors alive on one rank while a step runs.

Every tensor that an operation makes is seen as it is made, and its storage until nothing holds
it: what is counted is what lives, whatever an allocator keeps. What kernels take while they run
and give back before they return is not seen; nor is what belongs to no tensor. What a backend's
threads hold a moment longer than its messages take is waited for, where there are any.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from oracle.executor.steps.trainer import Trainer

KINDS = ("weights", "gradients", "optimizer", "activations", "transient")
BESIDE = "host"  # the phase in which nothing is on the device
PHASES = ("forward", "backward", "update")
LET_GO = 2e-3  # seconds in which threads let go of what they have sent
MADE = {"forward": "activations"}  # kind of a tensor by the phase it is made in; else transient


class MemoryCount(TorchDispatchMode):  # type: ignore[misc]  # torch is untyped here
    """Counts storages alive by kind, and remembers the moment when they were most.

    `lasting` names what lives from step to step, whose size may change, and `elsewhere` what is
    not on the device. All else that is made while it watches is an activation if a forward pass
    made it, or made it again. `settle` is called before more is believed to be alive.
    """

    def __init__(
        self, lasting: Mapping[str, Sequence[Tensor]], elsewhere: Sequence[Tensor] = (),
        settle: Callable[[], None] | None = None,
    ) -> None:  # fmt: skip
        super().__init__()
        self.phase, self.settle = "", settle
        self.held = [(kind, tensor.untyped_storage()) for kind, tensors in lasting.items()
                     for tensor in tensors]  # fmt: skip
        self.known = {storage._cdata for _, storage in self.held}
        self.known |= {tensor.untyped_storage()._cdata for tensor in elsewhere}
        self.alive: dict[int, tuple[weakref.ref[Any], str, int]] = {}
        self.now = dict.fromkeys(KINDS, 0)
        self.peak = dict.fromkeys(KINDS, 0)
        self.peak_at = ""  # what ran at the peak
        self.look()

    def enter(self, phase: str) -> None:
        """Note the phase that runs from here on; messages within a pass are part of it."""
        if phase in PHASES:
            self.phase = phase

    def __enter__(self) -> MemoryCount:
        gc.collect()
        super().__enter__()
        return self

    @contextmanager
    def off_device(self) -> Iterator[None]:
        """Tensors that are made in here are not on the device."""
        before, self.phase = self.phase, BESIDE
        try:
            yield
        finally:
            self.phase = before

    @property
    def total(self) -> int:
        return sum(self.peak.values())

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in () if func.is_view else tree_leaves(result):  # a library's buffers too
            if isinstance(tensor, Tensor):
                self.see(tensor)
        self.look(str(func))
        return result

    def see(self, tensor: Tensor) -> None:
        """Count a tensor's storage until nobody holds it."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self.known or key in self.alive or self.phase == BESIDE:
            return
        kind, size = MADE.get(self.phase, "transient"), storage.nbytes()
        self.now[kind] += size
        self.alive[key] = weakref.ref(storage, partial(self._gone, key)), kind, size

    def _gone(self, key: int, _: Any) -> None:
        _, kind, size = self.alive.pop(key)
        self.now[kind] -= size

    def look(self, operation: str = "") -> None:
        """Remember this moment if more is alive than ever before."""
        if self.settle and sum(self._alive().values()) > self.total:
            self.settle()
        if sum((now := self._alive()).values()) > self.total:
            self.peak, self.peak_at = now, f"{self.phase} {operation}"

    def _alive(self) -> dict[str, int]:
        """Bytes alive by kind."""
        now = dict(self.now)
        for kind, storage in self.held:
            now[kind] = now.get(kind, 0) + storage.nbytes()
        return now


def counted(trainer: Trainer, x: Tensor, target: Tensor) -> MemoryCount:
    """Run a training step and count its bytes alive; `x` and `target` are not counted."""
    local = trainer.local
    away = [t for state in trainer.states_away.values() for t in state.tensors]
    lasting = {
        "weights": [bundle.weights for bundle in local.bundles],
        "gradients": [bundle.gradients for bundle in local.bundles],
        "optimizer": [t for bundle in local.bundles for t in (bundle.masters, *bundle.slots)],
    }
    if away:
        lasting["optimizer"] = []
    settle = partial(time.sleep, LET_GO) if local.mesh.size > 1 else None
    count = MemoryCount(lasting, [x, target, *away], settle)
    wire, place = local.wire, local.link.place
    enter = wire.enter

    def enter_both(phase: str, label: str) -> None:
        count.enter(phase)
        enter(phase, label)

    wire.enter, local.link.place = enter_both, count.off_device
    try:
        with count:
            trainer.step(x, target)
    finally:
        wire.enter, local.link.place = enter, place
    return count
