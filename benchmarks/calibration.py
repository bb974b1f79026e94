"""How well calibration fits: errors on what was left out, and on synthetic timings of known cost.

    python -m benchmarks.calibration [--quick] [--json] [--reference DIR]

Measured tables and logs are looked for in DIR (`../shared/reference` beside the repository);
where they are absent those tables are skipped, and named.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import run_calibration
from benchmarks.left_out import AIMS, JUDGED, left_out
from benchmarks.planted_logs import planted
from oracle.calibration import fit
from oracle.calibration.calibrate import Calibration, calibrate
from oracle.calibration.pools import SamplePool, pooled
from oracle.calibration.spec_block import block, library_block
from oracle.network.contention import lines
from oracle.readers.logs import InputError, Reading, Sample, read, sizes
from oracle.spec import catalogue

HERE = Path(__file__).resolve().parents[1]
LARGE = 65536  # bytes from which the tighter goal holds
GOALS = {"large": 0.06, "small": 0.12, "ranks": 0.12}
SHIPPED = ("abci", "a100-node", "h100-node", "b200-node", "v100-node")
DATES = {"nccl_intranode": "NCCL 2.27 to 2.29", "nccl_v100_a100": "NCCL version not said"}
OPERATIONS = {
    "all_reduce": "allreduce",
    "all_gather": "allgather",
    "reduce_scatter": "reduce_scatter",
    "alltoall": "alltoall",
}


@dataclass
class Table:
    """Pools of one source, with the errors of all that was left out."""

    name: str
    pools: list[tuple[str, SamplePool]]


def logs(reference: Path) -> list[dict[str, Any]]:
    """Every log there is: how many samples, how many lines skipped and why, or the refusal."""
    rows = []
    folders = [reference / name for name in ("logs", "network", "collectives")]
    for path in sorted(path for folder in folders for path in folder.rglob("*")):
        if path.is_dir() or path.name.endswith(".source.json"):
            continue
        row: dict[str, Any] = {"log": str(path.relative_to(reference))}
        try:
            found = read(path)
        except InputError as refusal:
            rows.append({**row, "refused": f"line {refusal.line}: {refusal.what}"})
            continue
        counts = sorted(sizes(found.samples).items())
        operations = ", ".join(f"{n} {op}" for op, n in counts)
        why = ", ".join(f"{n} {reason}" for reason, n in sorted(found.counts().items()))
        rows.append({**row, "format": found.format, "samples": operations,
                     "skipped": why or "none"})  # fmt: skip
    return rows


def abci(reference: Path) -> Table:
    """NCCL allreduce inside a node and between 2 and 32 nodes."""
    found: list[Reading] = [
        read(path)
        for path in sorted((reference / "logs" / "abci-vnode").glob("allreduce-*/*.nccl"))
    ]
    samples = [sample for reading in found for sample in reading.samples]
    inside = [s for s in samples if s.nodes == 1]
    between = [s for s in samples if s.nodes != 1]
    pools = [
        ("4 ranks, one node", pooled("allreduce", "node", inside)),
        ("2 to 32 nodes", pooled("allreduce", "network", between)),
    ]
    return Table("abci_vnode", pools)


def _table(
    path: Path,
    name: str,
    key: Callable[[dict[str, str]], str],
    sample: Callable[[dict[str, str]], Sample],
) -> Table:
    groups: dict[str, list[Sample]] = {}
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            groups.setdefault(key(row), []).append(sample(row))
    pools = [
        (label, pooled(samples[0].operation, "node", samples))
        for label, samples in groups.items()
        if len(samples) >= 12
    ]
    return Table(name, pools)


def intranode(reference: Path, file: str = "nccl_intranode_a100_h100.csv") -> Table:
    """NCCL inside A100 and H100 nodes, four operations."""

    def sample(row: dict[str, str]) -> Sample:
        ranks = int(row["gpus"])
        op, size = OPERATIONS[row["op"]], float(row["message_bytes"])
        seconds = float(row["latency_ms"]) * 1e-3
        return Sample(op, size, seconds, ranks, 1, ranks, library="nccl")

    def key(row: dict[str, str]) -> str:
        return f"{row['system']} {row['nccl_version']} {row['op']} {row['dtype']}"

    return _table(reference / "collectives" / file, "nccl_intranode", key, sample)


def b200(reference: Path) -> Table:
    """The same inside B200 nodes."""
    return intranode(reference, "nccl_intranode_b200.csv")


def vtrain(reference: Path) -> Table:
    """NCCL allreduce among 2 to 8 devices of V100 and A100 nodes."""

    def sample(row: dict[str, str]) -> Sample:
        ranks = int(row["gpus"])
        seconds = float(row["time_us"]) * 1e-6
        size = float(row["bytes"])
        return Sample("allreduce", size, seconds, ranks, 1, ranks, library="nccl")

    path = reference / "collectives" / "nccl_allreduce_v100_a100.csv"
    return _table(path, "nccl_v100_a100", lambda row: row["gpu"], sample)


def deepbench(reference: Path) -> Table:
    """Allreduce over PCIe and InfiniBand, and over Omni-Path.

    Up to 8 devices share a node of the NVIDIA systems, and a Xeon Phi is a node: baidu-research,
    DeepBench, README, "Topology for NVIDIA 8 GPU System" and the two sections after it.
    """

    def sample(row: dict[str, str]) -> Sample:
        ranks, size = int(row["ranks"]), float(row["size_bytes"])
        inner = min(ranks, 8) if row["device"].startswith("NV_") else 1
        nodes, seconds = ranks // inner, float(row["time_ms"]) * 1e-3
        library = "nccl" if "NCCL" in row["algorithm"] else "mpi"
        return Sample("allreduce", size, seconds, ranks, nodes, inner, library=library)

    def key(row: dict[str, str]) -> str:
        inside = row["device"].startswith("NV_") and int(row["ranks"]) <= 8
        where = "in a node" if inside else "between nodes"
        return f"{row['device']} {row['algorithm']} {where}"

    return _table(reference / "collectives" / "deepbench_allreduce.csv", "deepbench", key, sample)


def nccl_tables(reference: Path, quick: bool) -> list[tuple[str, str, list[Sample]]]:
    """(name, system, samples) of every machine whose NCCL was timed, one precision with `quick`."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for source in (intranode, b200, vtrain):
        for label, pool in source(reference).pools:
            device, *version = label.partition("_")[0], *label.split()[1:2], *label.split()[3:]
            if quick and "int8" in version:
                continue
            system = "dgx-1-v100" if device == "v100" else f"dgx-{device}"
            name = " ".join([device, *version, source.__name__])
            found.setdefault((name, system), []).extend(pool.samples)
    every = [sample for _, pool in abci(reference).pools for sample in pool.samples]
    return [(*key, some) for key, some in found.items()] + [("abci", "abci", every)]


