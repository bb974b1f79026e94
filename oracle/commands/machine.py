"""The answers of `measure machine` and `measure kernels`: specs of this machine, in one folder.

All files are written into a folder beside it first, which then gets the name: complete, or absent.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from oracle.commands.arguments import whole_number
from oracle.commands.launching import ended, launched, written_answer
from oracle.commands.parser import Answer, as_json

COLLECTIVES = 0.35  # of the budget, where there is more than one rank
LARGEST = {"nccl": 30, "mpi": 26, "gloo": 24}  # of a message, the power of two
SLOWEST = 0.04  # of the collectives' time, at most for one sample


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `measure machine` and `measure kernels`."""
    parser.add_argument("--seconds", type=whole_number, default=120, metavar="S",
                        help="for `machine`, `kernels` and `storage`, about")  # fmt: skip
    parser.add_argument("--disk", metavar="FOLDER",
                        help="whose disk `machine` reads; the one of -o")  # fmt: skip


def started(args: argparse.Namespace) -> dict[str, Any]:
    """Return how ranks are started by default: one for every GPU, or one that has all cores."""
    from oracle.executor.measure.hardware import gpus, usable_cores
    from oracle.executor.ranks.launch import Host
    from oracle.executor.ranks.world import recognise

    how, gpu_count = launched(args), gpus(Path("/"))
    if args.backend is None:
        how["backend"] = "nccl" if gpu_count else "gloo"
    if how["ranks"] is None and recognise(os.environ) is None:
        how["ranks"] = gpu_count if gpu_count and how["backend"] == "nccl" else 1
    set_threads = os.environ.get("OMP_NUM_THREADS", "")
    cores = max(1, usable_cores() // (how["ranks"] or 1))
    threads = int(set_threads) if set_threads.isdigit() else 1 if how["ranks"] is None else cores
    environment = {"OMP_NUM_THREADS": str(threads)}
    return how | {"host": Host(environment=lambda rank: environment), "threads": threads}


def kernels(args: argparse.Namespace) -> Answer:
    """Measure kernels of one device into a table that `calibrate compute` reads."""
    from oracle.calibration.machine import machine
    from oracle.executor.measure.machine import Asked, measure_machine, measured_records
    from oracle.readers.kernels import text
    from oracle.writers.export import put

    out = Path(args.output)
    parts = out.with_name(out.name + ".parts")
    free(out)
    how = started(args)
    outcome = measure_machine(parts, Asked(args.seconds, ""), **how)
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    measured = machine(measured_records(parts))
    put({str(out): text(measured.kernels) + "\n"})
    if how["ranks"] is not None:  # other ranks that a launcher started may still read the folder
        shutil.rmtree(parts)
    say = f"wrote {out}, {len(measured.kernels)} kernels; next: oracle calibrate compute {out}"
    rows = as_rows(measured)
    data = {"source": measured.source, "kernels": rows, "refused": list(measured.unmeasured)}
    return written_answer(args, data, rows, f"{say} --onto DEVICE")


def as_rows(measured: Any) -> list[dict[str, Any]]:
    """Return each kernel as a row."""
    from oracle.readers.kernels import SHAPES

    return [
        {"family": kernel.family, "part": kernel.part, "precision": kernel.precision,
         "shape": " ".join(f"{name}={value:g}" for name, value
                           in zip(SHAPES[kernel.family], kernel.shape, strict=True)),
         "seconds": kernel.seconds}
        for kernel in measured.kernels
    ]  # fmt: skip


def machine(args: argparse.Namespace) -> Answer:
    """Measure this machine into a folder: a device, a system, and the measurements."""
    from oracle.executor.measure.machine import Asked, measure_machine
    from oracle.executor.ranks.launch import Outcome
    from oracle.executor.ranks.world import World, recognise
    from oracle.show.layout import command

    out = Path(args.output)
    free(out)
    parts = out.with_name(out.name + ".parts")
    how = started(args)
    ranks = how["ranks"] or (recognise(os.environ) or World()).size
    collective_seconds = COLLECTIVES * args.seconds if ranks > 1 else 0.0
    folder = args.disk or str(out.absolute().parent)
    outcome: Outcome = measure_machine(
        parts / "device", Asked(args.seconds - collective_seconds, folder), **how
    )
    if outcome.complete and collective_seconds:
        outcome = measured_collectives(parts / "collectives.jsonl", collective_seconds, how)
    if not (outcome.complete and outcome.leads):
        return ended(outcome, "")
    answer = written(parts, out)
    note = f"wrote {out}/"
    if how["backend"] != "nccl":
        threads = how["threads"]
        note += f"\nOMP_NUM_THREADS={threads} gives `oracle run` the threads that one device had"
    text = "\n".join([answer.pop("text"), command([
        ("oracle recommend",), ("resnet50",), (f"{out}/system.yaml",), ("--devices", str(ranks)),
        ("--batch-per-device", "8"),
    ])])  # fmt: skip
    return written_answer(args, answer, answer["curves"], note, text)


def free(out: Path) -> None:
    """Refuse to write over anything."""
    from oracle.spec.document import refusal

    if out.exists() or out.is_symlink():
        raise refusal(str(out), "this is there already", "name another one with -o", "E131")


def measured_collectives(out: Path, seconds: float, how: Mapping[str, Any]) -> Any:
    """Measure collectives among all ranks, from the smallest message on, while there is time."""
    from oracle.executor.measure.collectives import OPERATIONS, measure_collectives

    sizes = [2**k for k in range(8, LARGEST[how["backend"]] + 1, 2)]
    plain = {name: value for name, value in how.items() if name != "threads"}
    return measure_collectives(
        out, operations=[operation for operation in OPERATIONS if operation != "halo"], sizes=sizes,
        longest=max(0.02, SLOWEST * seconds), repeats=5, within=seconds, **plain,
    )  # fmt: skip


def topology(parts: Path) -> str:
    """Return the output of `nvidia-smi topo -m`, or an empty text where it cannot run."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    try:
        done = subprocess.run([tool, "topo", "-m"], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def written(parts: Path, out: Path) -> dict[str, Any]:
    """Fit the measurements, write them to a folder beside `out`, and rename that to `out`."""
    import yaml

    from oracle.calibration import machine as calibration
    from oracle.calibration.calibrate import calibrate
    from oracle.executor.measure.machine import measured_records
    from oracle.readers.kernels import text
    from oracle.readers.logs import read
    from oracle.spec import catalogue
    from oracle.writers.export import put

    measured = calibration.machine(measured_records(parts / "device"))
    device, fit = calibration.device(measured)
    log, new = parts / "collectives.jsonl", parts / "new"
    shutil.rmtree(new, ignore_errors=True)
    readings = [read(log)] if log.is_file() else []
    links = topology(parts)
    samples = [sample for reading in readings for sample in reading.samples]
    body = calibration.system(measured, samples, links)

    def dumped(content: Any) -> str:
        return str(yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=99))

    files = {"device.yaml": dumped(calibration.device_data(device)), "system.yaml": dumped(body),
             "kernels.csv": text(measured.kernels) + "\n",
             "machine.json": as_json(facts(measured)) + "\n"}  # fmt: skip
    files |= {"topology.txt": links} if links else {}
    put({str(new / name): content for name, content in files.items()})
    notes = []
    if readings:
        shutil.copy(log, new / log.name)
        fitted = calibrate([read(new / log.name)], str(new / "system.yaml"))
        put({str(new / "system.yaml"): fitted.spec()}, force=True)
        notes = [f"{subject}: {why}" for subject, why in fitted.refused]
    on_system = catalogue.system(str(new / "system.yaml"))  # the written file can be read
    os.rename(new, out)
    shutil.rmtree(parts)
    return {
        **facts(measured),
        "files": sorted(p.name for p in out.iterdir()),
        "curves": curves(fit),
        "not_fitted": [*fit.skipped, *notes],
        "collectives": sorted({f"{curve.op}, {curve.level}" for curve in on_system.collectives}),
        "text": summary(measured, device, on_system, fit, notes),
    }


def facts(measured: Any) -> dict[str, Any]:
    """Return the facts and measurements of the machine."""
    return {"source": measured.source, "machine": dict(measured.facts),
            "memory_bandwidth": measured.bandwidth,
            "host_seconds_a_kernel": measured.dispatch, "disk": dict(measured.disk),
            "refused": list(measured.unmeasured)}  # fmt: skip


def curves(fit: Any) -> list[dict[str, Any]]:
    """Return the errors of each curve on kernels that it was not fitted to."""
    return [
        {
            "family": residual.family, "precision": residual.precision, "part": residual.part,
            "kernels": residual.kernels, "median_error": residual.median, "p90_error": residual.p90,
        }
        for residual in fit.residuals
    ]  # fmt: skip


def summary(measured: Any, device: Any, system: Any, fit: Any, notes: list[str]) -> str:
    """Return the measurements as text for people."""
    from oracle.show.calibration import kernel_table
    from oracle.show.layout import fact, several
    from oracle.spec.units import show

    peak = ", ".join(f"{name} {show(value, 'FLOP/s')}" for name, value in device.peak.items())
    curves_count = several(len(fit.residuals), "curve")
    lines = [
        f"{system.title}: {several(system.devices, 'device')}, {curves_count} of kernels fitted",
        fact("device", f"{peak}; memory {show(device.memory, 'B')} at "
             f"{show(device.memory_bandwidth, 'B/s')}"),
        fact("host", f"{show(measured.dispatch, 's')} to start a kernel"),
    ]  # fmt: skip
    lines += [fact(level.name, f"{several(level.devices, 'device')}, "
                   f"{show(level.bandwidth, 'B/s')}, {show(level.latency, 's')}"
                   + (" (assumed)" if "assumed" in level.source else ""))
              for level in system.levels]  # fmt: skip
    if system.storage:
        local, shared = system.storage.local, system.storage.shared
        rate = show(local.read if local else shared.bandwidth, "B/s")
        lines.append(fact("disk", f"{rate} on {measured.disk['file_system']}"))
    elif measured.disk["why"]:
        lines.append(fact("disk", f"not measured: {measured.disk['why']}"))
    lines += kernel_table(fit)
    refused = measured.unmeasured
    lines += [fact("refused", f"by the library: {', '.join(refused)}")] if refused else []
    return "\n".join([*lines, *(fact("left out", note) for note in notes)])
