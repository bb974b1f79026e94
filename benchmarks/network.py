"""The network model, judged: SimGrid, the DLN study, speed, NCCL's own choice, and φ.

    python -m benchmarks.network [PART …] [--quick] [--json] [--reference DIR]

More parts are the files of `benchmarks/fabrics`. Reference tables and logs are looked for in DIR
(`../shared/reference` beside the repository); where they are absent those tables are skipped, and
named.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import fabrics, nccl_choice, parts, simgrid
from benchmarks.table import Table, figure, rounded, text
from oracle.network import topology
from oracle.network.collectives import named
from oracle.network.contention import Contention, RankGroups, lines, schedule_cost, sentence
from oracle.network.topology import Topology
from oracle.readers.logs import read
from oracle.spec import catalogue

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
OTHERS = Path(__file__).resolve().parents[1] / "tests" / "data" / "simgrid_others.csv"
BANDWIDTH = 12.5e9

# CPU seconds of SimGrid for one collective on a 2:1 fat tree, by ranks
SIMGRID = {
    64: {"ring": 0.06, "halving_doubling": 0.07, "pairwise": 0.04},
    256: {"ring": 0.74, "halving_doubling": 0.10, "pairwise": 0.40},
    1024: {"ring": 24.0, "halving_doubling": 0.41, "pairwise": 13.6},
}


def dln(_: Path) -> Table:
    """Loop + shifted halving-doubling beside fat trees: φ over the full-duplex closed form."""
    p = 64

    def nets(duplex: str) -> dict[str, Topology]:
        return {
            "DLN 64 switches × 1": topology.loop(64, 1, BANDWIDTH, duplex=duplex),
            "DLN 32 switches × 2": topology.loop(32, 2, BANDWIDTH, duplex=duplex),
            "DLN 16 switches × 4": topology.loop(16, 4, BANDWIDTH, duplex=duplex),
            "fat tree 8 × 8, 3 uplinks": topology.fat_tree((8, 8), (1, 3), BANDWIDTH,
                                                           duplex=duplex),
        }  # fmt: skip

    phi: dict[tuple[str, str, str], float] = {}
    ideal = 2 * (p - 1) / p / BANDWIDTH
    for duplex in ("full", "half"):
        for net, graph in nets(duplex).items():
            for name in ("ring", "halving_doubling", "rabenseifner", "shifted_halving_doubling"):
                steps = named("allreduce", name).schedule(p)
                cost = schedule_cost(graph, RankGroups(((p, 1),), p), steps)
                phi[net, name, duplex] = cost.per_byte / ideal
    table = [
        {"network": net, "duplex": duplex}
        | {name: rounded(phi[net, name, duplex]) for name in
           ("ring", "halving_doubling", "rabenseifner", "shifted_halving_doubling")}
        for duplex in ("full", "half") for net in nets(duplex)
    ]  # fmt: skip
    shd, tree = (
        phi["DLN 16 switches × 4", "shifted_halving_doubling", "half"],
        "fat tree 8 × 8, 3 uplinks",
    )
    hd = phi["DLN 16 switches × 4", "halving_doubling", "half"]
    figures = {
        "dln.shd_over_dln_hd": figure(1 - shd / hd, "gain", "slides ~0.25"),
        "dln.shd_over_tree_hd_farthest_first": figure(
            1 - shd / phi[tree, "rabenseifner", "half"], "gain", "slides ~0.50"),
        "dln.shd_over_tree_hd_nearest_first": figure(
            1 - shd / phi[tree, "halving_doubling", "half"], "gain", "slides ~0.50"),
        "dln.shd_over_dln_hd_full_duplex": figure(
            1 - phi["DLN 16 switches × 4", "shifted_halving_doubling", "full"]
            / phi["DLN 16 switches × 4", "halving_doubling", "full"], "gain", ""),
    }  # fmt: skip
    for ranks, slide in ((64, 0.31), (256, 0.71), (1024, 0.90)):
        seconds = [named("allreduce", name).seconds(ranks, 1e6, 1e-6, 1 / BANDWIDTH)
                   for name in ("shifted_halving_doubling", "ring")]  # fmt: skip
        figures[f"dln.shd_over_ring_{ranks}"] = figure(
            1 - seconds[0] / seconds[1], "gain", f"slides {slide}"
        )
    notes = [
        "slides: +31/71/90 % over fat tree + ring, ~50 % over fat tree + HD, ~25 % over DLN + HD",
        "assumed: 64 ranks and large messages for HD; 1 µs, 1 MB and 64/256/1024 ranks for ring "
        "(the gain there is latency alone); the slides give neither sizes nor duplex",
        "half duplex decides: with full duplex HD's exchanges use both ways of a link at once, "
        "and SHD gains nothing on the same loop",
    ]
    return {"title": "Distributed loop + shifted halving-doubling", "rows": table,
            "figures": figures, "notes": notes}  # fmt: skip


def speed(_: Path, quick: bool) -> Table:
    """CPU seconds of one contention query, four groups at once on a 2:1 fat tree."""
    table, figures = [], {}
    sizes = (64, 256, 1024) if quick else (64, 256, 1024, 4096, 16384)
    spent: dict[str, list[float]] = {}
    for n in sizes:
        k = int(n**0.5)
        graph = topology.fat_tree((k, k), (1, k // 2), BANDWIDTH)
        graph.labels  # noqa: B018  # built once, with the graph
        for op, name in (("allreduce", "ring"), ("allreduce", "halving_doubling"),
                         ("alltoall", "pairwise")):  # fmt: skip
            took = {}
            for groups, pattern in (("four", ((n // 4, 4),)), ("one", ((n, 1),))):
                p = pattern[0][0]
                start = time.process_time()
                schedule_cost(graph, RankGroups(pattern, n), named(op, name).schedule(p))
                took[groups] = time.process_time() - start
            spent.setdefault(name, []).append(took["four"])
            theirs = SIMGRID.get(n, {}).get(name)
            table.append({
                "ranks": n, "collective": f"{op} {name}", "four groups": rounded(took["four"]),
                "one group": rounded(took["one"]), "SimGrid": theirs or "",
                "times faster": rounded(theirs / took["one"]) if theirs else "",
            })  # fmt: skip
            if n in (1024, 16384):
                goal = "≤ 0.1" if n == 1024 else "≤ 1"
                figures[f"speed.{name}_{n}"] = figure(max(took.values()), "s", goal)
    for name, seconds in spent.items():
        last = np.log(seconds[-3:])
        growth = np.polyfit(np.log(sizes[-3:]), last, 1)[0]
        figures[f"speed.{name}_growth"] = figure(growth, "exponent of ranks", "")
    graph = topology.torus((32, 32), BANDWIDTH)
    for op, name in (("allreduce", "ring"), ("allreduce", "halving_doubling"),
                     ("alltoall", "pairwise")):  # fmt: skip
        start = time.process_time()
        schedule_cost(graph, RankGroups(((256, 4),), 1024), named(op, name).schedule(256))
        figures[f"speed.torus_{name}_1024"] = figure(time.process_time() - start, "s", "")
    return {"title": "Speed: CPU seconds a query", "rows": table, "figures": figures}


def _logs(reference: Path) -> Iterator[tuple[int, Any, Any]]:
    """(nodes, bytes, seconds) of each real NCCL log between nodes of ABCI."""
    folder = reference / "logs" / "abci-vnode" / "allreduce-inter"
    for path in sorted(folder.glob("*.nccl")):
        nodes = int(re.search(r"job(\d+)", path.name)[1])  # type: ignore[index]
        samples = [s for s in read(path).samples if not s.in_place]
        yield nodes, np.array([s.nbytes for s in samples]), np.array([s.seconds for s in samples])


def library(reference: Path) -> Table:
    """NCCL's own model, nothing fitted, and our fitted lines, against real logs of ABCI."""
    from oracle.calibration.calibrate import calibrate

    folder = reference / "logs" / "abci-vnode"
    paths = [*sorted(folder.glob("allreduce-inter/*.nccl")),
             *sorted(folder.glob("allreduce-intra/*.nccl"))]  # fmt: skip
    system = catalogue.system("abci")
    fitted = replace(system, collectives=calibrate([read(p) for p in paths], system).entries)
    table, everything = [], {"nccl": [], "fitted": []}  # type: ignore[var-annotated]
    for nodes, nbytes, seconds in _logs(reference):
        net = nccl_choice.NcclNetwork(4 * nodes, nodes, 2, 12.0, 12.0, ll128=False)
        choice, expected = nccl_choice.choice("allreduce", net, nbytes)
        offer = lines(fitted, "allreduce", ((4 * nodes, 1),), 4 * nodes)
        ours = np.min([line.start + line.per_byte * nbytes for line in offer], axis=0)
        errors = {"nccl": np.abs(expected / seconds - 1), "fitted": np.abs(ours / seconds - 1)}
        for name, values in errors.items():
            everything[name].extend(values.tolist())
        choices = [str(c) for c in dict.fromkeys(choice.tolist())]
        table.append({
            "nodes": nodes, "sizes": len(nbytes), "as NCCL would": rounded(errors["nccl"].mean()),
            "fitted": rounded(errors["fitted"].mean()), "chosen": " → ".join(choices),
        })  # fmt: skip
    figures = {
        "nccl_model.mape": figure(np.mean(everything["nccl"]), "", "≤ 0.20"),
        "nccl_fitted.mape": figure(np.mean(everything["fitted"]), "", "≤ 0.08"),
    }
    notes = ["two channels of 12 GB/s and no LL128 are inferred, not in the logs; the logs do not "
             "tell the algorithm either"]  # fmt: skip
    return {"title": "NCCL 2.8 on ABCI, 4 B to 32 MB", "rows": table, "figures": figures,
            "notes": notes}  # fmt: skip


