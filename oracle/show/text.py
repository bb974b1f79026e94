"""Estimates as text: the first line answers, the rest says why.

Behind a figure stands where it comes from: measured, fitted to measurements, a datasheet, assumed,
counted from shapes, or extrapolated beyond what was measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oracle.kernels.provenance import MEASURED
from oracle.predict.columns import PARTS
from oracle.predict.estimate import Estimate
from oracle.predict.limits import FULL
from oracle.predict.memory import ASSUMED
from oracle.show.layout import fact
from oracle.show.partitions import rooms, table
from oracle.show.placing import otherwise, placed
from oracle.show.plan_words import software_in_words
from oracle.show.rates import epoch, rate, sure
from oracle.show.reading import reads as reading_text
from oracle.show.terminal import fit, width, wrapped
from oracle.show.training import ends, failures
from oracle.spec.units import several, show

if TYPE_CHECKING:
    from oracle.run.target import Training

SUPERLATIVES = {
    "time": "fastest", "cost": "cheapest", "memory": "leanest", "money": "cheapest",
    "energy": "of\u00a0least\u00a0energy", "carbon": "of\u00a0least\u00a0carbon",
}  # fmt: skip


def training_lines(training: Training | None) -> list[str]:
    """Return how long a whole training takes, and what failures take of that."""
    if training is None:
        return []
    label, words = failures(training.goodput)
    return [fact("training", ends(training)), *([fact(label, words)] if words else [])]


def reads(shown: Estimate, row: int = 0, lines: int = 2) -> list[str]:
    """How samples are got, in so many lines at most; nothing under ideal assumptions."""
    if shown.options.ideal:
        return []
    head = "  reads     "
    return [fit(head + reading_text(shown, row, lines * (width() - 6) - len(head)))]


def interval(shown: Estimate, row: int) -> str:
    low, mid, high = (
        show(v[row], "s") for v in (shown.seconds_low, shown.seconds, shown.seconds_high)
    )
    return mid if low == high else f"{mid} ({low} to {high})"


def room(shown: Estimate, row: int) -> str:
    """What a plan needs of a device's memory, the chance that it fits, and what takes most."""
    every, sides = shown.capacity, shown.work[row].sides
    capacity, free = every[row], every - shown.memory
    text = rooms(sides) if len(sides) > 1 else (
        f"{show(shown.memory[row], 'B')} of {show(capacity, 'B')} a device, "
        f"{show(free[row], 'B')} free")  # fmt: skip
    more = []
    if FULL * capacity < shown.memory[row] <= capacity:  # an allocator that fragments may fail
        roomy = np.flatnonzero(shown.memory <= FULL * every)[:1].tolist()
        more = [": tight", *(f", {other + 1} has {show(free[other], 'B')}" for other in roomy)]
    if shown.memory[row] <= capacity and not shown.options.ideal:
        more.append(f"{',;'[bool(more)]} fits with {sure(float(shown.fits[row]))}")
    kinds = sorted(((v[row], k) for k, v in shown.memory_kinds.items()), reverse=True)
    more += [f"{s} {kind} {show(v, 'B')}" for s, (v, kind) in zip(";,", kinds, strict=False)]
    for words in more:  # as far as they fit
        if len(text + words) > width() - 12:
            break
        text += words
    return text


def parts(shown: Estimate, row: int) -> dict[str, float]:
    """What an iteration's seconds are made of; exchanges by what nothing hides."""
    found = {
        "forward and backward": float(
            shown.compute["forward"][row] + shown.compute["backward"][row]
        )
    }
    for part in ("recompute", "bubble", "update"):
        found[part] = float(shown.compute[part][row])
    for message in shown.exchange[row]:
        found[message["what"]] = found.get(message["what"], 0.0) + message["exposed"]
    if (read := shown.reading[row]) is not None:
        found["reading"] = read["exposed"]
    return found


def bounds(shown: Estimate, row: int) -> str:
    total = shown.seconds[row]
    ranked = sorted(parts(shown, row).items(), key=lambda item: -item[1])
    shares = [f"{name} {100 * s / total:.0f} %" for name, s in ranked[:3] if s > 0.005 * total]
    while len(", ".join(shares)) > width() - 12 and len(shares) > 1:
        shares.pop()
    return ", ".join(shares)


def source(shown: Estimate, row: int, part: str) -> dict[str, Any]:
    """Where a part of a plan comes from: `kernels`, `network` (most of what is sent) or `memory`.

    Empty where there is no such part.
    """
    if part == "memory":
        return shown.origin[row]["memory"]
    if part == "kernels":
        return shown.origin[row]["backward"]
    sent: dict[tuple[str, bool], float] = {}
    for message in shown.exchange[row]:
        key = message["origin"], message["outside"]
        sent[key] = sent.get(key, 0.0) + message["exposed"] + 1e-6 * message["seconds"]
    kind, outside = max(sent, key=lambda key: sent[key], default=("", False))
    return {"origin": kind, "outside": outside} if kind else {}


