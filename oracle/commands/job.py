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


def answer(asked: argparse.Namespace) -> Answer:
    """Files of a job as a spec and a command, or predicted where a system is said."""
    from oracle.models.model import model

    job = read(asked)
    if isinstance(job.model, dict):
        job.model.update({"name": asked.name} if asked.name else {})
    loaded = model(job.model, asked.dataset)
    if asked.batch == "max" and not asked.system:
        raise refusal("options", "how much fits depends on the device", "--system S")
    found = predicted(job, loaded, asked) if asked.system else None
    code = 0 if found is None or found.estimate.feasible[0] else 1
    line = command(job, asked, found)
    notes = [summary(job, loaded), *(f"note: {note}" for note in job.notes)]
    if asked.output:
        notes.append(write(job, line, asked))
    if asked.as_json:
        return Answer(as_json(data(job, line, found, asked)), code, "\n".join(notes))
    if found is not None:
        return Answer(text(found, line, asked), code, "\n".join(notes))
    return Answer("" if asked.output else unpredicted(job, line), note="\n".join(notes))


def read(asked: argparse.Namespace) -> Training:
    """The training that the files say."""
    from oracle.readers import frameworks, jobs
    from oracle.readers.frameworks.training import Given

    given = Given(asked.model, asked.devices, asked.software)
    return frameworks.training(jobs.read(asked.what, dict(asked.variables)), given)


def predicted(job: Training, loaded: Model, asked: argparse.Namespace) -> Launched:
    from oracle.ask.launched import launched
    from oracle.spec.catalogue import system

    largest = asked.batch == "max"
    return launched(job, loaded, system(asked.system), None if largest else asked.batch, largest)


def summary(job: Training, loaded: Model) -> str:
    return (f"{job.named}: {job.framework}, {loaded.name} of {loaded.parameters:,.0f} parameters, "
            f"{job.devices} devices, {job.batch} samples an iteration")  # fmt: skip


def command(job: Training, asked: argparse.Namespace, found: Launched | None) -> str:
    """The line that asks for the same prediction."""
    named = "model.yaml" if isinstance(job.model, dict) else str(job.model)
    batch = int(found.estimate.batch[0]) if found else asked.batch or job.batch
    words = ["oracle", "estimate", named, asked.system or "SYSTEM", "--plan", job.plan,
             "--batch", str(batch), "--precision", job.precision, "--optimizer", job.optimizer,
             "--software", job.software]  # fmt: skip
    words += ["--dataset", asked.dataset] if asked.dataset else []
    return shlex.join(words + (["--any"] if found and found.any_plan else []))


def unpredicted(job: Training, line: str) -> str:
    """A model spec, and the command that predicts it as its last line."""
    from oracle.readers.spec_text import spec_text

    spec = spec_text(job.model) if isinstance(job.model, dict) else ""
    return f"{spec}# {line}"


def write(job: Training, line: str, asked: argparse.Namespace) -> str:
    """Put the model and the command into a folder."""
    from oracle.readers.spec_text import spec_text
    from oracle.writers.export import put

    folder = Path(asked.output)
    files = {str(folder / "estimate.sh"): f'#!/bin/sh\ncd "$(dirname "$0")" || exit 2\n{line}\n'}
    if isinstance(job.model, dict):
        files[str(folder / "model.yaml")] = spec_text(job.model)
    put(files, force=asked.force)
    return f"written to {', '.join(sorted(files))}"


def text(found: Launched, line: str, asked: argparse.Namespace) -> str:
    """The prediction, and what would be better."""
    from oracle.show.rates import rate_text
    from oracle.show.text import estimate_text
    from oracle.spec.units import show

    lines = [estimate_text(found.estimate)]
    if asked.batch == "max":
        lines.append(rate_text(found.estimate, 0))
    better, fits = found.better(), bool(found.estimate.feasible[0])
    if better:
        said = f"{better['plan']}: {show(better['seconds'], 's')} an iteration"
        share = f", {better['faster']:.0%} less" if fits else ", and it fits"
        lines.append(f"better: {said}{share}")
    elif found.ranking is None:
        lines.append("nothing else was tried: the system has fewer devices")
    else:
        lines.append("nothing that was tried is faster" if fits else "nothing that was tried fits")
    return "\n".join([*lines, "", line])


def data(
    job: Training, line: str, found: Launched | None, asked: argparse.Namespace
) -> dict[str, Any]:
    """The same for another program."""
    from oracle.show.provenance import stamped

    return stamped({
        "framework": job.framework, "software": job.software, "plan": job.plan,
        "batch": int(found.estimate.batch[0]) if found else asked.batch or job.batch,
        "devices": job.devices, "precision": job.precision, "optimizer": job.optimizer,
        "model": job.model, "command": line, "notes": list(job.notes),
        "estimate": found.estimate.plan_dict(0) if found else None,
        "better": found.better() if found else None,
    })  # fmt: skip