PLANS = {  # their strategies in our words, and samples per device
    "data": ("data:{p}", 64),
    "filter": ("filter:{p}", 0),
    "channel": ("channel:{p}", 0),
    "data+filter": ("data:{n} filter:4", 16),
    "data+spatial": ("data:{n} spatial:4", 16),
}


def bars(reference: Path) -> Table:
    """Seconds of communication of ResNet-50 on ABCI: ideal, fitted with φ, and ParaDL's own."""
    import oracle

    path = reference / "paradl" / "techreport_fig2_digitised.csv"
    with path.open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["model"] == "ResNet50"]
    theirs = {(r["strategy"], r["p"]): r["comm_s"] for r in rows if r["who"] == "model"}
    table: list[dict[str, Any]] = []
    for row in rows:
        if row["who"] != "empirical" or row["strategy"] not in PLANS:
            continue
        p, measured = int(row["p"]), float(row["comm_s"])
        plan, samples = PLANS[row["strategy"]]
        batch = samples * p or int(row["b_samples_per_GPU_or_node"])
        seconds = []
        for ideal in (True, False):
            estimate = oracle.estimate("resnet50-226", "abci", plan.format(p=p, n=p // 4),
                                    batch=batch, precision="fp32", ideal=ideal,
                                    reading="none")  # fmt: skip
            seconds.append(sum(float(np.sum(part["seconds"])) for part in estimate.exchange[0]))
        paradl = theirs.get((row["strategy"], row["p"]))
        cells: dict[str, Any] = {"strategy": row["strategy"], "p": p, "measured": measured}
        for name, value in zip(
            ("ideal", "fitted", "ParaDL"),
            (*seconds, float(paradl) if paradl else None),
            strict=True,
        ):
            cells[name] = "" if value is None else rounded(value)
            accuracy = "" if value is None else rounded(1 - abs(value - measured) / measured)
            cells[f"{name} accuracy"] = accuracy
        table.append(cells)  # fmt: skip
    figures = {}
    for strategy in PLANS:
        for name in ("ideal", "fitted", "ParaDL"):
            accuracies = [r[f"{name} accuracy"] for r in table
                      if r["strategy"] == strategy and r[f"{name} accuracy"] != ""]  # fmt: skip
            if accuracies:
                key = f"abci_{strategy}.{name.lower()}_accuracy"
                figures[key] = figure(np.median(accuracies), "median 1 − |p − m|/m", "")
    notes = [
        "fitted: α and β from nccl-tests on this machine, φ counted; nothing from these bars",
        "what is measured holds more than the exchange: their framework packs gradients, "
        "allreduces the whole of W in data+filter, moves halos through the host in a blocking "
        "chain, and from 256 devices on other jobs' traffic shows (they report outliers of 4×)",
    ]
    return {"title": "ResNet-50 on ABCI: communication, seconds an iteration", "rows": table,
            "figures": figures, "notes": notes}  # fmt: skip


def phi(reference: Path) -> Table:
    """φ on ABCI, none of it typed in."""
    system = catalogue.system("abci")
    graph = topology.network_of(system, 8)
    pairs = {k: Contention(graph, np.arange(k), np.arange(k) + 4, np.full(k, 4e6)) for k in (1, 4)}
    rate = {k: float(c.rates.min()) for k, c in pairs.items()}
    table = [{"case": "osu_mbw_mr, 1 → 4 pairs between two nodes", "φ": rounded(rate[1] / rate[4]),
              "in words": _measured(reference)}]  # fmt: skip
    figures = {"phi.osu_pairs": figure(rate[1] / rate[4], "φ", "2.00")}
    cases = [
        ("data 16 × filter 4", 64, ((16, 4),), "phi.data_filter", "2"),
        ("data 32 × filter 136, a rack each", 4352, ((32, 136),), "phi.racks", "> 2"),
    ]
    for case, devices, pattern, name, goal in cases:
        line = lines(system, "allreduce", pattern, devices, "ring")[-1]
        table.append(
            {
                "case": case,
                "φ": rounded(line.phi),
                "in words": sentence(system, "gradients", pattern, devices, line),
            }
        )
        figures[name] = figure(line.phi, "φ", goal)
    for algorithm in ("halving_doubling", "rabenseifner"):
        line = lines(system, "allreduce", ((256, 4),), 1024, algorithm)[-1]
        table.append(
            {
                "case": f"data 256 × filter 4 by {algorithm}",
                "φ": rounded(line.phi),
                "in words": sentence(system, "gradients", ((256, 4),), 1024, line),
            }
        )
        figures[f"phi.racks_{algorithm}"] = figure(line.phi, "φ", "> 2")
    leader = lines(system, "allreduce", ((64, 1),), 64, "leader")[-1]
    table.append({"case": "one leader a node", "φ": rounded(leader.phi), "in words": ""})
    figures["phi.leader"] = figure(leader.phi, "φ", "1")
    return {"title": "φ on ABCI", "rows": table, "figures": figures}


def _measured(reference: Path) -> str:
    """What the logs of osu_mbw_mr say at 4 MB."""
    folder = reference / "logs" / "abci-vnode" / "pt2pt-inter"
    totals = {}
    for pairs in (1, 4):
        for path in folder.glob(f"job{pairs:02d}.*.gpu.bandwidth"):
            last = path.read_text(encoding="utf-8").strip().splitlines()[-1].split()
            totals[pairs] = float(last[1])
    if len(totals) < 2:
        return "no logs"
    return f"measured {4 * totals[1] / totals[4]:.2f}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="all where none is named")
    parser.add_argument(
        "--quick", action="store_true", help="up to 1,024 ranks; SimGrid's cases by lines"
    )
    parser.add_argument("--json", action="store_true", dest="as_json")
    parser.add_argument("--reference", type=Path, default=REFERENCE)
    options = parser.parse_args(arguments)
    needs = options.reference / "network" / "simgrid_collectives.csv"
    logs = options.reference / "logs" / "abci-vnode"
    digitised = options.reference / "paradl" / "techreport_fig2_digitised.csv"
    plans: list[tuple[str, Path | None, Callable[[], Table]]] = [
        ("simgrid", needs, lambda: simgrid.reference_table(options.reference, options.quick)),
        ("simgrid_others", OTHERS, lambda: simgrid.other_tables(OTHERS, options.quick)),
        ("dln", None, lambda: dln(options.reference)),
        ("speed", None, lambda: speed(options.reference, options.quick)),
        ("nccl", logs, lambda: library(options.reference)),
        ("phi", None, lambda: phi(options.reference)),
        ("abci", digitised, lambda: bars(options.reference)),
        *((part, None, partial(parts.table, fabrics, part, options.quick))
          for part in parts.parts(fabrics)),
    ]  # fmt: skip
    if unknown := set(options.parts) - (names := {name for name, _, _ in plans}):
        parser.error(f"no part {', '.join(sorted(unknown))}: there are {', '.join(sorted(names))}")
    figures: dict[str, Any] = {}
    rows: list[dict[str, Any]] = []
    for name, path, run in plans:
        if options.parts and name not in options.parts:
            continue
        if path is not None and not path.exists():
            rows.append({"table": name, "skipped": f"{path} is not there"})
            if not options.as_json:
                print(f"\n{name}: skipped, {path} is not there")
            continue
        table = run()
        prefix = f"{name}." if name in parts.parts(fabrics) else ""
        figures |= {f"{prefix}{key}": value for key, value in table["figures"].items()}
        rows += [{"table": name, **row} for row in table["rows"]]
        if not options.as_json:
            print(text(table))
    if options.as_json:
        print(json.dumps({"figures": figures, "rows": rows}, indent=1, ensure_ascii=False))
    return 0


if __name__ == "__main__":
    sys.exit(main())
