"""Whether the ranks at hand are sound: what was proved on them, against what a system promises."""

from __future__ import annotations

from collections.abc import Iterator

from oracle.ask.selftest import Check
from oracle.executor.proof.machine import BOUND, Proof
from oracle.spec.system import System
from oracle.spec.units import show

LEAST, MOST = 0.4, 1.1  # of what a system's file says, what a sound machine gets of it
FEW = 3  # names that are listed, of many


def checks(proof: Proof, system: System | None = None) -> Iterator[Check]:
    """Each thing that was tried on the ranks."""
    where = f"{proof.ranks} ranks on {proof.nodes} {'nodes' if proof.nodes > 1 else 'node'}"
    bad = [name for name, count in proof.exchanges.items() if count]
    said = f"{len(proof.exchanges)} exchanges among {where} deliver what they should"
    yield _check("exchanges", bad, said, "deliver wrong numbers")
    bad = [name for name, off in proof.plans.items() if off > BOUND]
    worst = max(proof.plans.values(), default=0.0)
    said = f"{len(proof.plans)} plans train as one device does, to {worst:.0e}"
    said += f"; no time for {proof.untried} more, --seconds gives it" if proof.untried else ""
    yield _check("plans", bad, said, "train otherwise than one device")
    yield from _rates(proof, system)


def _check(name: str, bad: list[str], said: str, wrong: str) -> Check:
    if not bad:
        return Check(name, True, said, 0.0)
    more = f" and {len(bad) - FEW} more" if len(bad) > FEW else ""
    return Check(name, False, f"{', '.join(bad[:FEW])}{more} {wrong}", 0.0)


def _rates(proof: Proof, system: System | None) -> Iterator[Check]:
    """Memory and links; without a system nobody says what they should do."""
    promised = None if system is None else system.device.memory_bandwidth
    yield _rate("memory", proof.memory, "a device's memory moves", promised)
    link = None if system is None else _link(system, proof.ranks)
    for operation, rate in proof.rates.items():
        yield _rate(operation, rate, f"in a large {operation} a rank sends", link)


def _link(system: System, ranks: int) -> float | None:
    """Bytes a second that a device has of the ports it meets the farthest of so many ranks over."""
    inside = 1
    for level in system.levels:
        if level.devices >= min(ranks, system.devices):
            return (level.ports or 1.0) * level.bandwidth / inside
        inside = level.devices
    return None


def _rate(name: str, rate: float, what: str, promised: float | None) -> Check:
    said = f"{what} {show(rate, 'B/s')}"
    if promised is None:
        return Check(name, rate > 0, f"{said}; --system SYSTEM says what it should be", 0.0)
    share = rate / promised
    said += f", {share:.0%} of the {show(promised, 'B/s')} in the system's file"
    why = ""
    if share < LEAST:
        why = ": is another job there, or a link down?"
    elif share > MOST:
        why = ": more than it can be, the file is of another machine"
    return Check(name, not why, said + why, 0.0)