def mark(found: dict[str, Any]) -> str:
    """What a figure stands on, in a word; `extrapolated` where it lies beyond its measurements."""
    if not found:
        return "-"
    beyond = found["outside"] and found["origin"] in MEASURED
    return "extrapolated" if beyond else str(found["origin"])


def origins(shown: Estimate, row: int = 0) -> str:
    """Where the figures of a prediction come from, in words."""
    if shown.options.ideal:
        return "ideal assumptions, no interval"
    network = source(shown, row, "network")
    talk = f", network {network['origin']}" if network else ""
    return f"kernels {source(shown, row, 'kernels')['origin']}{talk}"


def why_not(best: dict[str, float], other: dict[str, float]) -> str:
    """The part in which a plan loses most against the best."""
    gaps = {name: s - best.get(name, 0.0) for name, s in other.items()}
    if not gaps:
        return ""
    name = max(gaps, key=lambda key: gaps[key])
    return f"+{show(gaps[name], 's')} {short(name)}" if gaps[name] > 0 else "as fast"


def short(name: str) -> str:
    """A part's name in two words, for a table."""
    axis, _, what = name.partition(": ")
    return f"{axis} {what.split()[0]}" if what else name.replace("forward and backward", "kernels")


def options_of(asked: Any, verb: str) -> list[str]:
    """What the next command must say as well, to be of the same question."""
    return list(getattr(asked, "repeated", lambda _: ())(verb))


def cut_text(cut: Estimate) -> str:
    """What to type for a plan that fits once its batch is cut."""
    took = show(float(cut.seconds[0]), "s")
    return fit(f"    with smaller micro-batches it fits, {took} a step: "
               f"--plan\u00a0'{cut.plans[0]}'", 6)  # fmt: skip


def estimate_text(shown: Estimate, row: int = 0, whole: Training | None = None) -> str:
    """One plan: seconds, parts, every exchange, memory by kind."""
    model, system = shown.model, shown.system
    taken = f"{interval(shown, row)} an iteration{epoch(shown, row)}"
    lines = [
        fit(f"{shown.plans[row]} on {several(shown.devices[row], 'device')} of "
             f"{system.title or system.name}: {taken}"),
        fit(f"  {model.title or model.name}, {several(shown.batch[row], 'sample')}, "
             f"{shown.options.precision}, {shown.options.optimizer_text}, "
             f"{'' if shown.options.ideal else software_in_words(shown.options.software) + '; '}"
             f"{origins(shown)}"),
        fit(f"  {rate(shown, row)}"),
    ]  # fmt: skip
    lines += [*reads(shown, row), *training_lines(whole), *map(fit, otherwise(shown)),
              *map(fit, placed(shown, row))]  # fmt: skip
    if shown.broken[row]:
        lines += ["  this plan cannot run:", *(fit(f"    {why}", 6) for why in shown.broken[row])]
    lines += ["", "  compute"]
    known = {**shown.origin[row], "bubble": shown.origin[row]["backward"],
             "recompute": shown.origin[row]["forward"]}  # fmt: skip
    lines += [f"    {name:<34} {show(float(shown.compute[name][row]), 's'):>10} {mark(known[name])}"
              for name in PARTS if shown.compute[name][row] > 0]  # fmt: skip
    lines += table(shown.work[row].sides)
    if shown.exchange[row]:
        lines += ["", f"  {'exchange':<36} {'exposed':>10} {'sent':>10}  basis, how"]
    for m in sorted(shown.exchange[row], key=lambda m: -m["exposed"]):
        size, phi = show(m["bytes"], "B"), f", φ = {m['phi']:.3g}" if m["phi"] > 1.005 else ""
        how = f"{m['calls']:.0f} × {size} {m['op']}, {m['algorithm']} of {m['group']}{phi}"
        exposed, sent = show(m["exposed"], "s"), show(m["seconds"], "s")
        lines += wrapped(f"    {m['what']:<34} {exposed:>10} {sent:>10}  {mark(m)}: {how}", 8)
    lines += ["", fit(f"  memory, stage {int(shown.stage[row])}: {room(shown, row)}", 6)]
    held = {kind: "assumed" if kind in ASSUMED else "counted" for kind in shown.memory_kinds}
    lines += [f"    {kind:<34} {show(float(v[row]), 'B'):>10} {held[kind]}"
              for kind, v in shown.memory_kinds.items() if v[row] > 0]  # fmt: skip
    return "\n".join(lines)
