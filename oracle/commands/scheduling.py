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
    """The batch, where it grows."""
    parser.add_argument("--schedule", metavar="S", help='of batches: "0:8192 30:16384", by epochs '
                        "(tokens, steps, where these end the training)")  # fmt: skip


def asked_for(asked: argparse.Namespace) -> bool:
    """Whether there is a schedule; refused beside a batch."""
    if asked.schedule is None:
        return False
    if asked.batch is not None or asked.batch_per_device is not None:
        raise Usage("argument --schedule: not allowed with argument --batch")
    for name in ("within", "budget", "fewer"):
        if getattr(asked, name, None):
            raise Usage(f"argument --schedule: not allowed with argument --{name}")
    return True


def recommended(asked: argparse.Namespace, ranked: Callable[..., Ranking]) -> Answer:
    """The best plan of every phase."""
    from oracle.ask.phases import plans
    from oracle.run.schedule import parsed

    starts = parsed(asked.schedule)

    def ask(batch: int, devices: int) -> Ranking:
        more = {"batch": batch, "devices": devices, "top": 1}
        return ranked(argparse.Namespace(**{**vars(asked), **more}))

    found = [ranking.estimate for ranking in plans(starts, asked.devices, ask)]
    return answered(asked, starts, found)


def estimated(asked: argparse.Namespace, predict: Callable[[str, int], Estimate]) -> Answer:
    """One plan for every phase, or one for each."""
    from oracle.run.schedule import parsed

    starts = parsed(asked.schedule)
    if len(asked.plan) not in (1, len(starts)):
        raise Usage(f"{len(starts)} phases and {len(asked.plan)} plans: one for all, or one each")
    plans = asked.plan * (len(starts) if len(asked.plan) == 1 else 1)
    found = [predict(plan, one.batch) for plan, one in zip(plans, starts, strict=True)]
    return answered(asked, starts, found)


def answered(
    asked: argparse.Namespace, starts: Sequence[Start], found: Sequence[Estimate]
) -> Answer:
    """Phases and what they come to, in the form that was asked for."""
    from oracle.run.schedule import scheduled
    from oracle.show.phases import schedule_text
    from oracle.show.provenance import signed

    whole = scheduled(starts, found, **length_options(asked))
    feasible = all(bool(each.feasible[0]) for each in found)

    def data() -> dict[str, Any]:
        first = found[0].to_dict()
        kept = ("schema", "model", "system", "precision", "optimizer", "software", "dataset")
        phases = [one.to_dict() for one in whole.phases]
        said = {name: first[name] for name in kept} | {"training": whole.to_dict()}
        return signed({**said, "phases": phases}, asked)

    return formatted(
        asked, lambda: schedule_text(whole, found), data,
        lambda: [one.to_dict() for one in whole.phases], 0 if feasible else 1,
    )  # fmt: skip
