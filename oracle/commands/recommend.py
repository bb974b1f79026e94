"""Rank the ways to split a training over N devices, at the same global batch for every plan.

oracle recommend resnet50 abci --devices 64 --batch 4096
oracle recommend gpt3-175b dgx-a100 --devices 1024 --batch 1536 --without context --top 10
oracle recommend resnet50 abci --devices 512 --optimizer lars --to-target      the batch is free
oracle recommend resnet50 abci --devices 512 --epochs 90 --schedule "0:8192 30:16384 60:32768"
oracle recommend llama3-8b dgx-h100 --devices 1024 --batch 1024 --tokens 15T --checkpoint async
oracle recommend my-model.yaml my-system.yaml --devices 16 --batch-per-device 8 --json
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oracle.commands import scheduling
from oracle.commands.arguments import (
    BRIEF,
    as_runs_did,
    batch_arguments,
    length_arguments,
    length_options,
    limit_arguments,
    names,
    objective_argument,
    placement_arguments,
    placement_options,
    prediction_arguments,
    prediction_options,
    result_arguments,
    running,
    what_if_argument,
    whole,
)
from oracle.commands.parser import Answer, Usage, formatted, group
from oracle.spec.document import SpecError

if TYPE_CHECKING:
    from oracle.ask.batches import Tried
    from oracle.ask.choose import Choice
    from oracle.ask.optimizers import Rival
    from oracle.ask.ranking import Ranking
    from oracle.run.limits import Limits
    from oracle.run.target import Training
    from oracle.spec.software import Software


def arguments(parser: argparse.ArgumentParser) -> None:
    question(parser, needed=False)
    length_arguments(parser)
    scheduling.argument(parser)
    limit_arguments(parser)
    parser.add_argument("--fewer", action="store_true",
                        help="what fewer devices would take of the whole training")  # fmt: skip
    result_arguments(parser)


def question(parser: argparse.ArgumentParser, needed: bool = True) -> None:
    """What is asked, whatever the answer is to look like."""
    prediction_arguments(parser)
    placement_arguments(parser)
    what_if_argument(parser)
    parser.add_argument("--devices", type=whole, required=True, metavar="N",
                        help="to spread it over")  # fmt: skip
    batch_arguments(parser, needed=needed)
    parser.add_argument("--top", type=whole, default=5, metavar="K", help="plans to list")
    choice_arguments(parser)
    parser.add_argument("--all", action="store_true", dest="everything",
                        help="list infeasible plans too, with what they break")  # fmt: skip


def choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Which plans may be recommended, and by what."""
    options = group(parser, "which plans")
    objective_argument(options)
    options.add_argument("--risk", type=float, default=0.05, metavar="R",
                         help="accepted chance to run out of memory")  # fmt: skip
    options.add_argument("--fastest", action="store_true",
                         help="the fastest first, though a simpler plan be as fast")  # fmt: skip
    options.add_argument("--only", type=names, default=[], metavar="A,B",
                         help="plans of these strategies alone: data,tensor")  # fmt: skip
    options.add_argument("--without", type=names, default=[], metavar="A,B",
                         help="plans without these strategies")  # fmt: skip
    options.add_argument("--compress", choices=["none", "allowed"], default="none",
                         help="gradients, and below which bandwidth it pays")  # fmt: skip


def ranked(asked: argparse.Namespace) -> Ranking:
    """The answer."""
    from oracle import api

    more = _endings(asked)
    found = api.recommend(**{**keywords(asked), "top": max(asked.top, more)})
    shown = found.estimate
    found = replace(found, estimate=replace(shown, system=running(asked, shown.system)))
    if not more:
        return found
    from oracle.ask.ending import first_to_end
    from oracle.run.target import length

    how_long = length_options(asked)
    return first_to_end(found, lambda shown, row: length(shown, row, **how_long), asked.top,
                        asked.fastest)  # fmt: skip


def keywords(asked: argparse.Namespace) -> dict[str, Any]:
    """The question as keyword arguments of `oracle.recommend`."""
    return {
        "model": asked.model, "system": asked.system, "devices": asked.devices,
        "batch": asked.batch, "batch_per_device": asked.batch_per_device, "top": asked.top,
        "only": asked.only, "without": asked.without, "objective": asked.objective,
        "risk": asked.risk, "fastest": asked.fastest,
        "compress": getattr(asked, "compress", "none"),
        **prediction_options(asked), **placement_options(asked),
    }  # fmt: skip


