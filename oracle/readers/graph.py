"""A traced graph of operations, and the list of layers a person would have written for it.

Tracers (torch, ONNX) append one `Op` a call, with what it read. Here attention, MLPs and hand
written norms and activations are recognised by their shape in the graph, views between them
become `flatten`, `reshape` and `first`, and equal blocks are folded with a repeat count.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from oracle.document import Fault, Place, SpecError

INPUT = -1
Dims = tuple[int, ...]
FUNCTIONS = {"relu", "leaky_relu", "gelu", "silu", "tanh", "sigmoid", "softmax", "swish"}
CURVED = {"tanh": "gelu", "erf": "gelu", "sigmoid": "silu", "rsqrt": "", "sqrt": ""}
WEIGHTLESS = ("pass", "multiply", "add", "concat", "mean", "dropout")
MLP_FUNCTIONS = ("gelu", "relu", "silu")


@dataclass(slots=True)
class Op:
    """One operation of a trace: what it read, and what a spec says of it."""

    kind: str  # a layer kind, or: pass multiply mean product softmax core table
    feeds: list[int]  # operations whose output it reads; INPUT is the sample
    given: Dims = ()  # of the tensor it read first, batch included
    fields: dict[str, Any] = field(default_factory=dict)
    weights: frozenset[str] = frozenset()
    last: bool = True  # channels are the last dimension, not the second


@dataclass(frozen=True, slots=True)
class Shape:
    """Of one sample: channels, then extents."""

    channels: int
    extents: Dims = ()
    tokens: bool = False

    @property
    def size(self) -> int:
        return self.channels * math.prod(self.extents)


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


@dataclass
class Graph:
    """Operations in the order they ran, and rewriting of those that belong together."""

    name: str
    batch: int
    sample: Shape
    ops: list[Op] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def stop(self, what: str, hint: str = "") -> SpecError:
        return SpecError(self.name, [Fault("E111", what, Place(), hint)])

    def put(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1

    def root(self, i: int) -> int:
        """The operation whose values these are: views and scalings are passed through."""
        while i >= 0 and self.ops[i].kind == "pass" and self.ops[i].feeds:
            i = self.ops[i].feeds[0]
        return i

    def layers(self, *outputs: int) -> list[Any]:
        """The layers of a spec, in order, equal blocks folded; a loss after each output."""
        self.outputs = list(dict.fromkeys(outputs))
        self._collapse()
        return Folded(Emitter(self).items()).layers()

    def live(self) -> list[int]:
        """What the outputs depend on, in order."""
        seen: set[int] = set()
        stack = [self.root(output) for output in self.outputs]
        while stack:
            i = stack.pop()
            if i < 0 or i in seen:
                continue
            seen.add(i)
            stack += [self.root(feed) for feed in self.ops[i].feeds]
        return sorted(seen)

    def readers(self) -> dict[int, list[int]]:
        """Which live operations read each one."""
        found: dict[int, list[int]] = {}
        for i in self.live():
            for feed in self.ops[i].feeds:
                found.setdefault(self.root(feed), []).append(i)
        return found

    def trace(self, i: int) -> tuple[list[int], set[str]]:
        """(weighted operations that feed i through weightless ones, kinds met on the way)."""
        sources: list[int] = []
        met: set[str] = set()
        seen: set[int] = set()
        stack = [i]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            op = self.ops[at] if at >= 0 else None
            if op is None or op.kind not in WEIGHTLESS:
                sources.append(at)
                continue
            met.add(op.fields.get("op", op.kind))
            stack += op.feeds
        return sorted(set(sources)), met

    def _collapse(self) -> None:
        for i in range(len(self.ops)):
            if self.ops[i].kind == "multiply":
                self._function(i)
        for i in self.live():
            if self.ops[i].kind in ("core", "product"):
                self._attention(i)
        for i in self.live():
            if self.ops[i].kind == "dense":
                self._mlp(i)
        for i in self.live():
            if self.ops[i].kind == "add":
                self._embedding(i)
            elif self.ops[i].kind == "position":
                self._tokens(self.ops[i])
        readers = self.readers()
        for i in self.live():
            if self.ops[i].kind in ("add", "dropout"):
                self._dropped(i, readers)

    def _function(self, i: int) -> None:
        """x · f(x) is an activation; x · rsqrt(mean(x²)) is the inside of a norm."""
        op = self.ops[i]
        for one, other in (op.feeds, op.feeds[::-1]) if len(op.feeds) == 2 else ():
            x = self.root(one)
            sources, met = self._back(other, x)
            known = [word for word in CURVED if word in met]
            if sources != {x} or not known:
                continue
            if function := next((CURVED[word] for word in known if CURVED[word]), ""):
                self.ops[i] = Op("activation", [x], op.given, {"op": function}, last=op.last)
            else:
                self.ops[i] = Op("pass", [x], op.given, {"op": "normed"})
            return

    def _back(self, i: int, stop: int) -> tuple[set[int], set[str]]:
        """(operations that i is made of, words of what was done to them), no further than `stop`.

        Functions count as passed through here.
        """
        sources: set[int] = set()
        met: set[str] = set()
        seen: set[int] = set()
        stack = [i]
        while stack:
            at = stack.pop()
            if at in seen:
                continue
            seen.add(at)
            op = self.ops[at] if at >= 0 and at != stop else None
            if op is None or op.kind not in ("pass", "mean", "add", "multiply", "activation"):
                sources.add(at)
                continue
            met.add(op.fields.get("op", op.kind))
            stack += op.feeds
        return sources, met

    def _dropped(self, i: int, readers: dict[int, list[int]]) -> None:
        """Dropout of a branch is part of the sum that it joins, or of the table it follows."""
        op = self.ops[i]
        if op.kind == "dropout":
            made = self.root(op.feeds[0])
            if made >= 0 and self.ops[made].kind == "embedding" and i in readers.get(made, []):
                self.ops[made].fields["dropout"] = True
                self.ops[i] = Op("pass", op.feeds)
            return
        for n, feed in enumerate(op.feeds):
            made = self.root(feed)
            if made >= 0 and self.ops[made].kind == "dropout" and readers.get(made) == [i]:
                op.feeds[n] = self.ops[made].feeds[0]
                op.fields["dropout"] = True

    def _tokens(self, op: Op) -> None:
        """Class tokens were joined on the way to a position table."""
        i, extra = op.feeds[0], 0
        while i >= 0 and self.ops[i].kind == "pass":
            extra += self.ops[i].fields.get("extra", 0)
            i = self.ops[i].feeds[0]
        if extra:
            op.fields = {"extra_tokens": extra}
            op.given = (op.given[0], op.given[1] - extra, *op.given[2:])

    def _attention(self, i: int) -> None:
        """Projections, core and output projection become one layer."""
        op = self.ops[i]
        if op.kind == "core":
            ends, says = op.feeds, op.fields
        else:
            first = next((j for j in map(self._scores, op.feeds) if j is not None), None)
            if first is None:
                return
            value = [feed for feed in op.feeds if self._scores(feed) is None]
            ends = [*self.ops[first].feeds, *value]
            says = {**self.ops[first].fields, "flash": self._said("flash", op.feeds),
                    "causal": self._said("causal", op.feeds),
                    "dropout": self._said("rate", op.feeds)}  # fmt: skip
        sources: list[int] = []
        met: set[str] = set()
        for end in ends:
            found, words = self.trace(end)
            while norms := [j for j in found if j >= 0 and self.ops[j].kind == "norm"]:
                self._note("the norms of queries and keys are left out")
                found = [j for j in found if j not in norms]
                for j in norms:
                    further, _ = self.trace(self.ops[j].feeds[0])
                    found += further
            sources, met = sources + found, met | words
        projections = sorted({j for j in sources if j >= 0 and self.ops[j].kind == "dense"})
        came = {self.root(self.ops[j].feeds[0]) for j in projections}
        strange = [j for j in sources if j not in projections and j not in came]
        if not projections or len(came) != 1 or strange:
            raise self.stop(
                "attention whose queries and keys come from different tensors is no layer kind",
                "describe one stack only, or write the spec by hand",
            )
        out = self._next(i)
        if out is None:
            raise self.stop("attention without an output projection is no layer kind")
        heads, width = says["heads"], says["width"]
        joint = sum(self.ops[j].fields["filters"] for j in projections)
        kv_heads = (joint // width - heads) // 2
        inner = self.ops[out].fields["channels"]
        if heads * width != inner or (heads + 2 * kv_heads) * width != joint or kv_heads < 1:
            raise self.stop(
                f"attention of {heads} heads of {width} over windows or with other widths is no "
                "layer kind", "write the spec by hand",
            )  # fmt: skip
        fields: dict[str, Any] = {"heads": heads}
        if kv_heads != heads:
            fields["kv_heads"] = kv_heads
        fields["width"] = width
        if says.get("causal"):
            fields["causal"] = True
        if not any(self.ops[j].fields["bias"] for j in projections):
            fields["bias"] = False
        if "multiply" in met:
            fields["rotary"] = True
        if says.get("dropout"):
            fields["dropout"] = True
        if not says.get("flash", True):
            fields["flash"] = False
        weights = frozenset[str]().union(*(self.ops[j].weights for j in (*projections, out)))
        self.ops[out] = Op(
            "attention", [came.pop()], self.ops[projections[0]].given, fields, weights
        )

    def _scores(self, i: int) -> int | None:
        """The product of queries and keys behind a softmax, if there is one."""
        soft = False
        for _ in range(40):
            i = self.root(i)
            if i < 0:
                return None
            op = self.ops[i]
            if op.kind == "product":
                return i if soft else None
            soft |= op.kind == "activation" and op.fields.get("op") == "softmax"
            if op.kind not in ("activation", "dropout", "add", "multiply", "mask"):
                return None
            i = op.feeds[0]
        return None

    def _said(self, word: str, feeds: list[int]) -> bool:
        """Whether an operation between two products says so."""
        stack, seen = list(feeds), set()
        while stack:
            i = stack.pop()
            if i < 0 or i in seen or self.ops[i].kind in ("dense", "product"):
                continue
            seen.add(i)
            if self.ops[i].fields.get(word):
                return True
            stack += self.ops[i].feeds
        return False

    def _next(self, i: int) -> int | None:
        """The one matrix that reads i, through whatever has no weights."""
        readers = self.readers()
        for _ in range(20):
            found = readers.get(i, [])
            if len(set(found)) != 1:
                return None
            i = found[0]
            if self.ops[i].kind == "dense":
                return i
        return None

    def _mlp(self, i: int) -> None:
        """Two matrices with a function between, or three with a gate."""
        down = self.ops[i]
        if len(down.given) < 2 or not down.feeds:
            return
        inside = self.root(down.feeds[0])
        readers = self.readers()
        if inside < 0 or len(set(readers.get(inside, []))) != 1:
            return
        op = self.ops[inside]
        if op.kind == "dropout":
            self._note("dropout inside MLPs is left out")
            op = self.ops[self.root(op.feeds[0])]
        gated = op.kind == "multiply" and len(op.feeds) == 2
        ends = [self.root(feed) for feed in op.feeds]
        if gated:
            curved = [j for j in ends if j >= 0 and self.ops[j].kind == "activation"]
            if len(curved) != 1:
                return
            function = self.ops[curved[0]].fields["op"]
            ends = [self.root(self.ops[j].feeds[0]) if j in curved else j for j in ends]
        elif op.kind == "activation":
            function = op.fields["op"]
        else:
            return
        ups = sorted(set(ends))
        if function not in MLP_FUNCTIONS or any(j < 0 or self.ops[j].kind != "dense" for j in ups):
            return
        source = {self.root(self.ops[j].feeds[0]) for j in ups}
        ffn = down.fields["channels"]
        wide = sum(self.ops[j].fields["filters"] for j in ups)
        inner = {self.ops[j].fields["channels"] for j in ups}
        if len(source) != 1 or wide != ffn * (1 + gated) or inner != {down.fields["filters"]}:
            return
        rows = math.prod(self.ops[ups[0]].given[:-1])
        if rows <= self.batch:  # a vector a sample: two plain matrices say it better
            return
        fields = {"ffn": ffn, "gated": gated, "activation": function, "bias": down.fields["bias"]}
        plain = {"gated": False, "activation": "gelu", "bias": True}
        fields = {k: v for k, v in fields.items() if k not in plain or plain[k] != v}
        weights = frozenset[str]().union(*(self.ops[j].weights for j in (*ups, i)))
        self.ops[i] = Op("mlp", [source.pop()], self.ops[ups[0]].given, fields, weights)

    def _embedding(self, i: int) -> None:
        """Sums of looked-up tables are one embedding."""
        op = self.ops[i]
        parts = [self.root(feed) for feed in op.feeds]
        if len(parts) != 2 or any(j < 0 or self.ops[j].kind not in ("embedding", "table")
                                  for j in parts):  # fmt: skip
            return
        one, other = sorted((self.ops[j] for j in parts), key=lambda o: o.kind == "table")
        said = dict(one.fields)
        for key in ("vocab", "positions", "extra"):
            further = other.fields.get(key, 0)
            if one.kind == "embedding" and key == "vocab":
                key = "positions" if further >= math.prod(one.given[1:]) else "extra"
            if further:
                said[key] = said.get(key, 0) + further
        self.ops[i] = Op(one.kind, one.feeds or other.feeds, one.given or other.given, said,
                         one.weights | other.weights)  # fmt: skip

    def _note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


class Emitter:
    """Turns live operations to items, with views made explicit where a shape asks for it."""

    def __init__(self, graph: Graph) -> None:
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
            fields["padding"] = _short(pad)
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
        self.graph._note("a product of two tensors is counted as one pass over the larger")
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


def _wide(value: Any, rank: int) -> list[int]:
    return list(value) if isinstance(value, list) else [value] * rank


def _short(values: Iterable[int]) -> Any:
    """One number where all extents agree."""
    found = [int(v) for v in values]
    return found[0] if len(set(found)) == 1 else found


class Folded:
    """Items cut where only one tensor is passed on, equal runs of such pieces written once."""

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