def shipped(reference: Path, name: str) -> Calibration:
    """What the shipped systems' fitted entries are made from: one calibration by name."""
    folder = reference / "logs" / "abci-vnode"
    if name == "abci":
        readings = [read(path) for path in sorted(folder.glob("allreduce-*/*.nccl"))]
        # one pair in two nodes: so says the bandwidth log of the same job
        pair = read(folder / "pt2pt-inter" / "job01.sh.7249112.gpu.latency")
        one = tuple(sample._replace(groups=1) for sample in pair.samples)
        facts = {**pair.machine, "date": "2021-06", "device": "Tesla V100-SXM2-16GB"}
        alone = replace(pair, samples=one, machine=facts)
        return calibrate([*readings, alone.with_facts(nodes=2)], "abci")
    device = name.partition("-")[0]
    readings = []
    said = "NCCL, ai-dynamo/aiconfigurator@095f58a51c nccl_perf.parquet"
    for table, tool in (
        (b200(reference) if device == "b200" else intranode(reference), said),
        (vtrain(reference), "NCCL, VIA-Research/vTrain trace"),
    ):
        chosen = [pool for label, pool in table.pools if device in label]
        samples = [sample for pool in chosen for sample in pool.samples]
        path = f"{table.name}.csv"
        placed = tuple(sample._replace(where=f"{path}:{k}") for k, sample in enumerate(samples))
        date = "NCCL 2.28.9" if device == "b200" else DATES[table.name]
        machine = {"tool": tool, "device": f"{device.upper()} SXM node, {date}"}
        readings += [Reading(path, "table", placed, machine)] if samples else []
    return calibrate(readings, "dgx-1-v100" if device == "v100" else f"dgx-{device}")


