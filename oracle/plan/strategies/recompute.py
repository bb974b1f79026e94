"""Recomputation: what the backward pass needs is made again instead of kept."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from oracle.models import masks
from oracle.models.model import Model
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.strategies.base import Rule, Strategy, number_of, text_of, words_or

WORDS = ("none", "selective", "full", "operators", "stage", "best")
USUAL = WORDS[:4]
# parts of layers, as Megatron-Core calls them (NVIDIA/Megatron-LM, @d98e8a64
# megatron/core/transformer/transformer_config.py: `recompute_modules`)
MODULES = ("core_attn", "layernorm", "mla_up_proj", "mlp", "moe_act", "shared_experts")
LIGHT = ("layernorm", "mla_up_proj", "moe_act")
MODULE = f"(?:{'|'.join(MODULES)})"


@dataclass(frozen=True)
class Recompute(Strategy):
    """Keep the input of each block, and run its forward pass again on the way back.

        T_comp = D/p Σ (2 FW + BW)             full
        M      = Σ_blocks B|x| + max_block B|kept|

    `selective` makes only the attention core again: few FLOP, most of the bytes where
    scores are kept (5 a s² b of 34 s b h + 5 a s² b a layer). `operators` keeps what the software
    says, what attention of one kernel and every other matrix made or all matrices, and makes the
    rest again. `stage` keeps
    the input of a pipeline's stage alone, `best` as many whole blocks as there is room for.
    `moe_act+layernorm` names parts of layers: what these made is gone once it was used, and made
    again when a layer behind them runs back, from what they were given. What they sent to other
    devices is not sent again.
    """

    mode: Array = words_or(rf"{MODULE}(?:\+{MODULE}){{0,5}}", *WORDS)

    source = "chen2016, §4; korthikanti2022, §5; huang2019, §2.3; jain2020, §4"
    nearness = 9
    bound = ""
    limited_by = ("computation redundancy: forward twice",)
    multiplies = False
    degrees = False
    timing = ("mode",)
    runs = ("mode=selective", "mode=full", "mode=operators", "mode=stage", "mode=best")

    @classmethod
    def tries(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """Those that take no room into account; of a mixture all parts that take few FLOP too."""
        usual = tuple(float(cls.number("mode", word)) for word in USUAL)
        light = [name for name in LIGHT if module_rows(model, name).any()]
        return {"mode": (*usual, *([number_of("+".join(light), WORDS)] if light else []))}

    @classmethod
    def resorts(cls, model: Model) -> dict[str, tuple[float, ...]]:
        """As many units as there is no room for: a search for each plan whose units are unlike."""
        return {"mode": (float(cls.number("mode", "best")),)}

    @classmethod
    def spares(cls, model: Model) -> dict[str, float]:
        return {"mode": cls.number("mode", "full")}

    def limit(self, model: Model, batch: Array) -> Array | float:
        return np.inf

    def clashes(self, axes: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        named = self.word("mode").split("+")
        if len(set(named)) < len(named):
            yield f"`{self.word('mode')}` names a part twice", "+".join(dict.fromkeys(named))

    def rules(self, model: Model, batch: Array, axes: Mapping[str, Any]) -> Iterator[Rule]:
        """A model must have the parts that are made again."""
        for number in parted(self.mode):
            for name in text_of(number, WORDS).split("+"):
                if not module_rows(model, name).any():
                    complaint = f"recompute:{name}: {model.name} has no such part by itself"
                    yield Rule.never(np.asarray(self.mode) == number, complaint)

    def split(self, shard: Shard) -> Shard:
        return shard

    def talk(self, shard: Shard) -> list[Message]:
        return []


NONE, SELECTIVE, FULL, OPERATORS, STAGE, BEST = range(len(WORDS))  # kinds, as plans number them


def parted(modes: Array) -> list[int]:
    """The kinds among these that name parts of layers."""
    if np.max(modes) <= BEST:
        return []
    return [int(mode) for mode in np.unique(modes) if mode > BEST]


def inside(model: Model) -> np.ndarray:
    """Rows of blocks, of which only the input is kept; of a model without any, all rows."""
    return model.blocks


@lru_cache(masks.MODELS)
def share_kept(model: Model) -> Array:
    """Share of what each row makes that `operators` keeps.

    All matrices of a block (AI-Hypercomputer/maxtext, @e591f30c src/maxtext/layers/decoders.py:
    `minimal`); or the first, third, … of them, and attention of one kernel. Products of experts are
    grouped, which are made again, and a router's is not counted
    (pytorch/torchtitan, v0.2.0 torchtitan/distributed/activation_checkpoint.py).
    """
    every = model.kernels.operators == "matrices"
    shares = np.zeros(len(model))
    for segment in model.segments:
        turn = 0
        for i in range(segment.start, segment.stop):
            row = model.rows[i]
            if row.flash and model.blocks[i]:
                shares[i] = 0.0 if every else 1.0
            elif model.weighted[i] and model.blocks[i] and row.kind != "moe":
                sizes = np.array(row.matrices or (1,))
                shares[i] = 1.0 if every else sizes[turn % 2 :: 2].sum() / sizes.sum()
                turn += len(sizes)
    return shares * needed_back(model)


@lru_cache(masks.MODELS)
def needed_back(model: Model) -> Array:
    """Rows whose output a pass back needs, where what it does not need is not made again.

    What the last row before a block's last sum makes is added, and nothing asks for it again.
    """
    needed = np.ones(len(model), bool)
    if model.kernels.remade == "wanted":
        for segment in model.segments:
            row = segment.stop - 1
            while row > segment.start and model.rows[row].kind == "add":
                row -= 1
            needed[row : segment.stop] = ~model.blocks[row : segment.stop]
    return needed


@lru_cache(masks.MODELS)
def module_rows(model: Model, name: str) -> np.ndarray:
    """Rows of blocks that are a part of this name.

    A norm is one by itself where more than the product behind it takes what it made: where it
    alone does, one kernel's pass is both (NVIDIA/TransformerEngine, v2.8 LayerNormLinear).
    """
    if name == "core_attn":
        return np.asarray(masks.attention(model) & model.blocks)
    if name == "layernorm":
        readers = [[model.rows[j] for j, feeds in enumerate(model.feeds) if i in feeds]
                   for i in range(len(model))]  # fmt: skip
        alone = [
            row.kind == "norm" and not row.role and not row.module
            and not (len(takers) == 1 and takers[0].role == "column")
            for row, takers in zip(model.rows, readers, strict=True)
        ]  # fmt: skip
        return np.asarray(np.array(alone) & model.blocks)
    said = model.mask(lambda row: (row.module or row.kind) == name)
    return np.asarray(said & model.blocks)


@lru_cache(masks.MODELS)
def remade_parts(model: Model, mode: int) -> tuple[Array, Array, Array]:
    """Of a kind that names parts: rows made again, of them those whose tensors are gone meanwhile,
    and (rows, rows) whose of these are there while each row runs back.

    Of the core of attention what it took and made stays.
    """
    names = text_of(mode, WORDS).split("+")
    remade, present = np.zeros(len(model)), np.zeros((len(model), len(model)))
    for name in names:
        rows = module_rows(model, name)
        remade = np.maximum(remade, rows)
        if name == "core_attn":
            continue
        for segment in model.segments:
            mine = [i for i in range(segment.start, segment.stop) if rows[i]]
            for run in np.split(mine, np.flatnonzero(np.diff(mine) > 1) + 1) if mine else ():
                for i in range(segment.start, segment.stop):
                    if i in run or set(model.feeds[i]) & {*run.tolist()}:
                        present[i, run] = 1.0
    return remade, remade * ~masks.attention(model), present


def recomputed(model: Model, modes: Iterable[int] = ()) -> dict[int, Array]:
    """Shares of each row's forward pass made again, by the kind: of `best` at most, where the
    room that is left says which units; of those that name parts the ones of `modes`.
    """
    remade = inside(model) * needed_back(model)
    operators = remade * (1.0 - share_kept(model))
    every = np.ones(len(model))
    usual = {SELECTIVE: 1.0 * masks.attention(model), FULL: 1.0 * remade, OPERATORS: operators,
             STAGE: every, BEST: every}  # fmt: skip
    return usual | {mode: remade_parts(model, mode)[0] for mode in modes if mode > BEST}
