"""What ranks tell each other when they meet: host, device and versions, which must match."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from oracle.executor.ranks.world import WorldError, host_name
from oracle.spec.files import json_of
from oracle.spec.version import __version__

if TYPE_CHECKING:
    import torch.distributed as dist

_BYTES = 512
ALIKE = ("torch", "oracle", "nccl")


@dataclass(frozen=True, slots=True)
class Peer:
    """One rank, as it describes itself."""

    host: str
    device: str = ""  # the identity of its accelerator, empty without one
    torch: str = ""
    oracle: str = __version__
    nccl: str = ""


def device_index(local: int, visible: int) -> int:
    """Which of the accelerators that a task sees is the task's.

    A launcher shows a task its own accelerator alone, or those of all tasks of the host.

    >>> device_index(5, 1), device_index(5, 8)
    (0, 5)
    """
    if visible == 0:
        raise WorldError("this task sees no GPU: ask the launcher for one (--gpus-per-task=1)")
    if visible > 1 and local >= visible:
        shortage = f"the task of local rank {local} sees {visible} GPUs"
        raise WorldError(f"{shortage}: start as many tasks a host as there are GPUs")
    return local if visible > 1 else 0


def me(backend: str) -> Peer:
    """The description that this rank gives of itself."""
    import torch

    host = host_name(os.environ)
    if backend != "nccl":
        return Peer(host[:64], torch=torch.__version__)
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    identity = str(getattr(device, "uuid", ""))
    return Peer(host[:64], identity, torch.__version__, nccl=str(torch.cuda.nccl.version()))


def meet(peer: Peer, size: int, group: dist.ProcessGroup) -> list[Peer]:
    """The descriptions of all ranks, sent as bytes: objects would travel as pickles."""
    import torch
    import torch.distributed as dist

    text = json.dumps(asdict(peer)).encode().ljust(_BYTES)
    packed = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    texts = [torch.empty(_BYTES, dtype=torch.uint8) for _ in range(size)]
    dist.all_gather(texts, packed, group=group)
    return [Peer(**json_of(bytes(bytes_of.tolist()).decode(), "a rank")) for bytes_of in texts]


def refuse_unlike(peers: Sequence[Peer]) -> None:
    """Refuse ranks of different versions, and two ranks on one device."""
    first = peers[0]
    for rank, peer in enumerate(peers):
        for name in ALIKE:
            ours, theirs = getattr(first, name), getattr(peer, name)
            if ours != theirs:
                raise WorldError(
                    f"rank 0 on {first.host} has {name} {ours}, rank {rank} on {peer.host} has "
                    f"{theirs}: install the same on all hosts"
                )
    rank_on_device: dict[tuple[str, str], int] = {}
    for rank, peer in enumerate(peers):
        earlier = rank_on_device.setdefault((peer.host, peer.device), rank)
        if peer.device and earlier != rank:
            raise WorldError(
                f"ranks {earlier} and {rank} on {peer.host} have the same GPU: start one rank a GPU"
            )