def _endings(asked: argparse.Namespace) -> int:
    """How many plans at least are asked when they end; none where nobody knows what fails."""
    whole = hasattr(asked, "to_target") and any(length_options(asked).values())
    if not whole or asked.objective != "time":
        return 0
    from oracle.ask.ending import MORE
    from oracle.spec.catalogue import system

    return 0 if running(asked, system(asked.system)).reliability is None else MORE


def enough(asked: argparse.Namespace) -> int | None:
    """The first doubling of the devices on which something fits, if there is one."""
    from oracle.spec.catalogue import system

    most = 64 * asked.devices
    most = most if asked.grow else min(system(asked.system).devices, most)
    for count in (asked.devices * 2**k for k in range(1, 7)):
        more = argparse.Namespace(**{**vars(asked), "devices": count, "top": 1})
        if count <= most and len(ranked(more)):
            return int(count)
    return None


def elsewhere(asked: argparse.Namespace, told: Software) -> str | None:
    """Other software that lays state beside the device, under which something fits as it is."""
    from oracle.plan.launchable import software
    from oracle.spec.catalogue import shipped

    if asked.any_plan or asked.ideal or not told.launch.strategies:  # which knows all plans
        return None
    for name in shipped("software"):
        if name != told.name and "offload" in software(name).launch.strategies:
            try:
                found = ranked(argparse.Namespace(**{**vars(asked), "software": name, "top": 1}))
            except SpecError:  # it ships no such model
                continue
            if len(found):
                return name
    return None


def tried(asked: argparse.Namespace) -> Sequence[Tried]:
    """Every batch worth a training, that of the shortest first, where none is said."""
    if asked.batch is not None or asked.batch_per_device is not None:
        return ()
    if not asked.to_target and asked.tokens is None:
        raise Usage("one of the arguments --batch --batch-per-device is required")
    from oracle.ask.batches import batches, search, up_to_critical
    from oracle.models.model import model
    from oracle.run.target import given, to_target

    def ask(batch: int) -> Ranking:
        return ranked(argparse.Namespace(**{**vars(asked), "batch": batch}))

    net, tokens = model(asked.model), asked.tokens
    if tokens is None:
        found = search(ask, batches(net, asked.optimizer), to_target)
    else:
        found = search(ask, up_to_critical(net, tokens), lambda best: given(best, tokens=tokens))
    asked.batch = found[0].batch if found else 1  # what is said next is of the best
    return found


def best_training(ranking: Ranking, asked: argparse.Namespace) -> Training | None:
    """The whole training under the best plan, where its end was said."""
    said = length_options(asked)
    if not len(ranking) or not any(value not in (None, False) for value in said.values()):
        return None
    from oracle.run.target import length, training

    end = length(ranking.estimate, 0, **said)
    return None if end is None else training(ranking.estimate, 0, end)


def beside(ranking: Ranking, asked: argparse.Namespace) -> list[Rival]:
    """Other optimizers whose runs met the target."""
    from oracle.ask.optimizers import against

    shown = ranking.estimate
    return against(shown.model, shown.system, shown.options, asked.devices)


def fewer(asked: argparse.Namespace, one: Training | None) -> Choice | None:
    """The training on ever fewer devices as well, at each batch worth a look, where asked for."""
    if not asked.fewer:
        return None
    if one is None:
        raise Usage("--fewer is about a whole training: --to-target, --tokens, --epochs or --steps")
    from oracle import api
    from oracle.spec.catalogue import system

    length = {**length_options(asked), "to_target": asked.to_target}
    length.pop("target")
    options = {**prediction_options(asked), **length}
    software = options.pop("software")
    free = asked.to_target and "batch" not in asked.origins and asked.batch_per_device is None
    return api.choose(
        asked.model, [running(asked, system(asked.system))], f"1..{asked.devices}",
        batch=None if free else asked.batch,
        batch_per_device=asked.batch_per_device, within=asked.within, budget=asked.budget,
        objective="cost", software=[software] if software else (), only=asked.only,
        without=asked.without, risk=asked.risk, turned=False, **options,
    )  # fmt: skip


