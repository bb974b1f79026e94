"""What a system lacks for a question: devices for the plans, a precision."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def need_room(args: argparse.Namespace, plans: Iterable[str]) -> None:
    """Refuse plans of more devices than the system has, unless it may grow."""
    from oracle.ask.placing import on_nodes
    from oracle.predict.defaults import room_for
    from oracle.spec.catalogue import system

    nodes = getattr(args, "nodes", None)
    room_for(on_nodes(system(args.system), nodes), plans, args.grow)


def lacks(args: argparse.Namespace, systems: Iterable[str]) -> list[str]:
    """Return a line for each operation priced in another precision than the one in `args`."""
    from oracle.predict.remarks import lacking
    from oracle.spec.catalogue import system

    if not args.precision:
        return []
    return [f"{remark.field}: {remark.what}" for name in systems
            for remark in lacking(system(name), args.precision)]  # fmt: skip
