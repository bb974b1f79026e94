"""Parts of a logged run and of its prediction that can be held against each other.

A log is of one device. It names the recomputation of a plan, `recompute`, since that runs some
kernels twice, and its `pipeline`, over whose stages kernels are shared out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from oracle.kernels.profile.factors import GROUPS, groups_of
from oracle.kernels.rows import passes
from oracle.kernels.slowest import in_step
from oracle.models.model import Model
from oracle.plan.plan import Plan, parse
from oracle.plan.strategies.recompute import recomputed
from oracle.predict.estimate import Estimate, estimate
from oracle.predict.evaluate import split
from oracle.readers.logs import InputError
from oracle.readers.runs import RunLog, Timing
from oracle.spec.document import suggest
from oracle.spec.doubt import AGAIN, OPERATION
from oracle.spec.options import Options
from oracle.spec.system import System

LEAST = 0.002  # share of a step from which a part is told from nothing
STRANGE = 30.0  # factor off the prediction from which a log is of something else
AXES = ("tensor", "pipeline", "context", "expert", "data")


@dataclass(frozen=True)
class Run:
    """A log of a run, and how it was run."""

    log: RunLog
    plan: str
    batch: int

    @property
    def parsed(self) -> Plan:
        return parse(self.plan, self.batch)


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a run: seconds as logged, and 1σ of their logarithm."""

    name: str
    seconds: float
    noise: float
    spread: float


def checked(run: Run, model: Model) -> Run:
    """The run with its step in seconds, if its log can be of this model, plan and batch."""
    log, plan, log_facts = run.log, run.parsed, run.log.settings
    devices = int(plan.devices[0, 0])
    tokens = int(max((row.made.extents[0] for row in model.rows if row.made.tokens), default=0))
    expected = {"devices": devices, "batch": run.batch}
    expected |= {"sequence": tokens} if tokens else {}
    expected |= {name: int(plan.axis(name).degree[0, 0]) for name in AXES}
    for name, value in expected.items():
        logged = int(log_facts.get(name, value))
        if name == "data" and "devices" in log_facts:  # which frameworks count in their own ways
            continue
        if logged != value:
            problem = f"the log is of {name} {logged}, not of {name} {value}"
            raise InputError(log.path, 0, problem, "the --plan, --batch and model of that run")
    if "token" in log_facts and log.step is not None:  # seconds of a token on a device
        if not tokens:
            raise InputError(log.path, 0, "tokens a second, of a model without tokens")
        step = replace(log.step, seconds=log.step.seconds * run.batch * tokens / devices)
        log = replace(log, step=step)
    _of_this_model(log, model)
    if not (log.step or log.totals or log.kernels or log.layers):
        raise InputError(log.path, 0, "no time of a step is in this log", "a log of more steps")
    return replace(run, log=log)


def _of_this_model(log: RunLog, model: Model) -> None:
    """Refuse layers that the model has not, and kernels that it cannot need."""
    names = dict.fromkeys(row.name for row in model.rows)
    for name in log.layers:
        if not matching(model, name):
            problem = f"the model has no layer `{name[:60]}`"
            raise InputError(log.path, 0, problem, suggest(name, names, "its layers"))
    total = sum(timing.seconds for timing in log.kernels.values())
    for group, work in (("conv", "conv"), ("attention", "attention")):
        share = log.kernels[group].seconds / total if group in log.kernels and total else 0.0
        if share > 0.1 and not any(row.work == work for row in model.rows):
            problem = f"{share:.0%} of its kernels are of {group}, and the model has none"
            raise InputError(log.path, 0, problem, "a log of this model")


def matching(model: Model, name: str) -> list[int]:
    """Rows that a layer's name means: its own row, or those of a block of that name."""
    return [i for i, row in enumerate(model.rows)
            if row.name == name or row.name.startswith(f"{name}.")]  # fmt: skip


def alike(model: Model) -> dict[str, str]:
    """Groups of kernels whose names do not tell them apart in this model.

    Libraries run convolutions of one tap as products; attention written out is products too.
    """
    group_of = {name: name for name in GROUPS}
    if any(row.work == "conv" for row in model.rows):
        group_of["gemm"] = group_of["conv"] = "conv and gemm"
    if any(row.work == "attention" and not row.flash for row in model.rows):
        group_of["gemm"] = group_of["attention"] = group_of["memory"] = "gemm, attention and memory"
    return group_of


def logged(run: Run, model: Model) -> Iterator[Part]:
    """The parts of a run that its log states."""

    def part(name: str, timing: Timing, floor: float = AGAIN) -> Part:
        return Part(name, timing.seconds, float(np.hypot(floor, timing.spread)), timing.spread)

    log, joined = run.log, alike(model)
    if log.step:
        yield part("step", log.step)
    for name, timing in log.totals.items():
        yield part(name, timing)
    groups: dict[str, list[Timing]] = {}
    for name, timing in log.kernels.items():
        groups.setdefault(joined.get(name, name), []).append(timing)
    for name, timings in groups.items():
        if name == "update" and "update" in log.totals:
            continue
        yield part(name if name == "update" else f"kernels: {name}", _sum(timings))
    if log.messages:  # a kernel of a message waits for the other ranks, too
        yield part("messages", _sum(list(log.messages.values())), OPERATION)
    if log.exposed:
        yield part("messages shown", log.exposed, OPERATION)
    if log.layers:
        yield part("update", _sum([update for _, _, update in log.layers.values()]))


def _sum(timings: Sequence[Timing]) -> Timing:
    total = sum(timing.seconds for timing in timings)
    spread = sum(timing.seconds * timing.spread for timing in timings) / total if total else 0.0
    return Timing(total, spread, max(timing.count for timing in timings))


def predicted(
    runs: Sequence[Run], model: Model, system: System, options: Options
) -> tuple[Estimate, list[dict[str, float]]]:
    """The predicted parts of each run."""
    estimated = estimate(
        model, system, [run.plan for run in runs], [run.batch for run in runs], options
    )
    parts = []
    for row, run in enumerate(runs):
        compute = {name: float(values[row]) for name, values in estimated.compute.items()}
        sent = estimated.exchange[row]
        kernels = _kernels(run, estimated.model, system, options) if run.log.kernels else {}
        parts.append({
            "step": float(estimated.seconds[row]), "forward": compute["forward"],
            "backward": compute["backward"] + compute["recompute"], "update": compute["update"],
            "messages": sum(message["seconds"] for message in sent),
            "messages shown": sum(message["exposed"] for message in sent), **kernels,
        })  # fmt: skip
    return estimated, parts


def _kernels(run: Run, model: Model, system: System, options: Options) -> Mapping[str, float]:
    """Seconds of an iteration's kernels by group, on the mean device of a pipeline."""
    plan = run.parsed
    shard = split(model, plan, options)
    times = in_step(passes(shard, system.device, options.precision, options.profile), model,
                    system.device, plan.devices)  # fmt: skip
    mode = int(plan.axis("recompute").mode[0, 0])
    reruns = recomputed(model, [mode])[mode] if mode else np.zeros(len(model))
    seconds = (times.forward * (1 + reruns) + times.data + times.weight) * model.repeat
    seconds = np.broadcast_to(seconds, (1, len(model)))[0]
    often = float(np.ravel(shard.segments)[0]) / float(plan.axis("pipeline").degree[0, 0])
    by_group: dict[str, float] = {}
    for group, joined in alike(model).items():
        added = seconds[groups_of(model) == GROUPS.index(group)].sum() * often
        name = f"kernels: {joined}"
        by_group[name] = by_group.get(name, 0.0) + float(added)
    return by_group
