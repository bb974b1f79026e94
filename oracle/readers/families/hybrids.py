"""Language models of state-space layers, alone (Mamba-2) or with attention (Nemotron-H)."""

from __future__ import annotations

from typing import Any

from oracle.readers.config_json import Config
from oracle.readers.families.base import family, length
from oracle.readers.families.parts import Layer, attention, dense, mlp, norm, stack

LONGEST = 8  # layers that come in turn


@family("mamba2")
def _mamba2(config: Config) -> dict[str, Any]:
    """Return layers of a norm and a mixer, and one table for input and output words."""
    hidden, layers = config.required("hidden"), config.required("layers")
    vocab, tokens = config.required("vocab"), length(config)
    wide = config.integer("head_dim", default=64) or 64
    fewest = max(1, (config.integer("expand", default=2) or 2) * hidden // wide)
    mixer = _mixer(config, config.integer("num_heads", default=fewest) or fewest, wide, "n_groups")
    tied: Layer = {"tied": True} if config.flag("tie_word_embeddings") else {}
    return {"input": [1, tokens], "layers": [
        {"embedding": {"vocab": vocab, "hidden": hidden}},
        stack(layers, [mixer], "rms"), norm("rms"),
        dense(vocab, bias=False, role="vocab", **tied), "loss",
    ]}  # fmt: skip


@family("nemotron_h")
def _nemotron_h(config: Config) -> dict[str, Any]:
    """Return layers by a pattern: M state-space, * attention without positions, - an MLP."""
    hidden, vocab, heads = (config.required(size) for size in ("hidden", "vocab", "heads"))
    pattern = config.text("hybrid_override_pattern")
    if not pattern or set(pattern) - set("M*-"):
        complaint = "a pattern of layers is wanted: M state-space, * attention, - MLP"
        config.fault("hybrid_override_pattern", complaint)
        return {}
    wide = config.optional("width")
    attention_layers = attention(
        heads, kv_heads=config.optional("kv_heads"), causal=True, bias=False,
        width=None if wide is None or wide * heads == hidden else wide,
    )  # fmt: skip
    inner = config.integer("mamba_num_heads", default=128) or 128
    parts = {
        "M": _mixer(config, inner, config.integer("mamba_head_dim", default=64) or 64, "n_groups"),
        "*": attention_layers, "-": mlp(config.required("ffn"), activation="relu", bias=False),
    }  # fmt: skip
    config.notes.append("its squared ReLU is a ReLU here")
    tied: Layer = {"tied": True} if config.flag("tie_word_embeddings") else {}
    return {"input": [1, length(config)], "layers": [
        {"embedding": {"vocab": vocab, "hidden": hidden}},
        *(stack(times, [parts[kind] for kind in turn], "rms") for turn, times in turns(pattern)),
        norm("rms"), dense(vocab, bias=False, role="vocab", **tied), "loss",
    ]}  # fmt: skip


def _mixer(config: Config, heads: int, width: int, groups: str) -> list[Layer]:
    """Return Mamba-2's mixer, by the names of both families."""
    state = config.integer("state_size", "ssm_state_size", default=128) or 128
    shared = config.integer(groups, default=8) or 1
    fields = {"width": width, "state": state, "groups": shared,
              "kernel": config.integer("conv_kernel", default=4) or 4,
              "chunk": config.integer("chunk_size", default=256) or 256}  # fmt: skip
    return [{"scan": {"name": "scan", "heads": heads, **fields}}]


def turns(pattern: str) -> list[tuple[str, int]]:
    """Return a pattern as runs of recurring parts, with the count of each.

    >>> turns("M-M-M-M*-M-M-")
    [('M-', 3), ('M*', 1), ('-M', 2), ('-', 1)]
    """
    runs: list[tuple[str, int]] = []
    while pattern:
        best, times = pattern[0], 1
        for size in range(1, LONGEST + 1):
            turn, count = pattern[:size], 1
            while pattern.startswith(turn, count * size):
                count += 1
            if count > 1 and count * size > len(best) * times:
                best, times = turn, count
        if times == 1:  # up to where something begins to recur
            size = next((i for i in range(1, len(pattern)) if any(
                pattern.startswith(pattern[i : i + n], i + n) for n in range(1, LONGEST + 1)
                if len(pattern) >= i + 2 * n)), len(pattern))  # fmt: skip
            best = pattern[:size]
        runs.append((best, times))
        pattern = pattern[len(best) * times :]
    return runs
