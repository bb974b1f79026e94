"""Reads the samples of one rank, and passes them on to the ranks that share them.

Of the ranks that share a sample one reads it and hands to each of the others what that works on;
in the mode `spatial` each rank of a grid reads its own part. Ranks of later stages of a pipeline
need no samples. Targets are made up: nobody reads them.
"""

from __future__ import annotations

import os
import random
import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import Tensor

from oracle.executor.loading import samples
from oracle.executor.loading.loader import Loader
from oracle.executor.loading.sources import MODES, Cached, Place, Staged
from oracle.executor.loading.store import WORD, Store
from oracle.executor.loading.throttle import Throttle, played_of
from oracle.executor.local.graph import OperationGraph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.local.parts import Interval, deal
from oracle.executor.measure.hardware import available
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.supported import NotSupported
from oracle.models.layers import Embedding
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

SPLITS = ("data", "sharded")  # axes along which ranks have samples of their own
ADDRESS = 64  # bytes of a host's name with its port
FREE = 4  # ranks keep samples in one of so many parts of the free memory, unless told


@dataclass(frozen=True)
class Data:
    """Which data a run reads, and how."""

    folder: str
    mode: str = "shared"
    threads: int = 4
    prefetch: int = 2  # batches read ahead
    shuffle: str = "global"
    cache: float = 0.0  # bytes of memory for the mode `cached`; 0: a part of what is free
    stage: str = ""  # folder on a node's own disks
    made: Mapping[str, Any] | None = None  # fields of `samples.Made`: how the folder is filled
    played: Sequence[Any] | None = None  # fields of `throttle.Played`: storage that is played

    @property
    def question_fields(self) -> dict[str, Any]:
        """The fields that results depend on; folders are none of them."""
        return {"mode": self.mode, "threads": self.threads, "prefetch": self.prefetch,
                "shuffle": self.shuffle, "cache": self.cache,
                "made": dict(self.made) if self.made else None,
                "played": list(self.played) if self.played else None}  # fmt: skip


@dataclass(frozen=True)
class Share:
    """Which samples of a batch a rank works on, and how each of them is cut."""

    mesh: DeviceMesh
    graph: OperationGraph
    batch: int
    samples: Interval
    grid: Sequence[int] = ()  # parts of a sample along its extents; () where it is whole

    @classmethod
    def of_local_model(cls, local: LocalModel) -> Share:
        """The share of the native engine's part of a model."""
        grid = local.cuts.grid if local.spaced(-1) else ()
        return cls(local.mesh, local.graph, local.batch, local.samples, grid)


