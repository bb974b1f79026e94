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
from oracle.commands.arguments import lasting, result_arguments, whole
from oracle.commands.launching import ended, launch_arguments, launched, need_torch
from oracle.commands.measure import executed_arguments, need_runnable
from oracle.commands.parser import Answer, formatted
from oracle.spec.document import refusal


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", type=lasting, metavar="MODEL", help="a shipped model, or a file")
    parser.add_argument("--plan", action="append", required=True, metavar="PLAN",
                        help='e.g. "data:2 filter:2"; may be given several times')  # fmt: skip
    parser.add_argument("--batch", type=whole, required=True, metavar="B",
                        help="samples per iteration, all devices")  # fmt: skip
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help="where to write the measurement")  # fmt: skip
    parser.add_argument("--steps", type=whole, default=8, metavar="K", help="timed steps")
    parser.add_argument("--warm-up", type=whole, default=2, metavar="K", help="steps before")
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


def stages(asked: argparse.Namespace, text: str) -> tuple[int, ...]:
    """Where the oracle cuts a plan's pipeline; nothing where no system is named."""
    from oracle.predict import evaluate

    if not asked.system:
        return ()
    found = evaluate.cuts(*_of(asked, text, asked.software or "executor"))
    return found if len(found) > 2 else ()


def units(asked: argparse.Namespace, text: str, edges: tuple[int, ...]) -> tuple[str, ...]:
    """What each unit does with its activations; nothing where no room decides."""
    from oracle.plan.plan import parse
    from oracle.predict import evaluate
    from oracle.predict.workload import chooses

    if not chooses(parse(text, asked.batch)).any():
        return ()
    if not asked.system:
        fault = f"`{text}`: which units send out or make again is for a device's room to say"
        raise refusal("options", fault, "--system S, and --max-memory M if that is less")
    what, where, plan, options = _of(asked, text, "executor")
    return evaluate.unit_words(what, where, plan, replace(options, edges=edges))


def _of(asked: argparse.Namespace, text: str, software: str) -> tuple[Any, Any, Any, Any]:
    """The model, the system, a plan and the options it is predicted with."""
    from oracle.models.model import model
    from oracle.plan.plan import parse
    from oracle.predict.defaults import options_for
    from oracle.spec.catalogue import system

    what, where = model(asked.model), system(asked.system)
    precision = "fp32" if asked.precision == "fp64" else asked.precision
    options = options_for(
        what, where, precision, asked.optimizer, profile=asked.profile, software=software,
        max_memory=asked.max_memory,
    )  # fmt: skip
    return what, where, parse(text, asked.batch), options


def drawn(asked: argparse.Namespace, who: engine.Told) -> str:
    """Write the traced step beside the predicted one; what to say of it."""
    from oracle import api
    from oracle.executor.measure.step_trace import seen_by
    from oracle.plan.plan import parse
    from oracle.spec.files import write
    from oracle.writers.exported import Job
    from oracle.writers.trace import trace, with_measured

    (said,), predicted = asked.plan, None
    plan = parse(said, asked.batch)
    if asked.system:
        precision = "fp32" if asked.precision == "fp64" else asked.precision
        found = api.estimate(asked.model, asked.system, [said], asked.batch, precision=precision,
                             optimizer=asked.optimizer, profile=asked.profile,
                             software=who.software)  # fmt: skip
        predicted = trace(Job(found, plan))
    parts = Path(asked.output).with_name(Path(asked.output).name + ".parts")
    ranks = seen_by(parts, int(plan.devices[0, 0]))
    text = json.dumps(with_measured(ranks, predicted), allow_nan=False)
    write(Path(asked.trace), text.encode() + b"\n")
    return f"wrote {asked.trace}"


def read(one: Any) -> str:
    """What a step waits for samples, where they are read."""
    from oracle.spec.units import show

    if not one.reading:
        return ""
    waited, once = show(one.reading["seconds"], "s"), show(one.reading["staging"], "s")
    return f"; of it {waited} waiting for samples ({one.reading['mode']}; {once} once)"


def run(asked: argparse.Namespace) -> Answer:
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

    by = [engine.told(asked, plan) for plan in asked.plan]
    own = [plan for plan, one in zip(asked.plan, by, strict=True) if one.name == "native"]
    need_runnable(asked.model, own, asked.batch)
    data = reading.asked_data(asked)
    if data and asked.replay:
        raise refusal("options", "--replay sends messages alone, and reads nothing", "one of them")
    kept = checkpointing.asked_checkpoints(asked)
    if asked.trace and (len(asked.plan) > 1 or kept):
        raise refusal("options", "--trace is of a step of one plan, without --checkpoint",
                      "one --plan at a time")  # fmt: skip
    edges = [stages(asked, plan) for plan in asked.plan]
    jobs = [
        PlanRun(asked.model, plan, asked.batch, asked.steps, asked.warm_up, asked.optimizer,
            asked.precision, cuts, units=units(asked, plan, cuts), data=data,
            engine=who.name, software=who.software, trace=bool(asked.trace), **kept)
        for plan, cuts, who in zip(asked.plan, edges, by, strict=True)
    ]  # fmt: skip
    engine.refuse(jobs, asked.replay)
    outcome, found = execute(jobs, Path(asked.output), replay=asked.replay, **launched(asked))
    where = system(asked.system) if asked.system and kept else None
    foreseen = [recovered(one, model(asked.model), where) for one in found]
    lines = [
        f"{one.plan}: {show(one.seconds, 's')} an iteration (± {one.spread:.0%} over "
        f"{len(one.step_seconds)} steps), {show(one.memory, 'B')} at most{read(one)}"
        for one in found
    ]
    beside = [alive(one, model(asked.model)) for one in found]
    lines += [line for said in beside for line in said.lines]
    lines += [line for one, said in zip(found, foreseen, strict=True)
              for line in recovery(one.recovery, said)]  # fmt: skip
    done = f"wrote {asked.output}"
    if asked.trace and outcome.complete and outcome.leads:
        done += f"; {drawn(asked, by[0])}"
    answer = ended(outcome, done)
    if kept and not outcome.complete and answer.note:
        answer = replace(answer, note=f"{answer.note}; --resume goes on from the newest checkpoint")
    rows = [
        {"model": one.model, "plan": one.plan, "batch": one.batch, "devices": one.devices,
         "seconds": one.seconds, "spread": one.spread, "memory": one.memory,
         **({"reading": one.reading["seconds"]} if one.reading else {})}
        for one in found
    ]  # fmt: skip
    plans = [one.as_json() | {"predicted": said | bytes_.as_json()}
             if said or bytes_.predicted else one.as_json()
             for one, said, bytes_ in zip(found, foreseen, beside, strict=True)]  # fmt: skip
    return formatted(
        asked, lambda: "\n".join(lines),
        lambda: stamped({"plans": plans}), lambda: rows,
        answer.code, answer.note,
    )  # fmt: skip
