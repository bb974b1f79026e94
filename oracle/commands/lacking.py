"""What a system lacks for what is asked of it: room, a precision."""

from __future__ import annotations

import argparse
from collections.abc import Iterable


def need_room(asked: argparse.Namespace, plans: Iterable[str]) -> None:
    """Refuse plans of more devices than the system has, where it may not grow."""
    from oracle.ask.placing import on_nodes
    from oracle.predict.defaults import room_for
    from oracle.spec.catalogue import system

    given = getattr(asked, "nodes", None)
    room_for(on_nodes(system(asked.system), given), plans, asked.grow)


def lacks(asked: argparse.Namespace, systems: Iterable[str]) -> list[str]:
    """Lines for answers that are no text: what is priced in another precision than was asked."""
    from oracle.predict.remarks import lacking
    from oracle.spec.catalogue import system

    some = [system(name) for name in systems] if asked.precision else []
    found = (one for each in some for one in lacking(each, asked.precision))
    return [f"{one.field}: {one.what}" for one in found]
