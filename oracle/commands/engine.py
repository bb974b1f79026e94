"""Which engine runs a plan: as asked for, as the software says, or the executor's own."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from oracle.commands.arguments import either
from oracle.executor.engines import engines
from oracle.spec.catalogue import shipped
from oracle.spec.document import Fault, Place, SpecError, refusal, suggest

if TYPE_CHECKING:
    from oracle.executor.plan_run import PlanRun

OTHERS = {  # frameworks that train models of their own
    "torchtitan": "--software torchtitan runs your model by the classes of PyTorch's that it uses; "
    "`oracle export job … --software torchtitan` writes a job that starts it",
}
HINT = "oracle estimate predicts it; --engine native runs most"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--engine", metavar="E", help=f"{either(list(engines()))} (default: the software's)"
    )
    parser.add_argument("--software", metavar="S", help="whose engine, buckets and widths")


class Told(NamedTuple):
    """An engine, and the software that it stands for."""

    name: str
    software: str


def told(asked: argparse.Namespace, plan: str) -> Told:
    """The engine of a plan."""
    from oracle.plan.launchable import software

    known = engines()
    name = asked.engine
    if name is not None and name not in known:
        hint = OTHERS.get(name) or suggest(name, known, "engines")
        raise refusal("options", f"no engine here is called `{name}`", hint)
    if name is None and asked.software:
        said = software(asked.software)
        if not said.launch.engines:
            run = [one for one in shipped("software") if software(one).launch.engines]
            hint = f"one of {', '.join(run)}; or --engine native"
            raise refusal("options", f"no engine here runs plans as {said.name} does", hint)
        name = next((one for one in said.launch.engines if not _refused(asked, plan, one)),
                    said.launch.engines[-1])  # fmt: skip
    name = name or "native"
    return Told(name, asked.software or known[name].software)


def _refused(asked: argparse.Namespace, plan: str, name: str) -> list[str]:
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.run import refusals

    return refusals(PlanRun(asked.model, plan, asked.batch, optimizer=asked.optimizer,
                            precision=asked.precision, engine=name,
                            software=asked.software))  # fmt: skip


def refuse(jobs: Sequence[PlanRun], replay: bool) -> None:
    """Say all that the engines of these runs cannot do, before anything starts."""
    from oracle.executor.run import refusals

    others = [job for job in jobs if job.engine != "native"]
    if replay and others:
        raise refusal("options", "--replay is for the native engine", "leave --engine out")
    faults = [Fault("E109", f"{job.plan}: {why}", Place(), HINT)
              for job in others for why in refusals(job)]  # fmt: skip
    if faults:
        raise SpecError(f"the engine {others[0].engine}", faults)
