"""Stages by hand: the text of a layout, `3/7/12` or `join4/join1`, and the units it means."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise

import numpy as np

from oracle.models.model import Model
from oracle.spec.document import suggest

LAYOUT = r"[A-Za-z0-9_.\-]+(/[A-Za-z0-9_.\-]+)*"  # units or names between strokes


def faults(text: str, chunks: int) -> Iterator[tuple[str, str]]:
    """(what is wrong, what to write) of a layout, whatever the model."""
    places = text.split("/")
    if len(places) != chunks - 1:
        complaint = f"`cuts={text}` has {len(places)} places, and {chunks} chunks need {chunks - 1}"
        yield complaint, "the unit or layer that begins each chunk but the first, `3/7/12`"
    numbers = [int(place) for place in places if place.isdigit()]
    if any(a >= b for a, b in pairwise([0, *numbers])):
        yield f"`cuts={text}` does not rise", "units are counted from 0; the first chunk has one"


@lru_cache(256)
def edges_of(model: Model, text: str) -> tuple[tuple[int, ...], str]:
    """The units where chunks begin, and the end of the last; or what is wrong, in words."""
    edges = [0]
    for place in text.split("/"):
        unit, wrong = _unit(model, place)
        if wrong:
            return (), wrong
        edges.append(unit)
    edges.append(len(model.pieces.ends))
    if any(a >= b for a, b in pairwise(edges)):
        places = ", ".join(map(str, edges[1:-1]))
        last = len(model.pieces.ends) - 1
        return (), f"cuts={text}: units {places} of 0 to {last} do not rise from 1 on"
    return tuple(edges), ""


def _unit(model: Model, place: str) -> tuple[int, str]:
    """The unit that a place of a layout begins at, or why there is none."""
    units = len(model.pieces.ends)
    if place.isdigit():
        wrong = f"cuts: {model.name} has units 0 to {units - 1}, and none is {place}"
        return int(place), "" if int(place) < units else wrong
    rows = rows_named(model, place)
    if not rows:
        hint = suggest(place, names(model), "layers and blocks")
        return 0, f"cuts: nothing in {model.name} is called `{place}`" + (f"; {hint}" * bool(hint))
    counts = model.pieces.counts
    number = np.flatnonzero(counts[:, rows[0]] > 0)
    if len(rows) > 1 or len(number) > 1:
        matches = np.flatnonzero((counts[:, rows] > 0).any(axis=1))
        complaint = f"cuts: `{place}` stands several times, in units {matches[0]} to {matches[-1]}"
        return 0, f"{complaint}: write the number of one"
    unit = int(number[0])
    if int(np.argmax(counts[unit] > 0)) != rows[0]:
        complaint = f"cuts: `{place}` lies inside unit {unit}, which is not cut"
        return 0, f"{complaint}; {unit} begins before it and {unit + 1} behind it"
    return unit, ""


def rows_named(model: Model, name: str) -> list[int]:
    """First rows of the layers and blocks that a model calls so."""
    blocks = [model_row.start for model_row in model.segments if model_row.name == name]
    return blocks or [i for i, row in enumerate(model.rows) if row.name == name]


def names(model: Model) -> dict[str, None]:
    """What its layers and blocks are called."""
    by_name = [segment.name for segment in model.segments if segment.name]
    return dict.fromkeys([*by_name, *(row.name for row in model.rows)])
