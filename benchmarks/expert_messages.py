"""How well seconds of tokens on their way to experts are told, by constants fitted to half of them.

    python -m benchmarks.expert_messages [--json] [--reference DIR]
    python -m benchmarks.expert_messages --entries SYSTEM

DeepEP's kernels inside a node (`collectives/deepep_2026.csv`) and TensorRT-LLM's inside a rack of
GB200 (`expert_alltoall_nvl72.csv`), which stand in for DeepEP's hybrid ones: both write tokens
straight into the memory of other devices of a domain of NVLinks. Every other shape of a mixture of
the former and every other number of tokens of the latter are fitted by `oracle calibrate`'s own
arithmetic, the rest is judged, as plans are priced. `--entries` prints what a shipped system has.

A message's bytes are those of each token once for each device that it goes to. DeepEP's tests draw
experts at random [deepseek-ai/DeepEP@dd758caf, tests/legacy/test_intranode.py:32]; the rack's
tokens are dealt evenly: of eight experts each is on a device of its own, where there are so many.
DeepEP dispatches in fp8 with a scale of four bytes for 128 numbers, and combines in bf16: in bf16
an H100 would take in 550 GB/s, more than its links have.

Between nodes nothing is fitted: messages are those of the library that a system has, and of the
links of its nodes. Rows of eight nodes are unlike the others: from 16,384 tokens on they take more
than three times as long as those of four, for a third more bytes that leave a node.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from oracle.calibration.calibrate import Calibration, calibrate
from oracle.calibration.spec_block import block, library_block
from oracle.network.contention import lines
from oracle.plan.strategies.expert import places_hit
from oracle.readers.logs import Reading, Sample
from oracle.spec import catalogue

HERE = Path(__file__).resolve().parents[1]
SYSTEMS = {"h100_sxm": "dgx-h100", "b200_sxm": "dgx-b200", "b300_sxm": "dgx-b300",
           "gb200": "gb200-nvl72"}  # fmt: skip
DEVICES = {"gb200": 4}  # of a node that DeepEP ran in
SCALED = 1 + 4 / 128  # bytes of a number of 8 bits, its part of a scale included
WIDTHS = {"bfloat16": 2.0, "fp8": 1.0, "nvfp4": 0.5 + 1 / 16}
OPERATIONS = {"all_reduce": "allreduce", "all_gather": "allgather",
              "reduce_scatter": "reduce_scatter", "alltoall": "alltoall"}  # fmt: skip
TOOL = "ai-dynamo/aiconfigurator, 095f58a"
GOAL = 0.12  # median error of what was left out


def table(reference: Path, name: str) -> Iterator[dict[str, str]]:
    """Rows of a measured table, but for what it says of itself."""
    with (reference / "collectives" / name).open() as file:
        yield from csv.DictReader(line for line in file if not line.startswith("#"))


def deepep(reference: Path, device: str) -> list[tuple[bool, Sample]]:
    """Whether each is judged, and the samples of DeepEP inside a node."""
    rows = [row for row in table(reference, "deepep_2026.csv")
            if row["device"] == device and row["node_num"] == "1"]  # fmt: skip
    shapes = list(dict.fromkeys(_shape(row) for row in rows))
    ranks = DEVICES.get(device, 8)
    return [(shapes.index(_shape(row)) % 2 > 0, sample)
            for row in rows for sample in _both_ways(row, ranks, ranks, 1, ranks)]  # fmt: skip


def _both_ways(
    row: dict[str, str], places: int, most: int, nodes: int, ranks_a_node: int
) -> Iterator[Sample]:
    """Dispatch and combine of a row, to those of so many places that a token hits."""
    hidden, active, experts = _shape(row)
    hit = places_hit(np.array(float(places)), np.array(active), np.array(experts))
    copies = float(row["num_token"]) * hidden * min(float(hit), most)
    for part, width in (("dispatch", SCALED), ("combine", 2.0)):
        seconds = float(row[f"{part}_transmit_us"]) * 1e-6
        yield Sample("alltoall", copies * width, seconds, nodes * ranks_a_node, nodes,
                     ranks_a_node, library="deepep", algorithm=f"deepep_{part}")  # fmt: skip


def _shape(row: dict[str, str]) -> tuple[float, float, float]:
    return float(row["hidden_size"]), float(row["num_topk"]), float(row["num_experts"])


def rack(reference: Path) -> list[tuple[bool, Sample]]:
    """The same of the rack's kernels of two sides, which were measured in three widths."""
    rows = [row for row in table(reference, "expert_alltoall_nvl72.csv")
            if row["kernel_source"] == "NVLinkTwoSided"
            and row["op_name"] in ("alltoall_dispatch", "alltoall_combine")]  # fmt: skip
    sizes = sorted({int(row["num_tokens"]) for row in rows})
    samples = []
    for row in rows:
        part, ranks = row["op_name"].removeprefix("alltoall_"), int(row["moe_ep_size"])
        width = WIDTHS[row["moe_dtype"]] if part == "dispatch" else 2.0
        hit = min(float(row["topk"]), ranks)
        nbytes = float(row["num_tokens"]) * float(row["hidden_size"]) * hit * width
        sample = Sample("alltoall", nbytes, float(row["ms"]) * 1e-3, ranks, 1, ranks,
                        library="hybridep", algorithm=f"hybridep_{part}")  # fmt: skip
        samples.append((sizes.index(int(row["num_tokens"])) % 2 > 0, sample))
    return samples


