"""What an allocator takes for a timeline of tensors: reserved bytes against those in use."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from dataclasses import dataclass

from oracle.predict.allocation import Timeline
from oracle.spec.allocator import Allocator

REPLAYED = 2**18  # allocations of a timeline that are replayed, its first


@dataclass(frozen=True, slots=True)
class Reserved:
    """Bytes at their most: asked for by tensors, taken from the device, and not to be given back.

    Segments without a tensor are given back where the device has nothing left.
    """

    tensors: float
    reserved: float
    pinned: float

    @property
    def share(self) -> float:
        """What lies idle between tensors when nothing more can be given back."""
        return self.pinned / self.tensors - 1 if self.tensors else 0.0


@dataclass(eq=False, slots=True)
class _Segment:
    size: int
    used: int = 0


@dataclass(eq=False, slots=True)
class _Block:
    """A part of a segment; the blocks before and after it in the same one."""

    begin: int
    size: int
    segment: _Segment
    free: bool = True
    before: _Block | None = None
    after: _Block | None = None


class _Pool:
    """Free blocks of one size class, the smallest first."""

    def __init__(self) -> None:
        self.keys: list[tuple[int, int]] = []
        self.blocks: dict[tuple[int, int], _Block] = {}
        self.last: _Block | None = None  # of the segment that grows

    def put(self, block: _Block) -> None:
        block.free = True
        key = block.size, block.begin
        insort(self.keys, key)
        self.blocks[key] = block

    def take(self, block: _Block) -> None:
        key = block.size, block.begin
        del self.keys[bisect_left(self.keys, key)], self.blocks[key]
        block.free = False

    def fitting(self, size: int) -> _Block | None:
        position = bisect_left(self.keys, (size, -1))
        return self.blocks[self.keys[position]] if position < len(self.keys) else None


class Replay:
    """An allocator at work."""

    def __init__(self, rules: Allocator) -> None:
        self.rules = rules
        self.pools = {True: _Pool(), False: _Pool()}
        self.tensors = self.reserved = self.pinned = self.end = 0
        self.most = [0, 0, 0]

    def allocate(self, nbytes: float) -> tuple[_Block, int]:
        """A block for so many bytes, and how many they are when rounded up."""
        rules = self.rules
        size = max(1, -(-int(nbytes) // rules.block)) * rules.block
        pool = self.pools[size <= rules.small]
        block = pool.fitting(size)
        if block is None:
            block = self._grown(pool, size) if rules.expandable else self._segment(pool, size)
        pool.take(block)
        if rules.splits(size, block.size - size):
            rest = _Block(block.begin + size, block.size - size, block.segment, True, block,
                          block.after)  # fmt: skip
            if block.after is not None:
                block.after.before = rest
            if pool.last is block:
                pool.last = rest
            block.size, block.after = size, rest
            pool.put(rest)
        if not block.segment.used and not rules.expandable:
            self.pinned += block.segment.size
        block.segment.used += 1
        self.tensors += size
        self.most = [max(pair) for pair in zip(self.most, self._now(), strict=True)]
        return block, size

    def free(self, block: _Block, size: int) -> None:
        """Give a block back, and join it with its neighbours."""
        pool = self.pools[size <= self.rules.small]
        block.segment.used -= 1
        self.tensors -= size
        if not block.segment.used and not self.rules.expandable:
            self.pinned -= block.segment.size
        after, before = block.after, block.before
        if after is not None and after.free:
            pool.take(after)
            self._join(pool, block, after)
        if before is not None and before.free:
            pool.take(before)
            self._join(pool, before, block)
            block = before
        pool.put(block)

    def _now(self) -> tuple[int, int, int]:
        return self.tensors, self.reserved, self._pinned_bytes()

    def _pinned_bytes(self) -> int:
        """Bytes that cannot be given back: of segments in use, of one that grows its used pages."""
        if not self.rules.expandable:
            return self.pinned
        idle = 0
        for small, pool in self.pools.items():
            page = self.rules.page(0 if small else self.rules.small + 1)
            first_large = bisect_left(pool.keys, (page, -1))
            for size, begin in pool.keys[first_large:]:
                idle += max((begin + size) // page - -(-begin // page), 0) * page
        return self.reserved - idle

    def _segment(self, pool: _Pool, size: int) -> _Block:
        segment_size = self.rules.segment(size)
        block = _Block(self.end, segment_size, _Segment(segment_size))
        self.end += segment_size
        self.reserved += segment_size
        pool.put(block)
        return block

    def _grown(self, pool: _Pool, size: int) -> _Block:
        last, page = pool.last, self.rules.page(size)
        short = size - (last.size if last is not None and last.free else 0)
        more = -(-short // page) * page
        self.reserved += more
        if last is not None and last.free:
            pool.take(last)
            last.size += more
            pool.put(last)
            return last
        begin = 0 if last is None else last.begin + last.size
        block = _Block(begin, more, last.segment if last else _Segment(0), True, last)
        if last is not None:
            last.after = block
        pool.last = block
        pool.put(block)
        return block

    def _join(self, pool: _Pool, first: _Block, second: _Block) -> None:
        first.size += second.size
        first.after = second.after
        if second.after is not None:
            second.after.before = first
        if pool.last is second:
            pool.last = first


def replayed(events: Iterable[tuple[object, float, bool]], rules: Allocator) -> Reserved:
    """What an allocator takes for tensors that come and go: (which, bytes, whether it comes)."""
    work = Replay(rules)
    blocks_of: dict[object, list[tuple[_Block, int]]] = {}
    for name, nbytes, comes in events:
        if comes:
            blocks_of.setdefault(name, []).append(work.allocate(nbytes))
        else:
            work.free(*blocks_of[name].pop())
    return Reserved(*work.most)


def reserved(timeline: Timeline, rules: Allocator) -> Reserved:
    """What an allocator takes for a stage's iteration."""
    size = [tensor.nbytes for tensor in timeline.tensors]
    upto = slice(0, REPLAYED)
    columns = (timeline.slot[upto], timeline.micro[upto], timeline.comes[upto])
    events = zip(*(column.tolist() for column in columns), strict=True)
    return replayed((((slot, micro), size[slot], comes) for slot, micro, comes in events), rules)
