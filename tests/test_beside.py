"""Jobs beside each other: links that they share by hand, mean and worst; jobs that never meet."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import oracle
from oracle.ask.beside import beside, other_jobs
from oracle.ask.placing import on_nodes
from oracle.network import contention
from oracle.network.contention import slows
from oracle.network.contention.neighbours import Neighbour, Traffic, slowdown, traffic
from oracle.network.topology import network_of
from oracle.spec.catalogue import system
from tests.command_line import told

SOURCE = {"source": "made for a test"}
NET = {
    "name": "two-leaves", "device": "v100-pcie", **SOURCE,
    "levels": [
        {"name": "node", "devices": 1, "bandwidth": "10 GB/s", "latency": "1 us",
         "link": "network", **SOURCE},
        {"name": "leaf", "devices": 4, "bandwidth": "10 GB/s", "latency": "2 us",
         "ports": 1, **SOURCE},
        {"name": "spine", "devices": 8, "bandwidth": "10 GB/s", "latency": "3 us", "ports": 1,
         **SOURCE},
    ],
}  # fmt: skip


def job(nodes: str, **more: object) -> dict[str, object]:
    return {"model": "vgg16", "plan": "data:4", "batch": 64, "nodes": nodes, **more}


def test_two_alike_over_one_uplink_by_hand() -> None:
    """Two rings of four cross the same uplinks with one flow each: half each where they meet."""
    where = system(NET)
    mine, theirs = (traffic(on_nodes(where, nodes), "allreduce", ((4, 1),), 4, "ring", 8)
                    for nodes in ("0,1,4,5", "2,3,6,7"))  # fmt: skip
    graph = network_of(where, 8)
    both = (mine.busy > 0) & (theirs.busy > 0)
    assert {graph.label(link) for link in np.flatnonzero(both)} == {"leaf uplinks",
                                                                   "leaf downlinks"}  # fmt: skip
    assert mine.busy[both] == pytest.approx(1.0)
    assert mine.flows[both] == pytest.approx(1.0)
    for active in (0.0, 0.25, 1.0):
        found = slowdown(mine, [Neighbour("other", (active,), (theirs,))], graph)
        assert found.mean == pytest.approx(1 / (1 - active + active / 2))
        assert found.worst == pytest.approx(2.0)
    two = [Neighbour(name, (0.5,), (theirs,)) for name in "ab"]
    assert slowdown(mine, two, graph).worst == pytest.approx(3.0)
    assert slowdown(mine, two, graph).mean == pytest.approx(1 / (0.25 + 0.5 / 2 + 0.25 / 3))


def test_more_flows_get_more_and_spare_room_is_used() -> None:
    graph = network_of(system(NET), 8)
    busy, flows = np.zeros(graph.links), np.zeros(graph.links)
    busy[0], flows[0] = 1.0, 3.0
    mine = Traffic(busy, flows)
    light = Traffic(busy * 0.2, flows / 3)
    assert slowdown(mine, [Neighbour("a", (1.0,), (light,))], graph).worst == pytest.approx(1.25)
    heavy = Traffic(busy, flows / 3)
    assert slowdown(mine, [Neighbour("a", (1.0,), (heavy,))], graph).worst == pytest.approx(4 / 3)


def test_a_step_beside_others() -> None:
    found = oracle.estimate("vgg16", NET, "data:4", batch=64, algorithm="ring")
    near = beside(found, 0, {"nodes": "0,1,4,5", "jobs": [job("2,3,6,7")]})
    ((what, slower),) = near.messages
    assert (what, slower.link) == ("data: gradients", "leaf uplinks")
    alone, mean, worst = (float(one.seconds[0]) for one in (near.alone, near.mean, near.worst))
    assert alone < mean < worst
    assert slower.worst == pytest.approx(2.0)
    apart = beside(found, 0, {"nodes": "0-3", "jobs": [job("4-7")]})
    assert float(apart.worst.seconds[0]) == float(apart.alone.seconds[0])
    rare = beside(found, 0, {"nodes": "0,1,4,5", "jobs": [job("2,3,6,7", active=0.1)]})
    assert float(rare.mean.seconds[0]) < mean


@pytest.mark.parametrize(("jobs", "said"), [
    ({"jobs": []}, "no other job"), ([job("4-9")], "no nodes 4-9 of 8"),
    ([job("2-5")], "is in two jobs"), ([{"model": "vgg16", "plan": "data:4"}], "batch"),
])  # fmt: skip
def test_jobs_that_cannot_be(jobs: object, said: str) -> None:
    found = oracle.estimate("vgg16", NET, "data:4", batch=64)
    with pytest.raises(oracle.SpecError) as caught:
        beside(found, 0, jobs)
    assert said in str(caught.value)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, net = tmp_path / "jobs.yaml", tmp_path / "net.json"
    net.write_text(json.dumps(NET), encoding="utf-8")
    file.write_text("nodes: 0-1,4-5\njobs:\n"
                    '  - {model: vgg16, plan: "data:4", batch: 64, nodes: "2,3,6-7", name: us}\n',
                    encoding="utf-8")  # fmt: skip
    assert other_jobs(file).jobs[0].name == "us"
    words = ["estimate", "vgg16", str(net), "--plan", "data:4", "--batch", "64", "--beside",
             str(file)]  # fmt: skip
    code, out, _ = told(capsys, *words)
    assert code == 0
    assert "beside 1 other job" in out
    assert "at worst: leaf uplinks" in out
    said = json.loads(told(capsys, *words, "--json")[1])["plans"][0]["beside"]
    assert said["worst"] > said["mean"] > said["alone"]


def test_nodes_of_the_file_are_the_jobs_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also where its ranks are placed; said once, not twice."""
    file, net = tmp_path / "jobs.yaml", tmp_path / "net.json"
    net.write_text(json.dumps(NET), encoding="utf-8")
    file.write_text(json.dumps({"nodes": "4-7", "jobs": [job("0-3")]}), encoding="utf-8")
    words = ["estimate", "vgg16", str(net), "--plan", "data:4", "--batch", "64", "--beside",
             str(file), "--json"]  # fmt: skip
    for more in ([], ["--place", "best"], ["--nodes", "4-7"]):
        code, out, _ = told(capsys, *words, *more)
        assert code == 0
        (plan,) = json.loads(out)["plans"]
        assert plan["placement"]["nodes"] == "4-7"
        assert plan["beside"]["worst"] == plan["beside"]["alone"]
    code, _, err = told(capsys, *words, "--nodes", "1,2,5,6")
    assert code == 2
    assert "nodes 1,2,5,6, and 4-7 in" in err


