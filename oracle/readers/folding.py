"""Layers of a spec from items in a row: equal runs are written once, with a repeat count."""

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
    """One layer to be written: its kind and fields, the items it reads, what it makes."""

    kind: str
    fields: dict[str, Any]
    feeds: list[int]
    made: Shape

    @property
    def several(self) -> bool:
        return len(self.feeds) > 1


class Folded:
    """Items cut into pieces where one tensor only is passed on; equal runs are written once."""

    LONGEST = 64  # pieces of one block

    def __init__(self, items: list[Item]) -> None:
        self.items = items
        self.names: dict[int, str] = {INPUT: "input"}
        self.used: dict[str, int] = {}
        self.pieces = list(self._pieces())
        self.forms = [self._form(piece) for piece in self.pieces]
        self.piece = {i: n for n, piece in enumerate(self.pieces) for i in piece}

    def _pieces(self) -> Iterator[range]:
        least = [len(self.items)] * (len(self.items) + 1)
        for i in reversed(range(len(self.items))):
            least[i] = min(least[i + 1], *self.items[i].feeds)
        start = 0
        for i in range(len(self.items)):
            if least[i + 1] >= i:
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
        found: list[Any] = []
        at = 0
        while at < len(self.pieces):
            length, times = self._run(at)
            span = self.pieces[at : at + length]
            begin, end = span[0].start, span[-1].stop
            if length == 1 and len(span[0]) == 1:
                found += self._write(begin, end, "")
            else:
                last = self.pieces[at + length * times - 1][-1]
                block: dict[str, Any] = {"repeat": times} if times > 1 else {}
                if self._wanted(last, range(last + 1, len(self.items)), at + length * times):
                    block = {"name": self._name(last, "stack"), **block}
                inner = self._write(begin, end, "block")
                found.append({**block, "layers": inner})
            at += length * times
        return found

    def _run(self, at: int) -> tuple[int, int]:
        """(pieces in a block, times it recurs) of what starts here."""
        best = (1, 1)
        if not any(self.items[i].several for i in self.pieces[at]):
            return best
        for length in range(1, min(self.LONGEST, (len(self.pieces) - at) // 2) + 1):
            unit, times = self.forms[at : at + length], 1
            while self.forms[at + length * times : at + length * (times + 1)] == unit:
                times += 1
            if times > 1 and length * (times - 1) > best[0] * (best[1] - 1):
                best = (length, times)
        while best[1] == 1 and self._tail(at + best[0]):
            best = (best[0] + 1, 1)
        return best

    def _tail(self, at: int) -> bool:
        """Whether a piece is a mere activation, which belongs to the block before it."""
        found = [self.items[i] for i in self.pieces[at]] if at < len(self.pieces) else []
        return len(found) == 1 and found[0].kind in FUNCTIONS

    def _write(self, begin: int, end: int, entry: str) -> list[Any]:
        wanted = {feed for i in range(begin, end) for feed in self.items[i].feeds
                  if self.items[i].several or feed != i - 1}  # fmt: skip
        known = self.names.get(begin - 1, "")
        if entry:
            self.names[begin - 1] = entry
        written = []
        for i in range(begin, end):
            item = self.items[i]
            fields: dict[str, Any] = {}
            outside = not entry and self._wanted(i, range(end, len(self.items)), self.piece[i] + 1)
            if i in wanted or outside:
                fields["name"] = self._name(i, item.kind)
            if item.several or item.feeds != [i - 1]:
                fields["from"] = [self.names[feed] for feed in item.feeds]
            written.append(_written(item.kind, {**fields, **item.fields}))
        if entry:
            self.names[begin - 1] = known
        return written

    def _wanted(self, i: int, within: range, following: int) -> bool:
        """Whether a layer further down has to call item i by name; the next block need not."""
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
