"""The published table, typed in a second time: the second opinion on every strategy.

Table of [kahira2021] (slides of July 2021, technical report of October 2020) with the
misprints that the docstrings name put right, per iteration (D = B), ideal assumptions.
"""

from __future__ import annotations

import numpy as np
import pytest

import oracle

B, DELTA = 256, 4.0
EXACT = {"rel": 1e-9}


class Table:
    """What the table is made of, read off the model layer by layer with plain loops."""

    def __init__(self, model, system):
        self.system = system
        self.rows = [
            (row, int(repeat)) for row, repeat in zip(model.rows, model.repeat, strict=True)
        ]
        self.layers = [
            row for row, _ in self.rows if row.work in ("conv", "gemm") or row.kind == "pool"
        ]
        self.peak = system.device.peak["fp32"]
        self.w = sum(row.weights for row, _ in self.rows)
        self.fw = sum(2 * self.mac(row) for row in self.layers) / self.peak
        self.bw = 2 * self.fw
        self.wu = 2 * self.w / self.peak

    @staticmethod
    def mac(row):
        if row.work == "conv":
            return row.made.size * row.given.channels // row.groups * int(np.prod(row.window))
        return row.given.size * row.made.channels if row.work == "gemm" else 0

    def alpha_beta(self, span):
        level = next(level for level in self.system.levels if level.devices >= span)
        return level.latency, 1 / level.bandwidth

    @property
    def matrices(self):
        return [row for row in self.layers if row.work in ("conv", "gemm")]

    def tensors(self, share=1.0):
        return sum(row.given.size + row.made.size for row in self.layers) * share

    def halo(self, row):
        """Elements of x and of dL/dy on one border of a cut along the first extent."""
        deep = (row.window[0] - 1) // 2
        return (
            row.given.channels * deep * row.given.extents[1],
            row.made.channels * deep * row.made.extents[1],
        )

    @property
    def windows(self):
        return [row for row in self.layers if row.window]


@pytest.fixture(scope="module")
def table(model, system):
    return Table(model, system)


def ideal(model, system, plan, batch=B):
    return oracle.estimate(
        model, system, plan, batch, precision="fp32", optimizer="sgd", ideal=True
    )


def computed(found):
    return sum(part[0] for part in found.compute.values())


def exchanged(found):
    return sum(message["exposed"] for message in found.exchange[0])


def ring(p, m, alpha, beta):
    return 2 * (p - 1) * (alpha + m / p * beta)


def test_serial(model, system, table):
    found = ideal(model, system, "serial")
    assert computed(found) == pytest.approx(B * (table.fw + table.bw) + table.wu, **EXACT)
    assert exchanged(found) == 0
    assert found.memory[0] == pytest.approx(2 * DELTA * (B * table.tensors() + table.w), **EXACT)


@pytest.mark.parametrize("p", [2, 4, 16, 48, 256])
def test_data(model, system, table, p):
    found, (alpha, beta) = ideal(model, system, f"data:{p}"), table.alpha_beta(p)
    assert computed(found) == pytest.approx(B / p * (table.fw + table.bw) + table.wu, **EXACT)
    assert exchanged(found) == pytest.approx(
        2 * (p - 1) * (alpha + table.w / p * DELTA * beta), **EXACT
    )
    assert found.memory[0] == pytest.approx(
        2 * DELTA * (B / p * table.tensors() + table.w), **EXACT
    )


@pytest.mark.parametrize("p", [2, 4, 16])
def test_spatial(model, system, table, p):
    found, (alpha, beta) = ideal(model, system, f"spatial:{p}"), table.alpha_beta(p)
    halos = sum(2 * alpha + B * (x + dy) * DELTA * beta for x, dy in map(table.halo, table.windows))
    assert computed(found) == pytest.approx(B / p * (table.fw + table.bw) + table.wu, **EXACT)
    assert exchanged(found) == pytest.approx(
        2 * ((p - 1) * (alpha + table.w / p * DELTA * beta) + halos), **EXACT
    )
    assert found.memory[0] == pytest.approx(
        2 * DELTA * (B * table.tensors(1 / p) + table.w), **EXACT
    )