def judged(table: Table, quick: bool) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """A row for each pool, and the medians over all samples of the table."""
    rows, sizes, counts, large = [], [], [], []
    for label, pool in table.pools:
        found = pool.fitted()
        by_size = np.abs(pool.left_out(pool.nbytes, found if quick else None))
        by_ranks = np.full_like(by_size, np.nan)
        if len(np.unique(pool.ranks)) > 2:
            by_ranks = np.abs(pool.left_out(pool.ranks))
        big = pool.nbytes >= LARGE
        algorithms = sorted({pool.forms[line.form].algorithm for line in found.lines})
        rows.append(
            {"table": table.name, "pool": label, "samples": len(big),
             "lines": len(found.lines), "algorithms": " ".join(algorithms),
             "one bandwidth": not found.factors,
             "fitted": _median(np.abs(found.residual)),
             "repeats": pool.repeats if np.isfinite(pool.repeats) else None,
             "neighbours": _median(np.abs(neighbours(pool)[big])),
             "large": _median(by_size[big]), "small": _median(by_size[~big]),
             "ranks": _median(by_ranks)}
        )  # fmt: skip
        sizes.append(by_size)
        counts.append(by_ranks)
        large.append(big)
    size, big, rank = np.concatenate(sizes), np.concatenate(large), np.concatenate(counts)
    medians = {"large": _median(size[big]), "small": _median(size[~big]), "ranks": _median(rank)}
    return rows, {name: value for name, value in medians.items() if value is not None}


def neighbours(pool: SamplePool) -> fit.Floats:
    """Each size from the two beside it, log-log, at its own rank count: what needs no model.

    A size left out cannot well be told better than this, where the library changes its ways.
    """
    error = np.full(len(pool.seconds), np.nan)
    for ranks in np.unique(pool.ranks).tolist():
        mine = np.flatnonzero(pool.ranks == ranks)
        sizes, at = np.unique(pool.nbytes[mine], return_inverse=True)
        logs = np.bincount(at, np.log(pool.seconds[mine])) / np.bincount(at)
        for k in range(1, len(sizes) - 1):
            near = [k - 1, k + 1]
            guess = np.interp(np.log(sizes[k]), np.log(sizes[near]), logs[near])
            error[mine[at == k]] = np.exp(guess) / pool.seconds[mine[at == k]] - 1
    return error


def priced(reference: Path, quick: bool) -> tuple[list[dict[str, Any]], dict[str, float]]:
    """The samples again, as the shipped systems price them: spec text, contention and all."""
    rows, medians = [], {}
    for source, name in ((abci, "abci"), (intranode, "dgx-a100"), (intranode, "dgx-h100")):
        device = name.rpartition("-")[2]
        system, errors = catalogue.system(name), []
        for label, pool in source(reference).pools:
            if source is intranode and (device not in label or (quick and "half" not in label)):
                continue
            error = np.empty_like(pool.seconds)
            for ranks in np.unique(pool.ranks).astype(int).tolist():
                mine = pool.ranks == ranks
                on = lines(system, pool.op, ((ranks, 1),), ranks)
                times = [line.start + line.per_byte * pool.nbytes[mine] for line in on]
                error[mine] = np.abs(np.min(times, axis=0) / pool.seconds[mine] - 1)
            big = pool.nbytes >= LARGE
            rows.append({"table": "priced", "system": name, "pool": label, "samples": len(big),
                         "large": _median(error[big]), "small": _median(error[~big])})  # fmt: skip
            errors.append(error)
        medians[name] = float(np.median(np.concatenate(errors))) if errors else float("nan")
    return rows, medians


def _median(values: fit.Floats) -> float | None:
    some = values[np.isfinite(values)]
    return float(np.median(some)) if len(some) else None


