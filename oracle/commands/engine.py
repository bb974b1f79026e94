"""Which engine runs a plan: the one of `--engine`, the software's, or the executor's own."""

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


class Chosen(NamedTuple):
    """An engine, and the software that it stands for."""

    name: str
    software: str


def chosen_engine(args: argparse.Namespace, plan: str) -> Chosen:
    """Return the engine of a plan."""
    from oracle.plan.launchable import software

    known_engines = engines()
    name = args.engine
    if name is not None and name not in known_engines:
        hint = OTHERS.get(name) or suggest(name, known_engines, "engines")
        raise refusal("options", f"no engine here is called `{name}`", hint)
    if name is None and args.software:
        chosen_software = software(args.software)
        if not chosen_software.launch.engines:
            with_engines = [
                engine for engine in shipped("software") if software(engine).launch.engines
            ]
            hint = f"one of {', '.join(with_engines)}; or --engine native"
            raise refusal(
                "options", f"no engine here runs plans as {chosen_software.name} does", hint
            )
        name = next(
            (
                engine
                for engine in chosen_software.launch.engines
                if not _refused(args, plan, engine)
            ),
            chosen_software.launch.engines[-1],
        )
    name = name or "native"
    return Chosen(name, args.software or known_engines[name].software)


def _refused(args: argparse.Namespace, plan: str, name: str) -> list[str]:
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.run import refusals

    return refusals(PlanRun(args.model, plan, args.batch, optimizer=args.optimizer,
                            precision=args.precision, engine=name,
                            software=args.software))  # fmt: skip


def refuse(jobs: Sequence[PlanRun], replay: bool) -> None:
    """Refuse runs that their engines cannot do, with every reason, before anything starts."""
    from oracle.executor.run import refusals

    of_frameworks = [job for job in jobs if job.engine != "native"]
    if replay and of_frameworks:
        raise refusal("options", "--replay is for the native engine", "leave --engine out")
    faults = [Fault("E109", f"{job.plan}: {why}", Place(), HINT)
              for job in of_frameworks for why in refusals(job)]  # fmt: skip
    if faults:
        raise SpecError(f"the engine {of_frameworks[0].engine}", faults)
