"""Tokens to experts and back by kernels of their own, all devices to all.

A library that serves experts copies a token straight to the devices of its experts, once to each,
and adds up there what comes back: `dispatch` and `combine`, which take unlike seconds. How often a
token is sent, and how wide, is said by the message; here all of it goes at once. What a system was
not measured with takes as long as scattered sends and receives.
"""

from __future__ import annotations

from oracle.network.collectives.alltoall import ScatteredAlltoall


class ByExperts:
    """Sent by a library that serves experts: nothing else is, and it is taken where it is named."""


class DeepEpDispatch(ByExperts, ScatteredAlltoall):
    """Of DeepEP: T = α + (p − 1)/p m β, with m the bytes of a token once for each place."""

    name, source, menu = "deepep_dispatch", "deepep", False


class DeepEpCombine(ByExperts, ScatteredAlltoall):
    """Back by DeepEP, added up where it is sent to: T = α + (p − 1)/p m β."""

    name, source, menu = "deepep_combine", "deepep", False


class HybridEpDispatch(ByExperts, ScatteredAlltoall):
    """Of DeepEP's hybrid kernels, for domains of NVLinks: T = α + (p − 1)/p m β."""

    name, source, menu = "hybridep_dispatch", "deepep", False


class HybridEpCombine(ByExperts, ScatteredAlltoall):
    """Back by the hybrid kernels: T = α + (p − 1)/p m β."""

    name, source, menu = "hybridep_combine", "deepep", False
