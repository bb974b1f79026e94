"""Memory over time: the most of a timeline against the closed form, and an allocator's holes.

Plans of every strategy are drawn at random; nothing is fitted. Holes are what an allocator by
PyTorch's rules has beside tensors and cannot give back, in segments of fixed size and in those that
grow. Peaks that were published of whole devices, less the tensors and what libraries take, are what
holes, and all that nobody counts, came to.
"""

from __future__ import annotations

import random

import numpy as np

import oracle
from benchmarks import fidelity
from benchmarks.published import CARRIED, TABLES, rows
from benchmarks.table import Table, figure
from oracle.predict.allocation import timeline
from oracle.predict.estimate import Estimate
from oracle.predict.fragmentation import reserved
from oracle.predict.memory import TOGETHER
from oracle.spec.allocator import Allocator
from oracle.spec.doubt import NINETY
from oracle.spec.software import State

# model, system, devices, batch, software
CASES = (
    ("gpt2", "dgx-a100", 8, 32, "plain"), ("resnet50", "abci", 16, 512, "pytorch-ddp"),
    ("cosmoflow-128", "abci", 16, 64, "plain"), ("unet3d-kits19", "dgx-a100", 8, 16, "plain"),
    ("llama3-8b", "dgx-h100", 16, 32, "torchtitan"), ("mixtral-8x7b", "dgx-h100", 32, 64, "plain"),
    ("gpt3-175b", "dgx-a100", 64, 64, "megatron-core"), ("t5-xxl", "dgx-a100", 16, 32, "plain"),
    ("densenet121", "abci", 8, 256, "plain"), ("nnunet-3d", "dgx-a100", 8, 16, "plain"),
)  # fmt: skip
SLACK = State().slack
DRAWN = {False: 24, True: 4}  # plans of each, and where fewer cases are asked for
SAME = 1e-9


def table(quick: bool = False) -> Table:
    """Plans of each case, how many timelines agree, and the holes."""
    lines, every = [], []
    for model, system, devices, batch, software in CASES:
        found = [held(shown) for shown in drawn(model, system, devices, batch, software,
                                                DRAWN[quick])]  # fmt: skip
        every += found
        off, fixed, grown = (np.array(column) for column in zip(*found, strict=True))
        lines.append({
            "model": model, "system": system, "software": software, "plans": len(found),
            "equal": int((off < SAME).sum()), "holes": f"{np.median(fixed):.1%}",
            "most": f"{fixed.max():.1%}", "in growing segments": f"{np.median(grown):.1%}",
        })  # fmt: skip
    off, fixed, grown = (np.array(column) for column in zip(*every, strict=True))
    wide = SLACK + NINETY * TOGETHER
    beside = published()
    return {
        "title": "memory over time: timelines against the closed form, and an allocator's holes",
        "rows": lines,
        "figures": {
            "plans": figure(len(off), "", ""),
            "unequal": figure((off >= SAME).sum(), "plans", "0"),
            "holes.median": figure(np.median(fixed), "", ""),
            "holes.most": figure(fixed.max(), "", ""),
            "holes.covered": figure((fixed <= wide).mean(), "of the plans", "≥ 0.95"),
            "holes.growing.median": figure(np.median(grown), "", ""),
            "published.beside_tensors": figure(np.median(beside), "", ""),
        },
        "notes": [f"an estimate has {SLACK:.0%} of the tensors for holes, up to {wide:.1%} within "
                  "its interval",
                  f"{len(beside)} published peaks of whole devices are {np.median(beside):.1%} "
                  "above tensors and libraries, by the median: more than holes"],
    }  # fmt: skip


def drawn(
    model: str, system: str, devices: int, batch: int, software: str, many: int
) -> list[Estimate]:
    """Plans of so many devices that can be played."""
    rng = random.Random(f"{model} {system}")
    found: list[Estimate] = []
    for text in texts(devices, batch, rng):
        try:
            shown = oracle.estimate(model, system, text, batch, software=software, any_plan=True)
            timeline(shown)
        except oracle.SpecError:
            continue
        found.append(shown)
        if len(found) == many:
            break
    return found


def texts(devices: int, batch: int, rng: random.Random) -> list[str]:
    """Plans of so many devices: data, pipeline and tensor, their schedules, what is made again."""
    found = []
    for _ in range(4000):
        stages = rng.choice([1, 2, 4])
        tensor = rng.choice([1, 1, 2, 4])
        data = devices // (stages * tensor)
        if stages * tensor * data != devices or batch % data:
            continue
        schedule = rng.choice(["1f1b", "1f1b", "gpipe", "zb-h1", "zb-v", "dualpipe-v"])
        chunks = {"zb-h1": 1, "zb-v": 2, "dualpipe-v": 2}.get(schedule, rng.choice([1, 2]))
        segments = stages * rng.choice([1, 2, 4])
        words = [f"data:{data},zero={rng.choice([0, 1, 3])}" if data > 1 else ""]
        if stages > 1:
            words.insert(0, f"pipeline:{stages},segments={segments},interleave={chunks},"
                         f"schedule={schedule}")  # fmt: skip
        words += [f"tensor:{tensor}"] * (tensor > 1)
        again = rng.choice(["none", "none", "selective", "full", "operators"])
        words += [f"recompute:{again}"] * (again != "none")
        text = " ".join(word for word in words if word)
        if text and text not in found:
            found.append(text)
    return found


def held(shown: Estimate) -> tuple[float, float, float]:
    """How far the closed form is off, and holes in both kinds of segments, relative."""
    found = timeline(shown)
    most = float(shown.memory[0] - shown.memory_kinds["reserve"][0])
    fixed, grown = (reserved(found, Allocator(expandable=each)).share for each in (False, True))
    return abs(float(found.total.max()) / most - 1), fixed, grown


def published() -> list[float]:
    """What devices showed beside tensors and libraries, by the tensors."""
    found = []
    for name in ("memory_bloom", "torchtitan_memory"):
        paths = sorted(CARRIED.glob(TABLES[name].file))
        cases = [case for case in TABLES[name].cases([row for path in paths for row in rows(path)])
                 if case.ran]  # fmt: skip
        predicted = fidelity.predict(cases)
        for case, value, work in zip(cases, predicted.values, predicted.work, strict=True):
            shown = work.block.held
            tensors = float(sum(values[work.row] for kind, values in shown.kinds.items()
                                if kind != "reserve"))  # fmt: skip
            libraries = float(shown.kinds["reserve"][work.row]) - SLACK * tensors
            cached = float(value) - tensors - libraries - SLACK * tensors
            found.append((case.measured - libraries - cached) / tensors - 1)
    return found