def test_a_job_that_lacks_nodes_is_named_and_unlike_systems_are_refused() -> None:
    found = oracle.estimate("vgg16", NET, "data:4", batch=64)
    with pytest.raises(oracle.SpecError, match="vgg16 data:4 on 4-6 has 4 devices, its nodes 3"):
        beside(found, 0, {"nodes": "0-3", "jobs": [job("4-6")]})
    mixed = oracle.estimate("vgg16", "v100-slow-node", "data:4", batch=64)
    with pytest.raises(oracle.SpecError, match="not told across partitions"):
        beside(mixed, 0, {"nodes": "0-3", "jobs": [job("4-7")]})


def test_short_messages_have_factors_of_their_own() -> None:
    """What pairs and collectives take to start, and what long messages take, apart."""
    calm = system("abci")
    busy = replace(calm.levels[-1], interference=(1.5, 1.5), interference_pairs=(2.0, 2.0),
                   interference_collectives=(3.0, 3.0))  # fmt: skip
    crowded = replace(calm, levels=(*calm.levels[:-1], busy))
    assert (slows(calm), slows(crowded)) == (False, True)
    for op, pattern, start in (("sendrecv", ((2, 2176),), 2.0), ("allreduce", ((64, 68),), 3.0)):
        (one, *_), (other, *_) = (
            by(crowded, op, pattern, 4352)
            for by in (contention.lines, contention.among_others(contention.lines))
        )
        assert other.start == pytest.approx(start * one.start)
        assert other.per_byte == pytest.approx(1.5 * one.per_byte)
