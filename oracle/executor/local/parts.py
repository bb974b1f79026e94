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
    share, remainder = divmod(count, p)
    edges = [begin + share * i + min(i, remainder) for i in range(p + 1)]
    return list(pairwise(edges))


def overlap(first: Interval, second: Interval) -> Interval:
    """The interval that two intervals share; empty when it ends before it begins."""
    return max(first[0], second[0]), min(first[1], second[1])


class Inverse(NamedTuple):
    """The transposed convolution that makes the gradient of inputs from that of outputs."""

    outputs: Interval  # some may lie outside: zeros
    inputs: Interval
    padding: int


@dataclass(frozen=True, slots=True)
class Window:
    """A window that slides along one extent, which is cut over `parts` devices."""

    input_length: int  # length of the input, all parts together
    output_length: int
    reach: int  # input positions under one window, dilation included
    kernel: int
    stride: int
    before: int  # padding ahead of the first position
    parts: int

    @property
    def inputs(self) -> list[Interval]:
        return deal(self.input_length, self.parts)

    @property
    def outputs(self) -> list[Interval]:
        return deal(self.output_length, self.parts)

    @property
    def halo(self) -> int:
        """Width of the halo, in both directions: ⌊K/2⌋ where windows overlap."""
        return self.kernel // 2 if self.kernel > self.stride else 0

    def inputs_of(self, outputs: Interval) -> Interval:
        """Input positions under the windows of these outputs; those outside are padding."""
        first = outputs[0] * self.stride - self.before
        return first, (outputs[1] - 1) * self.stride - self.before + self.reach

    def needed(self, part: int) -> Interval:
        """Inputs that a part works on: those under its windows, and its whole halo."""
        low, high = self.inputs_of(self.outputs[part])
        begin, end = self.inputs[part]
        edge = self.halo if self.parts > 1 else 0
        return max(0, min(low, begin - edge)), min(self.input_length, max(high, end + edge))

    def touched(self, part: int) -> Interval:
        """Outputs whose windows read an input of this part, which its gradient needs."""
        begin, end = self.inputs[part]
        low = -((self.reach - 1 - begin - self.before) // self.stride)
        high = (end - 1 + self.before) // self.stride + 1
        outputs = self.outputs[part]
        edge = self.halo // self.stride if self.parts > 1 else 0
        return (
            max(0, min(low, outputs[0] - edge, self.output_length)),
            min(self.output_length, max(high, outputs[1] + edge, 0)),
        )

    def kernel_inputs(self, part: int) -> Interval:
        """Inputs that a part's kernel is handed: those under its windows, and any rest.

        The rest of the part's inputs is shorter than a step: no further window fits into it.

        >>> Window(28, 14, 1, 1, 2, 0, 2).kernel_inputs(0)  # the last window is over input 12
        (0, 14)
        """
        return self._to_the_end(self.inputs_of(self.outputs[part]), part)

    def _to_the_end(self, span: Interval, part: int) -> Interval:
        (low, high), end = span, self.inputs[part][1]
        return low, end if high < end < high + self.stride else high

    @property
    def uncut(self) -> bool:
        """Whether a kernel takes the extent as it is: not cut, both ends padded alike."""
        fit = (self.input_length + 2 * self.before - self.reach) // self.stride + 1
        return self.parts == 1 and fit == self.output_length

    @property
    def padded(self) -> int:
        """Padding that a kernel does itself."""
        return self.before if self.uncut else 0

    def inverse(self, part: int) -> Inverse:
        """How the gradient of a part's input is made.

        Where windows move by one, it is the gradient of the part's inputs alone; by longer steps,
        that of all inputs under the windows of the touched outputs.
        """
        begin, end = self.inputs[part]
        if self.uncut:
            return Inverse((0, self.output_length), (0, self.input_length), self.before)
        if self.stride > 1:
            touched = self.touched(part)
            return Inverse(touched, self._to_the_end(self.inputs_of(touched), part), 0)
        edge = self.reach - 1
        return Inverse((begin + self.before - edge, end + self.before), (begin, end), edge)


class Spread(Window):
    """The window of a transposed convolution whose windows do not overlap."""

    def inputs_of(self, outputs: Interval) -> Interval:
        """Inputs that make these outputs.

        >>> Spread(7, 14, 2, 2, 2, 0, 3).inputs_of((5, 10))
        (2, 5)
        """
        first = -((self.reach - 1 - outputs[0] - self.before) // self.stride)
        last = (outputs[1] - 1 + self.before) // self.stride + 1
        low = min(max(0, first), self.input_length)
        return low, max(low, min(self.input_length, last))

    def reached(self, inputs: Interval) -> Interval:
        """Outputs that these inputs make; padding has numbers outside."""
        first = inputs[0] * self.stride - self.before
        return first, first + (inputs[1] - inputs[0]) * self.stride - self.stride + self.reach

    def kernel_inputs(self, part: int) -> Interval:
        """Inputs that make the outputs of a part."""
        return self.inputs_of(self.outputs[part])
