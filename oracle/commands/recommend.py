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
    whole_number,
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
    """Add the options of the question, whatever form its answer has."""
    prediction_arguments(parser)
    placement_arguments(parser)
    what_if_argument(parser)
    parser.add_argument("--devices", type=whole_number, required=True, metavar="N",
                        help="to spread it over")  # fmt: skip
    batch_arguments(parser, needed=needed)
    parser.add_argument("--top", type=whole_number, default=5, metavar="K", help="plans to list")
    choice_arguments(parser)
    parser.add_argument("--all", action="store_true", dest="everything",
                        help="list infeasible plans too, with what they break")  # fmt: skip


def choice_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of which plans may be recommended, and by which objective."""
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


def ranked(args: argparse.Namespace) -> Ranking:
    """Return the ranking that a command line asks for."""
    from oracle import api

    candidates = _endings(args)
    ranking = api.recommend(**{**keywords(args), "top": max(args.top, candidates)})
    estimate = ranking.estimate
    ranking = replace(ranking, estimate=replace(estimate, system=running(args, estimate.system)))
    if not candidates:
        return ranking
    from oracle.ask.ending import first_to_end
    from oracle.run.target import length

    how_long = length_options(args)
    return first_to_end(ranking, lambda estimate, row: length(estimate, row, **how_long), args.top,
                        args.fastest)  # fmt: skip


def keywords(args: argparse.Namespace) -> dict[str, Any]:
    """Return the question as keyword arguments of `oracle.recommend`."""
    return {
        "model": args.model, "system": args.system, "devices": args.devices,
        "batch": args.batch, "batch_per_device": args.batch_per_device, "top": args.top,
        "only": args.only, "without": args.without, "objective": args.objective,
        "risk": args.risk, "fastest": args.fastest,
        "compress": getattr(args, "compress", "none"),
        **prediction_options(args), **placement_options(args),
    }  # fmt: skip


def _endings(args: argparse.Namespace) -> int:
    """Return how many plans compete by the end of their training; 0 where failures are unknown."""
    of_whole_training = hasattr(args, "to_target") and any(length_options(args).values())
    if not of_whole_training or args.objective != "time":
        return 0
    from oracle.ask.ending import MORE
    from oracle.spec.catalogue import system

    return 0 if running(args, system(args.system)).reliability is None else MORE


def devices_that_fit(args: argparse.Namespace) -> int | None:
    """Return the first doubling of the devices on which a plan fits, or None."""
    from oracle.spec.catalogue import system

    limit = 64 * args.devices
    limit = limit if args.grow else min(system(args.system).devices, limit)
    for count in (args.devices * 2**k for k in range(1, 7)):
        question = argparse.Namespace(**{**vars(args), "devices": count, "top": 1})
        if count <= limit and len(ranked(question)):
            return int(count)
    return None


def software_that_fits(args: argparse.Namespace, current: Software) -> str | None:
    """Return other software that offloads state, under which a plan fits, or None."""
    from oracle.plan.launchable import software
    from oracle.spec.catalogue import shipped

    if args.any_plan or args.ideal or not current.launch.strategies:  # it takes all plans
        return None
    for name in shipped("software"):
        if name != current.name and "offload" in software(name).launch.strategies:
            try:
                ranking = ranked(argparse.Namespace(**{**vars(args), "software": name, "top": 1}))
            except SpecError:  # it ships no such model
                continue
            if len(ranking):
                return name
    return None


def tried(args: argparse.Namespace) -> Sequence[Tried]:
    """Return every batch worth a training, the shortest training first, where none is said."""
    if args.batch is not None or args.batch_per_device is not None:
        return ()
    if not args.to_target and args.tokens is None:
        raise Usage("one of the arguments --batch --batch-per-device is required")
    from oracle.ask.batches import batches, search, up_to_critical
    from oracle.models.model import model
    from oracle.run.target import given, to_target

    def ask(batch: int) -> Ranking:
        return ranked(argparse.Namespace(**{**vars(args), "batch": batch}))

    net, tokens = model(args.model), args.tokens
    if tokens is None:
        trials = search(ask, batches(net, args.optimizer), to_target)
    else:
        trials = search(ask, up_to_critical(net, tokens), lambda best: given(best, tokens=tokens))
    args.batch = trials[0].batch if trials else 1  # the rest of the answer is about the best batch
    return trials


def best_training(ranking: Ranking, args: argparse.Namespace) -> Training | None:
    """Return the whole training under the best plan, or None where its end is not said."""
    length_of = length_options(args)
    if not len(ranking) or not any(value not in (None, False) for value in length_of.values()):
        return None
    from oracle.run.target import length, training

    end = length(ranking.estimate, 0, **length_of)
    return None if end is None else training(ranking.estimate, 0, end)


def rival_optimizers(ranking: Ranking, args: argparse.Namespace) -> list[Rival]:
    """Return other optimizers whose runs met the target."""
    from oracle.ask.optimizers import against

    estimate = ranking.estimate
    return against(estimate.model, estimate.system, estimate.options, args.devices)


def fewer(args: argparse.Namespace, best: Training | None) -> Choice | None:
    """Return, with `--fewer`, the training on ever fewer devices at each batch worth a look."""
    if not args.fewer:
        return None
    if best is None:
        raise Usage("--fewer is about a whole training: --to-target, --tokens, --epochs or --steps")
    from oracle import api
    from oracle.spec.catalogue import system

    length = {**length_options(args), "to_target": args.to_target}
    length.pop("target")
    options = {**prediction_options(args), **length}
    software = options.pop("software")
    free = args.to_target and "batch" not in args.origins and args.batch_per_device is None
    return api.choose(
        args.model, [running(args, system(args.system))], f"1..{args.devices}",
        batch=None if free else args.batch,
        batch_per_device=args.batch_per_device, within=args.within, budget=args.budget,
        objective="cost", software=[software] if software else (), only=args.only,
        without=args.without, risk=args.risk, turned=False, **options,
    )  # fmt: skip


def whole_answer(
    ranking: Ranking, args: argparse.Namespace, best: Training | None, trials: Sequence[Tried],
    rivals: Sequence[Rival], limits: Limits, on_fewer: Choice | None,
) -> dict[str, Any]:  # fmt: skip
    """Return the ranking as data, with each plan's whole training, and the other batches."""
    answer = ranking.to_dict(args.everything)
    if best is not None:
        from oracle.run.target import training

        for row, plan in enumerate(answer["plans"][: len(ranking)]):
            of_plan = training(ranking.estimate, row, best.length)
            plan["training"] = of_plan.to_dict()
            if limits:
                plan["training"] |= {"over": limits.over(of_plan),
                                     "probability_within": limits.probability(of_plan)}  # fmt: skip
    if trials:
        answer["batches"] = [
            {"batch": entry.batch, "plan": entry.ranking.best.plan, **entry.training.to_dict()}
            for entry in trials
        ]
    if rivals:
        answer["optimizers"] = [entry.to_dict() for entry in rivals]
    if on_fewer is not None:
        answer["front"] = [entry.to_dict() for entry in on_fewer.front]
    return answer


