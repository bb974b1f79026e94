"""Tokens to experts and back by kernels of their own, all devices to all.

A library that serves experts copies a token straight to the devices of its experts, once to each,
and adds up what comes back: `dispatch` and `combine`, which take unlike seconds. The message says
how often a token is sent, and how wide; here all of it goes at once. On a system that was not
measured with such a library, its messages take as long as scattered sends and receives.
"""

from __future__ import annotations

from oracle.network.collectives.alltoall import ScatteredAlltoall


class ByExperts:
    """An algorithm of a library that serves experts and nothing else, taken where it is named."""


class DeepEpDispatch(ByExperts, ScatteredAlltoall):
    """Dispatch by DeepEP: T = α + (p − 1)/p m β, m the bytes of a token once for each place."""

    name, source, menu = "deepep_dispatch", "deepep", False


class DeepEpCombine(ByExperts, ScatteredAlltoall):
    """Combine by DeepEP, added up where it is sent to: T = α + (p − 1)/p m β."""

    name, source, menu = "deepep_combine", "deepep", False


class HybridEpDispatch(ByExperts, ScatteredAlltoall):
    """Dispatch by DeepEP's hybrid kernels, for domains of NVLinks: T = α + (p − 1)/p m β."""

    name, source, menu = "hybridep_dispatch", "deepep", False


class HybridEpCombine(ByExperts, ScatteredAlltoall):
    """Combine by the hybrid kernels: T = α + (p − 1)/p m β."""

    name, source, menu = "hybridep_combine", "deepep", False
