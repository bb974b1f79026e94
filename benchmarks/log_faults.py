"""Faults planted in logs: how many are found, and whether sound logs raise any.

    python -m benchmarks.log_faults [--json] [--reference DIR]

Sound are the logs of `abci-vnode` on ABCI and of `aws` on p5 nodes. Each fault is planted in one
of them, or is a log of one machine given to another. Measured logs are looked for in DIR
(`../shared/reference` beside the repository); without them there is nothing to plant in.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.table import figure, text
from oracle.calibration.trust import Concern, concerns
from oracle.readers import logs
from oracle.readers.logs import InputError, Reading
from oracle.spec import catalogue

HERE = Path(__file__).resolve().parents[1]
CASES = 60


def read(path: Path, change: Callable[[str], str] = str, **facts: int) -> Reading:
    """A log after an accident, with what is said of it."""
    return logs.parse(change(path.read_text(errors="replace")), path.name).checked_with_facts(
        **facts
    )


def sound(folder: Path) -> Iterator[tuple[str, list[Reading], str]]:
    """(what, readings, system) of logs that nothing is wrong with."""
    names = sorted(path for path in (folder / "abci-vnode").rglob("*")
                   if path.is_file() and path.suffix != ".json")  # fmt: skip
    for path in names:
        facts = {}
        if path.suffix in (".mpi", ".mpi-cpu"):
            nodes = 1 if "intra" in path.parent.name else int(path.name[3:5])
            facts = {"nodes": nodes, "ranks": 4 * nodes}
        elif "pt2pt" in path.parent.name:
            facts = {"nodes": 2}
        yield path.name, [read(path, **facts)], "abci"
    yield "all nccl-tests of abci-vnode", [read(p) for p in names if p.suffix == ".nccl"], "abci"
    for path in sorted((folder / "aws").glob("*.txt")):
        yield path.name, [read(path, nodes=2)], "aws-p5"


def slower(factor: float) -> Callable[[str], str]:
    """Times of nccl-tests rows multiplied, and their rates divided."""

    def changed(text: str) -> str:
        def row(found: re.Match[str]) -> str:
            time, algbw, busbw = (float(found[k]) for k in (1, 2, 3))
            return f"{time * factor:9.2f} {algbw / factor:8.2f} {busbw / factor:8.2f}"

        pattern = re.compile(r"(?<= )(\d+\.?\d*) +(\d+\.\d\d) +(\d+\.\d\d)(?= )")
        return "\n".join(pattern.sub(row, line) if "float" in line else line
                         for line in text.split("\n"))  # fmt: skip

    return changed


def without(mark: str) -> Callable[[str], str]:
    return lambda text: "\n".join(line for line in text.split("\n") if mark not in line)


def hosts(text: str) -> list[str]:
    """Names of hosts in a list of devices, in order."""
    return list(dict.fromkeys(re.findall(r" on +(\S+) device", text)))


def renamed(text: str) -> str:
    """One host called by another's name."""
    first, second, *_ = hosts(text)
    return text.replace(f"on      {second} ", f"on      {first} ").replace(second, first)


def last_host_gone(text: str) -> str:
    return without(f" {hosts(text)[-1]} device")(text)


def each_its_own(text: str) -> str:
    """Every rank on a host of its own."""
    numbers = iter(range(10_000))
    return re.sub(r"( on +)\S+( device)", lambda m: f"{m[1]}g{next(numbers):04d}{m[2]}", text)


