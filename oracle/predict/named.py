"""Whether an algorithm that was named sends anything of the plans that it was named for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS
from oracle.network.contention.price import ALIASES
from oracle.spec.document import refusal

Checked = TypeVar("Checked")
ANY = (None, "best", "nccl")
# what a plan says in words of its own, since it sends other bytes
IN_PLANS = {"sparse_allreduce": "data:…,compress=topk,sparse={}"}


def checked(estimate: Checked) -> Checked:
    """An estimate; a name that fits no operation of its plans is refused, where they have any."""
    prediction: Any = estimate
    name, plans = prediction.options.algorithm, prediction.plans
    if name in ANY or nccl.version_named(name):
        return estimate
    bare = ALIASES.get(name, name).partition(":")[0]
    sent = {message["op"] for messages in prediction.exchange for message in messages}
    if not sent or any(bare in ALGORITHMS.get(op, {}) for op in sent):
        return estimate
    its_operations = [op for op, table in ALGORITHMS.items() if bare in table]
    if not its_operations:  # a capability of switches, which is looked for elsewhere
        return estimate
    knobs = [IN_PLANS[op].format(bare) for op in its_operations if op in IN_PLANS]
    algorithms = (f"{op}: {', '.join(ALGORITHMS[op])}" for op in sorted(sent & ALGORITHMS.keys()))
    operations = ", ".join(its_operations)
    fault = f"`{name}` is an algorithm of {operations}; `{plans[0]}` has {_and(sent)} only"
    hint = "; ".join([*(f"write it in the plan, `{knob}`" for knob in knobs), *algorithms])
    raise refusal("options", fault, hint)


def _and(words: Iterable[str]) -> str:
    *before, last = sorted(words)
    return f"{', '.join(before)} and {last}" if before else last