def whole_answer(
    ranking: Ranking, asked: argparse.Namespace, one: Training | None, found: Sequence[Tried],
    others: Sequence[Rival], limits: Limits, less: Choice | None,
) -> dict[str, Any]:  # fmt: skip
    """The ranking as data, with the whole training under each plan, and batches beside it."""
    said = ranking.to_dict(asked.everything)
    if one is not None:
        from oracle.run.target import training

        for row, plan in enumerate(said["plans"][: len(ranking)]):
            whole = training(ranking.estimate, row, one.length)
            plan["training"] = whole.to_dict()
            if limits:
                plan["training"] |= {"over": limits.over(whole),
                                     "probability_within": limits.probability(whole)}  # fmt: skip
    if found:
        said["batches"] = [
            {"batch": each.batch, "plan": each.ranking.best.plan, **each.training.to_dict()}
            for each in found
        ]
    if others:
        said["optimizers"] = [each.to_dict() for each in others]
    if less is not None:
        said["front"] = [each.to_dict() for each in less.front]
    return said


def kept_first(asked: argparse.Namespace, limits: Limits) -> tuple[Ranking, Training | None]:
    """The ranking with plans first that keep to the limits, and the training under the best."""
    from oracle.ask.spending import LOOKED_AT, within

    most = max(asked.top, LOOKED_AT)
    ranking = ranked(argparse.Namespace(**{**vars(asked), "top": most}))
    one = best_training(ranking, asked)
    if one is None:
        return ranking, None
    ranking = within(ranking, one.length, limits, asked.top)
    return ranking, best_training(ranking, asked)


def keeps(ranking: Ranking, one: Training | None, limits: Limits) -> bool:
    """Whether any plan that is shown keeps to the limits of the whole training."""
    if not limits:
        return True
    if one is None:
        raise Usage("limits are of a whole training: --to-target, --tokens, --epochs or --steps")
    from oracle.run.target import training

    rows = range(len(ranking))
    return any(not limits.over(training(ranking.estimate, row, one.length)) for row in rows)


def _of_whole_training(
    training: Training | None, limits: Limits, fewer_devices: Any
) -> list[str]:  # fmt: skip
    """Whether limits are kept, and what fewer devices would take, in words."""
    if not (training and limits) and not fewer_devices:
        return []
    from oracle.show.choose import front_text, kept_text

    kept = [kept_text(training, limits)] if training and limits else []
    return [*kept, *([front_text(fewer_devices)] if fewer_devices else [])]


def run(asked: argparse.Namespace) -> Answer:
    from oracle.run.limits import Limits
    from oracle.show.first_screen import ranking_text
    from oracle.show.provenance import signed
    from oracle.show.training import rivals

    as_runs_did(asked)
    if scheduling.asked_for(asked):
        return scheduling.recommended(asked, ranked)
    limits = Limits.of(asked.within, asked.budget)
    found = tried(asked)
    one: Training | None
    if found:
        ranking, one = found[0].ranking, found[0].training
    elif limits:
        ranking, one = kept_first(asked, limits)
    else:
        ranking = ranked(asked)
        one = best_training(ranking, asked)
    if not len(ranking) and (asked.form or "text") == "text":
        told = ranking.misses.options.software
        asked.enough, asked.elsewhere = enough(asked), elsewhere(asked, told)
    others = beside(ranking, asked) if found and asked.to_target else []
    kept = not len(ranking) or keeps(ranking, one, limits)
    less = fewer(asked, one) if len(ranking) else None
    paid = ranking.compression
    untold = f"{ranking.misses.options.software.name} is told of none here: --any, or --software"
    also = [*([f"  compress  {paid.words if paid else untold}"]
              if asked.compress == "allowed" else []),
            *([f"  others    {rivals(others)}"] if others else []),
            *_of_whole_training(one, limits, less)]  # fmt: skip
    return formatted(
        asked, lambda: ranking_text(ranking, asked, one, found, also),
        lambda: signed(whole_answer(ranking, asked, one, found, others, limits, less), asked),
        lambda: ranking.rows(asked.everything), 0 if len(ranking) and kept else 1,
        brief=("rank", *BRIEF, "probability_best"),
    )  # fmt: skip
