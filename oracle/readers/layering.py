"""Layers of a spec from a traced graph.

Views between operations become `flatten`, `reshape` and `first`, equal blocks are folded with a
repeat count, and layers are named only where others refer to them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from oracle.models.layers import Shape
from oracle.readers.counted import as_counted, as_part, beside, per_sample, shape_of, weights_of
from oracle.readers.folding import Folded, Item
from oracle.readers.graph import TracedGraph, short
from oracle.readers.operations import INPUT, Op
from oracle.spec.document import SpecError


def layers(graph: TracedGraph, outputs: Iterable[int]) -> list[Any]:
    """The layers of a spec, in order, equal blocks folded; a loss after each output."""
    graph.follow(outputs)
    return Folded(Emitter(graph).items()).layers()


class Emitter:
    """Turns operations into items, with a view put in where a shape needs one."""

    def __init__(self, graph: TracedGraph) -> None:
        self.graph = graph
        self.at: dict[int, int] = {INPUT: INPUT}  # operation -> item
        self.made: list[Item] = []
        self.held = graph.placed  # parameters that a layer has

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
            self.at[INPUT] = self.put("reshape", to, [INPUT], graph.sample)
        for i in graph.live():
            self.emit(i, graph.ops[i])
            if i in ends:
                last = self.source(ends[i])
                self.put("loss", {}, [last], self.shape(last))
        if not self.made:
            raise graph.stop("the output does not depend on the input through any layer")
        return self.made

    def shape(self, item: int) -> Shape:
        return self.graph.sample if item < 0 else self.made[item].made

    def put(self, kind: str, fields: dict[str, Any], feeds: list[int], made: Shape) -> int:
        self.made.append(Item(kind, fields, feeds, made))
        return len(self.made) - 1

    def source(self, i: int) -> int:
        """The item that made these values; what only copies or scales them is put in as counted."""
        chain = []
        while (i := self.graph.moving(i)) not in self.at:
            chain.append(i)
            i = self.graph.ops[i].feeds[0]
        item = self.at[i]
        for i in reversed(chain):
            item = self.at[i] = self.counted(self.graph.ops[i], [item])
        return item

    def emit(self, i: int, op: Op) -> None:
        feeds = list(dict.fromkeys(map(self.source, op.feeds)))
        method = getattr(self, f"_{op.kind}", None)
        begin = len(self.made)
        if method is not None:
            try:
                self.at[i] = method(op, feeds)
                if op.counted is None or self.agrees(op, begin):
                    self.held |= op.weights
                    return
            except SpecError:
                if op.counted is None:
                    raise
            del self.made[begin:]
        if op.counted is None:
            raise self.graph.stop(f"`{op.fields.get('op', op.kind)}` is no layer kind",
                                  "write that part of the spec by hand")  # fmt: skip
        self.at[i] = self.counted(op, feeds)

    def agrees(self, op: Op, begin: int) -> bool:
        """Whether the layers put in have the operator's parameters, and make what it made."""
        assert op.counted is not None
        sizes = self.graph.sizes
        wanted = sum(sizes[name] for name in op.weights - self.held)
        found = sum(weights_of(item, self.shape(item.feeds[0])) for item in self.made[begin:])
        made = self.shape(
            len(self.made) - 1 if len(self.made) > begin else self.source(op.feeds[0])
        )
        return wanted == found and made.size == per_sample(op.counted.made, self.graph.batch)

    def counted(self, op: Op, feeds: list[int]) -> int:
        """An operator as it was counted."""
        assert op.counted is not None
        weights = sum(self.graph.sizes[name] for name in op.weights - self.held)
        self.held |= op.weights
        fields, made = as_counted(op.counted, self.graph.batch, weights)
        return self.put("opaque", fields, feeds or [INPUT], made)

    def fit(self, op: Op, item: int) -> int:
        """The item whose shape is the one the operation read, with a view put in if need be."""
        have, batch = self.shape(item), self.graph.batch
        if not op.given:
            return item
        size = per_sample(op.given, batch)
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
        if self.graph.sizes:  # a view of a part, or of values given several times
            fields, want = as_part(have, want)
            return self.put("opaque", fields, [item], want)
        shown = "×".join(map(str, op.given[1:]))
        what = f"`{op.kind}` reads {shown}, a part or rearrangement of what was made before it"
        raise self.graph.stop(what, "write that part of the spec by hand")

    def _same(self, op: Op, feeds: list[int], **fields: Any) -> int:
        item = self.fit(op, feeds[0])
        return self.put(op.kind, {**op.fields, **fields}, [item], self.shape(item))

    def _sized(self, op: Op, item: int) -> int:
        """The item, or that part of it which the operation read."""
        batch = self.graph.batch
        if not op.given or per_sample(op.given, batch) == self.shape(item).size:
            return item
        fields, made = as_part(self.shape(item), shape_of(op.given, batch))
        return self.put("opaque", fields, [item], made)

    def _activation(self, op: Op, feeds: list[int]) -> int:
        item = self._sized(op, feeds[0])
        return self.put(op.fields["op"], {}, [item], self.shape(item))

    def _dropout(self, op: Op, feeds: list[int]) -> int:
        item = self._sized(op, feeds[0])
        return self.put("dropout", op.fields, [item], self.shape(item))

    def _norm(self, op: Op, feeds: list[int]) -> int:
        return self._same(op, feeds)

    def _attention(self, op: Op, feeds: list[int]) -> int:
        item = self.fit(op, feeds[0])
        fields = dict(op.fields)
        if fields["heads"] * fields["width"] == self.shape(item).channels:
            fields.pop("width")
        made = self.put("attention", fields, [item], self.shape(item))
        if costs := [one.counted for one in op.beside if one.counted is not None]:
            names = frozenset[str]().union(*(one.weights for one in op.beside)) - self.held
            self.held |= names
            weights = sum(self.graph.sizes[name] for name in names)
            more = beside(costs, self.graph.batch, weights, self.shape(made))
            made = self.put("opaque", more, [made], self.shape(made))
        return made

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
        if op.counted is not None:
            return self.counted(op, feeds)
        if len(feeds) < 2:
            return feeds[0]
        self.graph.note("a product of two tensors is counted as one pass over the larger")
        larger = max(feeds, key=lambda item: self.shape(item).size)
        return self.put("sigmoid", {}, [larger], self.shape(larger))

    def _concat(self, op: Op, feeds: list[int]) -> int:
        first = self.shape(feeds[0])
        every = [self.shape(self.source(feed)) for feed in op.feeds]
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
        item, extents = feeds[0] if feeds else self.at[INPUT], self.graph.sample.extents
        if op.counted is not None:  # of some words of the sample, or of one of several inputs
            looked_up = per_sample(op.counted.made, self.graph.batch) // op.fields["hidden"]
            if self.shape(item).channels != 1 or self.shape(item).size != looked_up:
                words = Shape(1, (looked_up,))
                item = self.put("opaque", as_part(self.shape(item), words)[0], [item], words)
            extents = self.shape(item).extents or (1,)
        return self.put("embedding", op.fields, [item], Shape(op.fields["hidden"], extents, True))


def _wide(value: Any, rank: int) -> list[int]:
    return list(value) if isinstance(value, list) else [value] * rank
