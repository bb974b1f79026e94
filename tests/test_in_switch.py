"""Switches that add up and multicast: volumes by hand, where they are on offer, who has them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import oracle
from oracle.network import nccl
from oracle.network.contention import lines, loads
from oracle.spec.catalogue import system

DGX = "dgx-h100"
NVLINK = 18 * 25e9 * 20 / 25 * 0.85  # B/s that switches which reduce get of a device's links
PORT = 50e9 * 12 / 12.5 * 0.85  # of a way out of the node, with CollNet


def line(name, op, p, algorithm, bare=False):
    where = system(name)
    if bare:  # as if nobody had measured anything
        where = replace(where, collectives=(), library=())
    return {each.algorithm: each for each in lines(where, op, ((p, 1),), p, algorithm)}


@pytest.mark.parametrize(("op", "parts"), [
    ("allreduce", 1 + 1 / 8), ("reduce_scatter", 1.0), ("allgather", 1.0), ("broadcast", 1.0),
])  # fmt: skip
def test_a_node_by_hand(op, parts):
    found = line(DGX, op, 8, "nvls")["nvls/Simple"]
    assert found.start == pytest.approx(25e-6)
    assert found.per_byte == pytest.approx(parts / NVLINK, rel=1e-12)


def test_eight_h100_reach_what_nvidia_measures():
    """476 GB/s of bus bandwidth, NVLS, large messages: nothing of it was fitted to it."""
    found = line(DGX, "allreduce", 8, "nvls")["nvls/Simple"]
    assert 2 * 7 / 8 / found.per_byte == pytest.approx(476e9, rel=0.005)


@pytest.mark.parametrize(("op", "own", "out"), [
    ("allreduce", 1 + 1 / 8, 1 / 8), ("reduce_scatter", 1.0, 1 / 8), ("allgather", 1.0, 1 / 8),
    ("broadcast", 1.0, 1 / 8),
])  # fmt: skip
def test_sharp_sends_each_byte_once_whatever_the_nodes(op, own, out):
    """Each of eight ranks carries its piece over its own way out; links inside are as full."""
    for p in (16, 128, 1024):
        found = line(DGX, op, p, "sharp")["sharp/Simple"]
        by_hand = max(own / (NVLINK * 0.85), out / PORT)
        assert found.per_byte == pytest.approx(by_hand, rel=1e-9)


def test_sharp_halves_what_rings_send_out_of_a_node():
    ring = line("dgx-a100", "allreduce", 128, "ring")["ring/Simple"]
    sharp = loads(system("dgx-a100"), "allreduce", ((128, 1),), 128, "sharp")
    rings = loads(system("dgx-a100"), "allreduce", ((128, 1),), 128, "rings")
    seconds = [float(each.seconds[[one == "node uplinks" for one in each.topology.labels]].max())
               for each in (sharp, rings)]  # fmt: skip
    assert seconds[0] / seconds[1] == pytest.approx(128 / (2 * 127), rel=1e-9)
    assert ring.per_byte > line("dgx-a100", "allreduce", 128, "sharp")["collnet/Simple"].per_byte


def test_trees_between_nodes_by_hand():
    """Both trees' edges at the busiest node: 2 m over eight ways out; m between two nodes."""
    port = 50e9 * 12 / 12.5
    far = line(DGX, "allreduce", 128, "nvlstree")["nvlstree/Simple"]
    assert far.per_byte == pytest.approx(2 / 8 / port, rel=1e-12)
    assert far.start == pytest.approx(25e-6 + 2 * 4 * (20.9e-6 + 2 * 0.5e-6 * 0))
    near = line(DGX, "allreduce", 16, "nvlstree")["nvlstree/Simple"]
    assert near.per_byte == pytest.approx((1 + 1 / 8) / NVLINK, rel=1e-9)  # links inside are fuller


def test_versions_of_the_library():
    assert nccl.version_named("nccl-2.17") == (2, 17)
    assert not any(map(nccl.version_named, ("nccl", "nccl-2", "ring", None, "nccl-a.b")))
    assert "nvls/Simple" not in line(DGX, "allreduce", 8, "nccl-2.16")
    assert "nvls/Simple" in line(DGX, "allreduce", 8, "nccl-2.17")
    assert "nvlstree/Simple" not in line(DGX, "allreduce", 64, "nccl-2.17")
    assert "nvlstree/Simple" in line(DGX, "allreduce", 64, "nccl-2.18")
    old, new = (line(DGX, "allreduce", 64, v)["rings/LL128"] for v in ("nccl-2.8", "nccl-2.30"))
    assert new.start - old.start == pytest.approx(4e-6)  # of a call: 10 us until 2.17, 14 since


def test_what_was_measured_has_them_already():
    assert not any(name.startswith("nvls") for name in line(DGX, "allreduce", 8, None))
    assert "nvls/Simple" in line(DGX, "allreduce", 8, None, bare=True)
    assert not any(name.startswith("sharp") for name in line(DGX, "allreduce", 64, None))


@pytest.mark.parametrize(("name", "algorithm", "word"), [
    ("abci", "sharp", "reduces: sharp"), ("dgx-a100", "nvls", "reduces: nvls"),
    ("aws-p5", "sharp", "reduces: sharp"), ("dgx-a100", "nvlstree", "reduces: nvls"),
])  # fmt: skip
def test_a_system_without_them_is_refused(name, algorithm, word):
    with pytest.raises(oracle.SpecError, match=word):
        oracle.estimate("gpt2", name, "data:8", batch=64, algorithm=algorithm)


def test_a_step_by_name():
    """Data parallelism over nodes is quicker where switches add up, and says by what."""
    plain, sharp = (oracle.estimate("gpt2", DGX, "data:64", batch=512, algorithm=each)
                    for each in ("rings", "sharp"))  # fmt: skip
    assert sharp.seconds[0] <= plain.seconds[0]
    assert {part["algorithm"] for part in sharp.exchange[0] if part["op"] == "allreduce"} == {
        "sharp/Simple"}  # fmt: skip


def test_other_libraries_only_by_name():
    """A machine whose devices NCCL does not serve: the datasheet's links, one rank a node."""
    where = system("frontera")
    able = replace(where, levels=tuple(replace(each, reduces="sharp") for each in where.levels))
    plain = lines(able, "allreduce", ((64, 1),), 64)
    assert not any(each.algorithm in ("sharp", "collnet") for each in plain)
    (found,) = lines(able, "allreduce", ((64, 1),), 64, "sharp")
    assert found.algorithm == "sharp"
    bandwidth = able.levels[0].bandwidth * np.float64(able.levels[0].ports or 1)
    assert found.per_byte == pytest.approx(1 / bandwidth, rel=1e-9)
