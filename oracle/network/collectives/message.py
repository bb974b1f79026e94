"""One kind of communication that recurs in a training iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from oracle.network.arrays import Number


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One kind of communication that recurs in an iteration, before it is priced.

    `nbytes` by operation: allreduce, broadcast, reduce: the buffer of one rank; allgather,
    reduce_scatter: the whole gathered or scattered buffer; alltoall: what one rank holds in all;
    sendrecv: bytes to one neighbour; halo: bytes to one neighbour per face; copy: bytes one way;
    sparse_allreduce: values and indices that one rank selected.
    """

    what: str  # "gradients", "activations": the line in the report
    op: str  # allreduce reduce_scatter allgather broadcast reduce alltoall sendrecv halo
    #          sparse_allreduce
    nbytes: Number  # of one call; broadcasts to (plans, layers)
    axes: tuple[str, ...]  # names of the mesh axes whose devices form one group
    calls: Number | NDArray[Any] = 1  # how often; broadcasts to (plans, layers)
    when: str = "step"  # each row's "forward"/"backward", each "unit forward"/"unit backward",
    #                     once a "step" with the bytes of a stage added up, or at a stage "border"
    hides: str = ""  # what it may overlap: the "forward" or "backward" pass, the "own forward",
    #                  "own data" or "own weight" product of the row that sends, or nothing; a knob
    #                  `overlap` of its axis forbids it
    least_exposed: float = 0.0  # part of its seconds that shows beside its row's product, at least
    line: tuple[Number, Number] | None = None  # only devices in line along its one axis talk:
    #                                            how many, and how far apart; (plans, 1) each
    share: Number | NDArray[Any] = 1.0  # of the bytes that is sent, (plans, 1)
    over: str = "mesh"  # or a link of the device's own: "host"
    chosen: bool = False  # by as many units as the room on a device leaves no other choice
    once: bool = False  # sent by the last copy of a folded row only
    by: str = ""  # the algorithm, where the plan says so
    # rows whose products alone it may overlap, by the product: a field of `kernels.Passes`
    under: tuple[tuple[str, NDArray[Any]], ...] = ()
    paired: bool = False  # whether it hides only while another micro-batch runs the other way
    processors: int = 0  # of the device, that send it
    # bytes of what is sent here in a shorter form, by which it is cut in pieces
    stands_for: Number | None = None
    sized: Callable[[NDArray[Any]], NDArray[Any]] | None = None  # times that, by the group's size
    # share of the bytes that is sent, by the number of nodes that its group lies on (of devices,
    # if on one); (plans, 1) -> (plans, layers)
    thinned: Callable[[NDArray[Any]], NDArray[Any]] | None = None

    @property
    def overlapped_product(self) -> str:
        """The product of its row that the message may overlap: a field of `kernels.Passes`."""
        return self.hides.removeprefix("own ") if self.hides.startswith("own ") else ""
