"""Predictions held against measurements, part by part: accuracy as 1 − |p − m| / m."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.ask.joined import joined
from oracle.models.model import Model
from oracle.models.model import model as load_model
from oracle.predict.defaults import options_for, room_for
from oracle.predict.estimate import Estimate
from oracle.predict.estimate import estimate as predict
from oracle.spec.catalogue import system as load_system
from oracle.spec.dataset import Dataset
from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.options import Options
from oracle.spec.system import System
from oracle.spec.tabular import Tabular

if TYPE_CHECKING:
    from oracle.executor.checkpointing.summary import Recovery
    from oracle.executor.measured import Measurement


DEEP = ("parts", "memory", "recovery")  # of a plan, what no flat row has


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Measured plans beside what was predicted of them."""

    predicted: Estimate
    seconds: Any  # measured, (plans,)
    spread: Any  # relative standard deviation over steps
    parts: tuple[dict[str, float], ...]  # measured, by part
    memory: Any
    # of messages, the seconds waited for ranks that were late: measured, where that is known
    waits: tuple[dict[str, float], ...] = ()
    # checkpoints and failures: measured, and what is predicted of them
    recoveries: tuple[tuple[Recovery | None, dict[str, Any]], ...] = ()

    def says(self) -> str:
        """How near predictions are."""
        held = f"{int(np.sum(self.covered))} of {len(self.seconds)} within their intervals"
        return (f"{self.predicted.model.name} on {self.predicted.system.name}: "
                f"accuracy {float(np.mean(self.accuracy)):.1%}, {held}")  # fmt: skip

    @property
    def accuracy(self) -> Any:
        return 1 - np.abs(self.predicted.seconds - self.seconds) / self.seconds

    @property
    def covered(self) -> Any:
        """Whether the 90 % interval holds the measurement."""
        low, high = self.predicted.seconds_low, self.predicted.seconds_high
        return (low <= self.seconds) & (self.seconds <= high)

    @property
    def tau(self) -> float:
        """Kendall's τ of the ranking; NaN for fewer than two plans."""
        if len(self.seconds) < 2:
            return float("nan")
        from scipy.stats import kendalltau

        return float(kendalltau(self.predicted.seconds, self.seconds).statistic)

    @property
    def regret(self) -> float:
        """How much slower than the measured best our pick was measured to be."""
        pick = int(np.argmin(self.predicted.seconds))
        return float(self.seconds[pick] / np.min(self.seconds) - 1)

    def to_dict(self) -> dict[str, Any]:
        tau = self.tau
        rows = [
            {"plan": plan, "batch": int(self.predicted.batch[i]),
             "predicted": float(self.predicted.seconds[i]), "measured": float(self.seconds[i]),
             "low": float(self.predicted.seconds_low[i]),
             "high": float(self.predicted.seconds_high[i]),
             "accuracy": float(self.accuracy[i]), "covered": bool(self.covered[i]),
             "spread": float(self.spread[i]), "parts": self.compared(i),
             "memory": {"predicted": float(self.predicted.memory[i]),
                        "measured": float(self.memory[i])},
             **self.recovery(i)}
            for i, plan in enumerate(self.predicted.plans)
        ]  # fmt: skip
        return {
            "schema": 1, "model": self.predicted.model.name, "system": self.predicted.system.name,
            "accuracy": float(np.mean(self.accuracy)), "coverage": float(np.mean(self.covered)),
            "tau": None if np.isnan(tau) else tau, "regret": self.regret, "plans": rows,
        }  # fmt: skip

    def rows(self) -> list[dict[str, Any]]:
        """One flat row a plan."""
        found = self.to_dict()
        return [
            {"model": found["model"], "system": found["system"],
             **{name: value for name, value in row.items() if name not in DEEP},
             "memory_predicted": row["memory"]["predicted"],
             "memory_measured": row["memory"]["measured"]}
            for row in found["plans"]
        ]  # fmt: skip

    def recovery(self, row: int) -> dict[str, Any]:
        """Checkpoints and failures of a plan, where any were kept or came."""
        found, said = self.recoveries[row] if self.recoveries else (None, {})
        return {"recovery": {**found.as_json(), "predicted": said}} if found else {}

    def compared(self, row: int) -> dict[str, dict[str, float]]:
        """Each part predicted and measured, seconds; of a message also what was waiting."""
        ours = {part: float(values[row]) for part, values in self.predicted.compute.items()}
        ours["backward"] += ours.pop("recompute")
        for message in self.predicted.exchange[row]:
            ours[message["what"]] = ours.get(message["what"], 0.0) + message["exposed"]
        if read := self.predicted.reading[row]:
            ours["reading"] = read["exposed"]
        theirs = self.parts[row]
        late = self.waits[row] if self.waits else {}
        return {
            name: {"predicted": ours.get(name, 0.0), "measured": theirs.get(name, 0.0)}
            | (
                {"waiting": late[name], "transfer": max(theirs[name] - late[name], 0.0)}
                if name in late
                else {}
            )
            for name in dict.fromkeys([*ours, *theirs])
            if ours.get(name) or theirs.get(name)
        }


