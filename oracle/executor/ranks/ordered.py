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
LOOK = 2.0  # seconds after which a waiting rank says what it waits in and looks at others
_READY, _DATA = 1, 2  # tags of gloo's below


class OrderError(RuntimeError):
    """Calls that NCCL would not bring to an end, or not to the right one."""


def register() -> None:
    """Make the backend known to torch.distributed, which tells it alone of groups of calls."""
    if NAME in dist.Backend.backend_list:
        return
    dist.Backend.register_backend(NAME, _make_group, extended_api=True, devices=["cpu"])
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


def _make_group(options: Any, _: Any) -> Ordered:
    ranks = options.global_ranks_in_group or range(options.group_size)
    return Ordered(options.store, options.group_rank, list(ranks), options.timeout)


@dataclass
class _Call:
    """A call of one rank on a communicator, and whom it still waits for."""

    words: str
    run: Callable[[_Call], None]
    wants: set[tuple[str, int]]  # ("send", "receive" or "all", place) of each
    number: int = 0
    done: threading.Event = field(default_factory=threading.Event)
    error: BaseException | None = None


class _Work(dist._Work):  # type: ignore[misc]  # torch is untyped here
    """The handle of a call that torch.distributed waits for."""

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
        alike = sum(group.ranks == ranks for group in Ordered.every.values())
        self.name = f"{'-'.join(map(str, ranks))}" + (f", number {alike + 1}" if alike else "")
        Ordered.every[self.name] = self
        self.queue: SimpleQueue[_Call] = SimpleQueue()
        self.running: _Call | None = None
        self.calls = [0, 0]  # numbers of calls between two ranks, and of collective calls
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
        return {("all", place) for place in range(len(self.ranks)) if place != self.place}

    # --- who waits for whom --------------------------------------------------------------------

    def wait(self, call: _Call) -> None:
        """Wait until a call has ended, or is seen never to end."""
        looks, before = 0, _Told(dist.get_world_size())
        while not call.done.wait(LOOK):
            looks += 1
            Ordered.board.set(str(self._me), json.dumps([looks, self.name, _running()]))
            board_now, verdict_key = _Told(dist.get_world_size()), _never(self._me, self.name)
            circle = board_now.circle((self._me, self.name))
            if circle and all(board_now.still(before, *waiting) for waiting in circle):
                verdict = "; ".join(board_now.words(*waiting) for waiting in circle[:4])
                for key in {verdict_key, *(_never(*waiting) for waiting in circle)}:
                    Ordered.board.set(key, verdict)  # all ranks of a circle raise the same
            if Ordered.board.check([verdict_key]):
                verdict = Ordered.board.get(verdict_key).decode()
                raise OrderError(f"NCCL would wait for ever: {verdict}")
            if not all(board_now.same(before, *waiting) for waiting in circle or ()):
                before = board_now
        if looks:
            Ordered.board.set(str(self._me), "")
        if call.error is not None:
            raise call.error

    @property
    def _me(self) -> int:
        return self.ranks[self.place]

    # --- calls ---------------------------------------------------------------------------------

    def _alike(self, call: _Call) -> None:
        """Compare a collective call with those of the other ranks."""
        call_mark = torch.tensor([zlib.crc32(call.words.encode()), call.number])
        marks = [torch.empty_like(call_mark) for _ in self.ranks]
        self.gloo.allgather([marks], [call_mark]).wait()
        unlike = next((k for k, mark in enumerate(marks) if not torch.equal(mark, call_mark)), None)
        if unlike is None:
            return
        board, key = Ordered.board, f"{self.name}/{call.number}/"
        board.set(f"{key}{self.place}", call.words)
        their_words = board.get(f"{key}{unlike}").decode()
        raise OrderError(
            f"other calls of one communicator: rank {self._me} is in {call.words}, rank "
            f"{self.ranks[unlike]} in {their_words} (ranks {self.name})"
        )

    def _collective(
        self, name: str, tensors: Sequence[Tensor], run: Callable[[], Any], more: str = ""
    ) -> _Work:
        sizes = " and ".join(map(_shape, tensors))
        words = f"{name} of {sizes}{more}" if sizes else name
        _refuse_gaps(words, tensors)

        def check_and_run(call: _Call) -> None:
            self._alike(call)
            run().wait()

        return self._enqueue(words, check_and_run, self._all)

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

    def _allgather_base(self, gathered: Tensor, part: Tensor, opts: Any = None) -> _Work:
        run = partial(self.gloo._allgather_base, gathered, part)
        return self._collective("allgather", [gathered, part], run)

    def _reduce_scatter_base(self, part: Tensor, full: Tensor, opts: Any = None) -> _Work:
        opts = opts or dist.ReduceScatterOptions()
        run = partial(self.gloo._reduce_scatter_base, part, full, opts)
        return self._collective("reduce-scatter", [part, full], run)

    def alltoall_base(
        self, incoming: Tensor, outgoing: Tensor, out: list[int], into: list[int], opts: Any = None
    ) -> _Work:
        run = partial(self.gloo.alltoall_base, incoming, outgoing, out, into)
        if not out and not into:
            return self._collective("all-to-all", [incoming, outgoing], run)
        # the sizes are those that ranks have agreed on
        _refuse_gaps("uneven all-to-all", [incoming, outgoing])
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
        lanes: dict[tuple[str, int], list[Tensor]] = {}  # in order to one rank, at once to several
        for sends, place, tensor in calls:
            lanes.setdefault(("send" if sends else "receive", place), []).append(tensor)
        phrases = [f"{'send' if sends else 'receive'} of {_shape(tensor)} "
                   f"{'to' if sends else 'from'} rank {self.ranks[place]}"
                   for sends, place, tensor in calls]  # fmt: skip
        words = phrases[0] if len(phrases) == 1 else f"group of {', '.join(phrases)}"
        _refuse_gaps(words, [tensor for _, _, tensor in calls])

        def run(call: _Call) -> None:
            def lane(way: tuple[str, int]) -> None:
                try:
                    self._lane(*way, lanes[way])
                    call.wants.discard(way)
                except BaseException as error:  # other lanes may wait for ever: leave them
                    call.error = call.error or error
                    call.done.set()

            first, *ways = lanes
            pending = [self.lanes.submit(lane, way) for way in ways]
            lane(first)
            for submitted in pending:
                submitted.result()

        return self._enqueue(words, run, set(lanes))

    def _lane(self, how: str, place: int, tensors: Sequence[Tensor]) -> None:
        for tensor in tensors:
            size = torch.tensor([tensor.numel(), tensor.element_size()])
            if how == "receive":
                self.gloo.send([size], place, _READY).wait()
                self.gloo.recv([tensor], place, _DATA).wait()
                continue
            size_there = torch.empty_like(size)
            self.gloo.recv([size_there], place, _READY).wait()
            if not torch.equal(size_there, size):
                raise OrderError(
                    f"rank {self._me} sends {_shape(tensor)} to rank {self.ranks[place]}, which "
                    f"receives {size_there[0]} numbers of {size_there[1]} bytes"
                )
            self.gloo.send([tensor], place, _DATA).wait()