class SampleReader:
    """Reads the samples of a rank, step by step, into the batch that the trainer cuts."""

    def __init__(
        self, rank: Rank, data: Data, share: Share, x: Tensor, seed: int, before: int = 0
    ) -> None:
        self.rank, self.data, self.share, self.x = rank, data, share, x
        self.before = before  # batches before the checkpoint that the training goes on from
        self.mesh, self.seed = share.mesh, seed
        self.shape = tuple(x.shape[1:])
        self.slabs = data.mode == "spatial" and self.mesh.degree("spatial") > 1
        if self.slabs and not share.grid:
            raise NotSupported("`--reading spatial` where the plan does not cut the input")
        sharing = [axis for axis in self.mesh.degrees if axis not in (*SPLITS, "pipeline")]
        sharing_axes = [axis for axis in sharing if not (self.slabs and axis == "spatial")]
        self.group = self.mesh.group(sharing_axes).members
        self.needs = self.mesh.taking_part and self.mesh.at["pipeline"] == 0
        self.reads = self.needs and self.group[0] == rank.rank
        self.begin, self.end = share.samples
        in_folder = samples.of_folder(Path(data.folder))
        self.found = samples.of_shape(in_folder, self.shape)
        if len(self.found) < self.share.batch:
            problem = f"{len(self.found)} samples, and a batch of {self.share.batch}"
            raise refusal("data", problem, "more samples, or a smaller --batch")
        if self.slabs and any(not sample.dtype for sample in self.found.samples):
            raise NotSupported("`--reading spatial` of files that are no arrays (.npy)")
        self.readers = [r for r in range(self.mesh.size) if self._reads(r, sharing_axes)]
        first = {**self.mesh.at, **dict.fromkeys((*sharing, "pipeline"), 0)}
        # ranks with samples of their own, and the one that this rank shares samples with
        distinct = [r for r in range(self.mesh.size) if self._reads(r, sharing)]
        self.groups, self.number = len(distinct), distinct.index(self.mesh.rank_at(first))
        self.loader: Loader[tuple[Tensor, int]] | None = None
        self._known: tuple[int, list[int]] | None = None  # an epoch, and its order of samples
        self._prepare()

    def _reads(self, rank: int, sharing_axes: Sequence[str]) -> bool:
        coordinates = self.mesh.coordinates(rank)
        return coordinates["pipeline"] == 0 and all(coordinates[axis] == 0 for axis in sharing_axes)

    def _prepare(self) -> None:
        """Stage what the mode stages, meet the other ranks, and begin to read ahead."""
        rank, data = self.rank, self.data
        played = played_of(data.played)
        throttle = Throttle(played, rank.attempt, rank.rank, rank.size)
        number = self.readers.index(rank.rank) if self.reads else 0
        stage = Path(data.stage or f"{rank.attempt}/stage") / f"rank-{rank.rank:05d}"
        place = Place(number, len(self.readers), stage, data.shuffle == "global")
        box = self.box(rank.rank) if self.slabs else None
        self.source = MODES[data.mode](self.found, throttle, place, box)
        if isinstance(self.source, Cached):
            self.source.room = data.cache or available() / FREE / rank.ranks_per_host
        began = time.perf_counter()
        if self.reads:
            self.source.prepare(self._report_staging)
        if self.source.stores:
            self._meet(throttle)
        rank.agree(0)
        if self.reads:
            self.source.share(self._report_staging)
        rank.agree(0)
        self.staging = time.perf_counter() - began
        if self.reads:
            self.loader = Loader(self.fetch, self._next, data.threads, data.prefetch)

    def _report_staging(self, sample: int) -> None:
        if sample % 64 == 0:
            self.rank.enter("staging", f"sample {sample}", sample)

    def _meet(self, throttle: Throttle) -> None:
        """Open a store on each rank that reads, and tell all where it listens."""
        rank = self.rank
        word = torch.tensor(list(secrets.token_bytes(WORD)), dtype=torch.uint8)
        dist.broadcast(word, 0, group=rank.control)
        alone = len(set(rank.hosts)) == 1
        text, store = b"", None
        if self.reads and isinstance(self.source, Staged):
            store = Store(self.source.sample_for_others, throttle, bytes(word.tolist()), alone)
            self.source.store = store
            host = "127.0.0.1" if alone else os.environ.get("ORACLE_ADDRESS") or os.uname().nodename
            text = f"{host} {store.port}".encode()[:ADDRESS]
        packed = torch.frombuffer(bytearray(text.ljust(ADDRESS)), dtype=torch.uint8)
        texts = [torch.empty(ADDRESS, dtype=torch.uint8) for _ in range(rank.size)]
        dist.all_gather(texts, packed, group=rank.control)
        peers = [bytes(texts[r].tolist()).decode().split() for r in self.readers]
        if store:
            store.meet([(host, int(port)) for host, port in peers])

    # --- which samples -------------------------------------------------------------------

    def _next(self, number: int) -> list[int]:
        return self.batch(self.before + number)

    def batch(self, step: int) -> list[int]:
        """The samples of this rank in a step: another order each epoch, the same on every rank."""
        count, size = len(self.found), self.share.batch
        if self.data.shuffle == "global":
            epoch, position = divmod(step, max(1, count // size))
            order = self._order(range(count), epoch)
            return [order[(position * size + k) % count] for k in range(self.begin, self.end)]
        kept_here = range(*deal(count, self.groups)[self.number])
        samples_here = self.end - self.begin
        epoch, position = divmod(step, max(1, len(kept_here) // samples_here))
        order = self._order(kept_here, epoch)
        return [order[(position * samples_here + k) % len(order)] for k in range(samples_here)]

    def _order(self, numbers: range, epoch: int) -> list[int]:
        if self._known is None or self._known[0] != epoch:
            order = list(numbers)
            random.Random(1_000_003 * self.seed + epoch).shuffle(order)
            self._known = (epoch, order)
        return self._known[1]

    # --- which parts ---------------------------------------------------------------------

    def box(self, rank: int) -> list[Interval]:
        """The part of a sample's extents that a rank works on."""
        extents = self.shape[1:]
        grid = self.share.grid
        if not grid:
            return [(0, n) for n in extents]
        index, place = self.mesh.coordinates(rank)["spatial"], list[int]()
        for q in reversed(grid):
            index, coordinate = divmod(index, q)
            place.insert(0, coordinate)
        parts = zip(extents, grid, place, strict=False)
        return [deal(n, q)[i] for n, q, i in parts]

    def _part(self, values: Tensor, rank: int) -> Tensor:
        """The part of complete samples that a rank works on."""
        for i, (low, high) in enumerate(self.box(rank) if self.share.grid else ()):
            values = values.narrow(2 + i, low, high - low)
        return values

    # --- a step --------------------------------------------------------------------------

    def load(self) -> dict[str, float]:
        """Read the samples of the next step; the seconds waited, files and bytes read."""
        if not self.needs:
            return {"seconds": 0.0, "files": 0, "bytes": 0}
        part = self._part(self.x[self.begin : self.end], self.rank.rank)
        files, nbytes = 0, 0
        if self.loader is not None:
            read_samples, waited = self.loader.take()
            files, nbytes = len(read_samples), sum(count for _, count in read_samples)
            values = torch.stack([values for values, _ in read_samples])
            part.copy_(values if self.slabs else self._part(values, self.rank.rank))
            began = time.perf_counter()
            self._pass_on(part if self.slabs else values)
            waited += time.perf_counter() - began
        else:
            received = torch.empty(part.shape, dtype=part.dtype)
            began = time.perf_counter()
            dist.recv(received, self.group[0], group=self.rank.control)
            waited = time.perf_counter() - began
            part.copy_(received)
        return {"seconds": waited, "files": files, "bytes": nbytes}

    def _pass_on(self, values: Tensor) -> None:
        parts = [(values if self.slabs else self._part(values, peer)).contiguous()
                 for peer in self.group[1:]]  # fmt: skip
        throttle = self.source.throttle
        sent = []
        for part, peer in zip(parts, self.group[1:], strict=True):
            throttle.sent(part.numel() * part.element_size())
            sent.append(dist.isend(part, peer, group=self.rank.control))
        for send in sent:
            if send is not None:
                send.wait()

    def fetch(self, number: int) -> tuple[Tensor, int]:
        """Read a sample, or a part of it, as numbers of the model; with its bytes."""
        content = self.source.fetch(number)
        extents = [high - low for low, high in self.box(self.rank.rank)] if self.slabs else []
        shape = (*self.shape[: len(self.shape) - len(extents)], *extents)
        values = torch.tensor(samples.array(self.found.samples[number], content, shape))
        first = self.share.graph.operations[0].layer
        if isinstance(first, Embedding):
            values = values * first.vocab if values.is_floating_point() else values
            values = values.long() % first.vocab
        return values.to(self.x.dtype), len(content)

    def close(self) -> None:
        """End the threads; remove what was staged, once no rank asks for it any more."""
        if self.loader is not None:
            self.loader.close()
        self.rank.agree(0)
        self.source.close()
