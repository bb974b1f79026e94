"""Slim Fly: graphs of McKay, Miller and Širáň, no two switches more than two apart."""

from __future__ import annotations

import numpy as np

from oracle.network.topology.wired import Trunk, Wired, Wiring


class SlimFly(Wired):
    """2 q² switches of diameter two [besta2014]; q is a prime that is odd.

    `shape` is (2, q, q, units per switch). Switches (0, x, y) and (0, x, y') are linked where
    y − y' is in X, (1, m, c) and (1, m, c') where c − c' is in X', and (0, x, y) with (1, m, c)
    where y = m x + c; all modulo q. X and X' are powers of a primitive root.
    """

    kind = "slim-fly"

    def wire(self) -> Wiring:
        shape = tuple(self.level.shape)
        q, hosts = (shape[1], shape[3]) if len(shape) == 4 else (0, 0)
        odd_prime = q > 2 and all(q % k for k in range(2, int(q**0.5) + 1))
        if shape != (2, q, q, hosts) or not odd_prime or 2 * q * q * hosts != self.width:
            raise ValueError(f"{self.level.name}: a slim-fly of {self.width} units needs shape "
                             "[2, q, q, units per switch], q an odd prime")  # fmt: skip
        lines, across = links(q)
        trunks: list[Trunk] = [
            *((a, b, self.level.bandwidth, "links of a line") for a, b in lines),
            *((a, b, self.level.bandwidth, "links across") for a, b in across),
        ]
        switches = 2 * q * q
        return Wiring(switches, np.arange(self.width) // hosts, trunks, np.ones(switches, bool))


def links(q: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the pairs of switches that are linked in a line of either part, and across parts."""
    near, far = generators(q)
    lines = [
        (line + y, line + (y + step) % q)
        for part, steps in ((0, near), (1, far))
        for line in range(part * q * q, (part + 1) * q * q, q)
        for y in range(q) for step in steps if (y + step) % q > y
    ]  # fmt: skip
    across = [(x * q + (m * x + c) % q, q * q + m * q + c)
              for x in range(q) for m in range(q) for c in range(q)]  # fmt: skip
    return lines, across


def generators(q: int) -> tuple[set[int], set[int]]:
    """Return X and X': even and odd powers of a root, closed under negation [besta2014]."""
    root = next(g for g in range(2, q + 1) if len({pow(g, k, q) for k in range(q - 1)}) == q - 1)
    if q % 4 == 1:
        return ({pow(root, k, q) for k in range(0, q - 1, 2)},
                {pow(root, k, q) for k in range(1, q - 1, 2)})  # fmt: skip
    w = (q + 1) // 4  # q = 4 w − 1
    near = {pow(root, k, q) for k in range(0, 2 * w - 1, 2)}
    near |= {pow(root, k, q) for k in range(2 * w - 1, 4 * w - 2, 2)}
    far = {pow(root, k, q) for k in range(1, 2 * w, 2)}
    far |= {pow(root, k, q) for k in range(2 * w, 4 * w - 1, 2)}
    return near, far
