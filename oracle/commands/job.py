"""The answer of `oracle import job`: what a job trains, what it takes, what would be better."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.commands.parser import Answer, as_json
from oracle.spec.document import refusal

if TYPE_CHECKING:
    from oracle.ask.launched import Launched
    from oracle.models.model import Model
    from oracle.readers.frameworks.training import Training


def answer(args: argparse.Namespace) -> Answer:
    """Return a job as a spec and a command, or its prediction where a system is said."""
    from oracle.models.model import model

    job = read(args)
    if isinstance(job.model, dict):
        job.model.update({"name": args.name} if args.name else {})
    loaded = model(job.model, args.dataset)
    if args.batch == "max" and not args.system:
        raise refusal("options", "how much fits depends on the device", "--system S")
    launched_job = predicted(job, loaded, args) if args.system else None
    code = 0 if launched_job is None or launched_job.estimate.feasible[0] else 1
    line = command(job, args, launched_job)
    notes = [summary(job, loaded), *(f"note: {note}" for note in job.notes)]
    if args.output:
        notes.append(write(job, line, args))
    if args.as_json:
        return Answer(as_json(data(job, line, launched_job, args)), code, "\n".join(notes))
    if launched_job is not None:
        return Answer(text(launched_job, line, args), code, "\n".join(notes))
    return Answer("" if args.output else unpredicted(job, line), note="\n".join(notes))


def read(args: argparse.Namespace) -> Training:
    """Return the training that the files of a job say."""
    from oracle.readers import frameworks, jobs
    from oracle.readers.frameworks.training import Overrides

    overrides = Overrides(args.model, args.devices, args.software)
    return frameworks.training(jobs.read(args.what, dict(args.variables)), overrides)


def predicted(job: Training, loaded: Model, args: argparse.Namespace) -> Launched:
    from oracle.ask.launched import launched
    from oracle.spec.catalogue import system

    largest = args.batch == "max"
    return launched(job, loaded, system(args.system), None if largest else args.batch, largest)


def summary(job: Training, loaded: Model) -> str:
    return (f"{job.named}: {job.framework}, {loaded.name} of {loaded.parameters:,.0f} parameters, "
            f"{job.devices} devices, {job.batch} samples an iteration")  # fmt: skip


def command(job: Training, args: argparse.Namespace, launched_job: Launched | None) -> str:
    """Return the command line of the same prediction."""
    model_name = "model.yaml" if isinstance(job.model, dict) else str(job.model)
    batch = int(launched_job.estimate.batch[0]) if launched_job else args.batch or job.batch
    words = ["oracle", "estimate", model_name, args.system or "SYSTEM", "--plan", job.plan,
             "--batch", str(batch), "--precision", job.precision, "--optimizer", job.optimizer,
             "--software", job.software]  # fmt: skip
    words += ["--dataset", args.dataset] if args.dataset else []
    return shlex.join(words + (["--any"] if launched_job and launched_job.any_plan else []))


def unpredicted(job: Training, line: str) -> str:
    """Return a model spec, with the command that predicts it as the last line."""
    from oracle.readers.spec_text import spec_text

    spec = spec_text(job.model) if isinstance(job.model, dict) else ""
    return f"{spec}# {line}"


def write(job: Training, line: str, args: argparse.Namespace) -> str:
    """Write the model and the command into a folder, and return a line about the files."""
    from oracle.readers.spec_text import spec_text
    from oracle.writers.export import put

    folder = Path(args.output)
    files = {str(folder / "estimate.sh"): f'#!/bin/sh\ncd "$(dirname "$0")" || exit 2\n{line}\n'}
    if isinstance(job.model, dict):
        files[str(folder / "model.yaml")] = spec_text(job.model)
    put(files, force=args.force)
    return f"written to {', '.join(sorted(files))}"


def text(launched_job: Launched, line: str, args: argparse.Namespace) -> str:
    """Return the prediction and the better plan, if there is one, as text."""
    from oracle.show.rates import rate_text
    from oracle.show.text import estimate_text
    from oracle.spec.units import show

    lines = [estimate_text(launched_job.estimate)]
    if args.batch == "max":
        lines.append(rate_text(launched_job.estimate, 0))
    better, fits = launched_job.better(), bool(launched_job.estimate.feasible[0])
    if better:
        better_plan = f"{better['plan']}: {show(better['seconds'], 's')} an iteration"
        share = f", {better['faster']:.0%} less" if fits else ", and it fits"
        lines.append(f"better: {better_plan}{share}")
    elif launched_job.ranking is None:
        lines.append("nothing else was tried: the system has fewer devices")
    else:
        lines.append("nothing that was tried is faster" if fits else "nothing that was tried fits")
    return "\n".join([*lines, "", line])


def data(
    job: Training, line: str, launched_job: Launched | None, args: argparse.Namespace
) -> dict[str, Any]:
    """Return the prediction and the better plan as data for another program."""
    from oracle.show.provenance import stamped

    return stamped({
        "framework": job.framework, "software": job.software, "plan": job.plan,
        "batch": int(launched_job.estimate.batch[0]) if launched_job else args.batch or job.batch,
        "devices": job.devices, "precision": job.precision, "optimizer": job.optimizer,
        "model": job.model, "command": line, "notes": list(job.notes),
        "estimate": launched_job.estimate.plan_dict(0) if launched_job else None,
        "better": launched_job.better() if launched_job else None,
    })  # fmt: skip
