"""Fits a library's own model to logs, by few factors that operations and rank counts share.

    seconds = least over algorithms and protocols of
              base · f + hops · g + wire · m / (bandwidth · h)

The library's public constants say base, hops and bandwidth on the system's topology; logs say what
each is off by. Factors that no sample tells stay where machines of the same kind have them: a
penalised least-squares fit of their logarithms, under a soft loss. So rank counts, sizes and
operations that nobody measured follow the library and the topology, not the last formula.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS, menu
from oracle.network.contention.counting.ring_sets import laid_out
from oracle.network.contention.counting.schedules import schedule_costs
from oracle.network.contention.groups import RankGroups, closest_devices
from oracle.network.contention.library import CHANNELS, TREES, Term, factors, terms
from oracle.network.topology import network_of
from oracle.readers.logs import Sample
from oracle.spec.system import FACTORS, System

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
NAMES = (*((part, kind) for part in ("base", "hop", "bandwidth") for kind in FACTORS),
         ("tree", ""), ("own", ""), ("few", ""), ("opened", ""))  # fmt: skip
MANY = tuple(FACTORS.index(kind) for kind in CHANNELS)
SOFT = 0.08  # relative error from which the loss grows linearly
# factors where no log is read: inside a node the mean of A100, H100 and B200 nodes, each fitted to
# its own logs, and of a copy of one's own part; between nodes the constants themselves
INSIDE = (0.97, 1.11, 2.1, 1.3, 1.7, 0.54, 1.67, 0.55, 0.88, 0.87, 1.02, 0.89, 1.0, nccl.OWN,
          0.09, 0.24)  # fmt: skip
BETWEEN = (*[1.0] * 12, 1.0, 0.5, 0.09, 0.24)
# 1σ of their logarithms: of a machine's common part in each kind, and of each factor alone
SHARED = (0.3, 0.2, 0.12)
ALONE = (0.08, 0.3, 0.3, 0.08, 0.2, 0.35, 0.3, 0.3, 0.12, 0.12, 0.08, 0.08, 0.3, 0.35, 0.5,
         0.5)  # fmt: skip


@dataclass(frozen=True)
class Prior:
    """The factors before any log is read: their logarithms, and how these are spread."""

    mean: Floats
    covariance: Floats

    @cached_property
    def root(self) -> Floats:
        """The transform that makes the factors' deviations independent and of variance one."""
        return np.asarray(np.linalg.inv(np.linalg.cholesky(self.covariance)))


# the library's constants alone, logarithms: all channels are open
CONSTANTS = np.log([*[1.0] * 12, 1.0, nccl.OWN, 1.0, 1e-9])


def typical(outside: bool) -> Prior:
    """The prior of places that were measured: a slow machine is slow by every protocol."""
    covariance = np.diag(np.square(ALONE))
    for part, share in enumerate(SHARED):
        of_part = slice(part * len(FACTORS), (part + 1) * len(FACTORS))
        covariance[of_part, of_part] += share**2
    return Prior(np.log(BETWEEN if outside else INSIDE), covariance)


