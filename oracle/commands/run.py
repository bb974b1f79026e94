r"""Really train a few steps under a plan, and time them.

    oracle run MODEL --local 4 --batch 64 --plan "data:2 filter:2" -o run.json
    oracle run MODEL --local 4 --batch 64 --plan data:4 --data FOLDER --reading striped -o run.json
    oracle run MODEL --local 1 --batch 64 --plan recompute:best --system dgx-a100 \
        --max-memory 200MB -o run.json
    oracle run MODEL --local 2 --batch 64 --plan data:2 --steps 20 \
        --checkpoint sharded,every=5,to=FOLDER --fail 7 -o run.json
    oracle run MODEL --local 2 --batch 16 --plan data:2,zero=3 --engine fsdp2 -o run.json
    srun -N4 oracle run MODEL --batch 256 --plan data:4 -o run.json

The executor runs the very splits and sends the very messages that are priced. `--replay` sends
the messages alone. With `--engine`, or `--software`, PyTorch's own classes run it: DDP,
`fully_shard`, DTensor, `torch.distributed.pipelining`. With `--system` a pipeline is cut where the
oracle cuts it for that system, else by FLOP, and units keep, send out or make again their
activations (`recompute:best`, `offload:activations`) as the room of its devices, or
`--max-memory`, decides. With `--data` samples are read for real, by threads that read ahead, and
what each step waits for them is measured apart. With `--checkpoint` the state of the training is
kept as it goes, and `--fail` kills a rank, so that what a failure costs is measured.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from oracle.commands import checkpointing, engine, reading
from oracle.commands.arguments import lasting, result_arguments, whole_number
from oracle.commands.launching import ended, launch_arguments, launched, need_torch
from oracle.commands.measure import executed_arguments, need_runnable
from oracle.commands.parser import Answer, formatted
from oracle.spec.document import refusal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=lasting, metavar="MODEL", help="a shipped model, or a file")
    parser.add_argument("--plan", action="append", required=True, metavar="PLAN",
                        help='e.g. "data:2 filter:2"; may be given several times')  # fmt: skip
    parser.add_argument("--batch", type=whole_number, required=True, metavar="B",
                        help="samples per iteration, all devices")  # fmt: skip
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="where to write the measurement")  # fmt: skip
    parser.add_argument("--steps", type=whole_number, default=8, metavar="K", help="timed steps")
    parser.add_argument("--warm-up", type=whole_number, default=2, metavar="K", help="steps before")
    executed_arguments(parser)
    engine.arguments(parser)
    parser.add_argument(
        "--system", metavar="SYSTEM", help="cut pipelines, and choose units, as predicted for it"
    )
    parser.add_argument("--max-memory", metavar="M", help="of its devices, e.g. `200 MB`")
    parser.add_argument("--profile", metavar="FILE", help="… with these measured rows")
    parser.add_argument("--trace", metavar="FILE",
                        help="one more step by PyTorch's profiler, beside the predicted one (with "
                             "--system), as a Chrome trace")  # fmt: skip
    parser.add_argument("--replay", action="store_true", help="the messages alone")
    reading.arguments(parser)
    checkpointing.arguments(parser)
    launch_arguments(parser)
    result_arguments(parser, file=False)


def stages(args: argparse.Namespace, text: str) -> tuple[int, ...]:
    """Return the edges where the oracle cuts a plan's pipeline; none without a system."""
    from oracle.predict import evaluate

    if not args.system:
        return ()
    edges = evaluate.cuts(*_prediction(args, text, args.software or "executor"))
    return edges if len(edges) > 2 else ()


def units(args: argparse.Namespace, text: str, edges: tuple[int, ...]) -> tuple[str, ...]:
    """Return what each unit does with its activations; nothing where no room decides."""
    from oracle.plan.plan import parse
    from oracle.predict import evaluate
    from oracle.predict.workload import chooses

    if not chooses(parse(text, args.batch)).any():
        return ()
    if not args.system:
        fault = f"`{text}`: which units send out or make again is for a device's room to say"
        raise refusal("options", fault, "--system S, and --max-memory M if that is less")
    net, on_system, plan, options = _prediction(args, text, "executor")
    return evaluate.unit_words(net, on_system, plan, replace(options, edges=edges))


def _prediction(args: argparse.Namespace, text: str, software: str) -> tuple[Any, Any, Any, Any]:
    """Return the model, the system, the plan and the options that predict it."""
    from oracle.models.model import model
    from oracle.plan.plan import parse
    from oracle.predict.defaults import options_for
    from oracle.spec.catalogue import system

    net, on_system = model(args.model), system(args.system)
    precision = "fp32" if args.precision == "fp64" else args.precision
    options = options_for(
        net, on_system, precision, args.optimizer, profile=args.profile, software=software,
        max_memory=args.max_memory,
    )  # fmt: skip
    return net, on_system, parse(text, args.batch), options


