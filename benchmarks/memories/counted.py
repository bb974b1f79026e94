"""Bytes of tensors alive on the fullest device, counted by the executor, and those predicted.

Networks are small and plans run on processors, a rank a device, in fp32: a step of each plan is
counted to the last tensor (`oracle/executor/measure/memory_count.py`). Predicted is what the
software `executor` keeps, without what no tensor holds: libraries' reserve, holes between blocks.
Nothing is fitted. Adapters beside frozen weights are counted in PyTorch alone
(`benchmarks/adapters.py`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.table import Table, figure
from oracle.ask.alive import ANY, SOFTWARE, UNCOUNTED, alive
from oracle.executor.plan_run import PlanRun
from oracle.executor.ranks.launch import DONE
from oracle.executor.run import run
from oracle.models.model import model
from oracle.plan.plan import parse
from oracle.predict.defaults import options_for
from oracle.predict.estimate import estimate as predict
from oracle.predict.evaluate import unit_words
from oracle.predict.workload import chooses
from oracle.spec.catalogue import system

RANKS = 4
CLOSE, CLOSE_ADAPTERS = 0.02, 0.03
CHOOSING = ("recompute", "offload")


def _network(name: str, shape: list[int], layers: list[Any]) -> dict[str, Any]:
    return {"name": name, "source": "made for this count", "input": shape, "layers": layers}


def _conv(filters: int, **more: Any) -> dict[str, Any]:
    return {"conv": {"filters": filters, "kernel": 3, "padding": 1, **more}}


CNN = _network("cnn", [3, 32, 32], [
    _conv(16), "relu", _conv(16), "relu", {"pool": {"kernel": 2}}, _conv(32), "relu", _conv(32),
    "relu", {"pool": {"kernel": 2}}, "flatten", {"dense": 64}, "relu", {"dense": 16}, "loss",
])  # fmt: skip
RESIDUAL = _network("residual", [3, 32, 32], [
    _conv(16, bias=False), "norm", "relu",
    {"repeat": 8, "layers": [
        _conv(16, bias=False), "norm", "relu", _conv(16, bias=False), {"norm": {"name": "branch"}},
        {"add": {"from": ["branch", "block"]}}, "relu"]},
    {"pool": {"kernel": "global", "op": "mean"}}, "flatten", {"dense": 12}, "loss",
])  # fmt: skip
VOLUMES = _network("volumes", [2, 24, 24, 24], [
    _conv(8), "relu", *[part for _ in range(8) for part in (_conv(8), "relu")],
    {"pool": {"kernel": 2}}, _conv(16), "relu", _conv(16), "relu", "flatten", {"dense": 8},
    {"loss": "mse"},
])  # fmt: skip
FAMILY = {"layers": 8, "hidden": 64, "heads": 4, "vocab": 128, "sequence": 64}
GPT = {"name": "gpt", "source": "made for this count",
       "transformer": FAMILY | {"tied_embeddings": False}}  # fmt: skip
LLAMA = {"name": "llama", "source": "made for this count", "transformer": FAMILY | {
    "kv_heads": 2, "ffn": 160, "gated": True, "tied_embeddings": True, "flash": False}}  # fmt: skip
MIXTURE = {"name": "mixture", "source": "made for this count", "transformer": FAMILY | {
    "ffn": 96, "gated": True, "experts": 4, "active": 2, "tied_embeddings": False}}  # fmt: skip
SHARED = {"name": "shared", "source": "made for this count", "transformer": FAMILY | {
    "ffn": 64, "experts": 8, "active": 2, "shared": 1, "first_dense": 1,
    "tied_embeddings": False}}  # fmt: skip
STATE = ("offload:optimizer", "offload:optimizer,to=disk", "offload:optimizer,update=device",
         "offload:weights+optimizer", "data:2 offload:optimizer,delayed=on",
         "data:4,zero=3 offload:weights+optimizer")  # fmt: skip
BOTH = "offload:activations recompute:best"
PLANS: dict[str, tuple[dict[str, Any], int, tuple[str, ...]]] = {
    "cnn": (CNN, 32, ("serial", "data:2", "data:4,zero=1", "data:4,zero=2", "data:4,zero=3",
                      "data:2,accumulate=2", "filter:2", "filter:4,back=scatter", "channel:4",
                      "recompute:full", "offload:weights+optimizer", "offload:activations", BOTH)),
    "residual": (RESIDUAL, 16, ("serial", "data:2,zero=2", "spatial:2", "spatial:2x2", "filter:2",
                                "channel:2", "pipeline:2,segments=4",
                                "pipeline:4,segments=4,schedule=gpipe", "recompute:full",
                                "data:2,zero=3 recompute:full", "recompute:operators", *STATE[:1],
                                "recompute:best", "recompute:stage", "offload:activations")),
    "volumes": (VOLUMES, 4, ("serial", "data:2", "spatial:2", "spatial:2x2", "filter:2",
                             "channel:2", "pipeline:2,segments=2", "recompute:full",
                             "data:2,zero=3 offload:weights+optimizer", "offload:activations",
                             "pipeline:2,segments=2 recompute:stage")),
    "gpt": (GPT, 16, ("serial", "data:4", "data:2,zero=1", "data:4,zero=2", "data:4,zero=3",
                      "tensor:2", "tensor:2,sequence=on", "context:2", "context:2,kind=alltoall",
                      "pipeline:2,segments=4", "pipeline:4,segments=8,schedule=gpipe",
                      "recompute:selective", "recompute:full", "recompute:operators",
                      "pipeline:2,segments=4 recompute:full", *STATE, "recompute:best",
                      "pipeline:2,segments=4,schedule=gpipe recompute:stage",
                      "pipeline:2,segments=4 recompute:best", "offload:activations", BOTH)),
    "llama": (LLAMA, 16, ("serial", "recompute:selective", "recompute:full", "tensor:2",
                          "data:4,zero=2", "recompute:best", "recompute:stage", BOTH)),
    "mixture": (MIXTURE, 16, ("serial", "data:2 expert:2", "data:4 expert:4",
                              "data:4,zero=1 expert:2", "data:4,zero=3 expert:2", "tensor:2",
                              "data:2 tensor:2 expert:2", "data:2 tensor:2,sequence=on expert:2",
                              "data:2 tensor:2,sequence=on expert:4,cut=whole",
                              "pipeline:2,segments=4 data:2 expert:2",
                              "data:2 expert:2 recompute:full",
                              "data:2 expert:2 recompute:selective")),
    "shared": (SHARED, 16, ("serial", "data:2 expert:2", "data:2 context:2 expert:4",
                            "data:4 expert:4 recompute:full")),
}  # fmt: skip


ADAPTERS = ("lora:4", "lora:4:attention", "lora:16:qkv", "lora:8:mlp")
AGAIN = {False: "serial", True: "recompute:full"}


def chosen(spec: dict[str, Any], plan: str, batch: int) -> tuple[str, ...]:
    """Words of units where a device has no room for half of what the plan would keep; () of plans
    that leave no choice.
    """
    what, where, asked = model(spec), system(ANY), parse(plan, batch)
    if not chooses(asked).any():
        return ()
    options = options_for(what, where, "fp32", "momentum", software=SOFTWARE)
    bare = " ".join(word for word in plan.split() if word.split(":")[0] not in CHOOSING) or "serial"
    kinds = predict(what, where, [bare], [batch], options).memory_kinds
    room = sum(float(each[0]) for each in kinds.values()) - float(kinds["activations"][0]) / 2
    return unit_words(what, where, asked, replace(options, max_memory=room))


def adapted(train: str, again: bool) -> tuple[dict[str, str], float]:
    """What is counted and predicted of a GPT with adapters, as a row, and their difference."""
    network, where, batch = model(GPT | {"train": train}), system(ANY), 16
    options = options_for(network, where, "fp32", "momentum", software=SOFTWARE)
    kinds = predict(network, where, [AGAIN[again]], [batch], options).memory_kinds
    predicted = sum(float(kind[0]) for name, kind in kinds.items() if name not in UNCOUNTED)
    from benchmarks import adapters  # of torch

    counted = adapters.counted(FAMILY, train, batch, again).total
    difference = predicted / counted - 1
    return {
        "network": f"gpt, {train}", "plan": AGAIN[again], "counted MB": f"{counted / 1e6:.3f}",
        "predicted MB": f"{predicted / 1e6:.3f}", "off": f"{difference:+.1%}",
    }, difference  # fmt: skip


def table(quick: bool = False) -> Table:
    """Each plan's bytes, counted and predicted."""
    few = 2 if quick else None
    jobs = [PlanRun(spec, plan, batch, steps=1, warm_up=0, units=chosen(spec, plan, batch),
                    routing="even")
            for spec, batch, plans in PLANS.values() for plan in plans[:few]]  # fmt: skip
    with TemporaryDirectory() as folder:
        outcome, found = run(jobs, Path(folder) / "counted.json", ranks=RANKS)
    if outcome.code != DONE:
        raise RuntimeError(outcome.message)
    rows, off = [], []
    for job, one in zip(jobs, found, strict=True):
        counted, predicted = alive(one, model(job.model)).both
        off.append(predicted / counted - 1)
        rows.append({
            "network": one.model, "plan": one.plan, "counted MB": f"{counted / 1e6:.3f}",
            "predicted MB": f"{predicted / 1e6:.3f}", "off": f"{off[-1]:+.1%}",
        })  # fmt: skip
    apart = np.abs(off)
    beside = [adapted(train, again) for train in ADAPTERS[:few] for again in AGAIN]
    rows += [row for row, _ in beside]
    adapters_apart = np.abs([difference for _, difference in beside])
    return {
        "title": "counted: bytes of tensors alive at most, on the fullest device", "rows": rows,
        "figures": {
            "plans": figure(len(off), "", "≥ 30"),
            "plans within 2 %": figure((apart <= CLOSE).sum(), "", "all"),
            "median": figure(np.median(apart), "", "≤ 0.02"),
            "mean": figure(apart.mean(), "", "≤ 0.02"),
            "largest": figure(apart.max(), "", "≤ 0.02"),
            "adapters": figure(len(beside), "", "≥ 8"),
            "adapters within 3 %": figure((adapters_apart <= CLOSE_ADAPTERS).sum(), "", "all"),
            "adapters, mean": figure(adapters_apart.mean(), "", "≤ 0.02"),
        },
        "notes": ["left out of both: what kernels take and give back before they return"],
    }  # fmt: skip
