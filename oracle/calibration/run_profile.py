"""A profile from logs of runs, by what a user says of them, or the logs themselves do."""

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
    """Logs with the plan and batch of each: one for all, one for each, or as the log has them."""
    for name, given in (("--plan", plans), ("--batch", batches)):
        if len(given) not in (0, 1, len(paths)):
            what = f"{len(given)} × {name} for {len(paths)} logs"
            raise refusal(
                "calibrate", what, "one for all of them, or one for each in order", "E103"
            )
    found = []
    for at, path in enumerate(paths):
        log = runs.read(path)
        plan = plans[at if len(plans) > 1 else 0] if plans else ""
        batch = batches[at if len(batches) > 1 else 0] if batches else 0
        if not plan or not batch:
            said = _said(log, path)
            plan, batch = plan or said[0], batch or said[1]
        if not plan or not batch:
            lacking = " and ".join(
                w for w, there in (("plan", plan), ("batch", batch)) if not there
            )
            hint = f"oracle calibrate run {path} MODEL SYSTEM --plan … --batch … -o profile.yaml"
            raise refusal(path, f"nothing says the {lacking} of this run", hint, "E103")
        plan_of(plan, batch)  # refused where it is none
        found.append(Run(log, plan, batch))
    return found


def _said(log: runs.RunLog, path: str) -> tuple[str, int]:
    """Plan and batch as a log has them; a list of arguments is read as that of a job."""
    plan, batch = log.plan, int(log.said.get("batch", 0))
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
    """What logs of runs tell of a system and the software on it."""
    what, where = load_model(model), load_system(system)
    found = runs_of(paths, plans, batches)
    options = options_for(what, where, precision, optimizer, software=software, any_plan=any_plan)
    room_for(where, [run.plan for run in found])
    return fit(found, what, where, options)


def opened(
    what: Any, model: Model | str, system: System | str, precision: str | None = None,
    optimizer: str | None = None, software: Any = None,
) -> Any:  # fmt: skip
    """A profile as it is, or what a log amounts to that was given in its place."""
    if what is None or isinstance(what, Profile):
        return what
    path = os.fspath(what)
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
