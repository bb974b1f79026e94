"""A backend for tests: gloo on CPUs, held to the order that NCCL documents.

NCCL runs the calls of a communicator one after the other, as its rank made them. A send ends when
its receive runs, unless both ranks have them in groups (`batch_isend_irecv`), whose calls go on
without each other. All ranks make the same collective calls in the same order, and meet in a
communicator's first. Tags mean nothing, nobody receives from whoever comes first, buffers have no
gaps [ncclguide; torchnccl]. What breaks this hangs on NCCL and mostly passes on gloo; here it
fails within seconds, and the message names two ranks and what they wait in.

Calls of a communicator run in a thread, as they would on a stream. Before its data a receiver
sends word that it is there, and collectives compare what they are called for.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from queue import SimpleQueue
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from oracle.spec.files import json_of

NAME = "ordered"
LOOK = 2.0  # seconds without an end, after which a rank says what it waits in and looks at others
_READY, _DATA = 1, 2  # tags of gloo's below


class OrderError(RuntimeError):
    """Calls that NCCL would not bring to an end, or not to the right one."""


def register() -> None:
    """Make the backend known to torch.distributed; groups of calls are told to it alone."""
    if NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _made, extended_api=True, devices=["cpu"])
    plain = dist.batch_isend_irecv

    def batch_isend_irecv(calls: list[dist.P2POp]) -> list[Any]:
        # torch tells of a group only the backends that are written in C++
        group = calls[0].group if calls else None
        if not isinstance(group, Ordered):
            return list(plain(calls))
        with group.grouped() as works:
            plain(calls)
        return works

    dist.batch_isend_irecv = distributed_c10d.batch_isend_irecv = batch_isend_irecv


def _made(options: Any, _: Any) -> Ordered:
    ranks = options.global_ranks_in_group or range(options.group_size)
    return Ordered(options.store, options.group_rank, list(ranks), options.timeout)


@dataclass
class _Call:
    """A call of one rank on a communicator, and whom it still waits for."""

    words: str
    run: Callable[[_Call], None]
    wants: set[tuple[str, int]]  # how ("send", "receive", "all"), and the place
    number: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class _Work(dist._Work):  # type: ignore[misc]  # torch is untyped here
    """What torch.distributed waits for."""

    def __init__(self, group: Ordered, call: _Call) -> None:
        super().__init__()
        self.group, self.call = group, call

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        self.group.wait(self.call)
        return True

    def is_completed(self) -> bool:
        return self.call.done.is_set()


class Ordered(dist.ProcessGroup):  # type: ignore[misc]
    """One communicator, as one rank sees it."""

    every: ClassVar[dict[str, Ordered]] = {}  # of this process
    lanes: ClassVar[ThreadPoolExecutor] = ThreadPoolExecutor(64)  # of the calls of a group
    board: ClassVar[Any] = None  # a store in which ranks say what they wait in

    def __init__(self, store: Any, place: int, ranks: list[int], timeout: timedelta) -> None:
        super().__init__(place, len(ranks))
        self.place, self.ranks = place, ranks
        Ordered.board = Ordered.board or dist.PrefixStore("waiting", store)
        self.gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), place, len(ranks),
                                          timeout)  # fmt: skip
        alike = sum(other.ranks == ranks for other in Ordered.every.values())
        self.name = f"{'-'.join(map(str, ranks))}" + (f", number {alike + 1}" if alike else "")
        Ordered.every[self.name] = self
        self.queue: SimpleQueue[_Call] = SimpleQueue()
        self.running: _Call | None = None
        self.calls = [0, 0]  # between two ranks, collective
        self.met = False
        self.opened: list[tuple[bool, int, Tensor]] | None = None  # calls of an open group
        threading.Thread(target=self._work, daemon=True).start()

    # --- the stream --------------------------------------------------------------------------

    def _work(self) -> None:
        torch.set_grad_enabled(False)
        while True:
            self.running = call = self.queue.get()
            try:
                call.run(call)
            except BaseException as error:  # the rank that waits raises it
                call.error = error
            call.done.set()
            self.running = None

    def _enqueue(
        self, words: str, run: Callable[[_Call], None], wants: set[tuple[str, int]]
    ) -> _Work:
        if not self.met:  # NCCL makes the communicator, for which all ranks must come
            self.met = True
            first = _Call("the first call of a communicator", self._alike, self._all)
            self.queue.put(first)
            self.wait(first)
        kind = int(wants <= self._all)
        self.calls[kind] += 1
        call = _Call(words, run, wants, self.calls[kind])
        self.queue.put(call)
        return _Work(self, call)

    @property
    def _all(self) -> set[tuple[str, int]]:
        return {("all", at) for at in range(len(self.ranks)) if at != self.place}

    # --- who waits for whom --------------------------------------------------------------------

    def wait(self, call: _Call) -> None:
        """Until a call has ended, or is seen never to end."""
        looks, before = 0, _Told(dist.get_world_size())
        while not call.done.wait(LOOK):
            looks += 1
            Ordered.board.set(str(self._me), json.dumps([looks, self.name, _running()]))
            told, mine = _Told(dist.get_world_size()), _never(self._me, self.name)
            circle = told.circle((self._me, self.name))
            if circle and all(told.still(before, *at) for at in circle):
                said = "; ".join(told.words(*at) for at in circle[:4])
                for key in {mine, *(_never(*at) for at in circle)}:
                    Ordered.board.set(key, said)  # who sees it first says nothing anew
            if Ordered.board.check([mine]):
                said = Ordered.board.get(mine).decode()
                raise OrderError(f"NCCL would wait for ever: {said}")
            if not all(told.same(before, *at) for at in circle or ()):
                before = told
        if looks:
            Ordered.board.set(str(self._me), "")
        if call.error is not None:
            raise call.error

    @property
    def _me(self) -> int:
        return self.ranks[self.place]

    # --- calls ---------------------------------------------------------------------------------

    def _alike(self, call: _Call) -> None:
        """Hold a collective call against those of the other ranks."""
        mine = torch.tensor([zlib.crc32(call.words.encode()), call.number])
        heard = [torch.empty_like(mine) for _ in self.ranks]
        self.gloo.allgather([heard], [mine]).wait()
        other = next((k for k, one in enumerate(heard) if not torch.equal(one, mine)), None)
        if other is None:
            return
        board, key = Ordered.board, f"{self.name}/{call.number}/"
        board.set(f"{key}{self.place}", call.words)
        theirs = board.get(f"{key}{other}").decode()
        raise OrderError(
            f"other calls of one communicator: rank {self._me} is in {call.words}, rank "
            f"{self.ranks[other]} in {theirs} (ranks {self.name})"
        )

    def _collective(
        self, name: str, tensors: Sequence[Tensor], run: Callable[[], Any], more: str = ""
    ) -> _Work:
        sizes = " and ".join(map(_shape, tensors))
        words = f"{name} of {sizes}{more}" if sizes else name
        _whole(words, tensors)

        def both(call: _Call) -> None:
            self._alike(call)
            run().wait()

        return self._enqueue(words, both, self._all)

    def allreduce(self, tensors: list[Tensor], opts: Any = None) -> _Work:
        opts = opts or dist.AllreduceOptions()
        more = next(f" by {name}" for name, op in dist.ReduceOp.RedOpType.__members__.items()
                    if opts.reduceOp == op)  # fmt: skip
        return self._collective(
            "allreduce", tensors, partial(self.gloo.allreduce, tensors, opts), more
        )

    def broadcast(self, tensors: list[Tensor], opts: Any = None) -> _Work:
        more = f" from {self.ranks[opts.rootRank]}"
        return self._collective(
            "broadcast", tensors, partial(self.gloo.broadcast, tensors, opts), more
        )

    def barrier(self, opts: Any = None) -> _Work:
        return self._collective("barrier", [], self.gloo.barrier)

    def _allgather_base(self, whole: Tensor, part: Tensor, opts: Any = None) -> _Work:
        run = partial(self.gloo._allgather_base, whole, part)
        return self._collective("allgather", [whole, part], run)

    def _reduce_scatter_base(self, part: Tensor, whole: Tensor, opts: Any = None) -> _Work:
        opts = opts or dist.ReduceScatterOptions()
        run = partial(self.gloo._reduce_scatter_base, part, whole, opts)
        return self._collective("reduce-scatter", [part, whole], run)

    def alltoall_base(
        self, made: Tensor, given: Tensor, out: list[int], into: list[int], opts: Any = None
    ) -> _Work:
        run = partial(self.gloo.alltoall_base, made, given, out, into)
        if not out and not into:
            return self._collective("all-to-all", [made, given], run)
        _whole("uneven all-to-all", [made, given])  # of as many numbers as ranks agree on
        return self._collective("uneven all-to-all", [], run)

    all_gather_single, reduce_scatter_single = _allgather_base, _reduce_scatter_base
    all_to_all_single = alltoall_base

    # --- between two ranks ---------------------------------------------------------------------

    def send(self, tensors: list[Tensor], to: int, tag: int = 0) -> _Work:
        return self._single((True, to, tensors[0]))

    def recv(self, tensors: list[Tensor], source: int, tag: int = 0) -> _Work:
        return self._single((False, source, tensors[0]))

    def recv_anysource(self, *_: Any) -> _Work:
        raise OrderError("NCCL receives from a named rank only")

    def _single(self, call: tuple[bool, int, Tensor]) -> _Work:
        if self.opened is not None:
            self.opened.append(call)
            return _Work(self, _Call("", lambda _: None, set()))
        return self._together([call])

    @contextmanager
    def grouped(self) -> Iterator[list[_Work]]:
        """Take the sends and receives inside as one call, whose work is in the list at the end."""
        works: list[_Work] = []
        self.opened = []
        try:
            yield works
            works.append(self._together(self.opened))
        finally:
            self.opened = None

    def _together(self, calls: Sequence[tuple[bool, int, Tensor]]) -> _Work:
        lanes: dict[tuple[str, int], list[Tensor]] = {}  # to one rank in order, to others at once
        for sends, other, tensor in calls:
            lanes.setdefault(("send" if sends else "receive", other), []).append(tensor)
        said = [f"{'send' if sends else 'receive'} of {_shape(tensor)} "
                f"{'to' if sends else 'from'} rank {self.ranks[other]}"
                for sends, other, tensor in calls]  # fmt: skip
        words = said[0] if len(said) == 1 else f"group of {', '.join(said)}"
        _whole(words, [tensor for _, _, tensor in calls])

        def run(call: _Call) -> None:
            def lane(way: tuple[str, int]) -> None:
                try:
                    self._lane(*way, lanes[way])
                    call.wants.discard(way)
                except BaseException as error:  # others may wait for ever: do not wait for them
                    call.error = call.error or error
                    call.done.set()

            first, *others = lanes
            left = [self.lanes.submit(lane, way) for way in others]
            lane(first)
            for one in left:
                one.result()

        return self._enqueue(words, run, set(lanes))

    def _lane(self, how: str, other: int, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            size = torch.tensor([tensor.numel(), tensor.element_size()])
            if how == "receive":
                self.gloo.send([size], other, _READY).wait()
                self.gloo.recv([tensor], other, _DATA).wait()
                continue
            wanted = torch.empty_like(size)
            self.gloo.recv([wanted], other, _READY).wait()
            if not torch.equal(wanted, size):
                raise OrderError(
                    f"rank {self._me} sends {_shape(tensor)} to rank {self.ranks[other]}, which "
                    f"receives {wanted[0]} numbers of {wanted[1]} bytes"
                )
            self.gloo.send([tensor], other, _DATA).wait()


def _never(rank: int, here: str) -> str:
    """Where it is written that a rank waits for ever on a communicator, and for whom."""
    return f"never: {rank} among {here}"


def _running() -> dict[str, Any]:
    """What runs on each communicator of this rank: words, number, whom it waits for."""
    calls = [(group, group.running) for group in Ordered.every.values()]
    return {group.name: [call.words, call.number,
                         sorted([how, group.ranks[at]] for how, at in set(call.wants))]
            for group, call in calls if call is not None}  # fmt: skip


class _Told:
    """What ranks have said they wait in: how often so, on which communicator, all that runs."""

    ANSWER: ClassVar[dict[str, str]] = {"send": "receive", "receive": "send", "all": "all"}

    def __init__(self, ranks: int) -> None:
        board = Ordered.board
        texts = [board.get(str(rank)) if board.check([str(rank)]) else b"" for rank in range(ranks)]
        self.of: list[Any] = [json_of(text.decode() or '[0, "", {}]', "a rank") for text in texts]

    def call(self, rank: int, here: str) -> Any:
        """What a rank runs on a communicator; None where nothing is known."""
        return self.of[rank][2].get(here)

    def unmet(self, rank: int, here: str) -> Iterator[tuple[int, str]]:
        """Others that are not in the call of a rank, and the communicator they wait in."""
        words, number, wants = self.call(rank, here) or ("", 0, [])
        for how, other in wants:
            theirs = self.call(other, here)
            meets = theirs is not None and [self.ANSWER[how], rank] in theirs[2]
            if how == "all":
                meets = theirs is not None and theirs[:2] == [words, number]
            if not meets:
                yield other, here if theirs else self.of[other][1]

    def circle(self, at: tuple[int, str]) -> list[tuple[int, str]]:
        """Ranks of which each waits for the next, the last for the first; empty if none do."""
        path, over = [at], set[tuple[int, str]]()
        while path:
            after = next((one for one in self.unmet(*path[-1]) if one not in over), None)
            if after is None:
                over.add(path.pop())
            elif after in path:
                return path[path.index(after) :]
            else:
                path.append(after)
        return []

    def same(self, before: _Told, rank: int, here: str) -> bool:
        """Is a rank in the call in which it was?"""
        return bool(self.call(rank, here) == before.call(rank, here))

    def still(self, before: _Told, rank: int, here: str) -> bool:
        """… and has it said so again since?"""
        return self.same(before, rank, here) and self.of[rank][0] > before.of[rank][0]

    def words(self, rank: int, here: str) -> str:
        call = self.call(rank, here)
        if call is None:
            return f"rank {rank} is in no call that is known"
        return f"rank {rank} waits in {call[0]}, call {call[1]} among ranks {here}"


def _shape(tensor: Tensor) -> str:
    return f"{tensor.numel()} {str(tensor.dtype).removeprefix('torch.')}"


def _whole(words: str, tensors: Sequence[Tensor]) -> None:
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise OrderError(f"{words}: NCCL takes buffers without gaps only")
