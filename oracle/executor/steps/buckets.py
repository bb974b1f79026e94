"""Gradient buckets: allreduce of gradients that overlaps the backward pass."""

from __future__ import annotations

import math
from collections.abc import Callable

from torch import Tensor

from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import deal
from oracle.executor.local.weights import Bundle, HeldWeight

BUCKET_BYTES = 25e6  # bytes of gradients in one allreduce


class Buckets:
    """Allreduce of one bundle's gradients, bucket by bucket while the backward pass runs."""

    def __init__(self, local: LocalModel, bundle: Bundle) -> None:
        self.local, self.bundle, self.armed = local, bundle, False
        self.late = any(True for _ in local.partial)  # gradients are complete only after the pass
        nbytes = bundle.size * bundle.weights.element_size()  # as they are sent
        buckets = max(1, math.ceil(nbytes / BUCKET_BYTES))
        self.buckets = deal(bundle.size, buckets)
        self.missing = [0] * buckets
        self.waits: list[Callable[[], None]] = []
        self._reset()
        for weight in bundle.held_weights:
            weight.value.register_post_accumulate_grad_hook(self._hook(weight))

    def _buckets_of(self, weight: HeldWeight) -> list[int]:
        stop = weight.offset + math.prod(weight.shape)
        return [i for i, (a, b) in enumerate(self.buckets) if a < stop and weight.offset < b]

    def _reset(self) -> None:
        self.missing = [0] * len(self.buckets)
        for weight in self.bundle.held_weights:
            for bucket in self._buckets_of(weight):
                self.missing[bucket] += 1

    def _hook(self, weight: HeldWeight) -> Callable[[Tensor], None]:
        buckets = self._buckets_of(weight)

        def ready(_: Tensor) -> None:
            if not self.armed:
                return
            for bucket in buckets:
                self.missing[bucket] -= 1
                if self.missing[bucket] == 0 and not self.late:
                    self._send(bucket)

        return ready

    def _send(self, bucket: int) -> None:
        a, b = self.buckets[bucket]
        gradients, label = self.bundle.gradients[a:b], f"data: {self.bundle.prefix}gradients"
        sent = gradients.to(self.bundle.weights.dtype)
        wait = self.local.wire.allreduce_later(sent, self.bundle.replicas, label)

        def arrived() -> None:
            wait()
            if sent is not gradients:
                gradients.copy_(sent)

        self.waits.append(arrived)

    def finish(self) -> None:
        """Send the buckets that are left, and wait for all."""
        for bucket, missing in enumerate(self.missing):
            if missing or self.late:
                self._send(bucket)
        for wait in self.waits:
            wait()
        self.waits = []
        self._reset()