@pytest.mark.parametrize("strategy", ["filter", "channel"])
@pytest.mark.parametrize("p", [2, 4, 16, 48])
def test_filter_and_channel(model, system, table, strategy, p):
    found, (alpha, beta) = ideal(model, system, f"{strategy}:{p}"), table.alpha_beta(p)
    layers = sum(alpha + B * row.made.size / p * DELTA * beta for row in table.matrices[:-1])
    assert computed(found) == pytest.approx(B / p * (table.fw + table.bw) + table.wu / p, **EXACT)
    assert exchanged(found) == pytest.approx(3 * (p - 1) * layers, **EXACT)
    assert found.memory[0] == pytest.approx(
        2 * DELTA * (B * table.tensors() + table.w / p), **EXACT
    )


@pytest.mark.parametrize(("p1", "p2"), [(4, 2), (16, 4), (2, 16), (3, 8)])
def test_data_and_filter(model, system, table, p1, p2):
    p, found = p1 * p2, ideal(model, system, f"data:{p1} filter:{p2}")
    (a_in, b_in), (a_out, b_out) = table.alpha_beta(p2), table.alpha_beta(p)
    layers = sum(a_in + B * row.made.size / p * DELTA * b_in for row in table.matrices[:-1])
    assert computed(found) == pytest.approx(B / p * (table.fw + table.bw) + table.wu / p2, **EXACT)
    assert exchanged(found) == pytest.approx(
        3 * (p2 - 1) * layers + 2 * (p1 - 1) * (a_out + table.w / p * DELTA * b_out), **EXACT
    )
    assert found.memory[0] == pytest.approx(
        2 * DELTA * (B / p1 * table.tensors() + table.w / p2), **EXACT
    )


@pytest.mark.parametrize(("p1", "p2"), [(4, 2), (16, 4), (2, 8)])
def test_data_and_spatial(model, system, table, p1, p2):
    p, found = p1 * p2, ideal(model, system, f"data:{p1} spatial:{p2}")
    (a_in, b_in), (a_out, b_out) = table.alpha_beta(p2), table.alpha_beta(p)
    halos = sum(
        2 * a_in + B / p1 * (x + dy) * DELTA * b_in for x, dy in map(table.halo, table.windows)
    )
    inner = (p2 - 1) * (a_in + table.w / p2 * DELTA * b_in)
    outer = (p1 - 1) * (a_out + table.w / p1 * DELTA * b_out)
    split = (p2 - 1) * (a_in + B / p * table.windows[-1].made.size * DELTA * b_in)
    assert computed(found) == pytest.approx(B / p * (table.fw + table.bw) + table.wu, **EXACT)
    assert exchanged(found) == pytest.approx(2 * (inner + outer + halos) + 2 * split, **EXACT)
    assert found.memory[0] == pytest.approx(
        2 * DELTA * (B / p * table.tensors() + table.w), **EXACT
    )


@pytest.mark.parametrize(("p", "S"), [(2, 4), (4, 8), (3, 16)])
def test_layer(model, system, table, p, S):
    found = ideal(model, system, f"pipeline:{p},segments={S},schedule=gpipe")
    alpha, beta = table.alpha_beta(p)
    stages = best_cut(table, model, p)
    forward = max(sum(2 * table.mac(row) for row in stage) for stage in stages) / table.peak
    updated = max(2 * sum(row.weights for row in stage) for stage in stages) / table.peak
    assert computed(found) == pytest.approx(B * (p + S - 1) / S * 3 * forward + updated, **EXACT)
    assert exchanged(found) == pytest.approx(
        2 * (p + S - 2) * max(alpha + B / S * stage[-1].made.size * DELTA * beta
                              for stage in stages[:-1]), **EXACT
    )  # fmt: skip
    held = [
        sum(B * (row.given.size + row.made.size) for row in stage if row in table.layers)
        + sum(row.weights for row in stage)
        for stage in stages
    ]
    assert found.memory[0] == pytest.approx(2 * DELTA * max(held), **EXACT)


def best_cut(table, model, p):
    """The greedy fill under the least bound that p stages can keep: tried bound by bound."""
    rows = list(model.rows)
    load = [3 * 2 * table.mac(row) for row in rows]
    bounds = sorted({sum(load[i:j]) for i in range(len(rows)) for j in range(i + 1, len(rows) + 1)})
    for bound in (b for b in bounds if b >= max(load)):
        stages, start = [], 0
        for part in range(p):
            stop, left = start, p - part - 1
            while stop < len(rows) - left and sum(load[start : stop + 1]) <= bound:
                stop += 1
            stop = max(stop, start + 1)
            stages.append(rows[start:stop])
            start = stop
        if start == len(rows):
            return stages
    raise AssertionError("a bound always exists")
