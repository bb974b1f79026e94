"""The batch up to which a language model's tokens are worth as much as those of a small batch.

    B* = 512 · 93.2 (D / 20 M)^0.47             tokens, of a training of D    [zhang2025, §3.2]
    D / (1 + 0.2 B/B*)                          worth of D tokens at B        [mccandlish2018, §2.3]

At B* networks of 85 M to 1.2 B weights on 20 tokens a weight needed 20 % more tokens than at a
small batch; B* grows with the tokens, hardly with the network. Beyond those networks it is assumed,
good to a factor of two.
"""

from __future__ import annotations

CHINCHILLA = 20.0  # tokens a weight, with which the networks were trained
SEQUENCE = 512  # tokens
SCALE, EXPONENT = 93.20, 0.47  # sequences of a network of a million weights, and by its size
MORE = 0.2  # tokens needed at B*, beyond those of a small batch


def critical_batch(tokens: float) -> float:
    """Return B* in tokens, of a training of a number of tokens."""
    return float(SEQUENCE * SCALE * (tokens / (CHINCHILLA * 1e6)) ** EXPONENT)


def worth(tokens: float, batch: float) -> float:
    """Return the tokens of a small batch that are worth as much as these at `batch` tokens."""
    return tokens / (1 + MORE * batch / critical_batch(tokens))
