"""Curvature as Kronecker factors [martens2015]: built from samples, inverted, applied.

A layer of a inputs (C K², with one for a bias) and g outputs has A = E[x xᵀ], a × a, and
G = E[∂y ∂yᵀ], g × g, from P output points of each sample [grosse2016]; its gradient is
preconditioned to G⁻¹ ∇ A⁻¹.

    2 B P (a² + g²)            FLOP of both factors
    a³ + g³                    of their inverses by Cholesky; 9 (a³ + g³) of eigenvectors
    2 (a² g + a g²)            of a preconditioned gradient; twice that in eigenvectors
"""

from __future__ import annotations

import numpy as np

from oracle.kernels.gemm import gemm
from oracle.kernels.stream import stream
from oracle.models.model import Floats
from oracle.models.shard import Numbers
from oracle.spec.device import Device

PANEL = 128  # columns that a factorisation takes at once: the depth of its products
INVERSE = 1  # n³ of a Cholesky factorisation, 1/3, and its inverse, 2/3 [golub2013, §4.2]
EIGEN = 9  # n³ of symmetric QR with vectors [golub2013, §8.3]
EXACT = "fp32"  # what is inverted, and applied


def factors(
    device: Device, precision: str, a: Numbers, g: Numbers, points: Numbers, given: Numbers,
    width: float,
) -> Floats:  # fmt: skip
    """Seconds of both factors of a layer, from so many points: x is unfolded, both are turned.

    `given` are the elements of x; `width` bytes each. The products are added to averages.
    """
    points = np.asarray(points, float)
    moved = width * (given + points * a + 2 * points * g)
    both = gemm(device, precision, a, a, points, queued=True)
    both = both + gemm(device, precision, g, g, points, queued=True)
    averaged = 12 * (np.square(a) + np.square(g))
    return np.asarray(both + stream(device, moved, queued=True)
                      + stream(device, averaged, queued=True))  # fmt: skip


def solved(device: Device, n: Numbers, eigen: bool) -> Floats:
    """Seconds to invert a symmetric n × n matrix, or to find its eigenvectors.

    Panel by panel: every product is PANEL deep. To become tridiagonal, a matrix is read once for
    each of its columns, what is left of it.
    """
    n = np.asarray(n, float)
    panels = np.ceil(n / PANEL)
    share = (EIGEN if eigen else INVERSE) * n / (2 * panels * np.minimum(n, PANEL))
    seconds = panels * share * gemm(device, EXACT, n, n, np.minimum(n, PANEL), queued=True)
    if eigen:
        seconds = seconds + stream(device, 4 * n**3 / 3, queued=True)
    return np.asarray(seconds)


def applied(device: Device, a: Numbers, g: Numbers, eigen: bool) -> Floats:
    """Seconds to precondition a layer's gradient, and to scale it by what comes out."""
    a, g = np.asarray(a, float), np.asarray(g, float)
    both = gemm(device, EXACT, g, a, g, queued=True) + gemm(device, EXACT, g, a, a, queued=True)
    return np.asarray((2 if eigen else 1) * both + stream(device, 16 * a * g, queued=True))