def ranked_within(args: argparse.Namespace, limits: Limits) -> tuple[Ranking, Training | None]:
    """Return the ranking, plans within the limits first, and the training under the best."""
    from oracle.ask.spending import LOOKED_AT, within

    candidates = max(args.top, LOOKED_AT)
    ranking = ranked(argparse.Namespace(**{**vars(args), "top": candidates}))
    best = best_training(ranking, args)
    if best is None:
        return ranking, None
    ranking = within(ranking, best.length, limits, args.top)
    return ranking, best_training(ranking, args)


def keeps(ranking: Ranking, best: Training | None, limits: Limits) -> bool:
    """Return whether any ranked plan keeps to the limits of the whole training."""
    if not limits:
        return True
    if best is None:
        raise Usage("limits are of a whole training: --to-target, --tokens, --epochs or --steps")
    from oracle.run.target import training

    rows = range(len(ranking))
    return any(not limits.over(training(ranking.estimate, row, best.length)) for row in rows)


def _more_facts(
    args: argparse.Namespace, ranking: Ranking, training: Training | None, limits: Limits,
    rivals: Sequence[Rival], fewer_devices: Choice | None,
) -> list[tuple[str, str]]:  # fmt: skip
    """Return what was args beside the plans, each with its label."""
    from oracle.show.choose import front_text, kept_text
    from oracle.show.training import rivals as rivals_text

    facts = []
    if args.compress == "allowed":
        software = ranking.misses.options.software.name
        facts.append(("compress", ranking.compression.words if ranking.compression else
                      f"{software} is told of none here: --any, or --software"))  # fmt: skip
    if rivals:
        facts.append(("others", rivals_text(rivals)))
    if training and limits:
        facts.append(("limits", kept_text(training, limits)))
    if fewer_devices:
        facts.append(("fewer", front_text(fewer_devices)))
    return facts


def run(args: argparse.Namespace) -> Answer:
    from oracle.run.limits import Limits
    from oracle.show.first_screen import ranking_text
    from oracle.show.provenance import signed

    as_runs_did(args)
    if scheduling.asked_for(args):
        return scheduling.recommended(args, ranked)
    limits = Limits.of(args.within, args.budget)
    trials = tried(args)
    best: Training | None
    if trials:
        ranking, best = trials[0].ranking, trials[0].training
    elif limits:
        ranking, best = ranked_within(args, limits)
    else:
        ranking = ranked(args)
        best = best_training(ranking, args)
    if not len(ranking) and (args.form or "text") == "text":
        software = ranking.misses.options.software
        args.devices_that_fit, args.software_that_fits = (
            devices_that_fit(args),
            software_that_fits(args, software),
        )
    rivals = rival_optimizers(ranking, args) if trials and args.to_target else []
    within_limits = not len(ranking) or keeps(ranking, best, limits)
    on_fewer = fewer(args, best) if len(ranking) else None
    return formatted(
        args,
        lambda: ranking_text(
            ranking,
            args,
            best,
            trials,
            _more_facts(args, ranking, best, limits, rivals, on_fewer),
            over=not within_limits,
        ),
        lambda: signed(whole_answer(ranking, args, best, trials, rivals, limits, on_fewer), args),
        lambda: ranking.rows(args.everything),
        0 if len(ranking) and within_limits else 1,
        brief=("rank", *BRIEF, "probability_best"),
    )
