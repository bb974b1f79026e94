"""A profile from logs of runs, by what a user or the logs say of them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from oracle.calibration.run_parts import Run
from oracle.calibration.runs import RunFit, fit
from oracle.kernels.profile import Profile, profile
from oracle.kernels.profile.run_file import recognises
from oracle.models.model import Model
from oracle.models.model import model as load_model
from oracle.plan.plan import parse as plan_of
from oracle.predict.defaults import options_for, room_for
from oracle.readers import frameworks, jobs, runs
from oracle.spec.catalogue import system as load_system
from oracle.spec.document import SpecError, refusal
from oracle.spec.files import TRACE, read_bytes
from oracle.spec.system import System


def runs_of(
    paths: Sequence[str], plans: Sequence[str] = (), batches: Sequence[int] = ()
) -> list[Run]:
    """The logs with the plan and batch of each, given for all, for each, or by the log."""
    for name, values in (("--plan", plans), ("--batch", batches)):
        if len(values) not in (0, 1, len(paths)):
            problem = f"{len(values)} × {name} for {len(paths)} logs"
            raise refusal(
                "calibrate", problem, "one for all of them, or one for each in order", "E103"
            )
    runs_found = []
    for number, path in enumerate(paths):
        log = runs.read(path)
        plan = plans[number if len(plans) > 1 else 0] if plans else ""
        batch = batches[number if len(batches) > 1 else 0] if batches else 0
        if not plan or not batch:
            stated = _stated(log, path)
            plan, batch = plan or stated[0], batch or stated[1]
        if not plan or not batch:
            lacking = " and ".join(
                w for w, value in (("plan", plan), ("batch", batch)) if not value
            )
            hint = f"oracle calibrate run {path} MODEL SYSTEM --plan … --batch … -o profile.yaml"
            raise refusal(path, f"nothing says the {lacking} of this run", hint, "E103")
        plan_of(plan, batch)  # raises where the text is no plan
        runs_found.append(Run(log, plan, batch))
    return runs_found


def _stated(log: runs.RunLog, path: str) -> tuple[str, int]:
    """The plan and batch that a log states; a list of arguments is read as a job's."""
    plan, batch = log.plan, int(log.settings.get("batch", 0))
    if not plan or not batch:
        with suppress(SpecError):
            job = frameworks.training(jobs.read([path]))
            return plan or job.plan, batch or job.batch
    return plan, batch


def fitted(
    paths: Sequence[str], model: Model | str, system: System | str, *,
    plans: Sequence[str] = (), batches: Sequence[int] = (), precision: str | None = None,
    optimizer: str | None = None, software: Any = None, any_plan: bool = False,
) -> RunFit:  # fmt: skip
    """Fit what logs of runs tell of a system and of the software on it."""
    network, machine = load_model(model), load_system(system)
    runs_found = runs_of(paths, plans, batches)
    options = options_for(network, machine, precision, optimizer, software=software,
                          any_plan=any_plan)  # fmt: skip
    room_for(machine, [run.plan for run in runs_found])
    return fit(runs_found, network, machine, options)


def opened(
    source: Any, model: Model | str, system: System | str, precision: str | None = None,
    optimizer: str | None = None, software: Any = None,
) -> Any:  # fmt: skip
    """A profile; a log in its place is fitted first."""
    if source is None or isinstance(source, Profile):
        return source
    path = os.fspath(source)
    head = read_bytes(path, "profile", TRACE)
    text = head[: 2**16].decode("utf-8-sig", "replace")
    if (
        recognises(text)
        or text.lstrip().startswith('{"oracle-profile"')
        or not (runs.recognised(head))
    ):
        return profile(path)
    return fitted([path], model, system, precision=precision, optimizer=optimizer,
                  software=software).profile  # fmt: skip
