"""Plans, and the software that runs them, in words that a colleague would say aloud.

`pipeline:4,segments=32 data:16,zero=1 tensor:4` is `16 replicas × 4 pipeline stages × 4 devices
that split every layer`. What a strategy is called here is in one table.
"""

from __future__ import annotations

from collections.abc import Sequence

from oracle.plan.grammar import read
from oracle.spec.document import SpecError
from oracle.spec.software import Software

# what a strategy makes of a training, in the order in which one says it; and in a word or two
WORDS = {
    "data": ("replicas", "replicas"),
    "sharded": ("devices that share the weights", "weight shards"),
    "pipeline": ("pipeline stages", "stages"),
    "context": ("parts of each sequence", "sequence parts"),
    "spatial": ("parts of each sample", "sample parts"),
    "filter": ("devices that split filters", "filter parts"),
    "channel": ("devices that split channels", "channel parts"),
    "tensor": ("devices that split every layer", "layer parts"),
}
LEGEND = {
    "data": "replicas", "sharded": "weight shards", "pipeline": "pipeline stages",
    "context": "sequence parts", "tensor": "layer parts", "expert": "expert groups",
}  # fmt: skip
SHARED = {1: "optimizer state", 2: "optimizer state and gradients", 3: "weights and their state"}
UNNAMED = "eager framework (none named)"


def plan_in_words(plan: str, room: float = float("inf")) -> str:
    """Return a plan as a noun phrase, in shorter words where there is less room.

    A text that is no plan is returned as it stands.

    >>> plan_in_words("pipeline:4,segments=32 data:16,zero=1 tensor:4,sequence=on")
    '16 replicas × 4 pipeline stages × 4 devices that split every layer'
    >>> plan_in_words("pipeline:4,segments=32 data:16,zero=1 tensor:4,sequence=on", 50)
    '16 replicas × 4 stages × 4 layer parts'
    >>> plan_in_words("data:64"), plan_in_words("serial")
    ('64 replicas', 'one device alone')
    >>> plan_in_words("data:8,zero=3 expert:4 recompute:full")
    '8 replicas that share weights and their state, experts over 4 of them, all recomputed'
    """
    try:
        axes = {axis.name: axis for axis in read(plan)}
    except SpecError:
        return plan
    wide = {name: int(axis.degree) for name, axis in axes.items() if axis.degrees and axis.wide}
    if not wide.keys() & WORDS.keys():
        return "one device alone"
    known = [name for name in WORDS if name in wide]
    long, brief = (" × ".join(f"{wide[name]} {WORDS[name][size]}" for name in known)
                   for size in (0, 1))  # fmt: skip
    details = []
    zero = int(getattr(axes.get("data"), "zero", 0))
    if zero and known == ["data"]:
        details.append(f" that share {SHARED[zero]}")
    if "expert" in wide:
        details.append(f", experts over {wide['expert']} of them")
    if "recompute" in axes and axes["recompute"].word("mode") == "full":
        details.append(", all recomputed")
    text = long if len(long) <= room else brief
    for detail in details:
        text += detail if len(text + detail) <= room else ""
    return text


def legend(plans: Sequence[str], blank: str = " ") -> str:
    """Return what the letters of short names stand for, those that these plans use.

    `blank` stands between the words of one entry.

    >>> legend(["data:64", "data:16 tensor:4"])
    'DP replicas, TP layer parts'
    """
    used: dict[str, str] = {}
    for plan in plans:
        for axis in read(plan):
            if axis.letters and axis.wide and axis.name in LEGEND:
                used[axis.letters] = LEGEND[axis.name]
    entries = (f"{letters} {words}".replace(" ", blank) for letters, words in used.items())
    return ", ".join(entries)


def software_in_words(software: Software) -> str:
    """Return what runs a training; `plain` is what nobody named."""
    if software.name != "plain":
        return software.label
    return ", ".join((UNNAMED, *software.changed))
