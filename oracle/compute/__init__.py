"""Seconds of every kind of kernel at its local shape: pure functions on arrays that broadcast."""

from oracle.compute.attention import attention
from oracle.compute.conv import conv
from oracle.compute.curve import Origin, origin
from oracle.compute.gemm import gemm
from oracle.compute.stream import stream, update

__all__ = ["Origin", "attention", "conv", "gemm", "origin", "stream", "update"]
