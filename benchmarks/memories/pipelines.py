"""Stages of models that are no chains: how even they are, and GPipe's published speed-ups.

U-Net's stages are told by the predicted seconds of a micro-batch's passes; the best there is comes
from all ways to cut it. GPipe's table is normalised by its first figure, two partitions and one
micro-batch; it says no batch of AmoebaNet ("adjusted to fit memory"): 128 here, as its Table 1 has.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

import oracle
from benchmarks.table import Table, figure, rounded
from oracle.plan.plan import parse
from oracle.predict import evaluate
from oracle.spec.options import Options

UNETS = (("unet3d-kits19", "dgx-a100", "fp32"), ("unet3d-kits19", "dgx-a100", "bf16"),
         ("unet3d-kits19", "dgx-h100", "bf16"), ("unet3d-kits19", "abci", "fp32"),
         ("unet3d-brats", "dgx-a100", "bf16"), ("vnet", "dgx-a100", "bf16"))  # fmt: skip
# normalised training throughput on TPUs [huang2019, Table 2], by (partitions, micro-batches)
GPIPE = {
    "AmoebaNet-D (18, 256)": {(2, 1): 1.0, (4, 1): 1.13, (8, 1): 1.38, (2, 4): 1.07, (4, 4): 1.26,
                              (8, 4): 1.72, (2, 32): 1.21, (4, 32): 1.84, (8, 32): 3.48},
    "Transformer-48": {(2, 1): 1.0, (4, 1): 1.07, (8, 1): 1.3, (2, 4): 1.7, (4, 4): 3.2,
                       (8, 4): 4.8, (2, 32): 1.8, (4, 32): 3.4, (8, 32): 6.3},
}  # fmt: skip
TRANSFORMER = {  # §3: vocabulary 32k, sequences of 1,024, batch 32, 2,048 wide, 8,192 inside
    "name": "transformer-48", "source": "arXiv 1811.06965, section 3",
    "transformer": {"layers": 48, "hidden": 2048, "heads": 32, "ffn": 8192, "vocab": 32000,
                    "sequence": 1024},
}  # fmt: skip
MODELS = {"AmoebaNet-D (18, 256)": ("amoebanet-d", 128), "Transformer-48": (TRANSFORMER, 32)}


def table(quick: bool) -> Table:
    rows, worst = [], []
    for name, system, precision in UNETS[: 2 if quick else None]:
        found, best = balance(name, system, precision)
        worst.append(found)
        rows.append(
            {
                "model": name,
                "on": f"{system}, {precision}",
                "plan": "4 stages",
                "fullest over mean": rounded(found),
                "least there is": rounded(best),
            }
        )
    figures = {"stages_off_balance": figure(worst[0] - 1, "of the mean", "<= 0.15"),
               "stages_off_balance_most": figure(max(worst) - 1, "of the mean", "")}  # fmt: skip
    for name, published in GPIPE.items():
        told = speedups(name, list(published))
        rows += [{"model": name, "on": "tpu-v3-pod", "plan": f"K={k} M={m}",
                  "published": published[k, m], "predicted": rounded(told[k, m])}
                 for k, m in published]  # fmt: skip
        pairs = list(combinations(published, 2))
        right = sum((published[a] < published[b]) == (told[a] < told[b]) for a, b in pairs)
        off = np.mean([abs(np.log(told[at] / published[at])) for at in published])
        word = name.split("-")[0].lower()
        held = [told[a] < told[b] for a, b in claims(published)]
        figures[f"gpipe_claims_{word}"] = figure(np.mean(held), "of 15", "1")
        figures[f"gpipe_order_{word}"] = figure(right / len(pairs), "of pairs", "1")
        figures[f"gpipe_off_{word}"] = figure(np.expm1(off), "mean of 9", "")
    return {"title": "Pipelines of any graph", "rows": rows, "figures": figures,
            "notes": ["published: arXiv 1811.06965, Table 2; its batches and compilers are not "
                      "told, nothing is fitted"]}  # fmt: skip


def claims(published: dict[tuple[int, int], float]) -> list[tuple[tuple[int, int], ...]]:
    """What the paper says of it: faster with more micro-batches, and from 4 on with more stages.

    Of one micro-batch it says that stages change little, and that there is no pipeline.
    """
    pairs = [(a, b) for a in published for b in published
             if (a[0] == b[0] and a[1] < b[1]) or (a[1] == b[1] > 1 and a[0] < b[0])]  # fmt: skip
    assert all(published[a] < published[b] for a, b in pairs)
    return pairs


def balance(name: str, system: str, precision: str) -> tuple[float, float]:
    """The fullest of four stages over the mean, as cut for the least step, and the least there is.

    The latter by the units' own work, of all ways to cut them.
    """
    model, machine, options = (
        oracle.model(name),
        oracle.system(system),
        Options(precision=precision),
    )
    ((_, block),) = evaluate.blocks(model, machine, parse("pipeline:4,segments=8", 16.0), options)
    each = (block.step.passes.forward + block.step.passes.backward)[0]
    units = len(model.pieces.ends)
    alone = []
    for edges in ((0, at, units) for at in range(1, units)):  # the work of units 0 to `at`
        two = Options(precision=precision, edges=edges)
        plan = parse("pipeline:2,segments=8", 16.0)
        ((_, cut),) = evaluate.blocks(model, machine, plan, two)
        passes = cut.step.passes
        ahead, back = (
            part[0] - part_sent[0]
            for part, part_sent in (
                (passes.forward, passes.forward_messages),
                (passes.backward, passes.backward_messages),
            )
        )
        alone.append((ahead + back)[0])
        whole = float((ahead + back).sum())
    running = np.array([0.0, *alone, whole])
    ways = np.array([(0, *inner, units) for inner in combinations(range(1, units), 3)])
    least = np.diff(running[ways]).max(axis=1).min() / (whole / 4)
    return float(each.max() / each.mean()), float(least)


def speedups(name: str, points: list[tuple[int, int]]) -> dict[tuple[int, int], float]:
    """Samples a second by partitions and micro-batches, over those of the first."""
    model, batch = MODELS[name]
    plans = [f"pipeline:{k},segments={m},schedule=gpipe,cuts=balanced recompute:full"
             for k, m in points]  # fmt: skip
    found = oracle.estimate(model, "tpu-v3-pod", plans, batch=batch, precision="bf16",
                            software="tensorflow-xla")  # fmt: skip
    return {at: float(found.seconds[0] / each)
            for at, each in zip(points, found.seconds, strict=True)}  # fmt: skip
