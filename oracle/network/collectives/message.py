"""What the devices of a plan say to each other: one kind of exchange that recurs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Message:
    """One kind of exchange that recurs in an iteration, before anything is priced.

    `nbytes` by operation: allreduce, broadcast, reduce: the buffer of one rank; allgather,
    reduce_scatter: the whole gathered or scattered buffer; alltoall: what one rank holds in all;
    sendrecv: bytes to one neighbour; halo: bytes to one neighbour per face.
    """

    what: str  # "gradients", "activations": the line in the report
    op: str  # allreduce reduce_scatter allgather broadcast reduce alltoall sendrecv halo
    nbytes: Any  # of one call; broadcasts to (plans, layers)
    axes: tuple[str, ...]  # names of the mesh axes whose devices form one group
    calls: Any = 1  # how often; broadcasts to (plans, layers)
    when: str = "step"  # each row's "forward"/"backward", each "unit forward"/"unit backward",
    #                     once a "step" with the bytes of a stage added up, or at a stage "border"
    hides: str = ""  # under which it may: the "forward" or "backward" pass, its own row's "data" or
    #                   "weight" gradient, or nothing; a knob `overlap` of its axis forbids it
    line: tuple[Any, Any] | None = None  # of its one axis only devices in line talk: how many,
    #                                    and how far apart along the axis; (plans, 1) each
    once: bool = False  # of the copies of a folded row only the last one says it
