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
from typing import TYPE_CHECKING, Any

from oracle.commands import calibrate_convergence, calibrate_run
from oracle.commands.arguments import result_arguments, whole_number
from oracle.commands.parser import Answer, formatted
from oracle.spec.document import SpecError, refusal

if TYPE_CHECKING:
    from oracle.spec.system import System

USUAL_DEVICES = 64  # of a machine, that the next command asks of


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
    parser.add_argument("--ranks", type=whole_number, metavar="P", help="where the logs do not say")
    parser.add_argument("--nodes", type=whole_number, metavar="N", help="where the logs do not say")
    parser.add_argument("--files", dest="files_of", choices=["shared", "local"], default="",
                        metavar="WHOSE",
                        help="shared or local: whose files fio, mdtest and IOR read, those of all "
                        "nodes (unless a log says) or a node's own disks")  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="points, fits and residuals as a figure")
    calibrate_run.arguments(parser)
    calibrate_convergence.arguments(parser)
    result_arguments(parser, file=False)


def run(args: argparse.Namespace) -> Answer:
    calibrate_run.refuse(args)
    if args.files[0] == "run":
        return calibrate_run.run(args)
    if args.files[0] == "convergence":
        return calibrate_convergence.run(args)
    if args.onto is None:
        *logs, last = args.files
        if not logs or _is_log(last):
            complaint = "nothing says which system these logs are of"
            command = f"oracle calibrate {' '.join(map(shlex.quote, args.files[:3]))}"
            more = " …" if len(args.files) > 3 else ""
            hint = f"{command}{more} --onto SYSTEM, e.g. --onto abci, or a file of your own"
            raise refusal("calibrate", complaint, hint)
        args.files, args.onto = logs, last
    if args.files[0] == "compute":
        return kernels(args)
    from oracle.calibration.believed import believed
    from oracle.calibration.calibrate import calibrate
    from oracle.readers.log_files import gathered

    files = gathered(args.files, args.ranks, args.nodes)
    warned = believed(files.readings, args.onto, args.files_of)
    note = "\n".join(filter(None, [files.text(), warned]))
    calibration = calibrate(files.readings, args.onto, args.files_of)
    if args.output:
        calibration.write(args.output)
        wrote = f"wrote {args.output}: name it where a SYSTEM is asked for"
        if not calibration.told:
            wrote = f"wrote {args.output}, which is {args.onto} as it was: no log told anything"
        note = "\n".join(filter(None, [note, wrote]))
    if args.plot:
        from oracle.show.plot.fits import fits
        from oracle.show.plot.style import save

        save(fits(calibration), args.plot)
        note = "\n".join(filter(None, [note, f"wrote {args.plot}"]))
    code = 0 if calibration.told else 1
    from oracle.show.calibration import calibration_text
    from oracle.show.provenance import files_read, stamped
    from oracle.spec.catalogue import noted, system

    with noted() as read_:
        system(args.onto)
    inputs = [*read_, *files_read(files.names)]
    following = _next(args, calibration.system) if calibration.told else ""
    return formatted(
        args, lambda: calibration_text(calibration, following, args.verbose),
        lambda: stamped(calibration.to_dict(), inputs), calibration.rows, code, note,
    )  # fmt: skip


def _next(args: argparse.Namespace, system: System | None) -> str:
    """Return the command that writes what was fitted, or that asks of the machine written."""
    from oracle.show.layout import command, grouped

    if args.output is None:
        new = "my-device.yaml" if system is None else "my-system.yaml"
        return command([("oracle calibrate",), *grouped([*args.words, "-o", new])])
    if system is None:
        return ""
    devices = str(min(system.devices, USUAL_DEVICES))
    return command([("oracle recommend",), ("resnet50",), (args.output,), ("--devices", devices),
                    ("--batch-per-device", "8")])  # fmt: skip


def _is_log(name: str) -> bool:
    """Return whether a name is a file that cannot be a system's spec."""
    path = Path(name)
    return path.is_dir() or (path.is_file() and path.suffix not in (".yaml", ".yml", ".json"))


def kernels(args: argparse.Namespace) -> Answer:
    """Fit curves of kernels onto a device; the name of a system stands for its device."""
    from oracle.calibration import kernels
    from oracle.readers.kernels import read
    from oracle.show.calibration import kernels_text
    from oracle.show.provenance import stamped
    from oracle.spec import catalogue

    try:
        device = catalogue.device(args.onto)
    except SpecError:
        device = catalogue.system(args.onto).device
    readings = [read(path) for path in args.files[1:]]
    samples = [kernel for reading in readings for kernel in reading.kernels]
    source = ", ".join(Path(path).name for path in args.files[1:])
    fit = kernels.fit(samples, device, source=source)
    note = ""
    if args.output:
        write(args.output, kernels.onto(device, fit.kernels))
        note = f"wrote {args.output}"
    entries = kernels.entries(fit.kernels)
    return formatted(
        args, lambda: kernels_text(fit, _next(args, None), args.verbose),
        lambda: stamped({"kernels": entries}), lambda: entries, 0 if fit.kernels else 1, note,
    )  # fmt: skip


def write(path: str, device: Any) -> None:
    """Write a device file with the new curves, completely or not at all, over no other file."""
    import yaml

    from oracle.calibration import kernels
    from oracle.spec.schema import to_data
    from oracle.writers.export import put

    body = to_data(device) | {"kernels": kernels.entries(device.kernels)}
    put({path: yaml.safe_dump(body, sort_keys=False, allow_unicode=True, width=100)})
