"""Out of core: two passes over a chain of units whose activations leave the device and return.

Three engines work beside each other: the device computes, one copy engine takes activations out,
another brings them in. A unit keeps what it made, or sends it out and takes it in again, or makes
it again from its input, which stays or is sent out in its turn. With F, B a unit's passes, x its
seconds on a copy engine and R the room:

    s_i = max(s_{i-1} + F_{i-1}, out_i)     out_i: when Σ_{j≤i} bytes - R have left
    t_i = max(t_{i+1} + B_{i+1}, in_i)      in_i:  when all that unit i sent out is there again

Bytes leave in the order in which they are made, and give room as they do; they come in in the
opposite order, into the room that there is, or no more than `ahead` units before they are used.
With `whole` units, which give room when all of a unit has left, this is the published

    f_i = max(f_{i-1}, o_{i-W}) + F_i       o_i = max(o_{i-1}, f_i) + x_i
    n_i = max(n_{i+1}, b_{i+W}) + x_i       b_i = max(b_{i+1}, n_i) + B_i

for alike units of which W have room [wahib2020]. Every array is of (plans, units) or (plans, 1).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oracle.models.shard import Array

Flags = NDArray[np.bool_]
TOUCH = 1e-9  # relative: bytes that are as good as none


def _nothing() -> Array:
    return np.zeros((1, 1))


@dataclass(frozen=True)
class Chain:
    """Units of a stage and what its device has for them: (plans, units), or (plans, 1)."""

    forward: Array  # seconds
    backward: Array
    kept: Array  # bytes that the backward pass wants
    given: Array  # of those, the unit's input, from which all else can be made again
    work: Array  # further bytes, while the unit runs back
    remake: Array  # seconds in which all else is made again
    free: Array  # whether it may leave
    able: Array  # whether it may be made again
    room: Array  # (plans, 1) bytes for all of it
    flight: Array  # (plans, 1) micro-batches that lie on the device at once
    out: Array  # (plans, 1) seconds that a byte takes on its way out
    back: Array  # and on its way in
    ahead: Array  # (plans, 1) units that come in before their turn; inf: as many as have room
    managed: Array  # (plans, 1) whether faults move pages: nothing is computed meanwhile
    # of its input, what is among the bytes kept
    among: Array = field(default_factory=_nothing)
    # further bytes, while the unit runs ahead
    passing: Array = field(default_factory=_nothing)
    # (plans, 1) whether what a unit is made again from stays, if it does not all leave
    fixed: Array = field(default_factory=_nothing)

    def take(self, rows: Array) -> Chain:
        """Those of some plans."""
        columns = vars(self)
        plans = max(map(len, columns.values()))
        return Chain(**{name: values[rows] if len(values) == plans else values
                        for name, values in columns.items()})  # fmt: skip


@dataclass(frozen=True)
class Played:
    """What the passes take, (plans,) each."""

    forward: Array  # seconds, with all that is waited for
    backward: Array
    again: Array  # of the backward pass, what is made again
    fits: Flags
    most: Array  # bytes on the device at the worst moment, those of other micro-batches too
    away: Array  # bytes that a micro-batch sends out
    waits: tuple[Array, Array]  # (plans, units) seconds that the device waits before each unit

    @property
    def seconds(self) -> Array:
        return np.asarray(self.forward + self.backward)


def resident(chain: Chain, away: Flags, remade: Flags) -> tuple[Array, Array]:
    """Bytes of each unit that stay, and that leave: (plans, units) each."""
    unit_bytes = np.where(remade, chain.given, chain.kept)
    return np.where(away, 0.0, unit_bytes), np.where(away, unit_bytes, 0.0)


def loads(chain: Chain, away: Flags, remade: Flags) -> tuple[Array, Array]:
    """(plans, units) bytes there as a unit runs ahead, but for what left before it, and as it runs
    back, but for what came in for units ahead of it; other micro-batches in flight included.
    """
    stays, _ = resident(chain, away, remade)
    other_bytes = np.maximum(chain.flight - 1, 0.0) * stays.sum(axis=-1, keepdims=True)
    bytes_ahead = other_bytes + np.cumsum(stays, axis=-1)
    back = bytes_ahead + chain.work + np.where(remade, chain.kept - chain.among, 0.0)
    return bytes_ahead + chain.passing, back


def needed(chain: Chain, away: Flags, remade: Flags) -> Array:
    """(plans,) the least room that will do: of what stays, and of the unit at work."""
    leaves = resident(chain, away, remade)[1]
    ahead, back = loads(chain, away, remade)
    return np.asarray((np.maximum(ahead, back) + leaves).max(axis=-1))


def play(chain: Chain, away: Flags, remade: Flags, whole_units: bool = False) -> Played:
    """Both passes of a micro-batch with each unit's choice; exact, unit by unit."""
    leaves = resident(chain, away, remade)[1]
    gone = np.cumsum(leaves, axis=-1)
    bytes_ahead, working = loads(chain, away, remade)
    room, needed_room = np.asarray(chain.room[:, 0]), needed(chain, away, remade)
    room = np.broadcast_to(room, needed_room.shape)
    ahead, first, out = _ahead(chain, bytes_ahead, gone, room, whole_units)
    rerun = np.where(remade, chain.remake, 0.0)
    back, second = _back(chain, working, gone, room, whole_units, rerun)
    return Played(
        ahead, back, rerun.sum(axis=-1), needed_room <= np.maximum(room, 0) * (1 + TOUCH),
        np.maximum(np.minimum(out, room), needed_room), gone[:, -1], (first, second),
    )  # fmt: skip