@dataclass(frozen=True, eq=False)
class Place:
    """Samples inside a node, or between nodes, and what the library's model says of each.

    Arrays are (terms, samples), padded with terms that are never the fastest.
    """

    system: System
    outside: bool
    samples: tuple[Sample, ...]
    seconds: Floats
    fixed: Floats  # of hops in the other place
    base: Floats
    hops: Floats
    wire: Floats  # seconds of all bytes
    copied: Floats  # seconds of the bytes that a rank has already
    kind: NDArray[np.int64]  # of each term among FACTORS
    tree: Mask

    @classmethod
    def from_samples(cls, system: System, outside: bool, samples: Sequence[Sample]) -> Place:
        """The place of samples that know their ranks and nodes, if the library serves them."""
        groups = {key: [*_terms(system, *key)] for key in dict.fromkeys(map(_group, samples))}
        samples = [sample for sample in samples if groups[_group(sample)]]
        terms_at_most = max(map(len, groups.values()), default=0)
        shape = terms_at_most, len(samples)
        parts = {name: np.zeros(shape) for name in ("fixed", "base", "hops", "wire", "copied")}
        parts["base"][:] = np.inf
        kind, tree = np.zeros(shape, np.int64), np.zeros(shape, bool)
        inner = factors(system, False)
        for column, sample in enumerate(samples):
            for row, term in enumerate(groups[_group(sample)]):
                inner_factor = inner.hop.get(term.kind, 1.0) if inner and outside else 1.0
                parts["fixed"][row, column] = term.inside * inner_factor if outside else 0.0
                parts["base"][row, column] = term.base
                parts["hops"][row, column] = term.between if outside else term.inside
                parts["wire"][row, column] = term.per_byte * sample.nbytes
                parts["copied"][row, column] = term.copied * sample.nbytes
                kind[row, column] = FACTORS.index(term.kind)
                tree[row, column] = term.algorithm in TREES
        seconds = np.array([sample.seconds for sample in samples])
        return cls(system, outside, tuple(samples), seconds, **parts, kind=kind, tree=tree)

    def part(self, which: Mask) -> Place:
        """Some of the samples."""
        arrays = ("fixed", "base", "hops", "wire", "copied", "kind", "tree")
        return replace(
            self, samples=tuple(s for s, chosen in zip(self.samples, which, strict=True) if chosen),
            seconds=self.seconds[which], **{name: getattr(self, name)[:, which] for name in arrays},
        )  # fmt: skip

    def predicted(self, logs: Floats) -> Floats:
        """Seconds at these logarithms of the factors."""
        count = len(FACTORS)
        scale = np.exp(logs)
        base, hop, bandwidth = (scale[k * count : (k + 1) * count][self.kind] for k in range(3))
        tree, copy, few_channels, opened = scale[3 * count :]
        speed = bandwidth * np.where(self.tree, tree, 1.0)
        call, wire = self.base * base, (self.wire + copy * self.copied) / speed
        start, channels = call + self.fixed + self.hops * hop, np.isin(self.kind, MANY)
        all_open = start + np.where(channels, opened * call, 0.0) + wire
        short = start + np.where(channels, wire / few_channels, wire)
        return np.asarray(np.minimum(all_open, short).min(axis=0))

    def fitted(self) -> Floats:
        """Fit the logarithms of the factors; where samples say nothing they are the prior's."""
        from scipy.optimize import least_squares

        prior = typical(self.outside)

        def residual(logs: Floats) -> Floats:
            off = np.log(self.predicted(logs) / self.seconds) / SOFT
            soft = np.sign(off) * np.sqrt(2 * (np.sqrt(1 + off**2) - 1))
            return np.concatenate([soft, prior.root @ (logs - prior.mean)])

        return np.asarray(least_squares(residual, prior.mean, max_nfev=80).x)

    def error(self, logs: Floats) -> Floats:
        """Predicted / measured − 1."""
        return np.asarray(self.predicted(logs) / self.seconds - 1)

    def left_out(self, by: Floats) -> Floats:
        """Errors of samples by fits without those that share their value of `by`."""
        error = np.full(len(self.seconds), np.nan)
        values = np.unique(by)
        for value in values.tolist() if len(values) > 1 else ():
            rest, of_value = self.part(by != value), by == value
            error[of_value] = self.part(of_value).error(rest.fitted())
        return error

    @cached_property
    def ranks(self) -> Floats:
        """Ranks of each sample's group."""
        return np.array([float(sample.ranks or 1) for sample in self.samples])

    @cached_property
    def nbytes(self) -> Floats:
        """Bytes of each sample's message."""
        return np.array([sample.nbytes for sample in self.samples])


def _group(sample: Sample) -> tuple[str, int, int]:
    """What a sample's cost depends on beside its bytes: operation, ranks, nodes."""
    return sample.operation, int(sample.ranks or 1), int(sample.nodes or 1)


def _terms(system: System, op: str, ranks: int, nodes: int) -> Iterator[Term]:
    """The library's terms for one group of so many ranks on so many nodes, alone there."""
    ranks_per_node, device = ranks // nodes, None
    numbers = np.arange(ranks)
    if nodes > 1 and ranks_per_node < system.node:
        device = numbers // ranks_per_node * system.node + numbers % ranks_per_node
    groups = RankGroups(((ranks, 1),), ranks, device)
    reach = nccl.bandwidth_shares(system)
    bare = network_of(system, ranks if device is None else int(device.max()) + 1, reach)
    inner = groups.inner(closest_devices(system))
    offer = nccl.offered(menu(op, ranks, inner), nodes > 1)
    run = [ALGORITHMS[new.like[0]][new.name] if new.like[0] else new for new in offer]
    costs = schedule_costs(bare, groups, [laid_out(new, bare, groups, inner) for new in run])
    for new, cost in zip(offer, costs, strict=True):
        yield from terms(new, cost.repeated(new.like[1]), bare, ranks, system.inside, nodes > 1)
