"""Proves the ranks at hand: exchanges, plans of every strategy, and rates, within some time."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.executor.ranks import records
from oracle.executor.ranks.launch import TIMEOUT, Host, Outcome, Say, launch, silent

if TYPE_CHECKING:
    from oracle.executor.ranks.rank import Rank

BOUND = 1e-8  # relative difference of a loss or a weight that rounding does not explain
SECONDS = 120.0  # of the whole proof; plans get what exchanges and rates leave


@dataclass(frozen=True)
class Proof:
    """The results of a proof on the ranks at hand."""

    ranks: int
    nodes: int
    device: str
    backend: str
    exchanges: dict[str, int]  # numbers that arrived wrong
    plans: dict[str, float]  # how far each is from one device
    untried: int  # plans for which there was no time
    memory: float  # bytes a second; 0: not measured
    rates: dict[str, float]  # B/s of a rank in exchanges


def prove(
    parts: Path, *, seconds: float = SECONDS, ranks: int | None = None, timeout: float = TIMEOUT,
    backend: str = "gloo", say: Say = silent, host: Host | None = None,
) -> Outcome:  # fmt: skip
    """Try everything into the folder `parts`; what an earlier try left there is kept."""
    return launch("oracle.executor.proof.machine:task", {"seconds": seconds}, parts, ranks=ranks,
                  timeout=timeout, backend=backend, say=say, host=host)  # fmt: skip


def proof_of(parts: Path) -> Proof:
    """The proof that the records of all ranks make together."""
    from oracle.executor.proof.equality import difference

    facts = next(records.lines(parts / "rank-00000.jsonl"))["facts"]
    by_key = records.of_all_ranks(parts, facts["ranks"])
    kinds: dict[str, dict[str, Any]] = {"exchange": {}, "plan": {}, "rate": {}}
    for key, ranks in by_key.items():
        kind, _, name = key.partition(" ")
        if kind in kinds:
            kinds[kind][name] = ranks
    memory = kinds["rate"].pop("memory", [])
    return Proof(
        facts["ranks"], facts["nodes"], facts["device"], facts["backend"],
        {name: sum(rank["wrong"] for rank in ranks) for name, ranks in kinds["exchange"].items()},
        {name: difference(ranks) for name, ranks in kinds["plan"].items()},
        int(by_key["untried"][0]["count"]) if "untried" in by_key else 0,
        min((rank["rate"] for rank in memory), default=0.0),
        {name: min(rank["rate"] for rank in ranks) for name, ranks in kinds["rate"].items()},
    )  # fmt: skip


def task(rank: Rank, arguments: Mapping[str, Any]) -> None:
    """Try all that is not tried yet; run by each rank."""
    from oracle.executor.measure.collectives import facts

    until = time.monotonic() + arguments["seconds"]
    if not rank.finished("facts"):
        rank.record("facts", facts=facts(rank))
    _exchanges(rank)
    _rates(rank)
    _plans(rank, until)


def _exchanges(rank: Rank) -> None:
    from oracle.executor.messages.calls import ProcessGroups
    from oracle.executor.proof.exchanges import COUNTS, EXCHANGES, groups, wrong

    rank.say("exchanges, and what arrives")
    for shape in groups(rank.size):
        process_groups = ProcessGroups(rank, shape)
        for operation in EXCHANGES:
            key = f"exchange {operation} in groups of {shape.size}"
            key += f", {shape.stride} apart" if shape.stride > 1 else ""
            if rank.finished(key):
                continue
            rank.enter("measure", key)
            numbers = [wrong(rank, process_groups, operation, count) for count in COUNTS]
            rank.record(key, wrong=sum(numbers))


def _rates(rank: Rank) -> None:
    from oracle.executor.messages.calls import GroupShape, ProcessGroups
    from oracle.executor.proof.rates import OPERATIONS, exchanged, memory

    rank.say("bytes a second")
    rank.enter("measure", "memory")
    if not rank.finished("rate memory"):
        rank.record("rate memory", rate=memory(rank))
    if rank.size == 1:
        return
    everyone = ProcessGroups(rank, GroupShape(rank.size))
    for operation in OPERATIONS:
        if not rank.finished(f"rate {operation}"):
            rank.enter("measure", f"large {operation}")
            rank.record(f"rate {operation}", rate=exchanged(rank, everyone, operation))


def _plans(rank: Rank, until: float) -> None:
    """Try plans against one device while time is left for one like the slowest so far."""
    from oracle.executor.proof.equality import trained
    from oracle.executor.proof.plans import BATCH

    trials, slow = list(_trials(rank.size)), 0.0
    for number, (name, model, text) in enumerate(trials):
        key = f"plan {name} {text}"
        if rank.finished(key):
            continue
        left = until - time.monotonic()
        if rank.agree(float(left < slow)) > 0 or not rank.go_on():
            rank.record("untried", count=len(trials) - number)
            return
        if number % 10 == 0:
            rank.say(f"{number + 1}/{len(trials)} plans against one device, {left:.0f} s left")
        rank.enter("measure", f"{name} {text}", number + 1)
        began = time.monotonic()
        rank.record(key, **trained(rank, model, text, BATCH))
        slow = max(slow, rank.agree(time.monotonic() - began))


def _trials(ranks: int) -> Iterator[tuple[str, Any, str]]:
    """(model's name, model, plan) of every trial, the models by turns."""
    from itertools import zip_longest

    from oracle.executor.proof.plans import BATCH, MODELS, plans
    from oracle.models.model import model

    trials_of_model = [[(name, spec, text) for text in plans(model(spec), BATCH, ranks)]
                       for name, spec in MODELS.items()]  # fmt: skip
    for turn in zip_longest(*trials_of_model):
        yield from (trial for trial in turn if trial)
