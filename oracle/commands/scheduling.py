"""The answer of `recommend` and `estimate` where the batch grows by a `--schedule`."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oracle.commands.arguments import length_options
from oracle.commands.parser import Answer, Usage, formatted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from oracle.ask.ranking import Ranking
    from oracle.predict.estimate import Estimate
    from oracle.run.schedule import Start


def argument(parser: argparse.ArgumentParser) -> None:
    """Add the schedule of a batch that grows."""
    parser.add_argument("--schedule", metavar="S", help='of batches: "0:8192 30:16384", by epochs '
                        "(tokens, steps, where these end the training)")  # fmt: skip


def asked_for(args: argparse.Namespace) -> bool:
    """Return whether there is a schedule; refuse one together with a batch or limits."""
    if args.schedule is None:
        return False
    if args.batch is not None or args.batch_per_device is not None:
        raise Usage("argument --schedule: not allowed with argument --batch")
    for name in ("within", "budget", "fewer"):
        if getattr(args, name, None):
            raise Usage(f"argument --schedule: not allowed with argument --{name}")
    return True


def recommended(args: argparse.Namespace, ranked: Callable[..., Ranking]) -> Answer:
    """Return the answer with the best plan of every phase."""
    from oracle.ask.phases import plans
    from oracle.run.schedule import parsed

    starts = parsed(args.schedule)

    def ask(batch: int, devices: int) -> Ranking:
        changes = {"batch": batch, "devices": devices, "top": 1}
        return ranked(argparse.Namespace(**{**vars(args), **changes}))

    estimates = [ranking.estimate for ranking in plans(starts, args.devices, ask)]
    return answered(args, starts, estimates)


def estimated(args: argparse.Namespace, predict: Callable[[str, int], Estimate]) -> Answer:
    """Return the answer with one plan for every phase, or with one for each."""
    from oracle.run.schedule import parsed

    starts = parsed(args.schedule)
    if len(args.plan) not in (1, len(starts)):
        raise Usage(f"{len(starts)} phases and {len(args.plan)} plans: one for all, or one each")
    plans = args.plan * (len(starts) if len(args.plan) == 1 else 1)
    estimates = [predict(plan, start.batch) for plan, start in zip(plans, starts, strict=True)]
    return answered(args, starts, estimates)


def answered(
    args: argparse.Namespace, starts: Sequence[Start], estimates: Sequence[Estimate]
) -> Answer:
    """Return the phases and the training that they add up to, in the form of `args.form`."""
    from oracle.run.schedule import scheduled
    from oracle.show.phases import schedule_text
    from oracle.show.provenance import signed

    training = scheduled(starts, estimates, **length_options(args))
    feasible = all(bool(estimate.feasible[0]) for estimate in estimates)

    def data() -> dict[str, Any]:
        first = estimates[0].to_dict()
        shared_keys = ("schema", "model", "system", "precision", "optimizer", "software", "dataset")
        phases = [phase.to_dict() for phase in training.phases]
        answer = {name: first[name] for name in shared_keys} | {"training": training.to_dict()}
        return signed({**answer, "phases": phases}, args)

    return formatted(
        args, lambda: schedule_text(training, estimates), data,
        lambda: [phase.to_dict() for phase in training.phases], 0 if feasible else 1,
    )  # fmt: skip