def drawn(args: argparse.Namespace, who: engine.Chosen) -> str:
    """Write the traced step beside the predicted one, and return a line about the file."""
    from oracle import api
    from oracle.executor.measure.step_trace import seen_by
    from oracle.plan.plan import parse
    from oracle.spec.files import write
    from oracle.writers.exported import Job
    from oracle.writers.trace import trace, with_measured

    (plan_text,), predicted = args.plan, None
    plan = parse(plan_text, args.batch)
    if args.system:
        precision = "fp32" if args.precision == "fp64" else args.precision
        estimate = api.estimate(
            args.model, args.system, [plan_text], args.batch, precision=precision,
            optimizer=args.optimizer, profile=args.profile, software=who.software,
        )  # fmt: skip
        predicted = trace(Job(estimate, plan))
    parts = Path(args.output).with_name(Path(args.output).name + ".parts")
    ranks = seen_by(parts, int(plan.devices[0, 0]))
    text = json.dumps(with_measured(ranks, predicted), allow_nan=False)
    write(Path(args.trace), text.encode() + b"\n")
    return f"wrote {args.trace}"


def waiting_text(result: Any) -> str:
    """Return how long a step waits for samples, or nothing where none are read."""
    from oracle.spec.units import show

    if not result.reading:
        return ""
    waited, once = show(result.reading["seconds"], "s"), show(result.reading["staging"], "s")
    return f"; of it {waited} waiting for samples ({result.reading['mode']}; {once} once)"


def run(args: argparse.Namespace) -> Answer:
    need_torch()
    from oracle.ask.alive import alive
    from oracle.ask.recovered import recovered
    from oracle.executor.plan_run import PlanRun
    from oracle.executor.run import run as execute
    from oracle.models.model import model
    from oracle.show.provenance import stamped
    from oracle.show.recovery import recovery
    from oracle.spec.catalogue import system
    from oracle.spec.units import show

    by_plan = [engine.chosen_engine(args, plan) for plan in args.plan]
    native_plans = [
        plan for plan, result in zip(args.plan, by_plan, strict=True) if result.name == "native"
    ]
    need_runnable(args.model, native_plans, args.batch)
    data = reading.data_fields(args)
    if data and args.replay:
        raise refusal("options", "--replay sends messages alone, and reads nothing", "one of them")
    checkpoint_options = checkpointing.checkpoint_fields(args)
    if args.trace and (len(args.plan) > 1 or checkpoint_options):
        raise refusal("options", "--trace is of a step of one plan, without --checkpoint",
                      "one --plan at a time")  # fmt: skip
    edges = [stages(args, plan) for plan in args.plan]
    jobs = [
        PlanRun(args.model, plan, args.batch, args.steps, args.warm_up, args.optimizer,
            args.precision, cuts, units=units(args, plan, cuts), data=data,
            engine=who.name, software=who.software, trace=bool(args.trace), **checkpoint_options)
        for plan, cuts, who in zip(args.plan, edges, by_plan, strict=True)
    ]  # fmt: skip
    engine.refuse(jobs, args.replay)
    outcome, results = execute(jobs, Path(args.output), replay=args.replay, **launched(args))
    on_system = system(args.system) if args.system and checkpoint_options else None
    foreseen = [recovered(result, model(args.model), on_system) for result in results]
    lines = [
        f"{result.plan}: {show(result.seconds, 's')} an iteration (± {result.spread:.0%} over "
        f"{len(result.step_seconds)} steps), {show(result.memory, 'B')} at most"
        f"{waiting_text(result)}"
        for result in results
    ]
    memories = [alive(result, model(args.model)) for result in results]
    lines += [line for foreseen_recovery in memories for line in foreseen_recovery.lines]
    lines += [line for result, foreseen_recovery in zip(results, foreseen, strict=True)
              for line in recovery(result.recovery, foreseen_recovery)]  # fmt: skip
    done = f"wrote {args.output}"
    if args.trace and outcome.complete and outcome.leads:
        done += f"; {drawn(args, by_plan[0])}"
    answer = ended(outcome, done)
    if checkpoint_options and not outcome.complete and answer.note:
        answer = replace(answer, note=f"{answer.note}; --resume goes on from the newest checkpoint")
    rows = [
        {
            "model": result.model, "plan": result.plan, "batch": result.batch,
            "devices": result.devices, "seconds": result.seconds, "spread": result.spread,
            "memory": result.memory,
            **({"reading": result.reading["seconds"]} if result.reading else {}),
        }
        for result in results
    ]  # fmt: skip
    plans = [
        result.as_json() | {"predicted": foreseen_recovery | bytes_.as_json()}
        if foreseen_recovery or bytes_.predicted
        else result.as_json()
        for result, foreseen_recovery, bytes_ in zip(results, foreseen, memories, strict=True)
    ]
    return formatted(
        args, lambda: "\n".join(lines),
        lambda: stamped({"plans": plans}), lambda: rows,
        answer.code, answer.note,
    )  # fmt: skip
