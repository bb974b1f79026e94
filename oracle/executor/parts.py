"""Parts of an extent over devices, and what a window over a part needs of its neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

Interval = tuple[int, int]


def deal(count: int, p: int, begin: int = 0) -> list[Interval]:
    """Intervals of `count` things over p devices, as even as can be; the largest is ⌈n/p⌉.

    >>> deal(7, 3)
    [(0, 3), (3, 5), (5, 7)]
    """
    each, more = divmod(count, p)
    edges = [begin + each * i + min(i, more) for i in range(p + 1)]
    return list(pairwise(edges))


def overlap(one: Interval, other: Interval) -> Interval:
    """What two intervals share; empty when it ends before it begins."""
    return max(one[0], other[0]), min(one[1], other[1])


class Inverse(NamedTuple):
    """A convolution turned round: of the gradient of these outputs that of these inputs."""

    outputs: Interval  # some may lie outside: zeros
    inputs: Interval
    padding: int


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides along one extent, which is cut over `parts` devices."""

    given: int  # length of the input, all parts together
    made: int
    reach: int  # input positions under one window, dilation included
    kernel: int
    stride: int
    before: int  # padding ahead of the first position
    parts: int

    @property
    def inputs(self) -> list[Interval]:
        return deal(self.given, self.parts)

    @property
    def outputs(self) -> list[Interval]:
        return deal(self.made, self.parts)

    @property
    def halo(self) -> int:
        """Width of the halo, in both directions: ⌊K/2⌋ where windows overlap."""
        return self.kernel // 2 if self.kernel > self.stride else 0

    def seen(self, outputs: Interval) -> Interval:
        """Input positions under the windows of these outputs; padding has numbers outside."""
        first = outputs[0] * self.stride - self.before
        return first, (outputs[1] - 1) * self.stride - self.before + self.reach

    def wanted(self, part: int) -> Interval:
        """Inputs that a part works on: what its windows see, and its whole halo."""
        low, high = self.seen(self.outputs[part])
        begin, end = self.inputs[part]
        edge = self.halo if self.parts > 1 else 0
        return max(0, min(low, begin - edge)), min(self.given, max(high, end + edge))

    def touched(self, part: int) -> Interval:
        """Outputs whose windows see an input of this part: what its gradient needs."""
        begin, end = self.inputs[part]
        low = -((self.reach - 1 - begin - self.before) // self.stride)
        high = (end - 1 + self.before) // self.stride + 1
        own = self.outputs[part]
        edge = self.halo // self.stride if self.parts > 1 else 0
        return (
            max(0, min(low, own[0] - edge, self.made)),
            min(self.made, max(high, own[1] + edge, 0)),
        )

    def looked_at(self, part: int) -> Interval:
        """What a kernel is handed of a part: all that its windows see, and what else it holds.

        The rest of the own input is shorter than a step: no other window fits, and nothing is cut.

        >>> Window(28, 14, 1, 1, 2, 0, 2).looked_at(0)  # its last window sees input 12
        (0, 14)
        """
        return self._to_the_end(self.seen(self.outputs[part]), part)

    def _to_the_end(self, seen: Interval, part: int) -> Interval:
        (low, high), end = seen, self.inputs[part][1]
        return low, end if high < end < high + self.stride else high

    @property
    def whole(self) -> bool:
        """Whether a kernel takes it as it is: nobody cuts it, and both ends are padded alike."""
        fit = (self.given + 2 * self.before - self.reach) // self.stride + 1
        return self.parts == 1 and fit == self.made

    @property
    def padded(self) -> int:
        """Padding that a kernel does itself."""
        return self.before if self.whole else 0

    def inverse(self, part: int) -> Inverse:
        """How the gradient of a part's input is made: of nothing but it, where windows step by one.

        Longer steps make that of all that the windows of the touched outputs see.
        """
        begin, end = self.inputs[part]
        if self.whole:
            return Inverse((0, self.made), (0, self.given), self.before)
        if self.stride > 1:
            touched = self.touched(part)
            return Inverse(touched, self._to_the_end(self.seen(touched), part), 0)
        edge = self.reach - 1
        return Inverse((begin + self.before - edge, end + self.before), (begin, end), edge)


class Spread(Window):
    """The same of a transposed convolution whose windows do not overlap: each input makes some."""

    def seen(self, outputs: Interval) -> Interval:
        """Inputs that make these outputs.

        >>> Spread(7, 14, 2, 2, 2, 0, 3).seen((5, 10))
        (2, 5)
        """
        first = -((self.reach - 1 - outputs[0] - self.before) // self.stride)
        last = (outputs[1] - 1 + self.before) // self.stride + 1
        low = min(max(0, first), self.given)
        return low, max(low, min(self.given, last))

    def reached(self, inputs: Interval) -> Interval:
        """Outputs that these inputs make; padding has numbers outside."""
        first = inputs[0] * self.stride - self.before
        return first, first + (inputs[1] - inputs[0]) * self.stride - self.stride + self.reach

    def looked_at(self, part: int) -> Interval:
        """Inputs that make the outputs of a part."""
        return self.seen(self.outputs[part])
