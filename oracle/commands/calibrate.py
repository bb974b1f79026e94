"""Fit α, β or kernel curves to measurements, and write them beside the datasheet's values.

oracle calibrate FILE... --onto SYSTEM -o NEW.yaml           nccl-tests, OSU, our own files;
                                                             nvidia-smi topo -m, NCCL's XML, Slurm
oracle calibrate compute TABLE... --onto DEVICE -o NEW.yaml  measured kernels
oracle calibrate run LOG... MODEL SYSTEM --plan PLAN --batch B -o PROFILE.yaml
                                                             logs and profiles of training runs
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from oracle.commands import calibrate_run
from oracle.commands.arguments import result_arguments, whole
from oracle.commands.parser import Answer, Usage, formatted


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="logs, or - for standard input; `compute` first for kernels, `run` for training runs",
    )
    parser.add_argument("--onto", metavar="SYSTEM", help="a system, or a device")
    parser.add_argument("-o", "--output", metavar="NEW.yaml", help="the new spec; never the old")
    parser.add_argument("--ranks", type=whole, metavar="P", help="where the logs do not say")
    parser.add_argument("--nodes", type=whole, metavar="N", help="where the logs do not say")
    parser.add_argument("--plot", metavar="FILE", help="points, fits and residuals as a figure")
    calibrate_run.arguments(parser)
    result_arguments(parser, file=False)


def run(asked: argparse.Namespace) -> Answer:
    calibrate_run.refuse(asked)
    if asked.files[0] == "run":
        return calibrate_run.run(asked)
    if not asked.onto:
        raise Usage("the following arguments are required: --onto")
    if asked.files[0] == "compute":
        return kernels(asked)
    from oracle.calibration.calibrate import calibrate
    from oracle.readers.logs import read

    readings = [read(path) for path in asked.files]
    if asked.ranks or asked.nodes:
        said = {"ranks": asked.ranks, "nodes": asked.nodes}
        readings = [r.given(**{k: v for k, v in said.items() if v}) for r in readings]
    found = calibrate(readings, asked.onto)
    note = ""
    if asked.output:
        found.write(asked.output)
        note = f"wrote {asked.output}: name it where a SYSTEM is asked for"
    if asked.plot:
        from oracle.show.plot.fits import fits
        from oracle.show.plot.style import save

        save(fits(found), asked.plot)
        note = "\n".join(filter(None, [note, f"wrote {asked.plot}"]))
    code = 0 if found.fits or found.structure.findings else 1
    from oracle.show.provenance import files_read, stamped
    from oracle.spec.catalogue import noted, system

    with noted() as read_:
        system(asked.onto)
    inputs = [*read_, *files_read(asked.files)]
    return formatted(
        asked, found.text, lambda: stamped(found.to_dict(), inputs), found.rows, code, note
    )


def kernels(asked: argparse.Namespace) -> Answer:
    """Curves of kernels onto a device; a system stands for its device."""
    from oracle.calibration import kernels
    from oracle.readers.kernels import read
    from oracle.show.provenance import stamped
    from oracle.spec import catalogue
    from oracle.spec.document import SpecError

    try:
        device = catalogue.device(asked.onto)
    except SpecError:
        device = catalogue.system(asked.onto).device
    readings = [read(path) for path in asked.files[1:]]
    samples = [kernel for reading in readings for kernel in reading.kernels]
    source = ", ".join(Path(path).name for path in asked.files[1:])
    fit = kernels.fit(samples, device, source=source)
    note = ""
    if asked.output:
        write(asked.output, kernels.onto(device, fit.kernels))
        note = f"wrote {asked.output}"
    entries = kernels.entries(fit.kernels)
    return formatted(
        asked, lambda: kernels.report(fit), lambda: stamped({"kernels": entries}),
        lambda: entries, 0 if fit.kernels else 1, note,
    )  # fmt: skip


def write(path: str, device: Any) -> None:
    """A device file with the new curves: whole or not at all, never over a file that is there."""
    import yaml

    from oracle.calibration import kernels
    from oracle.spec.schema import to_data
    from oracle.writers.export import put

    body = to_data(device) | {"kernels": kernels.entries(device.kernels)}
    put({path: yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)})
