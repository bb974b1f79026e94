"""What vTrain's single-node table is made of: a few timings of one layer, many times over.

    python -m benchmarks.composed [--reference DIR]

    T = micro-batches · (layers · layer + ends) + once + once a layer · layers

`layer` and `ends` belong to a hidden width, tensor ranks and micro-batch, `once` to a hidden width,
tensor and data ranks; least squares over the rows without a pipeline. Beside each layer's
milliseconds stand the oracle's, in which a device and its host take turns to be the slower.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

import oracle
from benchmarks.published.megatron import DEEPSPEED, gpt, grid
from benchmarks.published.table import HALF_ADAM, Row, number, rows, tables

DEPTHS = (20, 24)  # layers of the two models that a predicted layer is the difference of


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reference", type=Path, metavar="DIR")
    table = tables(parser.parse_args().reference) / "vtrain_single.csv"
    if not table.exists():
        print(f"skipped: no {table.parent.name}/{table.name}")
        return 0
    found = [row for row in rows(table) if number(row, "pp") == 1]
    alike: dict[tuple[int, int], list[Row]] = defaultdict(list)
    for row in found:
        alike[number(row, "hidden"), number(row, "tp")].append(row)
    print(f"{'hidden':>7}{'tensor':>7}{'micro-batch':>12}{'rows':>6}{'layer':>9}{'ours':>9}{'':>9}"
          f"{'ends':>9}   (ms)")  # fmt: skip
    worst, cells = 0.0, 0
    for (hidden, tp), members in sorted(alike.items()):
        fitted, left = composed(members)
        worst, cells = max(worst, left), cells + len(fitted)
        for micro, (layer, ends) in fitted.items():
            ours = predicted(hidden, tp, micro)
            count = sum(number(row, "microbatch") == micro for row in members)
            print(f"{hidden:>7}{tp:>7}{micro:>12}{count:>6}{layer:>9.2f}{ours:>9.2f}"
                  f"{ours / layer - 1:>+9.0%}{ends:>9.1f}")  # fmt: skip
    print(f"{len(found)} rows from {cells} layers; none is off by more than {worst:.2f} ms")
    return 0


def composed(members: list[Row]) -> tuple[dict[int, tuple[float, float]], float]:
    """Micro-batch -> milliseconds of (a layer, the ends), and the largest residual."""
    micros = sorted({number(row, "microbatch") for row in members})
    replicas = sorted({number(row, "dp") for row in members})
    matrix, measured = [], []
    for row in members:
        layers, micro, dp = (number(row, key) for key in ("layers", "microbatch", "dp"))
        pieces = number(row, "batch") / dp / micro
        mine = np.array([m == micro for m in micros], float) * pieces
        once = np.array([r == dp for r in replicas], float)
        matrix.append([*(mine * layers), *mine, *once, *(once * layers)])
        measured.append(float(row["measured_value"]))
    solved = np.linalg.lstsq(np.array(matrix), np.array(measured), rcond=None)[0]
    left = np.abs(np.array(matrix) @ solved - measured).max()
    pairs = zip(solved[: len(micros)], solved[len(micros) : 2 * len(micros)], strict=True)
    return {m: (float(t), float(c)) for m, (t, c) in zip(micros, pairs, strict=True)}, float(left)


def predicted(hidden: int, tp: int, micro: int) -> float:
    """Milliseconds of a layer: of four more layers in two more micro-batches, an eighth."""

    def seconds(layers: int, pieces: int) -> float:
        row = {"source": "vTrain", "layers": str(layers), "hidden": str(hidden), "heads": "16"}
        plan = grid(1, 1, tp, pieces, "recompute:full")
        found = oracle.estimate(
            gpt(row, sequence=1024), "a100-800g", plan, micro * pieces,
            reading="none", software=DEEPSPEED, **HALF_ADAM,
        )  # fmt: skip
        return float(found.seconds[0])

    each = [seconds(layers, 6) - seconds(layers, 4) for layers in DEPTHS]
    return 1e3 * (each[1] - each[0]) / (2 * (DEPTHS[1] - DEPTHS[0]))


if __name__ == "__main__":
    sys.exit(main())