def _never(rank: int, communicator: str) -> str:
    """The key under which it is written that a rank waits for ever on a communicator."""
    return f"never: {rank} among {communicator}"


def _running() -> dict[str, Any]:
    """What runs on each communicator of this rank: words, number, whom it waits for."""
    calls = [(group, group.running) for group in Ordered.every.values()]
    return {group.name: [call.words, call.number,
                         sorted([how, group.ranks[place]] for how, place in set(call.wants))]
            for group, call in calls if call is not None}  # fmt: skip


class _Told:
    """What ranks said they wait in: how often, on which communicator, and all that runs."""

    ANSWER: ClassVar[dict[str, str]] = {"send": "receive", "receive": "send", "all": "all"}

    def __init__(self, ranks: int) -> None:
        board = Ordered.board
        texts = [board.get(str(rank)) if board.check([str(rank)]) else b"" for rank in range(ranks)]
        self.of: list[Any] = [json_of(text.decode() or '[0, "", {}]', "a rank") for text in texts]

    def call(self, rank: int, communicator: str) -> Any:
        """What a rank runs on a communicator; None where nothing is known."""
        return self.of[rank][2].get(communicator)

    def unmet(self, rank: int, communicator: str) -> Iterator[tuple[int, str]]:
        """Ranks that are not in the call of a rank, with the communicator they wait in."""
        words, number, wants = self.call(rank, communicator) or ("", 0, [])
        for how, partner in wants:
            theirs = self.call(partner, communicator)
            meets = theirs is not None and [self.ANSWER[how], rank] in theirs[2]
            if how == "all":
                meets = theirs is not None and theirs[:2] == [words, number]
            if not meets:
                yield partner, communicator if theirs else self.of[partner][1]

    def circle(self, start: tuple[int, str]) -> list[tuple[int, str]]:
        """Ranks of which each waits for the next, the last for the first; empty if none do."""
        path, over = [start], set[tuple[int, str]]()
        while path:
            after = next((wait for wait in self.unmet(*path[-1]) if wait not in over), None)
            if after is None:
                over.add(path.pop())
            elif after in path:
                return path[path.index(after) :]
            else:
                path.append(after)
        return []

    def same(self, before: _Told, rank: int, communicator: str) -> bool:
        """Whether a rank is still in the call in which it was."""
        return bool(self.call(rank, communicator) == before.call(rank, communicator))

    def still(self, before: _Told, rank: int, communicator: str) -> bool:
        """Whether a rank is in the same call and has said so again since."""
        return self.same(before, rank, communicator) and self.of[rank][0] > before.of[rank][0]

    def words(self, rank: int, communicator: str) -> str:
        call = self.call(rank, communicator)
        if call is None:
            return f"rank {rank} is in no call that is known"
        return f"rank {rank} waits in {call[0]}, call {call[1]} among ranks {communicator}"


def _shape(tensor: Tensor) -> str:
    return f"{tensor.numel()} {str(tensor.dtype).removeprefix('torch.')}"


def _refuse_gaps(words: str, tensors: Sequence[Tensor]) -> None:
    if not all(tensor.is_contiguous() for tensor in tensors):
        raise OrderError(f"{words}: NCCL takes buffers without gaps only")
