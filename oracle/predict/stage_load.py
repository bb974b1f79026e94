"""Load of a model's units and cost of each border, by which a pipeline is cut into stages.

What the step charges a stage, to first order: the passes beside their launches on the host, what
`recompute` makes again, the messages of its rows that nothing hides, and what crosses its two
borders. What adds up over a whole stage only (messages that hide under a pass, gradients, the
update) is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from oracle.kernels.passes import Passes
from oracle.models.shard import Array, Shard
from oracle.network.collectives import Message
from oracle.plan.mesh import Groups
from oracle.plan.plan import Plan
from oracle.plan.strategies import Strategy
from oracle.plan.strategies.recompute import recomputed
from oracle.predict.offers import Lines, cheapest, menu_of, senders
from oracle.predict.overlap import together
from oracle.spec.options import Options
from oracle.spec.system import System

Said = Sequence[tuple[Message, Strategy]]


def stage_load(
    plan: Plan, shard: Shard, groups: Groups, said: Said, times: Passes, system: System,
    options: Options, lines: Lines,
) -> tuple[Array, Array]:  # fmt: skip
    """Seconds of a micro-batch in each unit, and across each border: (plans, units), (…, − 1)."""
    model, n = shard.model, len(plan)
    counts, ends = model.units
    again: Array = np.zeros((n, 1))
    for kind, part in enumerate(recomputed(model), 1):
        again = again + (plan.axis("recompute").mode == kind) * part
    launch = options.software.host.launch(system)
    ahead, back = times.kernels
    device = times.forward * (1 + again) + times.data + times.weight
    units = together(device, (ahead * (1 + again) + back) * launch) @ counts.T
    borders = np.zeros((n, len(ends) - 1))
    twice = 1 + plan.axis("recompute").says("mode", "full")
    for message, axis in said:
        if message.when not in ("forward", "backward", "border"):
            continue
        found = senders(message, groups)
        nbytes = np.broadcast_to(message.nbytes, (n, len(model)))
        if message.when == "border":
            nbytes = nbytes[:, ends.astype(int)[:-1]]
        menu = menu_of(message, found, system, options, lines)
        each = cheapest(menu, found.row, nbytes).seconds * (
            (found.size > 1) | (message.over != "mesh")
        )
        if message.when == "border":
            borders = borders + each
            continue
        each = each * message.calls * (twice if message.when == "forward" else 1)
        if message.hides:  # under a product of the row that sends, or under the pass
            under = getattr(times, message.beside, np.inf)
            may = np.asarray(getattr(axis, "overlap", 1.0)) > 0
            each = np.where(may, np.maximum(each - under, message.shown * each), each)
        units = units + each @ (_last(counts) if message.once else counts).T
    return units, borders


def _last(counts: Array) -> Array:
    """Which unit holds each row's last copy."""
    unit = len(counts) - 1 - np.argmax(counts[::-1] > 0, axis=0)
    return np.asarray(1.0 * (np.arange(len(counts))[:, None] == unit))