def measured(reference: Path, quick: bool) -> dict[str, Any]:
    """All tables and their figures."""
    figures: dict[str, dict[str, Any]] = {}
    rows: list[dict[str, Any]] = []
    skipped: list[str] = []

    def figure(name: str, value: float, unit: str, goal: str = "") -> None:
        figures[name] = {"value": round(value, 5), "unit": unit, "goal": goal}

    if (reference / "logs").is_dir():
        parsed = logs(reference)
        rows += [{"table": "logs", **row} for row in parsed]
        figure("logs.found", len(parsed), "logs")
        figure("logs.refused", sum("refused" in row for row in parsed), "logs", "each with a line")
    else:
        skipped.append("logs")
    for source in (abci, intranode, vtrain, deepbench):
        try:
            table = source(reference)
        except OSError:
            table = Table(source.__name__, [])
        if not table.pools or not all(len(pool.seconds) for _, pool in table.pools):
            skipped.append(source.__name__)
            continue
        if quick and source is intranode:
            table = replace(table, pools=[p for p in table.pools if "half" in p[0]])
        found, medians = judged(table, quick)
        rows += found
        for name, value in medians.items():
            kind = {"large": "size_left_out.from_64KiB", "small": "size_left_out.below_64KiB"}
            goal = f"median at most {GOALS[name]:.0%}"
            figure(f"{table.name}.{kind.get(name, 'ranks_left_out')}", value, "relative", goal)
    if not {"abci", "intranode"} & set(skipped):
        found, medians = priced(reference, quick)
        rows += found
        for name, value in medians.items():
            figure(f"priced.{name}", value, "relative", "median of all samples of its fits")
    if not {"abci", "intranode"} & set(skipped):
        for what, each in left_out(nccl_tables(reference, quick), rows.append).items():
            for stat, value in each.items():
                if not np.isfinite(value):  # constants alone have no interval of their own
                    continue
                goal = f"at most {AIMS[what]:.0%}" if stat == JUDGED.get(what, "median") else ""
                figure(f"left_out.{what}.{stat}", value, "relative", goal)
    for protocols in (1, 2):
        found_again = planted(30 if quick else 200, protocols)
        rows.append({"table": "planted", **found_again})
        for name in ("latency", "slope"):
            label = f"planted{protocols}.{name}"
            figure(f"{label}.error", found_again[f"{name} error"], "relative", "median at most 2%")
            cover = found_again[f"{name} covered"]
            figure(f"{label}.covered", cover, "share", "85 to 95% of 90% intervals")
    return {"figures": figures, "rows": rows, "skipped": skipped}


def shown(result: dict[str, Any]) -> str:
    """The same as text."""
    text: list[str] = []
    titles: tuple[str, ...] = ()
    for row in result["rows"]:
        if tuple(row) != titles:
            titles = tuple(row)
            text += ["", "  ".join(titles)]
        text.append("  ".join(_cell(value) for value in row.values()))
    text += ["", "figures"]
    text += [f"  {name}: {_cell(each['value'])} {each['unit']}"
              + (f"   (goal: {each['goal']})" if each["goal"] else "")
              for name, each in result["figures"].items()]  # fmt: skip
    text += [f"skipped, for want of its files: {name}" for name in result["skipped"]]
    return "\n".join(text)


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def main(arguments: Iterable[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="under a minute: fewer seeds, one "
                        "precision, structures kept when a size is left out")  # fmt: skip
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--entries", choices=SHIPPED, help="print the entries of a shipped spec")
    parser.add_argument("--reference", type=Path, default=HERE.parent / "shared" / "reference")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    if asked.entries:
        found = shipped(asked.reference, asked.entries)
        report = "".join(f"# {line}".rstrip() + "\n" for line in found.text().splitlines())
        entries = library_block([fit.entry for fit in found.libraries])
        sys.stdout.write(report + entries + (block(found.entries) if found.entries else ""))
        return 0
    began = time.process_time()
    result = measured(asked.reference, asked.quick)
    result["figures"] |= run_calibration.figures(run_calibration.table())
    result["figures"]["calibration.cpu"] = {
        "value": round(time.process_time() - began, 1), "unit": "CPU-s", "goal": ""}  # fmt: skip
    text = json.dumps(result, indent=1, ensure_ascii=False) if asked.json else shown(result)
    sys.stdout.write(text + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
