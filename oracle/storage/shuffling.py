"""The deal of samples in the next epoch: any sample to any node, or each node keeps its own part.

With `global` shuffling any node may need any sample: all of the data, or a way to all of it. With
`local` each node keeps to its own D/N samples, and nothing is exchanged. With `partial:e` a share
e of them changes hands each epoch: e V/N bytes out and in a node, e b for each step under way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from oracle.spec.document import refusal
from oracle.storage.arrays import Floats, Number

WORDS = ("global", "local", "partial:SHARE")


@dataclass(frozen=True, slots=True)
class Shuffle:
    """The way in which samples are dealt anew each epoch."""

    everywhere: bool = True  # any sample may come to any node
    share: float = 0.0  # of a node's samples that come from others each epoch, where it keeps some

    @property
    def text(self) -> str:
        if self.everywhere:
            return "global"
        return f"partial:{self.share:g}" if self.share else "local"

    def kept(self, size: float, nodes: Number) -> Number:
        """Bytes that a node needs within reach of its own."""
        return size + 0.0 * nodes if self.everywhere else size / nodes

    def exchanged(self, nodes: Number, nbytes: Number) -> Floats:
        """Bytes of a step that a node gets from others, of those it reads."""
        return np.where(np.asarray(nodes) > 1, self.share * nbytes, 0.0)


def shuffle(text: str) -> Shuffle:
    """Read a shuffle: `global`, `local` or `partial:0.1`."""
    word, _, number = str(text).partition(":")
    if word in ("global", "local") and not number:
        return Shuffle(word == "global")
    try:
        share = float(number)
    except ValueError:
        share = -1.0
    if word != "partial" or not 0 <= share <= 1:
        raise refusal("options", f"samples shuffled `{str(text)[:40]}`",
                      f"{', '.join(WORDS)}; a share between 0 and 1")  # fmt: skip
    return Shuffle(False, share)
