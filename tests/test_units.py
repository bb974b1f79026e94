"""Quantities as text and as floats; and every equation run on numbers that know their unit."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pint
import pytest
from conftest import CONVOLUTIONS, SYSTEM, TRANSFORMER
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.kernels.rows import passes
from oracle.models import masks
from oracle.models.shard import Shard, serial
from oracle.network.collectives import ALGORITHMS
from oracle.plan.strategies import Strategy, strategies, tables
from oracle.spec.units import LARGEST, SMALLEST, exact, parse, show

UNITS = ["s", "B", "FLOP", "B/s", "FLOP/s", "USD/s"]
KNOWN = {
    "25 GB/s": (25e9, "B/s"), "200 Gbit/s": (25e9, "B/s"), "1.5 us": (1.5e-6, "s"),
    "1.5 µs": (1.5e-6, "s"), "1.5 μs": (1.5e-6, "s"), "90 ns": (90e-9, "s"), "2 min": (120, "s"),
    "1.5 h": (5400, "s"), "1 day": (86400, "s"), "16 GiB": (16 * 2**30, "B"), "16GB": (16e9, "B"),
    "1 KiB": (1024, "B"), "1 kB": (1000, "B"), "1 KB": (1000, "B"), "8 bit": (1, "B"),
    "125 TFLOP/s": (125e12, "FLOP/s"), "1 PFLOP": (1e15, "FLOP"), "3.6 USD/h": (0.001, "USD/s"),
    "3600 B/h": (1, "B/s"), ".5 s": (0.5, "s"), "5. s": (5, "s"), "1e-6 s": (1e-6, "s"),
    "0 s": (0, "s"), " 3 s ": (3, "s"), "+3 s": (3, "s"), "-3 s": (-3, "s"), "2 EB": (2e18, "B"),
}  # fmt: skip
REFUSED = {
    "25": "needs its unit", "25e9": "needs its unit", "25 Gb": "ambiguous", "25 Gb/s": "ambiguous",
    "25 Gbps": "25 Gbit/s", "25 GBps": "25 GB/s", "15 TFLOPS": "15 TFLOP/s", "4 bytes": "4 B",
    "": "cannot read", "GB/s": "cannot read", "nan B": "cannot read", "inf B": "cannot read",
    "1 2 B": "cannot read", "1e9999 B": "cannot read", "1e999 B": "too large", "0x10 B": "cannot",
    "1_000 B": "cannot read", "1,000 B": "cannot read", "٣ B": "cannot read", "3 gb": "cannot read",
    "3 B/m": "cannot read", "3 BB": "cannot read", "--3 B": "cannot read", "3 s": "but B is wanted",
    "3 FLOP": "but B is wanted", "9" * 5000 + " B": "cannot read",
}  # fmt: skip


@pytest.mark.parametrize("text", KNOWN)
def test_a_quantity_is_read_exactly(text: str) -> None:
    value, unit = KNOWN[text]
    assert parse(text, unit) == value


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: text[:20])
def test_what_is_not_a_quantity_is_refused_with_advice(text: str) -> None:
    with pytest.raises(ValueError, match=REFUSED[text]) as caught:
        parse(text, "B/s" if "/s" in text or "ps" in text.lower() else "B")
    assert len(str(caught.value)) < 200


numbers = st.floats(SMALLEST, LARGEST / 1e7, allow_nan=False, allow_infinity=False)


@given(numbers, st.sampled_from(UNITS))
def test_exact_text_gives_the_very_float(value: float, unit: str) -> None:
    assert parse(exact(value, unit), unit) == value


@given(st.floats(1e-9, 1e17), st.sampled_from(UNITS), st.integers(2, 9))
def test_shown_text_gives_the_float_to_its_digits(value: float, unit: str, digits: int) -> None:
    text = show(value, unit, digits)
    if unit == "s" and value >= 100:
        digits = min(digits, 3)  # whole seconds
    if "e" not in text:
        assert parse(text, unit) == pytest.approx(value, rel=0.6 * 10.0 ** (1 - digits))


@given(st.floats(allow_nan=True, allow_infinity=True), st.sampled_from(UNITS))
def test_any_float_can_be_shown(value: float, unit: str) -> None:
    text = show(value, unit)
    assert unit in text or text.endswith(("min", "h", "day")) or unit == "B"
    assert len(text) < 30


@given(numbers, st.floats(1, 1e6), st.sampled_from(UNITS))
def test_reading_keeps_order(value: float, factor: float, unit: str) -> None:
    assert parse(exact(value, unit), unit) <= parse(exact(value * factor, unit), unit)


@settings(max_examples=500)
@given(st.text(alphabet="0123456789.eE+-kKMGTPinuµm sBFLOPbit/h٣", max_size=14),
       st.sampled_from(UNITS))  # fmt: skip
def test_any_text_is_a_number_or_refused(text: str, unit: str) -> None:
    try:
        value = parse(text, unit)
    except ValueError:
        return
    assert math.isfinite(value)


# --- equations on quantities that know their unit ---------------------------------------------

unit = pint.UnitRegistry()
unit.define("elem = [element]")
Q = unit.Quantity


@dataclass(frozen=True)
class Measured(Shard):
    """A shard whose numbers know their unit: dealing things out rounds up the number alone."""

    def deal(self, count: Any, p: Any) -> Any:
        if not isinstance(count, Q):
            return np.ceil(np.asarray(count) / p - 1e-9)
        return Q(np.ceil(count.magnitude / p - 1e-9), count.units)


def measured(model: Any, ideal: bool) -> Measured:
    """B and |w| in elements, δ in bytes an element: what is sent must come out in bytes."""
    plain = serial(model, np.full((3, 1), 64.0), 4.0, ideal)
    values = {name: getattr(plain, name) for name in Shard.__dataclass_fields__}
    shard = Measured(**values)
    widths = ("delta", "fed", "summed", "wire", "gathered", "turned", "dispatched", "combined")
    return replace(
        shard, batch=Q(plain.batch, "elem"), w=Q(plain.w, "elem"),
        kept_bytes=Q(plain.kept_bytes, "byte/elem"), **dict.fromkeys(widths, Q(4.0, "byte/elem")),
    )  # fmt: skip


def weigh_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a model says of copies of tables is in elements too; their shares are numbers."""
    plain = {model: masks.borrowed(model) for model in MODELS.values()}
    shares = {model: masks.borrowed_share(model) for model in MODELS.values()}
    monkeypatch.setattr(masks, "borrowed", lambda model: Q(plain[model], "elem"))
    monkeypatch.setattr(masks, "borrowed_share", shares.__getitem__)


