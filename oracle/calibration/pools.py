"""Pools of samples that are fitted together: one operation, inside a node or beyond it.

Groups that leave the node are pooled whatever level they reach, so that one fit covers all their
rank counts. What cannot be fitted is told with its reason, never dropped silently.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from oracle.calibration.fit import (
    Envelope,
    Floats,
    Form,
    Mask,
    Problem,
    envelope,
    predicted,
    refitted,
)
from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS, Algorithm
from oracle.network.collectives.dispatch import ByExperts
from oracle.readers.logs import Reading, Sample
from oracle.spec.system import System
from oracle.spec.units import show

LIBRARIES = ("nccl", "mpi", "gloo", "")  # the first with samples is fitted
FEWEST = 6  # fewest samples of a fit
# not tried: a leader's steps inside its node need an α of their own; no library offers the others
# unless switches can, and then logs do not say so
UNTRIED = frozenset(("leader", "parameter_server", "in_network", "bidirectional_ring",
                     "nvls", "nvlstree", "sharp", "collnet"))  # fmt: skip


@dataclass(frozen=True, eq=False)
class SamplePool:
    """Samples of one operation at one level, as arrays, and what may explain them."""

    op: str
    level: str
    samples: tuple[Sample, ...]
    seconds: Floats
    nbytes: Floats
    ranks: Floats
    inner: Floats  # ranks of a group that share a node
    forms: tuple[Form, ...]

    def part(self, which: Mask) -> SamplePool:
        """Some of the samples."""
        forms = tuple(Form(f.algorithm, f.steps[which], f.wire[which]) for f in self.forms)
        samples = tuple(s for s, chosen in zip(self.samples, which, strict=True) if chosen)
        return replace(
            self,
            samples=samples,
            seconds=self.seconds[which],
            nbytes=self.nbytes[which],
            ranks=self.ranks[which],
            inner=self.inner[which],
            forms=forms,
        )

    def fitted(self, like: Envelope | None = None) -> Envelope:
        """Fit the envelope, of the structure of another one if that is given."""
        if like is None:
            return envelope(self.seconds, self.nbytes, self.ranks, self.forms)
        return refitted(Problem(self.seconds, self.nbytes, self.ranks, self.forms), like)

    def error(self, fitted: Envelope) -> Floats:
        """Predicted / measured − 1 of these samples."""
        return predicted(fitted, self.forms, self.ranks) / self.seconds - 1

    @property
    def repeats(self) -> float:
        """The median relative distance of samples of the same size and ranks; inf if none."""
        _, group, count = np.unique(
            np.stack([self.nbytes, self.ranks, self.inner]), axis=1, return_inverse=True,
            return_counts=True,
        )  # fmt: skip
        logs = np.log(self.seconds)
        distances = [np.ptp(logs[group == k]) for k in np.flatnonzero(count > 1)]
        return float(np.expm1(np.median(distances))) if distances else np.inf

    def left_out(self, by: Floats, like: Envelope | None = None) -> Floats:
        """Errors of samples, each by a fit without its size (or its rank count)."""
        error = np.full(len(self.seconds), np.nan)
        for value in np.unique(by).tolist():
            rest = self.part(by != value)
            if len(np.unique(rest.nbytes)) > 1 and len(rest.seconds) >= FEWEST:
                error[by == value] = self.part(by == value).error(rest.fitted(like))
        return error


def pooled(op: str, level: str, samples: Sequence[Sample]) -> SamplePool:
    """Samples as arrays, with every algorithm that serves all of them."""
    ranks = np.array([float(s.ranks or 1) for s in samples])
    inner = np.array([float(s.ranks_per_node or 1) for s in samples])
    nbytes = np.array([s.nbytes for s in samples])
    seconds = np.array([s.seconds for s in samples])
    pairs = np.unique(np.stack([ranks, inner], 1), axis=0)
    forms: list[Form] = []
    costs: set[bytes] = set()
    candidates = ALGORITHMS.get(op, {}) if samples else {}
    if samples and (name := of_experts(samples[0])):
        candidates = {name: candidates[name]}
    if {sample.library for sample in samples} == {"nccl"}:
        # a label decides how the fit is carried over to other groups: only what NCCL runs
        candidates = {name: candidates[name] for name in candidates if name in nccl.SUPPORTED}
    for name in sorted(candidates, key=lambda name: (name != "ring", list(candidates).index(name))):
        algorithm = candidates[name]
        if name in UNTRIED or not all(algorithm.fits(int(p), int(q)) for p, q in pairs.tolist()):
            continue
        steps, volume = steps_and_volume(algorithm, ranks, inner)
        key = np.round(np.concatenate([steps / steps[0], volume / volume[0]]), 9).tobytes()
        if key not in costs:  # algorithms whose costs are in proportion are one hypothesis
            costs.add(key)
            forms.append(Form(name, steps, volume * nbytes))
    if len(pairs) == 1:  # one rank count: any form has the same two unknowns, so the plainest
        forms = forms[:1]
    return SamplePool(op, level, tuple(samples), seconds, nbytes, ranks, inner, tuple(forms))


def steps_and_volume(algorithm: Algorithm, ranks: Floats, inner: Floats) -> tuple[Floats, Floats]:
    """Steps and volume of an algorithm, of which some depend on the ranks of a node."""
    parameters = inspect.signature(algorithm.steps).parameters
    arguments = (ranks, inner) if "q" in parameters else (ranks,)
    ones = np.ones_like(ranks)
    return algorithm.steps(*arguments) * ones, algorithm.volume(*arguments) * ones


def of_experts(sample: Sample) -> str:
    """The algorithm of a sample that a library for experts sent; empty for other samples."""
    by = ALGORITHMS.get(sample.operation, {}).get(sample.algorithm)
    return sample.algorithm if isinstance(by, ByExperts) else ""


def pools(
    readings: Sequence[Reading], system: System
) -> tuple[list[tuple[str, str, list[Sample]]], list[tuple[str, str]]]:
    """(operation, level, samples) of all pools to fit, and what is left out with its reason."""
    refused: dict[tuple[str, str], int] = {}
    by_key: dict[tuple[str, str, int], list[tuple[Sample, int]]] = {}
    for sample in (s for reading in readings for s in reading.samples):
        placed, why = _placed(sample, system)
        if placed is None:
            key = sample.operation, why
            refused[key] = refused.get(key, 0) + 1
            continue
        nodes, ranks = placed.nodes or 1, placed.ranks or 1
        extent = nodes * system.node if nodes > 1 else ranks
        level = next(k for k, enclosing in enumerate(system.levels) if enclosing.devices >= extent)
        key_of_pool = placed.operation, of_experts(placed), nodes > 1
        by_key.setdefault(key_of_pool, []).append((placed, level))
    pools = []
    for (op, _, _), members in sorted(by_key.items()):
        name = system.levels[min(level for _, level in members)].name
        members_kept = [sample for sample, _ in members]
        for choose in (_by_library, _by_memory, _by_groups):
            members_kept, dropped = choose(members_kept)
            for why, count in dropped.items():
                refused[f"{op}, {name}", why] = refused.get((f"{op}, {name}", why), 0) + count
        pools.append((op, name, members_kept))
    reasons = [(subject, f"{count} samples: {why}") for (subject, why), count in refused.items()]
    return pools, reasons


def _placed(sample: Sample, system: System) -> tuple[Sample | None, str]:
    """The sample with its ranks and nodes; packed on whole nodes where the log is silent."""
    if sample.operation not in ALGORITHMS:
        return None, "not an operation that is priced"
    if sample.per_rank or sample.ranks is None:
        return None, "the log does not say how many ranks took part"
    if sample.groups is None:
        return None, "the log does not say how many pairs talked at once"
    if sample.ranks < 2 or sample.nbytes <= 0:
        return None, "nothing is sent"
    if sample.window > 1:
        return None, "a stream of messages tells no latency"
    if sample.direction == "both ways":
        return None, "both ways at once: half of it is not one way"
    nodes = sample.nodes
    if nodes is None and sample.operation == "sendrecv":
        return None, "the log does not say whether the two ranks share a node"
    if nodes is None:
        nodes = -(-sample.ranks // system.node)
    if nodes * system.node > system.devices or sample.ranks > nodes * system.node:
        return None, f"{sample.ranks} ranks on {nodes} nodes do not fit into {system.name}"
    if sample.ranks % nodes:
        return None, "the nodes hold unequal numbers of ranks"
    return sample._replace(nodes=nodes, ranks_per_node=sample.ranks // nodes), ""


def _by_library(samples: list[Sample]) -> tuple[list[Sample], dict[str, int]]:
    names = {sample.library for sample in samples}
    best = next((name for name in LIBRARIES if name in names), min(names))
    return _split(samples, lambda s: s.library, best, f"{best or 'another library'} is fitted, not")


def _by_memory(samples: list[Sample]) -> tuple[list[Sample], dict[str, int]]:
    places = {sample.memory for sample in samples}
    best = "device" if "device" in places else min(places)
    return _split(samples, lambda s: s.memory, best, "device buffers are fitted, not those of the")


def _by_groups(samples: list[Sample]) -> tuple[list[Sample], dict[str, int]]:
    fewest = min(sample.groups or 1 for sample in samples)
    return _split(samples, lambda s: s.groups, fewest, f"{fewest} at once is fitted, not")


def _split(
    samples: list[Sample], key: Any, best: Any, why: str
) -> tuple[list[Sample], dict[str, int]]:
    dropped: dict[str, int] = {}
    for sample in samples:
        if key(sample) != best:
            reason = f"{why} {key(sample)}"
            dropped[reason] = dropped.get(reason, 0) + 1
    return [sample for sample in samples if key(sample) == best], dropped


def degenerate(pool: SamplePool) -> str:
    """Why these samples cannot tell α and β; empty if they can."""
    sizes = np.unique(pool.nbytes)
    if not pool.forms:
        return "no algorithm serves all these rank counts"
    if len(sizes) == 1:
        return f"one size only ({show(sizes[0], 'B')}): α and β cannot be told apart"
    if len(pool.seconds) < FEWEST or len(sizes) < 3:
        return f"{len(pool.seconds)} samples of {len(sizes)} sizes are too few to judge a fit by"
    if sizes[-1] < 8 * sizes[0]:
        return "the sizes span less than a factor of eight: α and β cannot be told apart"
    return ""