def planted(folder: Path) -> Iterator[tuple[str, str, Callable[[], list[Reading]], str]]:
    """(kind, what, readings, system) of logs that something is wrong with."""
    inter = folder / "abci-vnode" / "allreduce-inter"
    runs = sorted(inter.glob("*.nccl"))
    single = next((folder / "abci-vnode" / "allreduce-intra").glob("*.nccl"))
    aws = sorted((folder / "aws").glob("*.txt"))
    weave = sorted((folder / "coreweave").glob("*.txt"))
    for path in [*runs[:3], single]:
        for system in ("dgx-a100", "dgx-h100", "frontier"):
            yield "other machine", path.name, lambda p=path: [read(p)], system
    for path in aws:
        yield "other machine", path.name, lambda p=path: [read(p)], "abci"
        yield "other machine", path.name, lambda p=path: [read(p)], "v100-ib100"
    yield "other machine", weave[3].name, lambda: [read(weave[3])], "dgx-h100"
    for name in ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "AMD Instinct MI250X"):
        for path in runs[:2]:
            change = lambda text, name=name: text.replace("Tesla V100-SXM2-16GB", name)  # noqa: E731
            yield "mixed", f"{path.name} as {name}", lambda p=path, c=change: [
                read(single), read(p, c)], "abci"  # fmt: skip
    yield "mixed", "GB200 beside V100", lambda: [read(single), read(weave[3])], "abci"
    for path in runs[:3]:
        change = lambda text: re.sub(r" on +g(\d+)", r" on a\1", text)  # noqa: E731
        yield "mixed", f"{path.name} of other hosts", lambda p=path, c=change: [
            read(single), read(p, c)], "abci"  # fmt: skip
    for path in runs[1:4]:
        yield "nodes", f"{path.name}, a host renamed", lambda p=path: [read(p, renamed)], "abci"
        yield "nodes", f"{path.name}, a host gone", lambda p=path: [read(p, last_host_gone)], "abci"
        yield "nodes", f"{path.name}, hosts apart", lambda p=path: [read(p, each_its_own)], "abci"
        yield "nodes", f"{path.name}:nodes=64", lambda p=path: [read(p, nodes=64)], "abci"
    for nodes in (1, 3, 4):
        yield "nodes", f"{aws[1].name}:nodes={nodes}", lambda n=nodes: [
            read(aws[1], nodes=n)], "aws-p5"  # fmt: skip
    osu = sorted((folder / "abci-vnode").rglob("*"))
    tables = [path for path in osu if path.suffix in (".mpi", ".bandwidth", ".latency")][:4]
    for path in [*runs[:3], single, *tables]:
        for share in (0.5, 0.9):
            cut = lambda text, share=share: text[: int(len(text) * share)]  # noqa: E731
            yield "truncated", f"{path.name}, {share:.0%}", lambda p=path, c=cut: [
                read(p, c)], "abci"  # fmt: skip
    for path in runs[:4]:
        yield "above datasheet", path.name, lambda p=path: [read(p, slower(0.1))], "abci"
    for path in (*runs[:2], aws[1]):
        system = "abci" if path in runs else "aws-p5"
        yield "above datasheet", f"{path.name} × 3", lambda p=path: [read(p, slower(1 / 3))], system


def judged(found: Callable[[], list[Reading]], system: str) -> list[Concern]:
    """What is found; a refusal to read is found too."""
    try:
        return concerns(found(), catalogue.system(system))
    except InputError as refusal:
        return [Concern(refusal.what, refusal.path, refusal.line, "refuse", refusal.hint)]


def measured(reference: Path) -> dict[str, Any]:
    """A row for each kind of fault, those that were missed, and the sound logs that raise one."""
    folder = reference / "logs"
    if not folder.is_dir():
        return {"title": "logs with faults", "rows": [], "figures": {},
                "notes": [f"skipped: no logs in {folder}"]}  # fmt: skip
    kinds: dict[str, list[bool]] = {}
    notes = []
    for kind, what, found, system in planted(folder):
        seen = judged(found, system)
        kinds.setdefault(kind, []).append(bool(seen))
        notes += [] if seen else [f"missed: {kind}, {what} on {system}"]
    alarms = [(what, raised) for what, readings, system in sound(folder)
              if (raised := concerns(readings, catalogue.system(system)))]  # fmt: skip
    count = sum(1 for _ in sound(folder))
    notes += [f"raised on a sound log: {what}: {raised[0].words}" for what, raised in alarms]
    rows = [{"fault": kind, "planted": len(seen), "found": sum(seen)}
            for kind, seen in kinds.items()]  # fmt: skip
    total, caught = sum(map(len, kinds.values())), sum(map(sum, kinds.values()))
    figures = {
        "log_faults.planted": figure(total, "cases", f"{CASES} or more"),
        "log_faults.found": figure(caught / total, "share", "0.95 or more"),
        "log_faults.false": figure(len(alarms), f"of {count} sound logs", "none"),
    }
    return {"title": "logs with faults", "rows": rows, "figures": figures, "notes": notes}


def main(arguments: Iterable[str] | None = None) -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--reference", type=Path, default=HERE.parent / "shared" / "reference")
    asked = parser.parse_args(None if arguments is None else list(arguments))
    table = measured(asked.reference)
    said = json.dumps(table, indent=1, ensure_ascii=False) if asked.json else text(table)
    sys.stdout.write(said + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
