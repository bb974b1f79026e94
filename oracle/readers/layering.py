"""Layers of a spec from a traced graph.

Views between operations become `flatten`, `reshape` and `first`, equal blocks are folded with a
repeat count, and layers are named only where others refer to them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from oracle.models.layers import Shape
from oracle.readers.graph import INPUT, Op, TracedGraph, short

FUNCTIONS = {"relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish"}


def layers(graph: TracedGraph, outputs: Iterable[int]) -> list[Any]:
    """The layers of a spec, in order, equal blocks folded; a loss after each output."""
    graph.follow(outputs)
    return Folded(Emitter(graph).items()).layers()


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


class Emitter:
    """Turns operations into items, with a view put in where a shape needs one."""

    def __init__(self, graph: TracedGraph) -> None:
        self.graph = graph
        self.at: dict[int, int] = {INPUT: INPUT}  # operation -> item
        self.made: list[Item] = []

    def items(self) -> list[Item]:
        graph = self.graph
        table = next((op for op in graph.ops if op.kind in ("embedding", "table")), None)
        ends = {graph.root(output) for output in graph.outputs}
        for i in ends:
            op = graph.ops[i] if i >= 0 else None
            if table is not None and op is not None and op.kind == "dense":
                if op.fields["filters"] >= table.fields["vocab"]:
                    op.fields["role"] = "vocab"
                if op.weights & table.weights:
                    op.fields["tied"] = True
        if graph.sample.tokens:
            to = {"to": [graph.sample.channels, *graph.sample.extents], "tokens": True}
            self.at[INPUT] = self.put("reshape", to, [INPUT], graph.sample)
        for i in graph.live():
            self.emit(i, graph.ops[i])
            if i in ends:
                self.put("loss", {}, [self.at[i]], self.shape(self.at[i]))
        if not self.made:
            raise graph.stop("the output does not depend on the input through any layer")
        return self.made

    def shape(self, item: int) -> Shape:
        return self.graph.sample if item < 0 else self.made[item].made

    def put(self, kind: str, fields: dict[str, Any], feeds: list[int], made: Shape) -> int:
        self.made.append(Item(kind, fields, feeds, made))
        return len(self.made) - 1

    def emit(self, i: int, op: Op) -> None:
        feeds = list(dict.fromkeys(self.at[self.graph.root(feed)] for feed in op.feeds))
        method = getattr(self, f"_{op.kind}", None)
        if method is None:
            raise self.graph.stop(f"`{op.fields.get('op', op.kind)}` is no layer kind",
                                  "write that part of the spec by hand")  # fmt: skip
        self.at[i] = method(op, feeds)

    def fit(self, op: Op, item: int) -> int:
        """The item whose shape is the one the operation read, with a view put in if need be."""
        have, batch = self.shape(item), self.graph.batch
        if not op.given:
            return item
        size = math.prod(op.given) // batch
        if not op.last:
            want = Shape(op.given[1], op.given[2:])
        else:
            rows = size // op.given[-1]
            want = Shape(op.given[-1], (rows,) if rows > 1 else (), rows > 1)
        same = have.channels == want.channels and (
            have.extents == want.extents
            if not op.last
            else math.prod(have.extents) == math.prod(want.extents)
        )
        if op.last and not have.tokens and (len(op.given) == 3 or op.kind == "attention"):
            same = same and len(have.extents) < 2  # a picture becomes tokens
        bare = not want.extents and bool(have.extents) and not have.tokens
        if same and not bare:
            return item
        if have.size == want.size:
            if not want.extents:
                return self.put("flatten", {}, [item], want)
            to = {"to": [want.channels, *want.extents], **({"tokens": True} if want.tokens else {})}
            return self.put("reshape", to, [item], want)
        if have.tokens and have.channels == want.channels and not want.extents:
            return self.put("first", {}, [item], Shape(have.channels, (1,), True))
        shown = "×".join(map(str, op.given[1:]))
        what = f"`{op.kind}` reads {shown}, a part or rearrangement of what was made before it"
        raise self.graph.stop(what, "write that part of the spec by hand")

    def _same(self, op: Op, feeds: list[int], **fields: Any) -> int:
        item = self.fit(op, feeds[0])
        return self.put(op.kind, {**op.fields, **fields}, [item], self.shape(item))

    def _activation(self, op: Op, feeds: list[int]) -> int:
        return self.put(op.fields["op"], {}, feeds[:1], self.shape(feeds[0]))

    def _dropout(self, op: Op, feeds: list[int]) -> int:
        return self.put("dropout", op.fields, feeds[:1], self.shape(feeds[0]))

    def _norm(self, op: Op, feeds: list[int]) -> int:
        return self._same(op, feeds)

    def _attention(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        fields = dict(op.fields)
        if fields["heads"] * fields["width"] == self.shape(item).channels:
            fields.pop("width")
        return self.put("attention", fields, [item], self.shape(item))

    def _mlp(self, op: Op, feeds: list[int]) -> int:
        return self._same(op, feeds)

    def _dense(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        have = self.shape(item)
        fields = {k: v for k, v in op.fields.items() if k != "channels" and not (k == "bias" and v)}
        made = Shape(fields["filters"], have.extents, have.tokens)
        return self.put("dense", fields, [item], made)

    def _conv(self, op: Op, feeds: list[int]) -> int:
        fields, item = dict(op.fields), feeds[0]
        have, extents = self.shape(item), op.given[2:]
        more = [g - n for g, n in zip(extents, have.extents, strict=False)]
        if have.channels == op.given[1] and len(extents) == len(have.extents) and any(more):
            if min(more) < 0 or any(d % 2 for d in more):
                raise self.graph.stop("a convolution padded on one side only is no layer kind")
            pad = [p + d // 2 for p, d in zip(_wide(fields["padding"], len(more)), more,
                                              strict=True)]  # fmt: skip
            fields["padding"] = short(pad)
        else:
            item = self.fit(op, item)
        made = fields.pop("made")
        plain = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1,
                 "bias": True}  # fmt: skip
        fields = {k: v for k, v in fields.items() if k not in plain or v != plain[k]}
        return self.put(op.kind, fields, [item], Shape(made[0], tuple(made[1:])))

    _deconv = _conv

    def _pool(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        fields, have = dict(op.fields), self.shape(item)
        made = tuple(fields.pop("made"))
        if made == have.extents:
            return item
        return self.put("pool", fields, [item], Shape(have.channels, made, have.tokens))

    def _mean(self, op: Op, feeds: list[int]) -> int:
        have = self.shape(feeds[0])
        if op.fields["size"] != have.channels * self.graph.batch:
            raise self.graph.stop(f"`{op.fields.get('op', 'mean')}` over some extents only is no "
                                  "layer kind")  # fmt: skip
        made = Shape(have.channels, (1,) * len(have.extents), have.tokens)
        return self.put("pool", {"kernel": "global", "op": "mean"}, feeds[:1], made)

    def _upsample(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        have = self.shape(item)
        return self.put("upsample", op.fields, [item], Shape(have.channels,
                        tuple(op.fields["to"])))  # fmt: skip

    def _add(self, op: Op, feeds: list[int]) -> int:
        if len(feeds) < 2:  # x + x, or x + a constant
            return feeds[0]
        first = self.shape(feeds[0])
        for item in feeds[1:]:
            if self.shape(item) != first:
                raise self.graph.stop("a sum of different shapes is no layer kind")
        dropped = {"dropout": True} if op.fields.get("dropout") else {}
        return self.put("add", dropped, feeds, first)

    def _multiply(self, op: Op, feeds: list[int]) -> int:
        if len(feeds) < 2:
            return feeds[0]
        self.graph.note("a product of two tensors is counted as one pass over the larger")
        larger = max(feeds, key=lambda item: self.shape(item).size)
        return self.put("sigmoid", {}, [larger], self.shape(larger))

    def _concat(self, op: Op, feeds: list[int]) -> int:
        first = self.shape(feeds[0])
        every = [self.shape(self.at[self.graph.root(feed)]) for feed in op.feeds]
        if any(shape.extents != first.extents for shape in every) or len(every) != len(feeds):
            raise self.graph.stop("tensors joined along their extents are no layer kind")
        made = Shape(sum(shape.channels for shape in every), first.extents, first.tokens)
        return self.put("concat", {}, feeds, made)

    def _position(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        have, extra = self.shape(item), op.fields.get("extra_tokens", 0)
        tokens = math.prod(have.extents) + extra
        fields = {"extra_tokens": extra} if extra else {}
        return self.put("position", fields, [item], Shape(have.channels, (tokens,), True))

    def _embedding(self, op: Op, feeds: list[int]) -> int:
        sample = self.graph.sample
        return self.put("embedding", op.fields, feeds[:1] or [self.at[INPUT]],
                        Shape(op.fields["hidden"], sample.extents, True))  # fmt: skip


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


def _wide(value: Any, rank: int) -> list[int]:
    return list(value) if isinstance(value, list) else [value] * rank
