"""Matrix products as whole waves of whole tiles: a processor works on one tile at a time.

    tiles   = ⌈m / h⌉ · ⌈n / w⌉ · count · pieces
    waves   = ⌈tiles / processors⌉
    seconds = 2 · waves · processors · (h + border) (w + border) · (k / pieces + prologue)
              / (peak · sustained · (256 + border) (128 + border) / (256 · 128))
              + what it takes to add the pieces up

The largest tiles, 256×128 either way, load least for what they compute and are taken as soon as
they give every processor one. Until then the cheapest is: a smaller tile, or k cut in pieces. A
product that needs one tile more than its waves have room for takes a wave longer [matrix2023]: on
an A100 8192×1024 takes 1.5 times as long as 8192×768 [aiconfigurator]. Smaller tiles, pieces and
what adding them costs are those that miss that file's timings least.
"""

from __future__ import annotations

import numpy as np

from oracle.models.model import Flags, Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Curve, Device

LARGEST = ((256, 128), (128, 256))
SMALLER = ((128, 128), (64, 64), (32, 32))
PIECES = (1, 4)  # of k
ADDED = 0.5  # of writing and reading pieces' sums in fp32: half stays in the cache
RISE = 0.1  # of a step, over which it goes up: more work takes longer, however little more


def waves(
    used: Curve, device: Device, rate: Numbers, m: Floats, n: Floats, k: Floats, count: Numbers
) -> Floats:
    """Seconds of arithmetic of `count` products (m×k)·(k×n)."""
    border, processors = used.tile, device.processors
    own = float(np.prod([1 + border / side for side in LARGEST[0]]))
    second = 2 * processors / (rate * used.sustained * own)
    each = count / processors
    sums = m * n * count * (8 * ADDED / device.memory_bandwidth)
    sides = {side for tile in (*LARGEST, *SMALLER) for side in tile}
    down, across = ({side: whole(extent / side) for side in sides} for extent in (m, n))

    def least(tiles: tuple[tuple[int, int], ...], pieces: int) -> Floats:
        found: Numbers = np.inf
        for high, wide in tiles:
            area = second * (high + border) * (wide + border)
            found = np.minimum(found, whole(down[high] * across[wide] * each * pieces) * area)
        seconds: Floats = found * (k / pieces + used.prologue) + (pieces > 1) * pieces * sums
        return seconds

    large = least(LARGEST, 1)
    full: Flags = np.minimum(*(down[high] * across[wide] for high, wide in LARGEST)) * each > 1
    if np.all(full):
        return large
    rest: Floats = np.minimum(*(least((*LARGEST, *SMALLER), pieces) for pieces in PIECES))
    return np.where(full, large, rest)


def whole(parts: Floats) -> Floats:
    """⌈parts⌉, one at the least, with steps that rise over their first tenth."""
    full: Floats = np.floor(parts)
    count: Floats = np.maximum(full + np.minimum((parts - full) / RISE, 1.0), 1.0)
    return count