EXPERTS = {"name": "e", "source": "x", "transformer": {
    "layers": 2, "hidden": 64, "heads": 4, "vocab": 128, "sequence": 32, "experts": 4,
    "gated": True}}  # fmt: skip
MODELS = {"convolutions": oracle.model(CONVOLUTIONS), "transformer": oracle.model(TRANSFORMER),
          "experts": oracle.model(EXPERTS)}  # fmt: skip


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("new", strategies().values(), ids=lambda new: new.name)
def test_what_a_strategy_sends_is_in_bytes(
    new: type[Strategy], name: str, ideal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "NUMBER", Q(tables.NUMBER, "byte/elem"))
    weigh_copies(monkeypatch)
    degrees = {"degree": np.full((3, 1), 4.0)} if new.degrees else {}
    for knobs in (
        {},
        {"zero": np.array([[0], [1], [2]])} if new.name in ("data", "sharded") else {},
    ):
        axis = new(**degrees, **knobs)
        shard = axis.split(measured(MODELS[name], ideal))
        assert Q(shard.w).check("elem")
        assert Q(shard.batch).check("elem")
        for message in axis.talk(shard):
            sent = message.nbytes
            if isinstance(sent, Q):
                sent.to("byte")
            else:  # nothing at all has no unit
                assert not np.any(np.asarray(sent) * np.asarray(message.calls)), message.what
            assert not isinstance(message.calls, Q) or message.calls.check("")


