"""A traced graph of operations, which recognises attention, MLPs and activations.

Tracers (torch, ONNX) append one `Op` a call, with its inputs. Operations that belong together are
joined by their place in the graph: attention, MLPs, and norms and activations that were written
out by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from oracle.models.layers import Shape
from oracle.readers.operations import Op
from oracle.spec.document import SpecError, refusal

# x times this function of x is that activation; "" is the inside of a norm
ACTIVATION_OF = {"tanh": "gelu", "erf": "gelu", "sigmoid": "silu", "rsqrt": "", "sqrt": ""}
WEIGHTLESS = ("pass", "multiply", "add", "concat", "mean", "dropout", "join")
MLP_FUNCTIONS = ("gelu", "relu", "silu")


@dataclass
class TracedGraph:
    """Operations in the order they ran, which can be joined where they belong together."""

    name: str
    batch: int
    sample: Shape
    ops: list[Op] = field(default_factory=list)
    outputs: list[int] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)  # elements of each parameter, if known
    placed: set[str] = field(default_factory=set)  # parameters that a layer has

    def stop(self, complaint: str, hint: str = "") -> SpecError:
        return refusal(self.name, complaint, hint, "E111")

    def append(self, op: Op) -> int:
        self.ops.append(op)
        return len(self.ops) - 1

    def root(self, i: int) -> int:
        """Return the operation that made these values, looking through views and scalings."""
        while i >= 0 and self.ops[i].kind == "pass" and self.ops[i].feeds:
            i = self.ops[i].feeds[0]
        return i

    def follow(self, outputs: Iterable[int]) -> None:
        """Set the operations that the model returns, and join those that belong together."""
        self.outputs = list(dict.fromkeys(outputs))
        self._collapse()

    def live(self) -> list[int]:
        """Return the operations that the outputs depend on, in order."""
        visited: set[int] = set()
        stack = [self.root(output) for output in self.outputs]
        while stack:
            i = stack.pop()
            if i < 0 or i in visited:
                continue
            visited.add(i)
            stack += [self.root(feed) for feed in self.ops[i].feeds]
        return sorted(visited)

    def readers(self) -> dict[int, list[int]]:
        """Return the live operations that read each operation."""
        readers_of: dict[int, list[int]] = {}
        for i in self.live():
            for feed in self.ops[i].feeds:
                readers_of.setdefault(self.root(feed), []).append(i)
        return readers_of

    def trace(self, i: int) -> tuple[list[int], set[str]]:
        """Return the weighted operations that feed i, and the weightless kinds on the way."""
        sources: list[int] = []
        met: set[str] = set()
        visited: set[int] = set()
        stack = [i]
        while stack:
            number = stack.pop()
            if number in visited:
                continue
            visited.add(number)
            op = self.ops[number] if number >= 0 else None
            if op is None or op.kind not in WEIGHTLESS:
                sources.append(number)
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
                try:
                    self._attention(i)
                except SpecError as unfit:
                    if self.ops[i].counted is None:
                        raise
                    self.note(f"{unfit.faults[0].what}: its operators are counted one by one")
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
        """Join x · f(x) to an activation, x · rsqrt(mean(x²)) to the inside of a norm."""
        op = self.ops[i]
        for factor, second_factor in (op.feeds, op.feeds[::-1]) if len(op.feeds) == 2 else ():
            x = self.root(factor)
            sources, met = self._back(second_factor, x)
            matching = [word for word in ACTIVATION_OF if word in met]
            if sources != {x} or not matching:
                continue
            if function := next(
                (ACTIVATION_OF[word] for word in matching if ACTIVATION_OF[word]), ""
            ):
                self.ops[i] = Op("activation", [x], op.input_dims, {"op": function}, last=op.last)
            else:
                self.ops[i] = Op("pass", [x], op.input_dims, {"op": "normed"})
            return

    def moving(self, i: int) -> int:
        """Return the last operation that wrote these values to memory, looking through views."""
        while i >= 0 and self.ops[i].kind == "pass" and self.ops[i].feeds:
            counted = self.ops[i].counted
            if self.ops[i].weights or (counted is not None and counted.moves):
                break
            i = self.ops[i].feeds[0]
        return i

    def _back(self, i: int, stop: int) -> tuple[set[int], set[str]]:
        """Return the operations that i is made of, and the kinds on the way, back to `stop`.

        Functions are looked through too.
        """
        sources: set[int] = set()
        met: set[str] = set()
        visited: set[int] = set()
        stack = [i]
        while stack:
            number = stack.pop()
            if number in visited:
                continue
            visited.add(number)
            op = self.ops[number] if number >= 0 and number != stop else None
            if op is None or op.kind not in (
                "pass",
                "mean",
                "add",
                "multiply",
                "activation",
                "join",
            ):
                sources.add(number)
                continue
            met.add(op.fields.get("op", op.kind))
            stack += op.feeds
        return sources, met

    def _dropped(self, i: int, readers: dict[int, list[int]]) -> None:
        """Join dropout to the sum that its branch enters, or to the table that it follows."""
        op = self.ops[i]
        if op.kind == "dropout":
            source = self.root(op.feeds[0])
            if (
                source >= 0
                and self.ops[source].kind == "embedding"
                and i in readers.get(source, [])
            ):
                self.ops[source].fields["dropout"] = True
                self.ops[i] = Op("pass", op.feeds)
            return
        for n, feed in enumerate(op.feeds):
            source = self.root(feed)
            if source >= 0 and self.ops[source].kind == "dropout" and readers.get(source) == [i]:
                op.feeds[n] = self.ops[source].feeds[0]
                op.fields["dropout"] = True

    def _tokens(self, op: Op) -> None:
        """Note the class tokens that were joined on the way to a position table."""
        i, extra = op.feeds[0], 0
        while i >= 0 and self.ops[i].kind == "pass":
            extra += self.ops[i].fields.get("extra", 0)
            op.weights |= self.ops[i].weights
            i = self.ops[i].feeds[0]
        if extra:
            op.feeds = [i]
            op.fields = {"extra_tokens": extra}
            op.input_dims = (op.input_dims[0], op.input_dims[1] - extra, *op.input_dims[2:])

    def _attention(self, i: int) -> None:
        """Join projections, core and output projection to one attention layer."""
        op = self.ops[i]
        if op.kind == "core":
            ends, says = op.feeds, op.fields
        else:
            first = next((j for j in map(self._scores, op.feeds) if j is not None), None)
            if first is None:
                return
            value = [feed for feed in op.feeds if self._scores(feed) is None]
            ends = [*self.ops[first].feeds, *value]
            says = {**self.ops[first].fields, "flash": self._says("flash", op.feeds),
                    "causal": self._says("causal", op.feeds),
                    "dropout": self._says("rate", op.feeds)}  # fmt: skip
        projections, norms, source, rotary = self._projections(ends)
        out = self._output_projection(i)
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
        if rotary:
            fields["rotary"] = True
        if says.get("dropout"):
            fields["dropout"] = True
        if not says.get("flash", True):
            fields["flash"] = False
        weights = frozenset[str]().union(*(self.ops[j].weights for j in (*projections, out)))
        if norms and self.ops[norms[0]].counted is None:
            self.note("the norms of queries and keys are left out")
        self.ops[out] = Op(
            "attention", [source], self.ops[projections[0]].input_dims, fields, weights,
            norms=tuple(self.ops[j] for j in norms),
        )  # fmt: skip

    def _projections(self, ends: Iterable[int]) -> tuple[list[int], list[int], int, bool]:
        """Return the projections of an attention, their norms, their input, and if rotary."""
        sources: list[int] = []
        all_norms: list[int] = []
        met: set[str] = set()
        for end in ends:
            feeding, words = self.trace(end)
            while norms := [j for j in feeding if j >= 0 and self.ops[j].kind == "norm"]:
                feeding = [j for j in feeding if j not in norms]
                for j in norms:
                    all_norms.append(j)
                    further, _ = self.trace(self.ops[j].feeds[0])
                    feeding += further
            sources, met = sources + feeding, met | words
        projections = sorted({j for j in sources if j >= 0 and self.ops[j].kind == "dense"})
        read = {self.root(self.ops[j].feeds[0]) for j in projections}
        strangers = set(sources) - set(projections) - read
        if not projections or len(read) != 1 or strangers:
            raise self.stop(
                "attention whose queries and keys come from different tensors is no layer kind",
                "describe one stack only, or write the spec by hand",
            )
        return projections, sorted(set(all_norms)), read.pop(), "multiply" in met

    def _scores(self, i: int) -> int | None:
        """Return the product of queries and keys before a softmax, if there is one."""
        soft = False
        for _ in range(40):
            i = self.root(i)
            if i < 0:
                return None
            op = self.ops[i]
            if op.kind == "product":
                return i if soft else None
            soft |= op.kind == "activation" and op.fields.get("op") == "softmax"
            if op.kind not in ("activation", "dropout", "add", "multiply", "join", "mask"):
                return None
            i = op.feeds[0]
        return None

    def _says(self, word: str, feeds: list[int]) -> bool:
        """Return whether an operation since the last product has a field."""
        stack, visited = list(feeds), set()
        while stack:
            i = stack.pop()
            if i < 0 or i in visited or self.ops[i].kind in ("dense", "product"):
                continue
            visited.add(i)
            if self.ops[i].fields.get(word):
                return True
            stack += self.ops[i].feeds
        return False

    def _output_projection(self, i: int) -> int | None:
        """Return the only matrix that reads i, looking through weightless operations."""
        readers = self.readers()
        for _ in range(20):
            next_readers = readers.get(i, [])
            if len(set(next_readers)) != 1:
                return None
            i = next_readers[0]
            if self.ops[i].kind == "dense":
                return i
        return None

    def _mlp(self, i: int) -> None:
        """Join two matrices with a function between, or three with a gate, to one MLP."""
        down = self.ops[i]
        if len(down.input_dims) < 2 or not down.feeds:
            return
        inside = self.root(down.feeds[0])
        readers = self.readers()
        if inside < 0 or len(set(readers.get(inside, []))) != 1:
            return
        op = self.ops[inside]
        if op.kind == "dropout":
            self.note("dropout inside MLPs is left out")
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
        rows = math.prod(self.ops[ups[0]].input_dims[:-1])
        if rows <= self.batch:  # a vector a sample: better as two plain matrices
            return
        fields = {"ffn": ffn, "gated": gated, "activation": function, "bias": down.fields["bias"]}
        plain = {"gated": False, "activation": "gelu", "bias": True}
        fields = {k: v for k, v in fields.items() if k not in plain or plain[k] != v}
        weights = frozenset[str]().union(*(self.ops[j].weights for j in (*ups, i)))
        self.ops[i] = Op("mlp", [source.pop()], self.ops[ups[0]].input_dims, fields, weights)

    def _embedding(self, i: int) -> None:
        """Join a sum of looked-up tables to one embedding."""
        op = self.ops[i]
        parts = [self.root(feed) for feed in op.feeds]
        if len(parts) != 2 or any(j < 0 or self.ops[j].kind not in ("embedding", "table")
                                  for j in parts):  # fmt: skip
            return
        words, added = sorted((self.ops[j] for j in parts), key=lambda o: o.kind == "table")
        fields = dict(words.fields)
        for key in ("vocab", "positions", "extra"):
            further = added.fields.get(key, 0)
            if words.kind == "embedding" and key == "vocab":
                key = "positions" if further >= math.prod(words.input_dims[1:]) else "extra"
            if further:
                fields[key] = fields.get(key, 0) + further
        self.ops[i] = Op(
            words.kind, words.feeds or added.feeds, words.input_dims or added.input_dims, fields,
            words.weights | added.weights,
        )  # fmt: skip

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)


def short(values: Iterable[int]) -> Any:
    """Return one number where all extents agree, else the list of extents."""
    extents = [int(v) for v in values]
    return extents[0] if len(set(extents)) == 1 else extents
