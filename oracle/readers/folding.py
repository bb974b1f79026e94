"""Layers of a spec from a sequence of items: equal runs are written once, with a repeat count."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oracle.models.layers import Shape
from oracle.readers.operations import INPUT

FUNCTIONS = {"relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish"}


@dataclass(slots=True)
class Item:
    """One layer to be written: its kind, its fields, the items it reads, its output."""

    kind: str
    fields: dict[str, Any]
    feeds: list[int]
    output: Shape

    @property
    def several(self) -> bool:
        return len(self.feeds) > 1


class Folded:
    """Items, cut into pieces that pass on one tensor, with equal runs written once."""

    LONGEST = 64  # pieces of one block

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.names: dict[int, str] = {INPUT: "input"}
        self.used: dict[str, int] = {}
        self.pieces = list(self._pieces())
        self.forms = [self._form(piece) for piece in self.pieces]
        self.piece = {i: n for n, piece in enumerate(self.pieces) for i in piece}

    def _pieces(self) -> Iterator[range]:
        earliest_read = [len(self.items)] * (len(self.items) + 1)
        for i in reversed(range(len(self.items))):
            earliest_read[i] = min(earliest_read[i + 1], *self.items[i].feeds)
        start = 0
        for i in range(len(self.items)):
            if earliest_read[i + 1] >= i:
                yield range(start, i + 1)
                start = i + 1

    def _form(self, piece: range) -> str:
        return json.dumps(
            [
                [self.items[i].kind, self.items[i].fields,
                 [feed - piece.start for feed in self.items[i].feeds]]
                for i in piece
            ]
        )  # fmt: skip

    def layers(self) -> list[Any]:
        written: list[Any] = []
        place = 0
        while place < len(self.pieces):
            length, times = self._run(place)
            span = self.pieces[place : place + length]
            begin, end = span[0].start, span[-1].stop
            if length == 1 and len(span[0]) == 1:
                written += self._write(begin, end, "")
            else:
                last = self.pieces[place + length * times - 1][-1]
                block: dict[str, Any] = {"repeat": times} if times > 1 else {}
                if self._is_read_by_name(
                    last, range(last + 1, len(self.items)), place + length * times
                ):
                    block = {"name": self._name(last, "stack"), **block}
                inner = self._write(begin, end, "block")
                written.append({**block, "layers": inner})
            place += length * times
        return written

    def _run(self, place: int) -> tuple[int, int]:
        """Return the pieces of the block that starts at a place, and how often it recurs."""
        best = (1, 1)
        if not any(self.items[i].several for i in self.pieces[place]):
            return best
        for length in range(1, min(self.LONGEST, (len(self.pieces) - place) // 2) + 1):
            unit, times = self.forms[place : place + length], 1
            while self.forms[place + length * times : place + length * (times + 1)] == unit:
                times += 1
            if times > 1 and length * (times - 1) > best[0] * (best[1] - 1):
                best = (length, times)
        while best[1] == 1 and self._tail(place + best[0]):
            best = (best[0] + 1, 1)
        return best

    def _tail(self, place: int) -> bool:
        """Return whether a piece is a single activation, which joins the block before it."""
        items = [self.items[i] for i in self.pieces[place]] if place < len(self.pieces) else []
        return len(items) == 1 and items[0].kind in FUNCTIONS

    def _write(self, begin: int, end: int, entry: str) -> list[Any]:
        read_by_name = {feed for i in range(begin, end) for feed in self.items[i].feeds
                        if self.items[i].several or feed != i - 1}  # fmt: skip
        outer_name = self.names.get(begin - 1, "")
        if entry:
            self.names[begin - 1] = entry
        written = []
        for i in range(begin, end):
            item = self.items[i]
            fields: dict[str, Any] = {}
            outside = not entry and self._is_read_by_name(
                i, range(end, len(self.items)), self.piece[i] + 1
            )
            if i in read_by_name or outside:
                fields["name"] = self._name(i, item.kind)
            if item.several or item.feeds != [i - 1]:
                fields["from"] = [self.names[feed] for feed in item.feeds]
            written.append(_written(item.kind, {**fields, **item.fields}))
        if entry:
            self.names[begin - 1] = outer_name
        return written

    def _is_read_by_name(self, i: int, within: range, following: int) -> bool:
        """Return whether a later layer has to name item i; the next block need not."""
        length, _ = self._run(following) if following < len(self.pieces) else (0, 0)
        called = self.pieces[following + length - 1].stop if length else 0
        return any(
            i in self.items[j].feeds and (self.items[j].several or j != i + 1)
            for j in within
            if not (j < called and (length > 1 or len(self.pieces[following]) > 1))
        )

    def _name(self, i: int, kind: str) -> str:
        if i not in self.names or not self.names[i]:
            self.used[kind] = self.used.get(kind, 0) + 1
            self.names[i] = f"{kind}{self.used[kind]}"
        return self.names[i]


def _written(kind: str, fields: dict[str, Any]) -> Any:
    short = {"dense": "filters", "norm": "op", "dropout": "rate"}.get(kind)
    if not fields or (kind == "norm" and fields == {"op": "batch"}):
        return kind
    return {kind: fields[short]} if short and set(fields) == {short} else {kind: fields}
