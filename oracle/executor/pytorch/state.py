"""The pieces of a training by PyTorch's own classes that a checkpoint keeps.

FSDP2 deals a tensor along its first extent in parts of ⌈n/p⌉, so that a part is an interval of its
elements. Ranks that hold the same elements deal them out among them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from oracle.executor.checkpointing.folder import Section
from oracle.executor.checkpointing.pieces import Piece
from oracle.executor.local.parts import deal
from oracle.executor.pytorch.training import Training

SLOTS = {"sgd": (), "momentum": ("momentum_buffer",), "adam": ("exp_avg", "exp_avg_sq")}


class EngineState:
    """The state of a network that an engine has wrapped."""

    def __init__(self, training: Training) -> None:
        self.training, setting = training, training.setting
        self.slots = SLOTS[setting.job.optimizer]
        self.devices, self.device = setting.wire.mesh.size, setting.device
        # under ZeRO-1 the optimizer of this rank's part lies inside
        inner = getattr(training.optimizer, "optim", training.optimizer)
        self._state = inner.state
        if self.slots:
            self._lay_out()

    def _lay_out(self) -> None:
        """Let the optimizer make its moments, all zero, by an update of nothing at no rate."""
        optimizer = self.training.optimizer
        rates = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = 0.0
            for weight in group["params"]:
                weight.grad = torch.zeros_like(weight)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        for group, rate in zip(optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        self.resume(0)

    @property
    def updates(self) -> int:
        return self.training.updates

    def resume(self, updates: int) -> None:
        self.training.updates = updates
        for state in self._state.values():
            if "step" in state:
                state["step"].fill_(updates)

    def pieces_held(self) -> Iterator[Piece]:
        return (piece for piece, _ in self._pieces())

    def pieces_to_save(self) -> Iterator[Piece]:
        for piece, (number, count) in self._pieces():
            begin, end = deal(len(piece.values), count)[number]
            if begin < end:
                first = piece.section.begin
                yield Piece(replace(piece.section, begin=first + begin, end=first + end),
                            piece.values[begin:end])  # fmt: skip

    def _pieces(self) -> Iterator[tuple[Piece, tuple[int, int]]]:
        """All pieces of this rank, with its number among those that hold the same."""
        for network in self.training.networks:
            for op, name, weight in network.weights():
                intervals = json.dumps([[[0, n]] for n in weight.shape])
                begin, same = self._place(weight)
                kinds = {"weights": weight}
                state = self._state.get(weight, {})
                kinds |= {f"slot {i}": state[slot] for i, slot in enumerate(self.slots)
                          if slot in state}  # fmt: skip
                for kind, value in kinds.items():
                    local = value.to_local() if isinstance(value, DTensor) else value
                    flat = local.detach().view(-1)
                    about = Section(op.index, name, intervals, kind, begin, begin + len(flat))
                    alone = self.training.setting.zero == 1 and kind != "weights"
                    if len(flat):
                        yield Piece(about, flat), (0, 1) if alone else same

    def _place(self, weight: Tensor) -> tuple[int, tuple[int, int]]:
        """The first element of this rank's part of a tensor, and who holds the same part."""
        mesh = self.training.setting.wire.mesh
        if not isinstance(weight, DTensor):
            return 0, (mesh.at["data"], mesh.degree("data"))
        begin, number, count = 0, 0, 1
        for i, placed in enumerate(weight.placements):
            place, degree = weight.device_mesh.get_local_rank(i), weight.device_mesh.size(i)
            if placed.is_replicate():
                number, count = number * degree + place, count * degree
            else:
                rows_per_rank = -(-weight.shape[0] // degree)
                begin = min(place * rows_per_rank, weight.shape[0]) * math.prod(weight.shape[1:])
        return begin, (number, count)
