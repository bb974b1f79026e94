"""What is said of one plan's reading: how, where, how fast, what binds, what else there is."""

from __future__ import annotations

from typing import Any

import numpy as np

from oracle.predict.reading import Read
from oracle.spec.units import show
from oracle.storage import MODES, Reading, file_system

NEAR = 0.99  # ways to read that differ by less are alike


def figures(read: Read, row: int) -> dict[str, Any]:
    """One plan's reading in the published JSON form."""
    names, question = list(read.loads.modes), read.loads.question
    name, kind = names[int(read.mode[row])], int(read.loads.row[row])
    mode, step = read.loads.modes[name], float(read.seconds[row])
    work, steps = float(read.work[row]), _of_kind(question.steps, kind)
    alternatives = [_alternative(read, way, row, kind) for way in MODES if way != name]
    once = float(read.before(name, read.seconds)[row])
    first = float(read.first(name, read.seconds)[row])
    bound = bound_by(mode, kind, work, step)
    return {
        "mode": name,
        "where": MODES[name].where,
        "seconds": _finite(_of_kind(mode.load + np.asarray(mode.alone), kind)),
        "exposed": max(step - work, 0.0),
        "first_epoch": first * steps,
        "once": once,
        "staging": _of_kind(mode.staging, kind) if question.machine.shared is not None else None,
        "listing": _of_kind(mode.listing, kind),
        "bound_by": bound,
        "cause": _cause(read, name, kind, bound),
        "terms": {term: _of_kind(took, kind) for term, took in mode.terms.items()},
        "files": _of_kind(mode.opens, kind),
        "bytes": _of_kind(mode.nbytes, kind),
        "files_per_second": _of_kind(mode.opens, kind) / step,
        "bytes_per_second": _of_kind(mode.nbytes, kind) / step,
        "nodes": _of_kind(question.reading(name == "spatial"), kind),
        "shuffle": question.shuffle.text,
        "assumed": list(read.assumed),
        "alternatives": alternatives,
        "pays_after": _pays(step, once, steps, alternatives),
    }


def bound_by(mode: Reading, kind: int, work: float, step: float) -> str:
    """What makes a step longer that takes `work` without; else what of reading takes longest.

    Reading that is done in time may still deal out parts, or slow the exchange on the same ports.
    """
    alone, load = _of_kind(mode.alone, kind), _of_kind(mode.load, kind)
    if load <= work < step:
        return "scatter" if alone > (step - work) / 2 else "network"
    terms = {term: _of_kind(took, kind) for term, took in mode.terms.items()}
    return max(terms, key=lambda term: terms[term], default="")


def _alternative(read: Read, name: str, row: int, kind: int) -> dict[str, Any]:
    """A way to read that a plan does not take: what a step would be with it."""
    mode = read.loads.of_name(name)
    barred = bool(_of_kind(mode.barred, kind))
    if mode.why or barred:
        return {"mode": name, "step": None, "exposed": None, "once": None, "possible": False,
                "why": mode.why or mode.bar}  # fmt: skip
    step, short = float(read.steps[name][row]), _of_kind(mode.short, kind)
    why = f"the disks of each node lack {show(short, 'B')}" if short > 0 else ""
    once = float(read.before(name, read.steps[name])[row])
    return {"mode": name, "step": step, "exposed": max(step - float(read.work[row]), 0.0),
            "once": once, "possible": not why, "why": why}  # fmt: skip


def _pays(step: float, once: float, steps: float, alternatives: list[dict[str, Any]]) -> Any:
    """Epochs after which what is done once has paid, against all ways that ask for less of it."""
    less = [way for way in alternatives if way["possible"] and way["once"] < NEAR * once
            and way["step"] > step / NEAR]  # fmt: skip
    if not less:
        return None
    epochs_until = {
        way["mode"]: (once - way["once"]) / (steps * (way["step"] - step)) for way in less
    }
    against = max(epochs_until, key=lambda name: epochs_until[name])
    return {"epochs": epochs_until[against], "against": against}


def _cause(read: Read, name: str, kind: int, bound: str) -> str:
    """What takes the longest, in words: who waits for what."""
    mode, shared = read.loads.modes[name], read.loads.question.machine.shared
    store = MODES[name].where
    files, nbytes = _of_kind(mode.opens, kind), _of_kind(mode.nbytes, kind)
    nodes = _of_kind(read.loads.question.reading(name == "spatial"), kind)
    bytes_each, opens = f"{show(nbytes / nodes, 'B')} a node and step", files / nodes
    if name in ("shared", "cached", "spatial") and shared is not None:
        store = "the shared file system"
        if bound == "metadata":
            rate = (shared.metadata or np.inf) / file_system.OPERATIONS[shared.kind]
            return f"metadata of {store}: {files:,.0f} opens at {show(rate, '/s')}"
        rate = file_system.stream(shared)
        if bound == "latency" and nbytes / nodes / rate > opens * (shared.open or 0.0):
            return f"single reads of {store}: {bytes_each}, {show(rate, 'B/s')} each"
    return {
        "bandwidth": f"bandwidth of {store}: {bytes_each}",
        "latency": f"latency of {store}: {opens:,.0f} opens a node and step",
        "memory": f"memory of each node: {bytes_each}",
        "network": f"the ports of each node, beside the exchange: {bytes_each}",
        "decode": f"the cores of each node, which unpack {bytes_each}",
        "scatter": "ranks that read whole samples deal out their parts",
    }.get(bound, bound)


def _of_kind(values: Any, kind: int) -> float:
    column = np.asarray(values, float)
    return float(column if column.ndim == 0 else column[kind if len(column) > 1 else 0])


def _finite(value: float) -> float:
    return value if np.isfinite(value) else 0.0
