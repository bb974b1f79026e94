"""Fit α, β, storage or kernel curves to measurements, and write them beside the datasheet's values.

oracle calibrate FILE... --onto SYSTEM -o NEW.yaml           logs of benchmarks, files of topology
oracle calibrate fio.json mdtest.out SYSTEM --files shared   rates of files, as `storage:`
oracle calibrate a.log:nodes=2,ranks=16 b/ - SYSTEM          the same: a folder, standard input,
                                                             and what a log does not say
oracle calibrate compute TABLE... --onto DEVICE -o NEW.yaml  measured kernels
oracle calibrate run LOG... MODEL SYSTEM --plan PLAN --batch B -o PROFILE.yaml
                                                             logs and profiles of training runs
oracle calibrate convergence RUNS.csv --onto MODEL -o NEW.yaml   epochs by batch, of your own runs
"""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

from oracle.commands import calibrate_convergence, calibrate_run
from oracle.commands.arguments import result_arguments, whole
from oracle.commands.parser import Answer, formatted
from oracle.spec.document import SpecError, refusal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="logs, folders of them, or - for standard input; FILE:nodes=2,ranks=16,pairs=8 says "
        "what a log does not; `compute` first for kernels, `run` for training runs, "
        "`convergence` for epochs by batch",
    )
    parser.add_argument(
        "--onto", metavar="SYSTEM", help="a system, or a device; else the last FILE"
    )
    parser.add_argument("-o", "--output", metavar="NEW.yaml", help="the new spec; never the old")
    parser.add_argument("--ranks", type=whole, metavar="P", help="where the logs do not say")
    parser.add_argument("--nodes", type=whole, metavar="N", help="where the logs do not say")
    parser.add_argument("--files", dest="files_of", choices=["shared", "local"], default="",
                        metavar="WHOSE",
                        help="shared or local: whose files fio, mdtest and IOR read, those of all "
                        "nodes (unless a log says) or a node's own disks")  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="points, fits and residuals as a figure")
    calibrate_run.arguments(parser)
    calibrate_convergence.arguments(parser)
    result_arguments(parser, file=False)


def run(asked: argparse.Namespace) -> Answer:
    calibrate_run.refuse(asked)
    if asked.files[0] == "run":
        return calibrate_run.run(asked)
    if asked.files[0] == "convergence":
        return calibrate_convergence.run(asked)
    if asked.onto is None:
        *logs, last = asked.files
        if not logs or _is_log(last):
            what = "nothing says which system these logs are of"
            command = f"oracle calibrate {' '.join(map(shlex.quote, asked.files[:3]))}"
            more = " …" if len(asked.files) > 3 else ""
            hint = f"{command}{more} --onto SYSTEM, e.g. --onto abci, or a file of your own"
            raise refusal("calibrate", what, hint)
        asked.files, asked.onto = logs, last
    if asked.files[0] == "compute":
        return kernels(asked)
    from oracle.calibration.believed import believed
    from oracle.calibration.calibrate import calibrate
    from oracle.readers.log_files import gathered

    files = gathered(asked.files, asked.ranks, asked.nodes)
    warned = believed(files.readings, asked.onto, asked.files_of)
    note = "\n".join(filter(None, [files.text(), warned]))
    found = calibrate(files.readings, asked.onto, asked.files_of)
    if asked.output:
        found.write(asked.output)
        wrote = f"wrote {asked.output}: name it where a SYSTEM is asked for"
        if not found.told:
            wrote = f"wrote {asked.output}, which is {asked.onto} as it was: no log told anything"
        note = "\n".join(filter(None, [note, wrote]))
    if asked.plot:
        from oracle.show.plot.fits import fits
        from oracle.show.plot.style import save

        save(fits(found), asked.plot)
        note = "\n".join(filter(None, [note, f"wrote {asked.plot}"]))
    code = 0 if found.told else 1
    from oracle.show.provenance import files_read, stamped
    from oracle.spec.catalogue import noted, system

    with noted() as read_:
        system(asked.onto)
    inputs = [*read_, *files_read(files.names)]
    return formatted(
        asked, found.text, lambda: stamped(found.to_dict(), inputs), found.rows, code, note
    )


def _is_log(name: str) -> bool:
    """Whether a name is a file that can be no system's spec."""
    path = Path(name)
    return path.is_dir() or (path.is_file() and path.suffix not in (".yaml", ".yml", ".json"))


def kernels(asked: argparse.Namespace) -> Answer:
    """Curves of kernels onto a device; a system stands for its device."""
    from oracle.calibration import kernels
    from oracle.readers.kernels import read
    from oracle.show.provenance import stamped
    from oracle.spec import catalogue

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
