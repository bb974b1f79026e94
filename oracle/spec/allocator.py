"""Rules of a caching allocator: in what a device's memory is asked for and handed out.

PyTorch's (pytorch/pytorch, v2.8.0 c10/cuda/CUDACachingAllocator.cpp and
c10/core/AllocatorConfig.h; docs, "Memory management" of CUDA semantics): sizes are rounded up to
512 bytes; those up to 1 MiB are cut from segments of 2 MiB, those below 10 MiB from segments of
20 MiB, larger ones have segments of their own in steps of 2 MiB. The smallest free block that is
large enough is taken; it is split where at least 512 bytes are left of a small one, more than 1 MiB
of a large one. Neighbours that are free are joined. With `expandable_segments` a segment grows
page by page instead, and every block is split.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True, slots=True)
class Allocator:
    """Bytes by which memory is asked for and handed out."""

    block: int = 512  # all sizes are multiples of it
    small: int = MIB  # the largest that is cut from small segments
    small_segment: int = 2 * MIB
    large: int = 10 * MIB  # from here on a tensor has a segment of its own
    large_segment: int = 20 * MIB
    step: int = 2 * MIB  # of segments of their own
    expandable: bool = False

    def segment(self, size: int) -> int:
        """Bytes of the segment that is asked for where no free block holds so many."""
        if size <= self.small:
            return self.small_segment
        if size < self.large:
            return self.large_segment
        return -(-size // self.step) * self.step

    def page(self, size: int) -> int:
        """Bytes by which a segment grows that can."""
        return self.small_segment if size <= self.small else self.large_segment

    def splits(self, size: int, left: int) -> bool:
        """Whether what is left of a block becomes a block of its own."""
        if self.expandable or size <= self.small:
            return left >= self.block
        return left > self.small
