"""Factors of a machine and its software from logs of runs: penalised least squares in logarithms.

    min  Σ ((ln predicted(θ) − ln logged) / noise)²  +  θᵀ P⁻¹ θ

θ are logarithms of `kernels.profile.factors`, P is what a prediction doubts of them before any log:
what kernels and messages state, and what all err by together where the software was never held
against a step. So one step's time moves everything it is made of by its share of the doubt; three
totals, kernels by group and messages move their own. What the logs did not tell stays out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from oracle.calibration.run_parts import LEAST, STRANGE, Part, Run, checked, logged, matching
from oracle.calibration.run_parts import predicted as predicted_parts
from oracle.kernels.profile import Profile, signature
from oracle.kernels.profile.factors import GROUPS, NAMES, Factor, Factors, groups_of
from oracle.kernels.profile.run_file import RunFile, RunPart, RunRow
from oracle.kernels.rows import priced
from oracle.models.model import Model
from oracle.predict.estimate import Estimate
from oracle.predict.evaluate import split
from oracle.readers.logs import InputError
from oracle.spec.doubt import LIBRARY, SCALED, SHORT, WIDTHS
from oracle.spec.options import Options
from oracle.spec.system import System

Floats: TypeAlias = NDArray[np.float64]
# of the doubt beforehand, up to which a factor counts as told: most err together with others, and
# are kept for that; of messages' own doubt nothing may be lost
SOME, TOLD = 0.999, dict.fromkeys(("inside", "between", "shown"), 0.9)
WAITS = 2.0  # times as long for a host's dispatch, from where it is likely something else
WIDEST = 3.0  # of the logarithm of a factor: twenty times


@dataclass(frozen=True)
class RunFit:
    """What logs told: the file of a profile, and what was not used and why."""

    file: RunFile
    notes: tuple[str, ...] = ()

    @property
    def profile(self) -> Profile:
        return self.file.opened

    def rows(self) -> list[dict[str, object]]:
        """What the logs say beside what is predicted, as a table."""
        return [
            {"plan": each.plan, "batch": each.batch, "part": each.part, "seconds": each.seconds,
             "spread": each.spread, "before": each.before, "after": each.after}
            for each in self.file.runs
        ]  # fmt: skip

    def to_dict(self) -> dict[str, object]:
        factors = {name: {"times": each.times, "doubt": each.doubt}
                   for name, each in self.file.factors.items()}  # fmt: skip
        return {"runs": self.rows(), "factors": factors, "layers": len(self.file.rows),
                "notes": list(self.notes)}  # fmt: skip


def fit(runs: Sequence[Run], model: Model, system: System, options: Options) -> RunFit:
    """Solve for what the logs can tell of this machine and software."""
    model = model.under(options.software.kernels)
    runs = [checked(run, model) for run in runs]
    options = replace(options, profile=None)
    rows = [row for run in runs for row in _layers(run, model, system, options)]
    plain = Profile(rows={}).on(system.device)
    found, before = predicted_parts(runs, model, system, replace(options, profile=plain))
    wanted = [(at, part) for at, run in enumerate(runs) for part in _usable(run, model, before[at])]
    notes = [
        f"{run.log.path}: {part.name} is not predicted of this plan, so it tells nothing"
        for at, run in enumerate(runs) for part in logged(run, model)
        if (at, part) not in wanted
    ] + [f"{run.log.path}: {note}" for run in runs for note in run.log.notes]  # fmt: skip
    root, names = prior(found, runs, before, [part.name for _, part in wanted], options)

    def seconds(theta: Floats) -> list[dict[str, float]]:
        factors = {name: Factor(float(np.exp(np.clip(t, -WIDEST, WIDEST))))
                   for name, t in zip(names, theta, strict=True)}  # fmt: skip
        tried = replace(plain, factors=Factors(factors))
        host = replace(options.software.host, times=tried.factors.times("host"))
        software = options.software.but(host=host)
        asked = replace(options, profile=tried, software=software)
        return predicted_parts(runs, model, system, asked)[1]

    at_first = np.sqrt((root**2).sum(axis=1))
    theta, spread, after = np.zeros(len(root)), root @ root.T, before
    if wanted:
        theta, spread, after = _solved(seconds, root, wanted)
    doubt = np.sqrt(np.diag(spread))
    factors = {
        names[i]: Factor(float(np.exp(theta[i])), float(doubt[i])) for i in range(len(names))
        if doubt[i] < TOLD.get(names[i], SOME) * at_first[i] or abs(theta[i]) > doubt[i]
    }  # fmt: skip
    told = [names.index(name) for name in factors]
    together = tuple(
        tuple(float(spread[i, j] / (doubt[i] * doubt[j])) for j in told[:k])
        for k, i in enumerate(told) if k
    )  # fmt: skip
    if factors.get("host", Factor()).times > WAITS:
        notes.append("devices wait for their hosts much longer than kernels take to be launched: "
                     "for samples to be read, it may be")  # fmt: skip
    file = RunFile(
        "runs", ", ".join(dict.fromkeys(run.log.path for run in runs)), model.name, system.name,
        system.device.name, options.software.label, options.precision,
        tuple(RunPart(runs[at].plan, runs[at].batch, part.name, part.seconds, part.spread,
                      before[at][part.name], after[at][part.name]) for at, part in wanted),
        factors, together, tuple(rows),
    )  # fmt: skip
    return RunFit(file, tuple(notes))


def _usable(run: Run, model: Model, before: Mapping[str, float]) -> list[Part]:
    """Parts that can be held against a prediction; refused where they are of something else."""
    found = []
    least = LEAST * before["step"]
    for part in logged(run, model):
        due = before.get(part.name, 0.0)
        if part.seconds <= least or due <= least:
            continue
        times = part.seconds / due
        if part.name in ("step", "forward", "backward") and not 1 / STRANGE < times < STRANGE:
            what = f"its {part.name} of {part.seconds:.3g} s is {times:.2g} times what is predicted"
            raise InputError(run.log.path, 0, what, "is it of this model, plan, batch and unit?")
        found.append(part)
    return found


def _solved(
    take: Callable[[Floats], list[dict[str, float]]], root: Floats,
    wanted: Sequence[tuple[int, Part]],
) -> tuple[Floats, Floats, list[dict[str, float]]]:  # fmt: skip
    """(θ, their covariance, parts as predicted then), in units of the doubt beforehand."""
    from scipy.optimize import least_squares

    took = np.log([part.seconds for _, part in wanted])
    noise = np.array([part.noise for _, part in wanted])

    def misfit(u: Floats) -> Floats:
        parts = take(root @ u)
        now = np.log([max(parts[at][part.name], 1e-30) for at, part in wanted])
        return np.concatenate([u, (now - took) / noise])

    size = root.shape[1]
    best = least_squares(misfit, np.zeros(size), diff_step=1e-3, max_nfev=20, xtol=1e-3, ftol=1e-3)
    spread = np.linalg.inv(best.jac.T @ best.jac)
    left = best.fun[size:]
    wider = max(1.0, float(np.sqrt(np.mean(left**2))))  # logs that do not agree say less
    theta = root @ best.x
    return theta, wider**2 * root @ spread @ root.T, take(theta)


def prior(
    found: Estimate, runs: Sequence[Run], before: Sequence[Mapping[str, float]],
    parts: Sequence[str], options: Options,
) -> tuple[Floats, list[str]]:  # fmt: skip
    """A root of P, (names, causes), and the names: what is part of these runs at all."""
    software, system = options.software, found.system
    work = found.work[0]
    doubts = work.block.step.uncertainty
    update = doubts.known[2]
    kernels = float(doubts.kernels[work.row])
    updated = float(np.ravel(update.doubts["update"] / update.total)[work.at])
    strange = float(np.hypot(WIDTHS["STEP"], 0.0 if software.held else WIDTHS["SOFTWARE"]))
    hides = 0.0 if software.held else float(np.log1p(WIDTHS["HIDES"]))
    here = {GROUPS[group] for group in groups_of(found.model)}
    own: dict[str, float] = dict.fromkeys(here, kernels)
    own |= {"update": updated, "host": WIDTHS["HOST"]}
    if {"forward", "backward"} & set(parts):
        own |= dict.fromkeys(("forward", "backward"), SCALED)
    for name in ("inside", "between"):
        lines = [one for row in found.exchange for one in row
                 if (one["group"] > 1) and _between(one, name, system)]  # fmt: skip
        if not lines:
            continue
        rough = max(one["deviation"] / one["exposed"] if one["exposed"] > 0 else 0.0
                    for one in lines)  # fmt: skip
        datasheet = any(one["origin"] not in ("measured", "fitted") for one in lines)
        short = float(np.log1p(SHORT[name])) if datasheet else 0.0
        own[name] = float(np.linalg.norm([rough, LIBRARY, hides, short]))
    hidden = any(one["exposed"] < 0.98 * one["seconds"] for row in found.exchange for one in row)
    if hidden:
        own["shown"] = float(np.hypot(hides, LIBRARY))
    names = [name for name in NAMES if name in own]
    shared = [strange if name in (*GROUPS, "update") else 0.0 for name in names]
    return np.column_stack([np.diag([own[name] for name in names]), shared]), names


def _between(one: Mapping[str, object], name: str, system: System) -> bool:
    """Whether a message may be sent between nodes, or inside one."""
    outer = bool(float(str(one["group"])) > system.node)
    return outer if name == "between" else not outer


def _layers(run: Run, model: Model, system: System, options: Options) -> list[RunRow]:
    """Rows of layers that were timed: of a layer of several, in proportion to what is modelled."""
    if not run.log.layers:
        return []
    shard = split(model, run.parsed, options)
    found = priced(shard, system.device, options.precision)
    size = (1, len(model))
    forward = np.broadcast_to(found.forward, size)[0]
    backward = np.broadcast_to(found.data + found.weight, size)[0]
    often = float(np.ravel(shard.segments)[0])
    rows: dict[str, RunRow] = {}
    for name, (ahead, back, _) in run.log.layers.items():
        mine = matching(model, name)
        repeat = model.repeat[mine]
        scale = [
            timing.seconds / often / max(float((modelled[mine] * repeat).sum()), 1e-30)
            for timing, modelled in ((ahead, forward), (back, backward))
        ]
        for row in mine:
            text = signature(shard, row)
            rows[text] = RunRow(
                text, float(forward[row] * scale[0]), float(backward[row] * scale[1]),
                max(ahead.spread, back.spread),
            )  # fmt: skip
    return list(rows.values())
