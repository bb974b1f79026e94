"""What of each message hides under the work beside it, and what hiding costs that work."""

from __future__ import annotations

import numpy as np

from oracle.models.shard import Array
from oracle.network.collectives import Message


def together(device: Array, host: Array) -> Array:
    """Seconds of a pass in which device and host take turns to be the slower: their 3-norm."""
    return np.where(host > 0, np.cbrt(device**3 + host**3), device)


def longer(device: Array, more: Array, host: Array) -> Array:
    """What `more` seconds of the device make such a pass longer; no difference of near numbers."""
    after, before = together(device + more, host), together(device, host)
    cubes, square = more * (3 * device * (device + more) + more**2), after**2 + after * before
    divisor = square + before**2
    return np.asarray(np.divide(cubes, divisor, out=np.zeros_like(cubes), where=cubes > 0))


# the messages of a pass may be sent in another too, under its own work: forward `again` where all
# is recomputed, and beside the gradient of the `input` where that of the weights comes later
OTHER = {"forward": "again", "backward": "input"}
ALL = np.ones(1)


def longer_by(kind: int) -> str:
    """A backward pass with all that this kind of recomputation makes again, by its number."""
    return f"backward {kind}"


class Cover:
    """The work that messages may hide under, pass by pass; what hides one hides no other.

    But messages over links of their own go beside each other, and each link hides its own: copies
    to the host, which are looked at last, hide under what others make a pass longer as well.

    Messages of a pass hide under the device's own work. Those sent after it began, gradients,
    hide under all that the pass takes, the waits for its host and its other messages included, and
    what recomputation makes again: `within` says which passes each is a part of.
    """

    def __init__(
        self, work: dict[str, Array], host: dict[str, Array],
        parts: dict[tuple[str, str], Array] | None = None,
        within: dict[str, tuple[str, ...]] | None = None,
    ) -> None:  # fmt: skip
        self.work, self.host, self.parts, self.within = work, host, parts or {}, within or {}
        self.used: dict[tuple[str, str], Array] = {}  # by link and pass
        self.by_rows: dict[int, Array | float] = {}
        self.shown = {name: np.zeros_like(seconds) for name, seconds in work.items()}
        self.own: dict[tuple[str, str], Array] = {}  # of that, what each link shows
        self.late: dict[tuple[str, str], Array] = {}  # and what it shows of a step's messages

    def others(self, when: str) -> tuple[str, ...]:
        """Where else messages of a pass, or those of a step beside a backward one, may be sent."""
        if when == "step":
            return self.within.get("backward", ())
        return (OTHER[when],) if OTHER.get(when) in self.work else ()

    def hide(self, message: Message, seconds: Array, calls: Array, may: Array) -> Array:
        """What is left of messages sent beside a pass, which take what they hide under."""
        left = self.left(message, seconds, calls, may)
        return self.took(message.hides, left, seconds, over=message.over)

    def left(
        self, message: Message, seconds: Array, calls: Array, may: Array, name: str = "",
        edge: Array | None = None,
    ) -> Array:  # fmt: skip
        """What would be left of messages sent beside a pass: first gather or last bucket, at least.

        That is the `edge`, or one of so many alike. A bucket of gradients can be sent when it is
        full, so the first must wait for its share of the backward pass.
        """
        name, number = name or message.hides, np.maximum(calls, 1)
        window, shown_seconds = self.work[name], self.shown[name]
        own_seconds = self.own.get((message.over, name), 0.0)
        if message.when == "step":
            late = (seconds for (over, place), seconds in self.late.items()
                    if place == name and over != message.over)  # fmt: skip
            window = together(window + shown_seconds, self.host[name]) - own_seconds
            window = window * (1 - 1 / number) + sum(late, np.zeros(1))
        elif message.over != "mesh":
            window = window + shown_seconds - own_seconds
        free = np.maximum(window - self.used.get((message.over, name), 0.0), 0.0)
        least_left = seconds / number if edge is None else edge
        left = np.where(calls > 0, np.maximum(seconds - free, least_left), 0.0)
        return np.where(may, left, seconds)

    def part(self, name: str, product: str) -> Array:
        """The share of each row's product that a pass makes: (rows,), or one for all."""
        return self.parts.get((name, product), ALL)

    def beside(self, name: str, left: Array, seconds: Array, may: Array) -> Array:
        """What is left of messages sent beside their own row's product: no more than is free."""
        free = np.maximum(self.work[name] - self.used.get(("mesh", name), 0.0), 0.0)
        return np.where(may, np.maximum(left, seconds - free), seconds)

    def took(
        self, name: str, left: Array, seconds: Array, alone: bool = False, over: str = "mesh"
    ) -> Array:
        """Count what messages hide under; `alone` where they hide otherwise in what is longer."""
        if alone:
            self.late[over, name] = self.late.get((over, name), 0.0) + left
        for place in (name, *(() if alone else self.within.get(name, ()))):
            self.used[over, place] = self.used.get((over, place), 0.0) + seconds - left
        return left

    def hid(self, message: Message, seconds: Array) -> None:
        """Count what the rows that alone hide a message hid of it."""
        self.by_rows[id(message.under)] = self.hidden_by(message) + seconds

    def hidden_by(self, message: Message) -> Array | float:
        """Seconds of other messages that the rows hid which alone hide this one."""
        return self.by_rows.get(id(message.under), 0.0)

    def show(self, name: str, exposed: Array, host: Array, over: str = "mesh") -> None:
        """Seconds of messages that make a pass longer, and what its host needs to launch them."""
        for place in (name, *self.within.get(name, ())):
            if place in self.shown:
                self.shown[place] = self.shown[place] + exposed
                self.own[over, place] = self.own.get((over, place), 0.0) + exposed
            if place in self.host:
                self.host[place] = self.host[place] + host


def slowed(exposed: Array, seconds: Array, lost: Array) -> Array:
    """What is exposed, and what the messages that hide take from the work they hide under.

    `lost` is what the work would lose beside all of their seconds; it loses no more than is
    hidden.
    """
    hidden = seconds - exposed
    part = np.divide(lost, seconds, out=np.zeros_like(hidden), where=hidden > 0)
    return np.asarray(exposed + np.minimum(part, 1.0) * hidden)
