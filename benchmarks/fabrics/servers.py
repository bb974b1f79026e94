"""Parameter servers, buckets and grids: what each takes beside an allreduce in a ring."""

from __future__ import annotations

from typing import Any

import oracle
from benchmarks.table import Table, figure, rounded
from oracle.ask.fusing import buckets
from oracle.models.model import model as catalogue_model
from oracle.predict.defaults import options_for
from oracle.spec import catalogue

SEED = 1.8  # × faster at 128 nodes: Cray's plugin against gRPC with servers, Inception v3 [seed]


def _cray(rows: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    """Inception v3, 64 samples a process, 128 P100 of Piz Daint; how many servers is not said."""
    counts = (1, 16, 32, 64, 128)
    plans = ["data:128", *(f"data:128,servers={k},hosts=own" for k in counts)]
    ring, *servers = oracle.estimate(
        "inception-v3",
        "piz-daint",
        plans,
        128 * 64,
        any_plan=True,
        reading="none",
        software="tf-cnn-benchmarks",
    ).seconds
    for k, seconds in zip(counts, servers, strict=True):
        rows.append({"case": f"Inception v3, 128 nodes of Piz Daint, {k} servers apart",
                     "ms": rounded(1e3 * seconds),
                     "over allreduce": rounded(seconds / ring)})  # fmt: skip
    figures["cray_plugin.32_servers"] = figure(
        servers[2] / ring, "× (a server for four workers; the number is not published)",
        f"{SEED} within 25 %",
    )  # fmt: skip


def _stragglers(rows: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    """What backup workers and going alone save of waiting for the slowest."""
    plans = ["data:64,servers=64", "data:64,servers=64,backups=4", "data:64,servers=64,mode=async"]
    every = oracle.estimate("resnet50", "piz-daint", plans, 64 * 64, reading="none").seconds
    for plan, seconds in zip(plans, every, strict=True):
        rows.append({"case": f"ResNet-50 on Piz Daint, {plan}", "ms": rounded(1e3 * seconds)})
    figures["async_over_sync"] = figure(every[2] / every[0], "seconds of a step", "≤ 1")


def _grids(rows: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    """2-D grids where starts count: ResNet-50 as on ABCI in 2018."""
    for p in (256, 1024):
        ring, grid = (
            oracle.estimate("resnet50", "abci", f"data:{p}", 32 * p, algorithm=by,
                            reading="none").exchange[0][0]
            for by in ("ring", "torus2d")
        )  # fmt: skip
        rows.append({"case": f"ResNet-50's gradients on {p} of ABCI, {grid['algorithm']}",
                     "ms": rounded(1e3 * grid["seconds"]),
                     "over a ring": rounded(grid["seconds"] / ring["seconds"])})  # fmt: skip
        figures[f"torus2d_{p}"] = figure(grid["seconds"] / ring["seconds"], "of a ring", "")


def _pieces(rows: list[dict[str, Any]], figures: dict[str, Any]) -> None:
    """Horovod's buffer of 128 MiB, looked at every millisecond, against the best size."""
    for name, machine, p, batch in (
        ("resnet50", "abci", 64, 2048),
        ("vgg16", "ethernet-64", 64, 2048),
    ):
        model, system = catalogue_model(name), catalogue.system(machine)
        options = options_for(model, system, software="horovod-tensorflow")
        every = buckets(model, system, f"data:{p}", batch, options)
        usual = next(bucket for bucket in every if bucket.nbytes == 2.0**27)
        best = f"{every[0].nbytes / 2**20:g} MiB"
        rows.append({"case": f"{name} on {p} of {machine}, pieces of {best}",
                     "ms": rounded(1e3 * every[0].seconds),
                     "of 128 MiB": rounded(1e3 * usual.seconds)})  # fmt: skip
        figures[f"best_bucket_{name}_{machine}"] = figure(every[0].nbytes / 2**20, "MiB", "")


def table(quick: bool) -> Table:
    """All of it; nothing here is fitted."""
    rows: list[dict[str, Any]] = []
    figures: dict[str, Any] = {}
    _cray(rows, figures)
    _stragglers(rows, figures)
    if not quick:
        _grids(rows, figures)
        _pieces(rows, figures)
    notes = [
        "Cray's 1.8 × is against TensorFlow's servers over gRPC, how many is not said; what gRPC "
        "copies a second is from reports of users, which lie between half and all of it",
        "NCCL has no such grids: what they cost is priced as rings of its protocols",
    ]
    return {"title": "Servers and grids", "rows": rows, "figures": figures, "notes": notes}
