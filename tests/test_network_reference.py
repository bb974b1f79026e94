"""Our times against SimGrid's, case by case: a small sample kept here, the whole table if there.

`data/simgrid_*.csv`: SimGrid 3.32, model CM02 with all factors 1 (α-β and max-min sharing),
one line a simulated collective.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from benchmarks import network, platforms, simgrid

HERE = Path(__file__).parent
REFERENCE = Path(os.environ.get("ORACLE_REFERENCE", network.REFERENCE))
TABLE = REFERENCE / "network" / "simgrid_collectives.csv"


def errors(rows, keep=lambda row: True):
    return np.array([abs(row.error) for row in rows if keep(row)])


def test_sample_of_simulated_collectives():
    rows = list(platforms.compared(HERE / "data" / "simgrid_sample.csv"))
    assert len(rows) > 60
    flat = errors(rows, lambda r: r.platform.startswith("flat"))
    assert np.median(flat) <= 1e-6
    assert flat.max() <= 0.01
    assert errors(rows, lambda r: r.platform.startswith("builtin")).max() <= 0.01


@pytest.mark.slow
def test_other_sizes_and_topologies():
    """Non-powers of two, three-stage trees, 256-switch loops, uneven leaves: simulated here."""
    rows = list(platforms.compared(HERE / "data" / "simgrid_others.csv", most_played=300))
    assert len({row.platform for row in rows}) >= 15
    assert np.median(errors(rows)) <= 1e-6
    even = errors(
        rows,
        lambda r: (
            r.platform.startswith("flat")
            and r.collective != "alltoall"
            and not (r.ranks // r.groups) & (r.ranks // r.groups - 1)
        ),
    )
    assert len(even) > 100
    assert even.max() <= 1e-3
    assert (errors(rows) <= 0.01).mean() >= 0.96
    assert errors(rows).max() <= 0.16  # of more messages than are played


@pytest.mark.slow
@pytest.mark.skipif(not TABLE.is_file(), reason=f"{TABLE} is not there")
def test_the_whole_table():
    rows = list(platforms.compared(TABLE, most_played=0))  # as plans are priced: by lines
    assert len(rows) >= 4800

    def large(r):
        return r.nbytes >= simgrid.LARGE

    flat = errors(rows, lambda r: r.platform.startswith("flat") and large(r))
    assert np.median(flat) <= 1e-4
    assert np.quantile(flat, 0.99) <= 0.01
    built = errors(rows, lambda r: r.platform.startswith("builtin") and large(r))
    assert (built <= 0.02).mean() >= 0.98
    contended = errors(
        rows, lambda r: r.platform.startswith("flat") and r.groups > 1 and r.nbytes == 16384
    )
    assert contended.max() <= 0.08
    plain = errors(
        rows,
        lambda r: (
            r.platform.startswith("flat_xbar")
            and r.algorithm in ("own", "rdb", "rab_rdb", "pair")
            and large(r)
        ),
    )
    assert plain.max() <= 1e-6


def test_closed_forms_with_the_envelope():
    """T = 2(P − 1)(a + (n/P + 16)/B), as simulated on a crossbar of 64: to 10⁻⁶."""
    rows = [r for r in platforms.compared(HERE / "data" / "simgrid_sample.csv")
            if r.platform.startswith("flat_xbar") and r.algorithm != "ompi_ring_segmented"
            and not r.ranks & (r.ranks - 1)]  # fmt: skip
    assert rows
    for row in rows:
        assert abs(row.error) <= 1e-4, row
    p, n = 64, 2**28
    ring = next(iter(platforms.compared(HERE / "data" / "simgrid_ring.csv")))
    closed = 2 * (p - 1) * (1e-6 + (n / p + 16) / 12.5e9)
    assert ring.predicted == pytest.approx(closed, rel=1e-9)
    assert ring.predicted == pytest.approx(ring.simulated, rel=1e-6)


def test_figures_are_reprinted(capsys, tmp_path):
    """Without the reference the tables that need it are named as skipped, the others printed."""
    some = ["simgrid", "nccl", "abci", "phi", "dln", "speed"]
    assert network.main([*some, "--json", "--quick", "--reference", str(tmp_path)]) == 0
    printed = json.loads(capsys.readouterr().out)
    skipped = {row["table"] for row in printed["rows"] if "skipped" in row}
    assert skipped == {"simgrid", "nccl", "abci"}
    figures = printed["figures"]
    assert figures["phi.osu_pairs"]["value"] == pytest.approx(2)
    assert figures["phi.data_filter"]["value"] == pytest.approx(2)
    assert figures["phi.leader"]["value"] == pytest.approx(1)
    assert figures["phi.racks"]["value"] > 2
    assert figures["dln.shd_over_dln_hd"]["value"] == pytest.approx(0.26, abs=0.01)
    assert figures["dln.shd_over_tree_hd_farthest_first"]["value"] > 0.5
    for figure in figures.values():
        assert set(figure) == {"value", "unit", "goal"}


def test_table_as_text(capsys, tmp_path):
    assert network.main(["simgrid", "dln", "--quick", "--reference", str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert "simgrid: skipped" in text
    assert "half duplex decides" in text
