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


def run(asked: argparse.Namespace) -> Answer:
    from oracle import api
    from oracle.show.choose import choice_text
    from oracle.show.provenance import inputs_of, resolved, stamped
    from oracle.spec.catalogue import system

    options = prediction_options(asked)
    some = specs(options.pop("software") or "")
    systems = specs(asked.systems)
    found = api.choose(
        asked.model, [running(asked, system(name)) for name in systems], asked.devices,
        batch=asked.batch,
        batch_per_device=asked.batch_per_device, to_target=asked.to_target, tokens=asked.tokens,
        steps=asked.steps, within=asked.within, budget=asked.budget, objective=asked.objective,
        software=some, only=asked.only, without=asked.without, risk=asked.risk, **options,
    )  # fmt: skip

    def data() -> dict[str, object]:
        each = [argparse.Namespace(**{**vars(asked), "software": one}) for one in some or [None]]
        read = [one for which in each for one in inputs_of(which, [asked.model], systems)]
        said = stamped(found.to_dict(), dict.fromkeys(read))
        return {**said, "options": resolved({}, asked)}

    return formatted(
        asked, lambda: choice_text(found, asked), data, found.rows, 0 if len(found) else 1,
        brief=BRIEF,
    )  # fmt: skip
