"""One training of many: its fastest plan and batch on so many devices, and what it then takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from oracle.ask import search
from oracle.ask.batches import up_to_critical
from oracle.models.model import Model
from oracle.models.model import model as load_model
from oracle.plan.plan import parse
from oracle.predict.defaults import options_for
from oracle.predict.estimate import Estimate, estimate
from oracle.run.sharing import shared
from oracle.run.target import Length, Training, length, training
from oracle.run.workflow import Workflow, workflow
from oracle.spec.catalogue import system as load_system
from oracle.spec.document import Fault, Place, SpecError
from oracle.spec.options import Options
from oracle.spec.system import System

ROUNDS = 4  # searches of a plan for one number of devices


def opened(
    what: Any, system: Any, said: Mapping[str, Any], nodes: Sequence[int], *, grow: bool = False,
    **more: Any,
) -> Trials:  # fmt: skip
    """The trials of a workflow, with what is `said` beside its file; every fault at once.

    `more` are options of predictions that no workflow says: `reading`, `algorithm`, …
    """
    asked = what if isinstance(what, Workflow) else workflow(what, **said)
    model, where = load_model(asked.model, asked.dataset), load_system(system)
    faults = [Fault(*each) for each in _wrong(asked, model, where, nodes, grow)]
    if faults:
        raise SpecError("workflow", faults)
    where = where.of_size(max(nodes) * where.node, grow)
    if more.get("profile") is not None:
        from oracle.calibration.run_profile import opened as profiled

        words = asked.precision, asked.optimizer, asked.software
        more["profile"] = profiled(more["profile"], model, where, *words)
    optimizer = asked.optimizer
    if optimizer is None and model.convergence and not asked.length:
        optimizer = model.convergence[0].optimizer  # that of the runs which met the target
    options = options_for(
        model, where, asked.precision, optimizer, software=asked.software,
        epochs=max(asked.epochs, 1.0) if asked.epochs else None, **more,
    )  # fmt: skip
    return Trials(asked, model, where, options)


def _wrong(
    asked: Workflow, model: Model, system: System, nodes: Sequence[int], grow: bool
) -> Iterator[tuple[str, str, Place, str]]:
    """What model and system cannot give: code, what is wrong, where, what to say instead."""
    if not (asked.length or model.convergence):
        yield ("E109", f"nobody says how long {model.name} trains to any target",
               Place(path="to_target"), "--epochs, --tokens or --steps")  # fmt: skip
    if not (asked.batch or asked.max_batch or asked.tokens or model.convergence):
        yield ("E109", "nobody says which batch is the largest worth having",
               Place(path="max_batch"), "--max-batch, or --batch")  # fmt: skip
    if asked.epochs and model.dataset is None:
        yield ("E109", f"{model.name} has no data set", Place(path="epochs"),
               "--dataset, or --steps")  # fmt: skip
    odd = [count for count in nodes if type(count) is not int or count < 1]
    for count in odd:
        yield "E109", f"{count!r:.40} nodes", Place(path="nodes"), "a whole number from 1 on"
    if odd:
        return
    have, most = system.devices // system.node, max(nodes)
    wide = 0 if asked.plan is None else int(parse(asked.plan, 1.0).devices[0, 0])
    if wide > most * system.node:
        yield ("E109", f"a trial of {wide} devices, on {most * system.node}", Place(path="plan"),
               "a narrower plan, or more --nodes")  # fmt: skip
    if most > have and not grow:
        yield ("E109", f"{most} nodes, but {system.name} has {have}", Place(path="nodes"),
               "fewer, a larger system, or --grow (`grow=True`)")  # fmt: skip


@dataclass(frozen=True, eq=False)
class Trial:
    """One training on so many devices, under its fastest plan."""

    devices: int
    batch: int
    plan: str
    training: Training = field(repr=False)
    estimate: Estimate = field(repr=False)  # of that plan alone

    @property
    def samples(self) -> float:
        """That it is shown, all epochs."""
        return self.training.length.steps * self.batch


class Trials:
    """Trials of a workflow by their number of devices, each looked for once."""

    def __init__(self, asked: Workflow, model: Model, system: System, options: Options) -> None:
        system.need_alike("a workflow of several trainings")
        self.asked, self.model, self.system, self.options = asked, model, system, options
        self.most = asked.batch or asked.max_batch or _largest(asked, model, options.optimizer)
        self.misses: dict[int, tuple[str, str]] = {}  # devices -> the nearest plan, what it breaks
        self._found: dict[int, Trial | None] = {}
        self._last = self.most  # the batch that was best for the last size of trial
        self._beside: dict[tuple[int, int, int], Trial] = {}

    def of(self, devices: int) -> Trial | None:
        """The fastest trial on so many devices that have the machine to themselves."""
        if devices not in self._found:
            self._found[devices] = self._named(devices) if self.asked.plan else self._best(devices)
        return self._found[devices]

    def beside(self, devices: int, at_once: int) -> Trial | None:
        """The same, where so many of them share the file system, and maybe a node."""
        found = self.of(devices)
        on_a_node = max(1, min(self.system.node // devices, at_once))
        if found is None or at_once == 1:
            return found
        key = devices, at_once, on_a_node
        if key not in self._beside:
            where = shared(self.system, at_once, on_a_node)
            one = estimate(self.model, where, [found.plan], float(found.batch), self.options)
            self._beside[key] = self.trial(one, 0)
        return self._beside[key]

    def trial(self, shown: Estimate, row: int) -> Trial:
        """The whole training under one plan of an estimate."""
        one = shown.take([row])
        return Trial(int(one.devices[0]), int(one.batch[0]), one.plans[0],
                     training(one, 0, self.length(one)), one)  # fmt: skip

    def length(self, shown: Estimate) -> Length:
        """How long it is: as was said, or until the model's target is met."""
        asked = self.asked
        found = length(shown, 0, target=not asked.length, epochs=asked.epochs, tokens=asked.tokens,
                       steps=asked.steps)  # fmt: skip
        assert found is not None
        return found

    def batches(self, devices: int) -> list[int]:
        """Batches to try, the largest first: every device of a plan gets as many samples."""
        if self.asked.batch is not None:
            return [self.asked.batch]
        found, whole = [], self.most // devices
        if whole:
            found = [devices * whole, *(devices * 2**k for k in range(whole.bit_length()))]
        most = min(self.most, devices - 1) if whole else self.most  # fewer than one each
        found += [2**k for k in range(most.bit_length())]
        least = max(found) // 256
        return sorted({each for each in found if each > least}, reverse=True)

    def _named(self, devices: int) -> Trial | None:
        plan = str(self.asked.plan)
        if int(parse(plan, 1.0).devices[0, 0]) != devices:
            return None
        return self._quickest([plan], self.batches(devices))

    def _best(self, devices: int) -> Trial | None:
        """A plan for a batch, the best batch for that plan, a plan for this one, and so on."""
        sizes = self.batches(devices)
        found: list[Trial] = []
        tried: set[int] = set()
        batch = min(sizes, key=lambda size: abs(size - self._last))  # as for other sizes of trial
        while batch not in tried and len(tried) < ROUNDS:
            tried.add(batch)
            plan = self._searched(devices, batch)
            if plan is None:
                if batch == sizes[-1]:
                    break
                batch = sizes[-1]
                continue
            best = self._quickest([plan], sizes)
            if best is None:
                break
            found.append(best)
            batch = best.batch
        best = min(found, key=lambda one: one.training.seconds, default=None)
        self._last = self._last if best is None else best.batch
        return best

    def _searched(self, devices: int, batch: int) -> str | None:
        """The fastest plan for a batch that fits."""
        try:
            ranking = search.recommend(self.model, self.system, devices, batch, self.options, top=1)
        except SpecError as error:
            if error.name == "plans":  # no strategy is that wide
                return None
            raise
        if not len(ranking):
            self._missed(ranking.misses)
            return None
        return ranking.best.plan

    def _quickest(self, plans: Sequence[str], sizes: Iterable[int]) -> Trial | None:
        pairs = [(plan, float(size)) for plan in plans for size in sizes]
        rows, batches = [plan for plan, _ in pairs], [size for _, size in pairs]
        shown = estimate(self.model, self.system, rows, batches, self.options)
        each = [self.trial(shown, row) for row in range(len(shown)) if shown.feasible[row]]
        if not each:
            self._missed(shown.take([len(shown) - 1]))
        return min(each, key=lambda one: one.training.seconds, default=None)

    def _missed(self, shown: Estimate) -> None:
        """Note why the nearest of plans that do not fit does not."""
        if len(shown):
            self.misses[int(shown.devices[0])] = shown.plans[0], "; ".join(shown.broken[0][:1])


def _largest(asked: Workflow, model: Model, optimizer: str) -> int:
    """The largest batch with which a run of the optimizer met the target; of text, the critical."""
    if asked.tokens:
        return next(up_to_critical(model, asked.tokens))
    known = model.convergence
    return next((one for one in known if one.optimizer == optimizer), known[0]).largest