@pytest.mark.parametrize(("first", "second"), [
    ("data", "filter"), ("data", "spatial"), ("data", "tensor"), ("pipeline", "data"),
    ("sharded", "tensor"), ("context", "tensor"), ("data", "sharded"), ("channel", "data"),
])  # fmt: skip
def test_what_hybrids_send_is_in_bytes(
    first: str, second: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    weigh_copies(monkeypatch)
    axes = [strategies()[name](degree=np.full((3, 1), 2.0)) for name in (first, second)]
    for model in MODELS.values():
        shard: Any = measured(model, False)
        for axis in axes:
            shard = axis.split(shard)
        for axis in axes:
            for message in axis.talk(shard):
                if isinstance(message.nbytes, Q):
                    message.nbytes.to("byte")


@pytest.mark.parametrize(
    "name", sorted({(op, name) for op in ALGORITHMS for name in ALGORITHMS[op]})
)
def test_what_a_collective_takes_is_in_seconds(name: tuple[str, str]) -> None:
    algorithm = ALGORITHMS[name[0]][name[1]]
    for p in (2, 4, 8, 64):
        if algorithm.fits(p, 1):
            taken = algorithm.seconds(
                p, Q(1e6, "byte"), Q(2e-6, "s"), Q(1e-10, "s/byte"), Q(1e-12, "s/byte")
            )
            assert Q(taken).check("[time]")
            assert Q(taken).to("s").magnitude > 0


# --- the whole path, in other units -----------------------------------------------------------

DEVICE = {
    "name": "toy", "source": "made up", "memory": "64 GiB", "memory_bandwidth": "900 GB/s",
    "peak": {"fp32": "15 TFLOP/s", "bf16": "120 TFLOP/s"}, "launch": "5 us",
    "kernels": [
        {"family": family, "source": "made up", "start": "3 us"}
        for family in ("gemm", "conv", "depthwise", "attention", "stream")
    ],
}  # fmt: skip
PLANS = ["serial", "data:16", "data:4,zero=1 filter:4", "data:8,zero=3", "spatial:2x2", "channel:4",
         "data:4 tensor:2,sequence=on", "pipeline:4,segments=8 data:2", "sharded:8", "context:4",
         "data:8 recompute:full"]  # fmt: skip


def scaled(factor: float) -> Any:
    """The same system, its clock running `factor` times as fast: seconds are `factor` of ours."""
    tree: Any = {**copy.deepcopy(SYSTEM), "device": copy.deepcopy(DEVICE), "dispatch": "20 us"}
    holders = [tree, tree["device"], tree["device"]["peak"], *tree["levels"],
               *tree["device"]["kernels"]]  # fmt: skip
    for holder in holders:
        for key, value in holder.items():
            if not isinstance(value, str) or " " not in value or not value[0].isdigit():
                continue
            number, suffix = value.split()
            if suffix.endswith("/s"):
                holder[key] = f"{float(number) / factor!r} {suffix}"
            elif suffix in ("us", "s"):
                holder[key] = f"{float(number) * factor!r} {suffix}"
    return oracle.system(tree)


@pytest.mark.parametrize("ideal", [False, True])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("factor", [2.0**10, 2.0**-10])
def test_seconds_are_seconds_throughout(factor: float, name: str, ideal: bool) -> None:
    """All durations in another unit, all rates in its inverse: results in that unit, no more.

    A constant of seconds that is added anywhere without coming from the spec breaks this.
    """
    ours, theirs = (
        oracle.estimate(MODELS[name], scaled(f), PLANS, 64, precision="fp32", optimizer="adam",
                        ideal=ideal) for f in (1.0, factor)
    )  # fmt: skip
    assert theirs.seconds == pytest.approx(ours.seconds * factor, rel=1e-9)
    assert theirs.deviation == pytest.approx(ours.deviation * factor, rel=1e-6, abs=1e-15)
    assert theirs.memory == pytest.approx(ours.memory, rel=1e-12)
    for one, other in zip(ours.exchange, theirs.exchange, strict=True):
        for a, b in zip(one, other, strict=True):
            assert b["seconds"] == pytest.approx(a["seconds"] * factor, rel=1e-9)
            assert b["bytes"] == pytest.approx(a["bytes"], rel=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_kernels_are_priced_in_seconds(name: str) -> None:
    """A kernel's price on quantities: bytes over bytes a second, FLOP over FLOP a second."""
    model, device = MODELS[name], scaled(1.0).device
    shard = serial(model, np.full((2, 1), 8.0), 4.0)
    fast = replace(
        device,
        peak={k: 2 * v for k, v in device.peak.items()},
        memory_bandwidth=2 * device.memory_bandwidth,
        kernels=tuple(replace(c, start=c.start / 2) for c in device.kernels),
    )
    for precision in ("fp32", "bf16"):
        one, half = (passes(shard, d, precision) for d in (device, fast))
        for part in ("forward", "data", "weight"):
            assert getattr(half, part) == pytest.approx(getattr(one, part) / 2, rel=1e-12)
