"""The batch up to which a language model's tokens do as much as those of a small batch.

    B* = 512 · 93.2 (D / 20 M)^0.47             tokens, of a training of D    [zhang2025, §3.2]
    D / (1 + 0.2 B/B*)                          what D tokens at B are worth  [mccandlish2018, §2.3]

At B* 20 % more tokens were needed than at a small batch, by networks of 85 M to 1.2 B weights on 20
tokens a weight; it grows with the tokens, hardly with the network. Beyond those it is assumed,
good to a factor of two.
"""

from __future__ import annotations

CHINCHILLA = 20.0  # tokens a weight, with which the networks were trained
SEQUENCE = 512  # tokens
SCALE, EXPONENT = 93.20, 0.47  # sequences of a network of a million weights, and by its size
MORE = 0.2  # tokens needed at B*, beyond those of a small batch


def critical_batch(tokens: float) -> float:
    """B* in tokens, of a training of so many."""
    return float(SEQUENCE * SCALE * (tokens / (CHINCHILLA * 1e6)) ** EXPONENT)


def worth(tokens: float, batch: float) -> float:
    """Tokens of a small batch that do as much as these, `batch` tokens at a time."""
    return tokens / (1 + MORE * batch / critical_batch(tokens))