def between(reference: Path, device: str) -> dict[int, list[Sample]]:
    """DeepEP's samples of several nodes of eight, by their number; nothing is fitted to these.

    A token goes once to each node that it hits, at most four of them [deepseek-ai/DeepEP,
    tests/legacy/test_internode.py:392].
    """
    by_nodes: dict[int, list[Sample]] = {}
    for row in table(reference, "deepep_2026.csv"):
        nodes = int(row["node_num"])
        if row["device"] == device and nodes > 1:
            by_nodes.setdefault(nodes, []).extend(_both_ways(row, nodes, 4, nodes, 8))
    return by_nodes


def nccl(reference: Path, device: str) -> list[Sample]:
    """What NCCL takes on a device of `nccl_2026.csv`."""
    return [
        Sample(OPERATIONS[row["op_name"]],
               float(row["elements_or_bytes"]) * (2 if row["nccl_dtype"] == "half" else 1),
               float(row["ms"]) * 1e-3, int(row["num_gpus"]), 1, int(row["num_gpus"]),
               library="nccl")
        for row in table(reference, "nccl_2026.csv") if row["device"] == device
    ]  # fmt: skip


def calibrated(reference: Path, device: str) -> Calibration:
    """One system with what half of the samples say of its experts' messages, and NCCL's of it."""
    parts = {"deepep": deepep(reference, device), "hybridep": []}
    if device == "gb200":
        parts["hybridep"] = rack(reference)
    tools = {"deepep": "DeepEP's normal kernels", "hybridep": "TensorRT-LLM's NVLinkTwoSided"}
    files = {"deepep": "deepep_2026.csv", "hybridep": "expert_alltoall_nvl72.csv"}
    readings = []
    for name, samples in parts.items():
        path = f"half of {files[name]}"
        fitted = tuple(sample._replace(where=f"{path}:{k}")
                       for k, (left_out, sample) in enumerate(samples) if not left_out)  # fmt: skip
        machine = {"tool": f"{tools[name]}, {TOOL}", "device": device}
        readings += [Reading(path, "table", fitted, machine)] if fitted else []
    if timings := nccl(reference, device):
        path = "nccl_2026.csv"
        placed = tuple(sample._replace(where=f"{path}:{k}") for k, sample in enumerate(timings))
        machine = {"tool": f"NCCL 2.29.2, {TOOL} nccl_perf.parquet", "device": device}
        readings.append(Reading(path, "table", placed, machine))
    bare = replace(catalogue.system(SYSTEMS[device]), collectives=())
    return replace(calibrate(readings, SYSTEMS[device]), before=bare)


def errors(system: Any, samples: Iterable[Sample]) -> np.ndarray:
    """Predicted / measured − 1, as plans are priced."""
    relative = []
    for sample in samples:
        ranks = int(sample.ranks or 1)
        offer = lines(system, "alltoall", ((ranks, 1),), ranks, sample.algorithm)
        seconds = min(line.start + line.per_byte * sample.nbytes for line in offer)
        relative.append(seconds / sample.seconds - 1)
    return np.array(relative)


def judged(reference: Path) -> dict[str, Any]:
    """Figures of every system, as it is shipped, on what its constants did not see."""
    rows, figures, every = [], {}, []
    for device, name in SYSTEMS.items():
        system = catalogue.system(name)
        kinds = [("deepep", deepep(reference, device))]
        kinds += [("hybridep", rack(reference))] if device == "gb200" else []
        for kind, samples in kinds:
            for part in ("dispatch", "combine"):
                rest = [
                    sample
                    for left_out, sample in samples
                    if left_out and sample.algorithm.endswith(part)
                ]
                off = errors(system, rest)
                rows.append(_row(name, kind, part, off))
                every.append((kind, off))
        for nodes, samples_there in between(reference, device).items():
            rows.append(_row(name, "deepep", f"{nodes} nodes", errors(system, samples_there)))
    for kind in ("deepep", "hybridep"):
        off = np.abs(np.concatenate([part_errors for name, part_errors in every if name == kind]))
        figures[f"expert_messages.{kind}.left_out"] = {
            "value": round(float(np.median(off)), 4), "unit": "relative",
            "goal": f"median at most {GOAL:.0%}"}  # fmt: skip
    return {"figures": figures, "rows": rows}


def _row(system: str, library: str, part: str, off: np.ndarray) -> dict[str, Any]:
    return {"system": system, "library": library, "part": part, "samples": len(off),
            "median": float(np.median(np.abs(off))),
            "nine tenths": float(np.quantile(np.abs(off), 0.9)),
            "bias": float(np.median(off))}  # fmt: skip


def main(arguments: Iterable[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--entries", choices=sorted(SYSTEMS.values()))
    parser.add_argument("--reference", type=Path, default=HERE.parent / "shared" / "reference")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    if asked.entries:
        device = next(key for key, name in SYSTEMS.items() if name == asked.entries)
        found = calibrated(asked.reference, device)
        sys.stdout.write(library_block([fit.entry for fit in found.libraries])
                         + block(found.entries))  # fmt: skip
        return 0
    result = judged(asked.reference)
    if asked.json:
        sys.stdout.write(json.dumps(result, indent=1) + "\n")
        return 0
    for row in result["rows"]:
        sys.stdout.write(f"{row['system']:12} {row['library']:9} {row['part']:9} "
                         f"{row['samples']:4} median {row['median']:6.1%}  nine tenths "
                         f"{row['nine tenths']:6.1%}  bias {row['bias']:+6.1%}\n")  # fmt: skip
    for name, figure in result["figures"].items():
        sys.stdout.write(f"  {name}: {figure['value']:.1%}   (goal: {figure['goal']})\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