def compare(files: Sequence[str | Path], model: Any, system: Any, **options: Any) -> Comparison:
    """Predict what the measurement files measured, and hold both side by side.

    Each plan is priced as it ran: its batch, its options, and the very stages of its pipeline.
    """
    from oracle.ask.recovered import recovered
    from oracle.executor.measured import read

    found = [(str(path), one) for path in files for one in read(Path(path))]
    what, where = load_model(model, options.pop("dataset", None)), load_system(system)
    grow = bool(options.pop("grow", False))
    if grow:
        where = room_for(where, [one.plan for _, one in found], grow)
    asked = {key: value for key, value in options.items() if value is not None}
    faults = [
        Fault("E109", f"{path}, `{one.plan}`: {why}", Place(), hint)
        for path, one in found
        for why, hint in _foreign(one, found[0][1], what, where, asked)
    ]
    if faults:
        raise SpecError("compare", list(dict.fromkeys(faults)))
    ran = found[0][1].options
    recipe: dict[str, Any] = {name: ran.get(name) for name in ("precision", "optimizer")}
    recipe |= {"software": ran.get("software") or "executor"} | asked  # it names no other
    recipe["precision"] = "fp32" if recipe["precision"] == "fp64" else recipe["precision"]
    if recipe.get("profile") is not None:
        from oracle.calibration.run_profile import opened

        named = (recipe[name] for name in ("precision", "optimizer", "software"))
        recipe["profile"] = opened(recipe["profile"], what, where, *named)
    base = options_for(what, where, **recipe)
    predicted = joined([as_it_ran(one, what, where, base) for _, one in found])
    measured = [one for _, one in found]
    parts = tuple(
        {**one.compute, **{f"{said.what}": said.seconds for said in one.exchange},
         **({"reading": one.reading["seconds"]} if one.reading else {})}
        for one in measured
    )  # fmt: skip
    seconds, spread, memory = (
        np.array([getattr(one, name) for one in measured])
        for name in ("seconds", "spread", "memory")
    )
    recoveries = tuple((one.recovery, recovered(one, what, where)) for one in measured)
    waits = tuple({said.what: said.waiting for said in one.exchange if said.waiting is not None}
                  for one in measured)  # fmt: skip
    return Comparison(replace(predicted, options=base), seconds, spread, parts, memory, waits,
                      recoveries)  # fmt: skip


def as_it_ran(one: Measurement, what: Model, where: System, base: Options) -> Estimate:
    """A plan as it ran: the stages of its pipeline, and the samples that it read, if any."""
    units = tuple(one.question.get("units", ()))
    asked = replace(base, edges=_edges(one, what), units=units)
    if how := one.reading:
        name = "as it was read"
        data = Dataset(name, int(how["samples"]), name, size=how["bytes"], files=int(how["files"]),
                       spread=(how.get("made") or {}).get("spread", 0.0), decode=0.0)  # fmt: skip
        what = replace(what, dataset=data)
        asked = replace(asked, reading=how["mode"], shuffle=how["shuffle"])
    return predict(what, where, [one.plan], [one.batch], asked)


def _foreign(
    one: Measurement, first: Measurement, model: Model, system: System, asked: dict[str, Any]
) -> Iterator[tuple[str, str]]:
    """(why a measurement is not one of what is asked, what to do), all of it."""
    known = one.question.get("model_sha256")
    if known is None and one.model != model.name:
        hint = f"compare it with {one.model}; or measure anew with `oracle run {model.name} …`"
        yield f"it is of {one.model}, not of {model.name}, and says no more of its model", hint
    elif known is not None and known != model.fingerprint:
        there = f"{one.model} ({known})" if one.model == model.name else one.model
        here = f"{model.name} ({model.fingerprint})" if one.model == model.name else model.name
        yield f"its model was {there} and is {here}", "name the model that ran"
    for name in ("precision", "optimizer"):
        ran, said = one.options.get(name), asked.get(name)
        if said is not None and ran is not None and said != ran:
            yield f"{name} was {ran} and is {said}", f"leave --{name} out"
        if ran != first.options.get(name):
            what = f"{name} was {ran}, but {first.options.get(name)} of the first plan"
            yield what, "compare them one by one"
    if one.question.get("replay"):
        yield "only its messages were sent (--replay)", "`oracle run` without --replay"
    if one.devices > system.devices:
        hint = "a system with as many"
        yield f"it ran on {one.devices} devices, but {system.name} has {system.devices}", hint


def _edges(one: Measurement, model: Model) -> tuple[int, ...]:
    """Where its pipeline was cut, in units; nothing where it had one stage, or does not say."""
    edges = tuple(begin for begin, _ in one.stages) + tuple(end for _, end in one.stages[-1:])
    sound = all(a < b for a, b in pairwise(edges)) and edges[-1:] == (len(model.units[1]),)
    return edges if len(one.stages) > 1 and sound and edges[0] == 0 else ()