def _ahead(
    chain: Chain, bytes_ahead: Array, gone: Array, room: Array, whole_units: bool
) -> tuple[Array, Array, Array]:
    """Seconds of the forward pass, its waits, and the most bytes that lie there at once."""
    n, units = bytes_ahead.shape
    forward = np.broadcast_to(chain.forward, bytes_ahead.shape)
    seconds_per_byte, managed = chain.out[:, 0], chain.managed[:, 0] > 0
    time, left, sent_so_far, most_bytes = np.zeros((4, n))
    waits = np.zeros((n, units))
    for i in range(units):
        need = np.maximum(bytes_ahead[:, i] + gone[:, i] - room, 0.0)
        if whole_units:
            need = _up(need, gone)
        need = np.minimum(need, sent_so_far)
        wait = np.maximum(need - left, 0.0) * seconds_per_byte
        left = np.maximum(left, need)
        most_bytes = np.maximum(most_bytes, bytes_ahead[:, i] + gone[:, i] - left)
        waits[:, i] = wait
        time = time + wait + forward[:, i]
        free = np.divide(
            forward[:, i], seconds_per_byte, out=np.full(n, np.inf), where=seconds_per_byte > 0
        )
        left = np.where(managed, left, np.minimum(sent_so_far, left + free))
        sent_so_far = gone[:, i]
    return time + np.where(managed, 0.0, (sent_so_far - left) * seconds_per_byte), waits, most_bytes


def _back(
    chain: Chain, bytes_back: Array, gone: Array, room: Array, whole_units: bool, rerun: Array
) -> tuple[Array, Array]:
    """Seconds of the backward pass, and its waits."""
    n, units = bytes_back.shape
    work = chain.backward + rerun
    seconds_per_byte, managed = chain.back[:, 0], chain.managed[:, 0] > 0
    total, ahead = gone[:, -1], np.broadcast_to(chain.ahead[:, 0], (n,))
    before = np.pad(gone, [(0, 0), (1, 0)])
    rows = np.arange(n)
    # what came in stays: it must leave room for all units that run back before it is used
    caps = np.minimum.accumulate(room[:, None] - bytes_back + total[:, None] - gone, axis=-1)
    time, come = np.zeros((2, n))
    waits = np.zeros((n, units))
    for i in reversed(range(units)):
        want = total - before[:, i]
        most_in = np.maximum(caps[:, i], want)
        if whole_units:
            most_in = np.maximum(_down(most_in, total[:, None] - before), want)
        last = np.maximum(i - np.minimum(ahead, units), 0).astype(int)
        most_in = np.minimum(np.minimum(most_in, total - before[rows, last]), total)
        wait = np.maximum(want - come, 0.0) * seconds_per_byte
        come = np.maximum(come, want)
        waits[:, i] = wait
        time = time + wait + work[:, i]
        free = np.divide(
            work[:, i], seconds_per_byte, out=np.full(n, np.inf), where=seconds_per_byte > 0
        )
        come = np.where(managed, come, np.maximum(come, np.minimum(most_in, come + free)))
    return time, waits


def _up(need: Array, ends: Array) -> Array:
    """The least of some ends that is no less: units leave as a whole."""
    near = np.where(ends >= need[:, None] * (1 - TOUCH), ends, np.inf).min(axis=-1)
    return np.asarray(np.where(need > 0, near, 0.0))


def _down(limit: Array, ends: Array) -> Array:
    """The largest of some ends that is no more: units come in as a whole."""
    return np.asarray(np.where(ends <= limit[:, None] * (1 + TOUCH), ends, 0.0).max(axis=-1))
