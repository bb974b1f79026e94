"""Which network to buy for so many devices: step time against switches and cables.

oracle design-network --devices 1024 --ports 36 --for resnet50,gpt3-175b
oracle design-network --devices 1024 --ports 64 --for gpt3-175b:1536 --system dgx-h100 --within 2
oracle design-network --devices 256 --ports 40 --for resnet50:8192 --plan data:256 --json
oracle design-network --devices 512 --ports 64 --for gpt3-175b \\
    --switch-price 25000 --cable-price node=150,group=600,global=1500

Fat trees, trees a rail, dragonflies, tori, loops with shortcuts, HyperX, Slim Fly and optical
circuits, as far as the ports of a switch allow; the system says devices, nodes and their ports.
Every network takes the best of the plans that suit the widest and the narrowest; `--plans same` the
one of the widest, `--plan` yours, one a model. `oracle plot design-network` draws the same.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oracle.commands.arguments import (
    recipe_arguments,
    result_arguments,
    software_arguments,
    specs,
    whole_number,
)
from oracle.commands.parser import Answer, formatted

if TYPE_CHECKING:
    from oracle.ask.design_network import Designs

SYSTEM = "dgx-a100"
LENGTHS = ("node", "group", "global")  # of cables, the shortest first


def arguments(parser: argparse.ArgumentParser) -> None:
    question(parser)
    result_arguments(parser)


def question(parser: argparse.ArgumentParser) -> None:
    """Add the options of the question, whatever form its answer has."""
    parser.add_argument("--devices", type=whole_number, required=True, metavar="N", help="to join")
    parser.add_argument(
        "--ports", type=whole_number, required=True, metavar="K", help="of a switch"
    )
    parser.add_argument("--for", required=True, dest="models", metavar="A,B",
                        help="models, with their batch or without: resnet50:8192")  # fmt: skip
    parser.add_argument("--system", default=SYSTEM, metavar="S",
                        help="of which nodes")  # fmt: skip
    parser.add_argument(
        "--nics", type=whole_number, metavar="C", help="ports of a node, not the system's"
    )
    parser.add_argument("--link", metavar="B", help="bandwidth of a port, e.g. `50 GB/s`")
    parser.add_argument("--plans", choices=["best", "same"], default="best", metavar="W",
                        help="best on each network, or the same on all")  # fmt: skip
    parser.add_argument("--plan", action="append", default=[], metavar="PLAN",
                        help="of a model, in their order; instead of a search")  # fmt: skip
    parser.add_argument("--within", type=percent, default=5.0, metavar="X",
                        help="the cheapest of those within X %% of the fastest")  # fmt: skip
    parser.add_argument("--switch-price", type=price, metavar="P", help="of a switch, in USD")
    parser.add_argument("--cable-price", type=cable_prices, metavar="P",
                        help="of a cable, or node=150,group=600,global=1500")  # fmt: skip
    recipe_arguments(parser)
    software_arguments(parser)


def percent(text: str) -> float:
    """Return a share in per cent, from 0 on."""
    return _number(text, "a number of per cent, e.g. 5", 1000)


def price(text: str) -> float:
    """Return a price in USD, from 0 on."""
    return _number(text, "a price in USD, e.g. 25000", 1e12)


def _number(text: str, meaning: str, largest: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= largest:
        raise argparse.ArgumentTypeError(f"`{text}` is not {meaning}")
    return value


def cable_prices(text: str) -> dict[str, float]:
    """Return the price of each length of cable; one price stands for all lengths."""
    if "=" not in text:
        return dict.fromkeys(LENGTHS, price(text))
    prices = {name.strip(): price(value) for name, _, value in
              (part.partition("=") for part in text.split(","))}  # fmt: skip
    if set(prices) != set(LENGTHS):
        raise argparse.ArgumentTypeError(
            f"`{text}` is not a price for each of {', '.join(LENGTHS)}"
        )
    return prices


def designed(args: argparse.Namespace) -> Designs:
    """Return the networks that a command line asks for."""
    from oracle import api

    return api.design_network(
        specs(args.models), args.devices, args.ports, system=args.system,
        plan=args.plan or None, plans=args.plans, within=args.within / 100,
        switch_price=args.switch_price, cable_price=args.cable_price, nics=args.nics,
        link=args.link, precision=args.precision, optimizer=args.optimizer,
        software=args.software, any_plan=args.any_plan,
    )  # fmt: skip


def run(args: argparse.Namespace) -> Answer:
    from oracle.show.design_network import designs_text
    from oracle.show.provenance import resolved, stamped
    from oracle.spec.catalogue import noted

    with noted() as read:
        designs = designed(args)

    def data() -> dict[str, Any]:
        sources = list(dict.fromkeys(read))
        return {**stamped(designs.to_dict(), sources), "options": resolved({}, args)}

    return formatted(args, lambda: designs_text(designs), data, designs.rows, brief=_brief(designs))


def _brief(designs: Designs) -> list[str]:
    seconds = [f"{work.model.name}_seconds" for work in designs.workloads]
    return ["rank", "network", "slowdown", *seconds, "switches", "cables", "cost", "unbeaten"]
