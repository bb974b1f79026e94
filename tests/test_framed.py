"""Copies of parts amid their borders, worked by hand."""

from dataclasses import replace

import numpy as np
import pytest

import oracle
from oracle.kernels.framed import amid, copies
from oracle.models.shard import serial
from oracle.plan.launchable import software
from oracle.plan.plan import parse
from oracle.spec.device import Curve, Device

FOUR_GB = Device("four", 1e12, 4e9, {"fp32": 1e12}, "by hand", launch=0.0,
                 kernels=(Curve("stream", "made up", start=0.0, traffic=1.0),))  # fmt: skip
NET = oracle.model({"name": "net", "source": "made up", "input": [2, 32, 16], "layers": [
    {"conv": {"filters": 4, "kernel": 3, "padding": 1}}, "relu",
    {"conv": {"filters": 4, "kernel": 5, "padding": 2}},
    {"conv": {"filters": 4, "kernel": 1}},
    {"pool": {"kernel": 3, "stride": 2, "padding": 1}}]})  # fmt: skip


def split(text: str):
    plan, shard = parse(text, 8), serial(NET, 8.0, 4.0)
    for axis in plan.axes:
        shard = axis.split(shard)
    return shard


def test_borders_lie_on_sides_that_are_cut_and_are_half_a_window_deep() -> None:
    """Of 32 rows in 2 parts 16 and one border: 17/16, or 18/16 of five; in 4 parts 8 and two."""
    x, y = amid(split("spatial:2x1"))
    assert x[0] == pytest.approx([17 / 16, 1, 18 / 16, 1, 17 / 16])
    assert y[0] == pytest.approx([17 / 16, 1, 18 / 16, 1, 8.5 / 8])
    x, _ = amid(split("spatial:4x1"))
    assert x[0] == pytest.approx([10 / 8, 1, 12 / 8, 1, 10 / 8])
    x, _ = amid(split("spatial:2x2"))  # corners come with the second extent
    assert x[0] == pytest.approx([17 / 16 * 9 / 8, 1, 18 / 16 * 10 / 8, 1, 17 / 16 * 9 / 8])


def test_a_part_is_read_and_written_with_its_borders() -> None:
    """8 samples of 4 bytes an element at 4 GB/s: 8 ns an element; parts of 16 x 16 pixels."""
    forward, data, weight = copies(split("spatial:2x1"), FOUR_GB)
    of_x = [16 * 16 * 2 * (1 + 17 / 16), 0, 16 * 16 * 4 * (1 + 18 / 16), 0,
            16 * 16 * 4 * (1 + 17 / 16)]  # fmt: skip
    assert forward[0] == pytest.approx(8e-9 * np.array(of_x))
    # nobody wants the gradient of the samples, and a pool adds what comes back
    assert data[0] == pytest.approx(8e-9 * np.array([0, 0, of_x[2], 0, 0]))
    assert weight[0] == pytest.approx(8e-9 * np.array([of_x[0], 0, of_x[2], 0, 0]))


@pytest.mark.parametrize("text", ["serial", "data:2", "filter:2", "channel:2"])
def test_what_cuts_no_sample_copies_nothing(text: str) -> None:
    assert not any(seconds.any() for seconds in copies(split(text), FOUR_GB))


def test_a_software_that_looks_at_parts_where_they_lie_pays_for_none() -> None:
    told = software("executor")
    there = told.but(convolution=replace(told.convolution, parts="in_place"))
    took = [float(oracle.estimate("vgg16", "abci", "spatial:4", 64, software=each).seconds[0])
            for each in (told, there)]  # fmt: skip
    assert took[0] > took[1]
