"""Which machine, how many of its devices, which software, plan and batch: one answer first.

oracle choose llama2-7b --systems dgx-h100,dgx-a100,abci --devices 8..4096 --tokens 2T --within 30d
oracle choose resnet50 --systems abci,dgx-a100 --devices 8..512 --to-target --objective money
oracle choose gpt2 --systems "dgx-h100,price=2.5 USD/h,abci" --devices 8..64 --tokens 300B
oracle choose cosmoflow-128 --systems juwels-booster,perlmutter --devices 64..1024 --batch 128 \\
    --epochs 30 --within 1h --budget 500kWh

Numbers of devices double; beyond a node they are of whole nodes. What fails the limits is listed
after what keeps to them, the nearest miss first; with nothing that keeps to them the code is 1.
"""

from __future__ import annotations

import argparse

from oracle.commands.arguments import (
    batch_arguments,
    length_arguments,
    limit_arguments,
    names,
    prediction_arguments,
    prediction_options,
    result_arguments,
    running,
    specs,
)
from oracle.commands.parser import Answer, formatted

OBJECTIVES = ("time", "cost", "memory", "money", "energy", "carbon")
BRIEF = ("rank", "system", "devices", "batch", "plan", "seconds", "device_hours", "money",
         "energy", "carbon", "over")  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    prediction_arguments(parser, system=False)
    parser.add_argument("--systems", required=True, metavar="A,B",
                        help="machines to choose from; `A,price=2USD/h` changes one")  # fmt: skip
    parser.add_argument("--devices", required=True, metavar="RANGE", help="e.g. 8..4096")
    batch_arguments(parser, needed=False)
    length_arguments(parser)
    limit_arguments(parser)
    parser.add_argument("--objective", choices=OBJECTIVES, metavar="X",
                        help="time, cost (device-hours), money, energy or carbon; not said, "
                        "what is spent if there is a deadline, else time")  # fmt: skip
    parser.add_argument("--risk", type=float, default=0.05, metavar="R",
                        help="of running out of memory that is taken")  # fmt: skip
    parser.add_argument("--only", type=names, default=[], metavar="A,B", help="these strategies")
    parser.add_argument("--without", type=names, default=[], metavar="A,B", help="not these")
    parser.add_argument("--grow", action="store_true",
                        help="let outermost levels join more devices")  # fmt: skip
    result_arguments(parser)


def run(args: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.show.choose import choice_text
    from oracle.show.provenance import inputs_of, resolved, stamped
    from oracle.spec.catalogue import system

    options = prediction_options(args)
    software = specs(options.pop("software") or "")
    systems = specs(args.systems)
    args.called = {name.partition(",")[0]: name for name in systems}
    choice = api.choose(
        args.model, [running(args, system(name)) for name in systems], args.devices,
        batch=args.batch,
        batch_per_device=args.batch_per_device, to_target=args.to_target, tokens=args.tokens,
        steps=args.steps, within=args.within, budget=args.budget, objective=args.objective,
        software=software, only=args.only, without=args.without, risk=args.risk, **options,
    )  # fmt: skip

    def data() -> dict[str, object]:
        questions = [
            argparse.Namespace(**{**vars(args), "software": name}) for name in software or [None]
        ]
        read = [
            name for question in questions for name in inputs_of(question, [args.model], systems)
        ]
        answer = stamped(choice.to_dict(), dict.fromkeys(read))
        return {**answer, "options": resolved({}, args)}

    return formatted(
        args, lambda: choice_text(choice, args), data, choice.rows, 0 if len(choice) else 1,
        brief=BRIEF,
    )  # fmt: skip
