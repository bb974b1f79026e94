"""Operators that are counted, not described: their price, its width, and who may cut them."""

from __future__ import annotations

from typing import Any

import pytest

import oracle
from oracle.executor.supported import unsupported
from oracle.plan.plan import parse
from oracle.spec.document import SpecError

FLOP, MOVED = 1e12, 2e9  # of a sample, forward


def model(shape: list[int], layers: list[Any], **odd: Any) -> oracle.Model:
    said = {"op": "odd", "at": "body, net.py:3", "made": shape, "tokens": len(shape) == 2, **odd}
    first = {"reshape": {"to": shape, "tokens": said["tokens"]}}
    return oracle.model({"name": "odd", "source": "a test", "input": shape,
                         "layers": [first, layers[0], {"opaque": said}, *layers[1:]]})  # fmt: skip


def tokens(**odd: Any) -> oracle.Model:
    return model([512, 1024], [{"dense": 512}, {"attention": {"heads": 8}}, "loss"], **odd)


def picture(**odd: Any) -> oracle.Model:
    same = {"conv": {"filters": 64, "kernel": 3, "padding": 1}}
    return model([64, 32, 32], [same, same, "flatten", {"dense": 64}, "loss"], **odd)


def seconds(what: oracle.Model, plan: str = "data:1") -> float:
    return float(oracle.estimate(what, "dgx-a100", plan, 8).seconds[0])


def test_the_longer_of_flop_and_bytes_counts() -> None:
    free, device = seconds(tokens()), oracle.system("dgx-a100").device
    # three times the FLOP of a forward pass at 0.3 of the peak; 8 samples
    math = 8 * 3 * FLOP / (0.3 * device.peak["bf16"])
    assert seconds(tokens(flop=FLOP)) - free == pytest.approx(math, rel=0.02)
    # 2 bytes an element over some 0.85 of the bandwidth
    moved = 8 * 2 * 3 * MOVED / device.memory_bandwidth
    assert moved < seconds(tokens(moves=MOVED, moves_back=2 * MOVED)) - free < moved / 0.75
    few = seconds(tokens(flop=FLOP, moves=1e6, moves_back=1e6))
    assert few == pytest.approx(seconds(tokens(flop=FLOP)), rel=0.01)
    assert seconds(tokens(flop=FLOP, steps=100)) >= seconds(tokens(flop=FLOP))


def test_their_price_is_assumed_and_wide() -> None:
    found = oracle.estimate(tokens(flop=FLOP), "dgx-a100", "data:1", 8)
    assert found.to_dict()["plans"][0]["origin"]["forward"]["origin"] == "assumed"
    plain = oracle.estimate(tokens(), "dgx-a100", "data:1", 8)
    wide, narrow = (float(e.seconds_high[0] / e.seconds_low[0]) for e in (found, plain))
    assert narrow < 4 < wide < 9  # a factor of two to three either way


@pytest.mark.parametrize("plan", ["filter:4", "channel:4", "spatial:4", "tensor:4", "context:4",
                                  "tensor:4,sequence=on"])  # fmt: skip
def test_nobody_cuts_what_may_look_anywhere(plan: str) -> None:
    make = picture if plan.split(":")[0] in ("filter", "channel", "spatial") else tokens
    more = {"flop": FLOP, "moves": MOVED, "moves_back": 2 * MOVED}
    cut = seconds(make(**more), plan) - seconds(make(), plan)
    whole = seconds(make(**more)) - seconds(make())
    refused = not oracle.estimate(make(**more), "dgx-a100", plan, 8).feasible[0]
    assert refused or cut == pytest.approx(whole, rel=0.1)
    for dealt in ("data:4", "sharded:4"):
        assert seconds(make(**more), dealt) < whole / 3


def test_positions_worked_on_one_by_one_are_cut_with_their_tensor() -> None:
    more = {"moves": MOVED, "moves_back": MOVED, "each": True}
    whole = seconds(tokens(**more)) - seconds(tokens(each=True))
    cut = seconds(tokens(**more), "context:4") - seconds(tokens(each=True), "context:4")
    assert cut == pytest.approx(whole / 4, rel=0.3)  # some of it hides messages


def test_the_executor_names_what_it_cannot_run() -> None:
    (why,) = unsupported(tokens(flop=FLOP), parse("data:2", 8.0))
    assert why == "operators that are counted, not described, are not run: odd at body, net.py:3"


def test_what_makes_no_channels_is_refused() -> None:
    with pytest.raises(SpecError, match="`made` says no channels"):
        tokens(made=[])
