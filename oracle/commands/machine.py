"""The answers of `measure machine` and `measure kernels`: specs of what is at hand, in one folder.

Everything is written beside the folder first, which then gets its name: whole, or not there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oracle.commands.arguments import whole
from oracle.commands.launching import ended, launched, written_answer
from oracle.commands.parser import Answer, as_json

COLLECTIVES = 0.35  # of the budget, where there is more than one rank
LARGEST = {"nccl": 30, "mpi": 26, "gloo": 24}  # of a message, the power of two
SLOWEST = 0.04  # of the collectives' time, at most for one sample


def arguments(parser: argparse.ArgumentParser) -> None:
    """What the two take beside what all measurements do."""
    parser.add_argument("--seconds", type=whole, default=120, metavar="S",
                        help="for `machine`, `kernels` and `storage`, about")  # fmt: skip
    parser.add_argument("--disk", metavar="FOLDER",
                        help="whose disk `machine` reads; the one of -o")  # fmt: skip


def started(asked: argparse.Namespace) -> dict[str, Any]:
    """How ranks are started where nobody says: one for every GPU, or one that has all cores."""
    from oracle.executor.measure.hardware import gpus, usable_cores
    from oracle.executor.ranks.launch import Host
    from oracle.executor.ranks.world import recognise

    how, there = launched(asked), gpus(Path("/"))
    if asked.backend is None:
        how["backend"] = "nccl" if there else "gloo"
    if how["ranks"] is None and recognise(os.environ) is None:
        how["ranks"] = there if there and how["backend"] == "nccl" else 1
    told = os.environ.get("OMP_NUM_THREADS", "")
    cores = max(1, usable_cores() // (how["ranks"] or 1))
    threads = int(told) if told.isdigit() else 1 if how["ranks"] is None else cores
    own = {"OMP_NUM_THREADS": str(threads)}
    return how | {"host": Host(environment=lambda rank: own), "threads": threads}


def kernels(asked: argparse.Namespace) -> Answer:
    """Kernels of one device into a table that `calibrate compute` reads."""
    from oracle.calibration.machine import machine
    from oracle.executor.measure.machine import Asked, measure_machine, measured_records
    from oracle.readers.kernels import text
    from oracle.writers.export import put

    out = Path(asked.output)
    parts = out.with_name(out.name + ".parts")
    free(out)
    how = started(asked)
    outcome = measure_machine(parts, Asked(asked.seconds, ""), **how)
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    measured = machine(measured_records(parts))
    put({str(out): text(measured.kernels) + "\n"})
    if how["ranks"] is not None:  # else others, which a launcher started, may still look there
        shutil.rmtree(parts)
    say = f"wrote {out}, {len(measured.kernels)} kernels; next: oracle calibrate compute {out}"
    rows = as_rows(measured)
    data = {"source": measured.source, "kernels": rows, "refused": list(measured.unmeasured)}
    return written_answer(asked, data, rows, f"{say} --onto DEVICE")


def as_rows(measured: Any) -> list[dict[str, Any]]:
    """Each kernel as a row."""
    from oracle.readers.kernels import SHAPES

    return [
        {"family": each.family, "part": each.part, "precision": each.precision,
         "shape": " ".join(f"{name}={value:g}" for name, value
                           in zip(SHAPES[each.family], each.shape, strict=True)),
         "seconds": each.seconds}
        for each in measured.kernels
    ]  # fmt: skip


def machine(asked: argparse.Namespace) -> Answer:
    """A device, a system and what they were made of."""
    from oracle.executor.measure.machine import Asked, measure_machine
    from oracle.executor.ranks.launch import Outcome
    from oracle.executor.ranks.world import World, recognise

    out = Path(asked.output)
    free(out)
    parts = out.with_name(out.name + ".parts")
    how = started(asked)
    ranks = how["ranks"] or (recognise(os.environ) or World()).size
    talk = COLLECTIVES * asked.seconds if ranks > 1 else 0.0
    folder = asked.disk or str(out.absolute().parent)
    outcome: Outcome = measure_machine(parts / "device", Asked(asked.seconds - talk, folder), **how)
    if outcome.complete and talk:
        outcome = talked(parts / "collectives.jsonl", talk, how)
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    said = written(parts, out)
    note = (
        f"wrote {out}/; next: oracle recommend MODEL {out}/system.yaml --devices {ranks} --batch B"
    )
    if how["backend"] != "nccl":
        threads = how["threads"]
        note += f"\nOMP_NUM_THREADS={threads} gives `oracle run` the threads that one device had"
    text = said.pop("text")
    return written_answer(asked, said, said["curves"], note, text)


def free(out: Path) -> None:
    """Nothing is written over."""
    from oracle.spec.document import refusal

    if out.exists() or out.is_symlink():
        raise refusal(str(out), "this is there already", "name another one with -o", "E131")


def talked(out: Path, seconds: float, how: Mapping[str, Any]) -> Any:
    """Collectives among the ranks there are, from the smallest message on, while there is time."""
    from oracle.executor.measure.collectives import OPERATIONS, measure_collectives

    sizes = [2**k for k in range(8, LARGEST[how["backend"]] + 1, 2)]
    plain = {name: value for name, value in how.items() if name != "threads"}
    return measure_collectives(out, operations=[one for one in OPERATIONS if one != "halo"],
                               sizes=sizes, longest=max(0.02, SLOWEST * seconds), repeats=5,
                               within=seconds, **plain)  # fmt: skip


def topology(parts: Path) -> str:
    """What the driver's tool says of the node's links; nothing where there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        done = subprocess.run([tool, "topo", "-m"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def written(parts: Path, out: Path) -> dict[str, Any]:
    """Fit what was measured, write it beside the folder, and give the folder its name."""
    import yaml

    from oracle.calibration import machine as made
    from oracle.calibration.calibrate import calibrate
    from oracle.executor.measure.machine import measured_records
    from oracle.readers.kernels import text
    from oracle.readers.logs import read
    from oracle.spec import catalogue
    from oracle.writers.export import put

    measured = made.machine(measured_records(parts / "device"))
    device, fit = made.device(measured)
    log, new = parts / "collectives.jsonl", parts / "new"
    shutil.rmtree(new, ignore_errors=True)
    readings = [read(log)] if log.is_file() else []
    links = topology(parts)
    samples = [each for one in readings for each in one.samples]
    body = made.system(measured, samples, links)

    def dumped(what: Any) -> str:
        return str(yaml.safe_dump(what, sort_keys=False, allow_unicode=True, width=99))

    files = {"device.yaml": dumped(made.device_data(device)), "system.yaml": dumped(body),
             "kernels.csv": text(measured.kernels) + "\n",
             "machine.json": as_json(facts(measured)) + "\n"}  # fmt: skip
    files |= {"topology.txt": links} if links else {}
    put({str(new / name): content for name, content in files.items()})
    notes = []
    if readings:
        shutil.copy(log, new / log.name)
        fitted = calibrate([read(new / log.name)], str(new / "system.yaml"))
        put({str(new / "system.yaml"): fitted.spec()}, force=True)
        notes = [f"{what}: {why}" for what, why in fitted.refused]
    where = catalogue.system(str(new / "system.yaml"))  # what is written can be read
    os.rename(new, out)
    shutil.rmtree(parts)
    return {**facts(measured), "files": sorted(p.name for p in out.iterdir()),
            "curves": curves(fit), "not_fitted": [*fit.skipped, *notes],
            "collectives": sorted({f"{one.op}, {one.level}" for one in where.collectives}),
            "text": summary(measured, device, where, fit, notes)}  # fmt: skip


def facts(measured: Any) -> dict[str, Any]:
    """What was found and measured of the machine."""
    return {"source": measured.source, "machine": dict(measured.facts),
            "memory_bandwidth": measured.bandwidth,
            "host_seconds_a_kernel": measured.dispatch, "disk": dict(measured.disk),
            "refused": list(measured.unmeasured)}  # fmt: skip


def curves(fit: Any) -> list[dict[str, Any]]:
    """How well each curve does on kernels that it has not seen."""
    return [{"family": one.family, "precision": one.precision, "part": one.part,
             "kernels": one.kernels, "median_error": one.median, "p90_error": one.p90}
            for one in fit.residuals]  # fmt: skip


def summary(measured: Any, device: Any, where: Any, fit: Any, notes: list[str]) -> str:
    """The same for people."""
    from oracle.calibration.kernels import report
    from oracle.spec.units import show

    peak = ", ".join(f"{name} {show(value, 'FLOP/s')}" for name, value in device.peak.items())
    lines = [f"{where.title}: {where.devices} devices",
             f"  a device   {peak}; memory {show(device.memory, 'B')} at "
             f"{show(device.memory_bandwidth, 'B/s')}; {show(measured.dispatch, 's')} of the host "
             "for a kernel"]  # fmt: skip
    lines += [f"  {level.name:<10} {level.devices} devices, {show(level.bandwidth, 'B/s')}, "
              f"{show(level.latency, 's')}" + (" (assumed)" if "assumed" in level.source else "")
              for level in where.levels]  # fmt: skip
    if where.storage:
        local, shared = where.storage.local, where.storage.shared
        rate = show(local.read if local else shared.bandwidth, "B/s")
        lines.append(f"  disk       {rate} on {measured.disk['file_system']}")
    elif measured.disk["why"]:
        lines.append(f"  disk       not measured: {measured.disk['why']}")
    lines += ["", report(fit)]
    lines += [f"refused by the library: {one}" for one in measured.unmeasured]
    return "\n".join([*lines, *(f"not fitted: {one}" for one in notes)])
