"""`oracle calibrate run LOG… MODEL SYSTEM`: a profile from logs of training runs."""

from __future__ import annotations

import argparse

from oracle.commands.arguments import recipe_arguments, software_arguments, whole
from oracle.commands.parser import Answer, Usage, formatted

OWN = ("plan", "batch", "precision", "optimizer", "software", "any")
OTHERS = ("onto", "ranks", "nodes", "plot", "files_of")
# of options that only some kinds of calibration take, which: `` is that of logs of benchmarks
TAKE: dict[str, tuple[str, ...]] = dict.fromkeys(OWN, ("run",)) | dict.fromkeys(
    OTHERS, ("", "compute")
)
TAKE |= {"onto": ("", "compute", "convergence"), "optimizer": ("run", "convergence"),
         "target": ("convergence",), "dataset": ("convergence",)}  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `calibrate run` takes beside files."""
    run = parser.add_argument_group("logs of runs (`calibrate run LOG… MODEL SYSTEM`)")
    run.add_argument("--plan", action="append", default=[], metavar="PLAN",
                     help="of the run; of each log, if they differ")  # fmt: skip
    run.add_argument("--batch", action="append", default=[], type=whole, metavar="B",
                     help="of the run, all devices; of each log, if they differ")  # fmt: skip
    recipe_arguments(parser)
    software_arguments(parser)


def refuse(asked: argparse.Namespace) -> None:
    """Refuse options of another kind of calibration, where somebody typed them."""
    said = getattr(asked, "origins", {})
    kind = asked.files[0] if asked.files[0] in ("run", "compute", "convergence") else ""
    for name, kinds in TAKE.items():
        if said.get(name) == "command line" and kind not in kinds:
            if kind in ("run", "convergence"):
                raise Usage(f"--{name} is not for `calibrate {kind}`")
            raise Usage(f"--{name} is for `calibrate {kinds[0]}`")


def run(asked: argparse.Namespace) -> Answer:
    """Factors from logs, told and written."""
    from oracle.calibration.run_profile import fitted
    from oracle.kernels.profile.run_file import written
    from oracle.show.provenance import files_read, specs_read, stamped
    from oracle.show.run_fit import text
    from oracle.spec.document import refusal

    if len(asked.files) < 4:
        hint = "oracle calibrate run job.log resnet50 abci --plan data:8 --batch 512 -o mine.yaml"
        raise refusal("calibrate", "name the logs, then the model and the system", hint, "E103")
    *paths, model, system = asked.files[1:]
    found = fitted(
        paths, model, system, plans=asked.plan, batches=asked.batch, precision=asked.precision,
        optimizer=asked.optimizer, software=asked.software, any_plan=asked.any_plan,
    )  # fmt: skip
    told = bool(found.file.factors or found.file.rows)
    note = "" if told else "these logs told nothing that was not known: nothing was written"
    if asked.output and told:
        from oracle.writers.export import put

        put({asked.output: written(found.file)})
        note = f"wrote {asked.output}: name it as --profile"
    read = [*specs_read(model, system, None, None, asked.software), *files_read(paths)]
    return formatted(
        asked, lambda: text(found), lambda: stamped(found.to_dict(), read), found.rows,
        0 if told else 1, note,
    )  # fmt: skip
