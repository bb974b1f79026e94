"""Where ranks sit: what a search for the best placement takes and saves, what scattering costs."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace

from benchmarks.table import Table, figure, rounded
from oracle.ask.placing import Placing, placed
from oracle.models.model import model
from oracle.predict.defaults import options_for
from oracle.spec.catalogue import system
from oracle.spec.hostlist import folded
from oracle.spec.system import System

TIMES = 3  # a search is run as often, each on a system of its own; the median counts
PLANS = (
    ("resnet50", "abci", "filter:4 data:16", 1024),
    ("gpt3-175b", "dgx-a100",
     "pipeline:8,segments=96 data:16 tensor:8,sequence=on recompute:full", 1536),
    ("gpt3-175b", "dgx-a100",
     "tensor:8,sequence=on pipeline:8,segments=96 data:16 recompute:full", 1536),
    ("gpt3-175b", "dgx-h100", "data:32 pipeline:8,segments=48 tensor:4 recompute:full", 1536),
    ("llama3-8b", "frontier", "data:16 context:8 tensor:8", 512),
    ("mixtral-8x7b", "eos", "data:128 expert:8 tensor:4,sequence=on context:2", 1024),
)  # fmt: skip


def searched(name: str, machine: System, plan: str, batch: int) -> tuple[Placing, float]:
    """Return the best placement of a plan, and the CPU seconds that finding it took."""
    network, spent = model(name), []
    for _ in range(TIMES):
        fresh = replace(machine)  # that knows no price yet
        options = options_for(network, fresh)
        begin = time.process_time()
        placing = placed(network, fresh, [plan], batch, options, "best").placed[0]
        spent.append(time.process_time() - begin)
    return placing, sorted(spent)[TIMES // 2]


def named(machine: System) -> System:
    """Return the system with names for its nodes, leaf by leaf."""
    count = -(-machine.devices // machine.node)
    return replace(machine, nodes=f"n[0-{count - 1}]")


def drawn(
    machine: System, plan: str, name: str, batch: int, picked: list[int]
) -> dict[str, object]:
    """One job on the nodes that it was given, in the order in which they became free."""
    from oracle.ask.placing import on_nodes

    network = model(name)
    nodes = on_nodes(machine, folded(tuple(f"n{node}" for node in picked)))
    options = options_for(network, nodes)
    begin = time.process_time()
    placing = placed(network, nodes, [plan], batch, options, "best").placed[0]
    spent = time.process_time() - begin
    return {"plan": f"{name}, {plan} on {machine.name}, {len(picked)} nodes",
            "in order": rounded(placing.block), "placed": rounded(placing.seconds),
            "saved": rounded(placing.saved / placing.block), "ways": placing.tried,
            "CPU s": rounded(spent), "neighbours": rounded(placing.neighbours or 0),
            "slower": rounded(placing.scattered / placing.block)}  # fmt: skip


def scattered() -> Iterator[dict[str, object]]:
    """Yield rows of jobs on nodes drawn at random: as many of each leaf, or as are free of it."""
    dice, count = random.Random(7), 64
    machine = named(system("frontera"))
    for leaves in (2, 8, 32, 64):
        picked = [leaf * 44 + k for leaf in dice.sample(range(180), leaves)
                  for k in dice.sample(range(44), count // leaves)]  # fmt: skip
        dice.shuffle(picked)  # as they became free
        row = drawn(machine, "data:64", "vgg16", 2048, picked)
        yield {**row, "plan": f"{row['plan']} below {leaves} leaves, shuffled"}
    machine = named(system("abci"))
    for plan, plan_nodes in (("data:16 filter:16", 64), ("data:64 filter:16", 256)):
        picked = []
        for rack in dice.sample(range(64), 64):
            picked += [rack * 17 + k for k in dice.sample(range(17), dice.randint(1, 12))]
        row = drawn(machine, plan, "resnet50", 16 * plan_nodes, picked[:plan_nodes])
        yield {**row, "plan": f"{row['plan']}, 1 to 12 of each leaf group"}


def table(quick: bool) -> Table:
    """What the search takes and saves."""
    rows: list[dict[str, object]] = []
    spent, worst = [], 0.0
    for name, machine, plan, batch in PLANS[: 3 if quick else None]:
        placing, seconds = searched(name, system(machine), plan, batch)
        spent.append(seconds)
        worst = max(worst, placing.seconds / placing.block)
        rows.append({
            "plan": f"{name} on {machine}: {plan}", "in order": rounded(placing.block),
            "placed": rounded(placing.seconds), "saved": rounded(placing.saved / placing.block),
            "ways": placing.tried, "CPU s": rounded(seconds), "levels": placing.words,
        })  # fmt: skip
    scattered_rows = list(scattered())
    rows += scattered_rows
    figures = {
        "cpu_seconds": figure(max(spent), "s", "≤ 2, 1,024 devices, three axes"),
        "worst_against_block": figure(worst, "", "≤ 1"),
        "scattered.cpu_seconds": figure(
            max(float(str(row["CPU s"])) for row in scattered_rows), "s", "≤ 1, 1,024 devices"
        ),
        "abci_filter_outside.saved": figure(float(str(rows[0]["saved"])), "share", ""),
    }
    return {"title": "Placement: seconds of an iteration", "rows": rows, "figures": figures}
