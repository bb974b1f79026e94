"""`oracle calibrate run LOG… MODEL SYSTEM`: a profile from logs of training runs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from oracle.commands.arguments import recipe_arguments, software_arguments, whole_number
from oracle.commands.parser import Answer, Usage, formatted

if TYPE_CHECKING:
    from oracle.kernels.profile.run_file import RunFile

OWN = ("plan", "batch", "precision", "optimizer", "software", "any")
OTHERS = ("onto", "ranks", "nodes", "plot", "files_of")
# the kinds of calibration that take an option, where not all do; `` is that of benchmarks' logs
TAKE: dict[str, tuple[str, ...]] = dict.fromkeys(OWN, ("run",)) | dict.fromkeys(
    OTHERS, ("", "compute")
)
TAKE |= {"onto": ("", "compute", "convergence"), "optimizer": ("run", "convergence"),
         "target": ("convergence",), "dataset": ("convergence",)}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `calibrate run`."""
    run = parser.add_argument_group("logs of runs (`calibrate run LOG… MODEL SYSTEM`)")
    run.add_argument("--plan", action="append", default=[], metavar="PLAN",
                     help="of the run; of each log, if they differ")  # fmt: skip
    run.add_argument("--batch", action="append", default=[], type=whole_number, metavar="B",
                     help="of the run, all devices; of each log, if they differ")  # fmt: skip
    recipe_arguments(parser)
    software_arguments(parser)


def refuse(args: argparse.Namespace) -> None:
    """Refuse typed options that belong to another kind of calibration."""
    origins = getattr(args, "origins", {})
    kind = args.files[0] if args.files[0] in ("run", "compute", "convergence") else ""
    for name, kinds in TAKE.items():
        if origins.get(name) == "command line" and kind not in kinds:
            if kind in ("run", "convergence"):
                raise Usage(f"--{name} is not for `calibrate {kind}`")
            raise Usage(f"--{name} is for `calibrate {kinds[0]}`")


def run(args: argparse.Namespace) -> Answer:
    """Fit factors to logs, and return and write them."""
    from oracle.calibration.run_profile import fitted
    from oracle.kernels.profile.run_file import written
    from oracle.show.provenance import files_read, specs_read, stamped
    from oracle.show.run_fit import run_fit_text
    from oracle.spec.document import refusal

    if len(args.files) < 4:
        hint = "oracle calibrate run job.log resnet50 abci --plan data:8 --batch 512 -o mine.yaml"
        raise refusal("calibrate", "name the logs, then the model and the system", hint, "E103")
    *paths, model, system = args.files[1:]
    fit = fitted(
        paths, model, system, plans=args.plan, batches=args.batch, precision=args.precision,
        optimizer=args.optimizer, software=args.software, any_plan=args.any_plan,
    )  # fmt: skip
    fitted_any = bool(fit.file.factors or fit.file.rows)
    note = "" if fitted_any else "these logs told nothing that was not known: nothing was written"
    if args.output and fitted_any:
        from oracle.writers.export import put

        put({args.output: written(fit.file)})
        note = f"wrote {args.output}: name it as --profile"
    read = [*specs_read(model, system, None, None, args.software), *files_read(paths)]
    return formatted(
        args, lambda: run_fit_text(fit, _next(args, fit.file) if fitted_any else ""),
        lambda: stamped(fit.to_dict(), read), fit.rows, 0 if fitted_any else 1, note,
    )  # fmt: skip


def _next(args: argparse.Namespace, file: RunFile) -> str:
    """Return the command that writes the profile, or that predicts with the one written."""
    from oracle.show.layout import command, grouped

    if args.output is None:
        return command([("oracle calibrate",), *grouped([*args.words, "-o", "my-profile.yaml"])])
    *_, model, system = args.files
    plan, batch = ((file.runs[0].plan, file.runs[0].batch) if file.runs
                   else (args.plan[0], args.batch[0]))  # fmt: skip
    return command([("oracle estimate",), (model,), (system,), ("--plan", plan),
                    ("--batch", str(batch)), ("--profile", args.output)])  # fmt: skip
