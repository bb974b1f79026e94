"""Seconds of local work: pure functions of shapes on a device, and measured profiles.

gemm attention conv stream    seconds of one family of kernels
box           a convolution's part in numbers
algorithms    what each algorithm of a convolution takes
fourier       convolutions by Fourier transforms of tiles
divisions     divisions of a batch among kernels that a workspace has room for
shared_room   one workspace shared out among all kernels
framed        copies that put parts of samples amid their borders
whole_numbers programs in whole numbers, solved without a word
convolved     a shard's convolutions, row by row
families      rows by what prices them
curve         how a family uses a device: peak, traffic, start
waves         whole waves of whole tiles
rows          forward and backward seconds of every row of a model
passes        what these seconds are handed on as
orthogonal    orthogonal updates of matrices
factors       Kronecker factors of curvature, their inverses, their use
counted       work known by FLOP and bytes alone: scans, tables, transforms, recurrent cells
slowest       the slowest of many like devices sets the pace
provenance    where the seconds of a pass come from, and their uncertainty
profile/      measured seconds in place of modelled ones
"""

from oracle.kernels.attention import attention
from oracle.kernels.conv import conv
from oracle.kernels.curve import Origin, origin
from oracle.kernels.gemm import gemm
from oracle.kernels.orthogonal import orthogonal
from oracle.kernels.stream import stream, update, update_calls

__all__ = [
    "Origin", "attention", "conv", "gemm", "origin", "orthogonal", "stream", "update",
    "update_calls",
]  # fmt: skip
