"""Layers of a spec from a traced graph.

Views between operations become `flatten`, `reshape` and `first`, equal blocks are folded with a
repeat count, and only layers that other layers refer to have names.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from oracle.models.layers import Shape
from oracle.readers.counted import (
    as_counted,
    as_part,
    norms_beside,
    per_sample,
    shape_of,
    weights_of,
)
from oracle.readers.folding import Folded, Item
from oracle.readers.graph import TracedGraph, short
from oracle.readers.operations import INPUT, Op
from oracle.spec.document import SpecError


def layers(graph: TracedGraph, outputs: Iterable[int]) -> list[Any]:
    """Return the layers of a spec in order, equal blocks folded, a loss after each output."""
    graph.follow(outputs)
    return Folded(Emitter(graph).items()).layers()


class Emitter:
    """A writer of operations as items, with a view inserted where a shape needs one."""

    def __init__(self, graph: TracedGraph) -> None:
        self.graph = graph
        self.item_of: dict[int, int] = {INPUT: INPUT}  # operation -> item
        self.written: list[Item] = []
        self.placed = graph.placed  # parameters that a layer has

    def items(self) -> list[Item]:
        graph = self.graph
        table = next((op for op in graph.ops if op.kind in ("embedding", "table")), None)
        ends = {graph.root(output): output for output in graph.outputs}
        for i in ends:
            op = graph.ops[i] if i >= 0 else None
            if table is not None and op is not None and op.kind == "dense":
                if op.fields["filters"] >= table.fields["vocab"]:
                    op.fields["role"] = "vocab"
                if op.weights & table.weights:
                    op.fields["tied"] = True
        if graph.sample.tokens:
            to = {"to": [graph.sample.channels, *graph.sample.extents], "tokens": True}
            self.item_of[INPUT] = self.add_item("reshape", to, [INPUT], graph.sample)
        for i in graph.live():
            self.emit(i, graph.ops[i])
            if i in ends:
                last = self.source(ends[i])
                self.add_item("loss", {}, [last], self.shape(last))
        if not self.written:
            raise graph.stop("the output does not depend on the input through any layer")
        return self.written

    def shape(self, item: int) -> Shape:
        return self.graph.sample if item < 0 else self.written[item].output

    def add_item(self, kind: str, fields: dict[str, Any], feeds: list[int], output: Shape) -> int:
        self.written.append(Item(kind, fields, feeds, output))
        return len(self.written) - 1

    def source(self, i: int) -> int:
        """Return the item that made these values; copies and scalings are added as counted."""
        chain = []
        while (i := self.graph.moving(i)) not in self.item_of:
            chain.append(i)
            i = self.graph.ops[i].feeds[0]
        item = self.item_of[i]
        for i in reversed(chain):
            item = self.item_of[i] = self.counted(self.graph.ops[i], [item])
        return item

    def emit(self, i: int, op: Op) -> None:
        feeds = list(dict.fromkeys(map(self.source, op.feeds)))
        method = getattr(self, f"_{op.kind}", None)
        begin = len(self.written)
        if method is not None:
            try:
                self.item_of[i] = method(op, feeds)
                if op.counted is None or self.agrees(op, begin):
                    self.placed |= op.weights
                    return
            except SpecError:
                if op.counted is None:
                    raise
            del self.written[begin:]
        if op.counted is None:
            raise self.graph.stop(f"`{op.fields.get('op', op.kind)}` is no layer kind",
                                  "write that part of the spec by hand")  # fmt: skip
        self.item_of[i] = self.counted(op, feeds)

    def agrees(self, op: Op, begin: int) -> bool:
        """Return whether the layers added have the operator's parameters and its output."""
        assert op.counted is not None
        sizes = self.graph.sizes
        expected_weights = sum(sizes[name] for name in op.weights - self.placed)
        layer_weights = sum(
            weights_of(item, self.shape(item.feeds[0])) for item in self.written[begin:]
        )
        output = self.shape(
            len(self.written) - 1 if len(self.written) > begin else self.source(op.feeds[0])
        )
        return expected_weights == layer_weights and output.size == per_sample(
            op.counted.made, self.graph.batch
        )

    def counted(self, op: Op, feeds: list[int]) -> int:
        """Add an operator as it was counted, and return its item."""
        assert op.counted is not None
        weights = sum(self.graph.sizes[name] for name in op.weights - self.placed)
        self.placed |= op.weights
        fields, output = as_counted(op.counted, self.graph.batch, weights)
        return self.add_item("opaque", fields, feeds or [INPUT], output)

    def fit(self, op: Op, item: int) -> int:
        """Return an item of the shape that the operation read, adding a view if need be."""
        have, batch = self.shape(item), self.graph.batch
        if not op.input_dims:
            return item
        size = per_sample(op.input_dims, batch)
        if not op.last:
            want = Shape(op.input_dims[1], op.input_dims[2:])
        else:
            rows = size // op.input_dims[-1]
            want = Shape(op.input_dims[-1], (rows,) if rows > 1 else (), rows > 1)
        same = have.channels == want.channels and (
            have.extents == want.extents
            if not op.last
            else math.prod(have.extents) == math.prod(want.extents)
        )
        if op.last and not have.tokens and (len(op.input_dims) == 3 or op.kind == "attention"):
            same = same and len(have.extents) < 2  # a picture becomes tokens
        bare = not want.extents and bool(have.extents) and not have.tokens
        if same and not bare:
            return item
        if have.size == want.size:
            if not want.extents:
                return self.add_item("flatten", {}, [item], want)
            to = {"to": [want.channels, *want.extents], **({"tokens": True} if want.tokens else {})}
            return self.add_item("reshape", to, [item], want)
        if have.tokens and have.channels == want.channels and not want.extents:
            return self.add_item("first", {}, [item], Shape(have.channels, (1,), True))
        if self.graph.sizes:  # a view of a part, or of values given several times
            fields, want = as_part(have, want)
            return self.add_item("opaque", fields, [item], want)
        dims = "×".join(map(str, op.input_dims[1:]))
        complaint = f"`{op.kind}` reads {dims}, a part or rearrangement of what was made before it"
        raise self.graph.stop(complaint, "write that part of the spec by hand")

    def _same(self, op: Op, feeds: list[int], **fields: Any) -> int:
        item = self.fit(op, feeds[0])
        return self.add_item(op.kind, {**op.fields, **fields}, [item], self.shape(item))

    def _sized(self, op: Op, item: int) -> int:
        """Return the item, or the part of it that the operation read."""
        batch = self.graph.batch
        if not op.input_dims or per_sample(op.input_dims, batch) == self.shape(item).size:
            return item
        fields, output = as_part(self.shape(item), shape_of(op.input_dims, batch))
        return self.add_item("opaque", fields, [item], output)

    def _activation(self, op: Op, feeds: list[int]) -> int:
        item = self._sized(op, feeds[0])
        return self.add_item(op.fields["op"], {}, [item], self.shape(item))

    def _dropout(self, op: Op, feeds: list[int]) -> int:
        item = self._sized(op, feeds[0])
        return self.add_item("dropout", op.fields, [item], self.shape(item))

    def _norm(self, op: Op, feeds: list[int]) -> int:
        return self._same(op, feeds)

    def _attention(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        fields = dict(op.fields)
        if fields["heads"] * fields["width"] == self.shape(item).channels:
            fields.pop("width")
        attention = self.add_item("attention", fields, [item], self.shape(item))
        if costs := [norm.counted for norm in op.norms if norm.counted is not None]:
            names = frozenset[str]().union(*(norm.weights for norm in op.norms)) - self.placed
            self.placed |= names
            weights = sum(self.graph.sizes[name] for name in names)
            more = norms_beside(costs, self.graph.batch, weights, self.shape(attention))
            attention = self.add_item("opaque", more, [attention], self.shape(attention))
        return attention

    def _mlp(self, op: Op, feeds: list[int]) -> int:
        return self._same(op, feeds)

    def _dense(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        have = self.shape(item)
        fields = {k: v for k, v in op.fields.items() if k != "channels" and not (k == "bias" and v)}
        output = Shape(fields["filters"], have.extents, have.tokens)
        return self.add_item("dense", fields, [item], output)

    def _conv(self, op: Op, feeds: list[int]) -> int:
        fields, item = dict(op.fields), feeds[0]
        have, extents = self.shape(item), op.input_dims[2:]
        more = [g - n for g, n in zip(extents, have.extents, strict=False)]
        if have.channels == op.input_dims[1] and len(extents) == len(have.extents) and any(more):
            if min(more) < 0 or any(d % 2 for d in more):
                raise self.graph.stop("a convolution padded on one side only is no layer kind")
            pad = [p + d // 2 for p, d in zip(_wide(fields["padding"], len(more)), more,
                                              strict=True)]  # fmt: skip
            fields["padding"] = short(pad)
        else:
            item = self.fit(op, item)
        output = fields.pop("made")
        plain = {"stride": 1, "padding": 0, "output_padding": 0, "dilation": 1, "groups": 1,
                 "bias": True}  # fmt: skip
        fields = {k: v for k, v in fields.items() if k not in plain or v != plain[k]}
        return self.add_item(op.kind, fields, [item], Shape(output[0], tuple(output[1:])))

    _deconv = _conv

    def _pool(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        fields, have = dict(op.fields), self.shape(item)
        extents = tuple(fields.pop("made"))
        if extents == have.extents:
            return item
        return self.add_item("pool", fields, [item], Shape(have.channels, extents, have.tokens))

    def _mean(self, op: Op, feeds: list[int]) -> int:
        have = self.shape(feeds[0])
        if op.fields["size"] != have.channels * self.graph.batch:
            raise self.graph.stop(f"`{op.fields.get('op', 'mean')}` over some extents only is no "
                                  "layer kind")  # fmt: skip
        output = Shape(have.channels, (1,) * len(have.extents), have.tokens)
        return self.add_item("pool", {"kernel": "global", "op": "mean"}, feeds[:1], output)

    def _upsample(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        have = self.shape(item)
        return self.add_item("upsample", op.fields, [item], Shape(have.channels,
                        tuple(op.fields["to"])))  # fmt: skip

    def _add(self, op: Op, feeds: list[int]) -> int:
        if len(feeds) < 2:  # x + x, or x + a constant
            return feeds[0]
        first = self.shape(feeds[0])
        for item in feeds[1:]:
            if self.shape(item) != first:
                raise self.graph.stop("a sum of different shapes is no layer kind")
        dropped = {"dropout": True} if op.fields.get("dropout") else {}
        return self.add_item("add", dropped, feeds, first)

    def _multiply(self, op: Op, feeds: list[int]) -> int:
        if op.counted is not None:
            return self.counted(op, feeds)
        if len(feeds) < 2:
            return feeds[0]
        self.graph.note("a product of two tensors is counted as one pass over the larger")
        larger = max(feeds, key=lambda item: self.shape(item).size)
        return self.add_item("sigmoid", {}, [larger], self.shape(larger))

    def _concat(self, op: Op, feeds: list[int]) -> int:
        first = self.shape(feeds[0])
        shapes = [self.shape(self.source(feed)) for feed in op.feeds]
        if any(shape.extents != first.extents for shape in shapes) or len(shapes) != len(feeds):
            raise self.graph.stop("tensors joined along their extents are no layer kind")
        output = Shape(sum(shape.channels for shape in shapes), first.extents, first.tokens)
        return self.add_item("concat", {}, feeds, output)

    def _position(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        have, extra = self.shape(item), op.fields.get("extra_tokens", 0)
        tokens = math.prod(have.extents) + extra
        fields = {"extra_tokens": extra} if extra else {}
        return self.add_item("position", fields, [item], Shape(have.channels, (tokens,), True))

    def _embedding(self, op: Op, feeds: list[int]) -> int:
        item, extents = feeds[0] if feeds else self.item_of[INPUT], self.graph.sample.extents
        if op.counted is not None:  # of some words of the sample, or of one of several inputs
            looked_up = per_sample(op.counted.made, self.graph.batch) // op.fields["hidden"]
            if self.shape(item).channels != 1 or self.shape(item).size != looked_up:
                words = Shape(1, (looked_up,))
                item = self.add_item("opaque", as_part(self.shape(item), words)[0], [item], words)
            extents = self.shape(item).extents or (1,)
        return self.add_item(
            "embedding", op.fields, [item], Shape(op.fields["hidden"], extents, True)
        )


def _wide(value: Any, rank: int) -> list[int]:
    return list(value) if isinstance(value, list) else [value] * rank
