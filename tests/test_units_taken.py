"""Groups of ranks lie in whole units: what a job takes of racks, hosts and sockets, and says so."""

from __future__ import annotations

import json
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
from oracle.commands.cli import main
from oracle.plan.laid import as_used, devices_of, taken, used_of
from oracle.plan.mesh import Groups
from oracle.plan.plan import parse
from oracle.spec.document import SpecError
from oracle.spec.used import counts_of, numbered, renumbered, units_of, using

SMALL = "deepseek-v2-lite"
DEALT = "data:128,zero=1 expert:8"
RACK = oracle.system("gb200-nvl72")


def racks(devices: int, units: int = 16, **level: object) -> oracle.System:
    """A machine of racks of so many devices, a port each."""
    return oracle.system({
        "name": f"racks-of-{devices}", "source": "made up", "device": "gb200",
        "levels": [
            {"name": "rack", "devices": devices, "ports": 18, "bandwidth": "50 GB/s",
             "latency": "2 us", "link": "nvlink", "source": "made up", **level},
            {"name": "hall", "devices": devices * units, "ports": devices, "bandwidth": "50 GB/s",
             "latency": "4 us", "kind": "fat-tree", "source": "made up"},
        ],
    })  # fmt: skip


def plan_of(text: str):
    return parse(text, 1024.0)


@pytest.mark.parametrize(("text", "used", "idle"), [
    # 64 nodes of four: Slurm's `--segment` is 16, the largest divisor up to the rack's 18
    ("pipeline:4,segments=64,interleave=4 data:64,zero=1 expert:64", 64, "64 to 71 of each rack"),
    ("data:64 tensor:4", 64, "64 to 71 of each rack"),
    ("data:16 tensor:18", 72, ""),  # 72 nodes: 18
    ("data:20 tensor:6", 60, "60 to 71 of each rack"),  # 30 nodes: 15
    ("data:64", 72, ""),  # in one rack
    ("data:100", 72, "28 to 71 of the last rack"),  # 25 nodes: 18 and 7, as 5 are too few
    ("data:36 tensor:16", 72, ""),  # 9 racks of 64 are not there: groups straddle, all have room
])  # fmt: skip
def test_devices_taken_of_a_rack_of_eighteen_nodes(text: str, used: int, idle: str) -> None:
    plan = plan_of(text)
    rack, hall = as_used(RACK, plan).levels
    assert (rack.devices, hall.devices, hall.ports) == (used, 8 * used, used)  # a port each
    assert "".join(unit.idle for unit in taken(RACK, plan)) == idle


FACTORS = st.lists(st.sampled_from([2, 3, 4, 5, 8]), min_size=1, max_size=3)


@settings(max_examples=300, deadline=None)
@given(FACTORS, st.integers(5, 40), st.sampled_from(["aligned", "packed"]))
def test_no_group_straddles_a_unit_that_could_hold_it(
    degrees: list[int], size: int, placement: str
) -> None:
    names = ("data", "context", "tensor")[-len(degrees) :]
    plan = plan_of(" ".join(f"{name}:{k}" for name, k in zip(names, degrees, strict=True)))
    system = racks(size, 4 * prod(degrees), placement=placement)
    where = devices_of(system, plan)
    assert len(set(where.tolist())) == prod(degrees)  # each rank on a device of its own
    assert where.max() < system.devices
    groups = Groups(plan)
    for name in names:
        stride, width = int(groups.strides[name][0, 0]), int(groups.sizes[name][0, 0])
        if placement == "packed" or stride * width > size:
            continue
        ranks = np.arange(prod(degrees)).reshape(-1, width, stride)
        homes = where[ranks] // size
        assert (homes == homes[:, :1]).all(), (name, where)


@settings(max_examples=100, deadline=None)
@given(FACTORS, st.integers(5, 40))
def test_numbers_of_used_devices_go_there_and_back(degrees: list[int], size: int) -> None:
    plan = plan_of(f"data:{prod(degrees)} tensor:2")
    system = racks(size, 4 * prod(degrees), placement="aligned")
    used = as_used(system, plan)
    numbers = np.arange(used.devices)
    every = numbered(system, counts_of(used), numbers)
    back, kept = renumbered(system, counts_of(used), every)
    assert kept.all()
    assert (back == numbers).all()
    _, those = renumbered(system, counts_of(used), np.arange(system.devices))
    assert those.sum() == used.devices


@pytest.mark.parametrize("text", [
    "pipeline:2,segments=8 data:64,zero=1 expert:8", "data:32 tensor:4", "data:128,zero=3",
])  # fmt: skip
def test_a_machine_of_smaller_units_takes_as_long(text: str) -> None:
    seconds = [oracle.estimate(SMALL, racks(size), text, batch=512).seconds[0] for size in (72, 64)]
    assert seconds[0] == pytest.approx(seconds[1], rel=1e-12)


def test_a_table_of_plans_equals_its_rows() -> None:
    texts = [
        "data:128,zero=1 expert:8",
        "data:72 tensor:2",
        "data:100",
        "pipeline:4,segments=8 data:32",
    ]
    both = oracle.estimate(SMALL, RACK, texts, batch=7200)
    for text, seconds in zip(texts, both.seconds, strict=True):
        assert oracle.estimate(SMALL, RACK, text, batch=7200).seconds[0] == seconds


@pytest.mark.parametrize("name", ["dgx-a100", "dgx-h100", "summit", "abci", "frontier"])
def test_hosts_are_given_whole_and_filled(name: str) -> None:
    """As torchrun and jsrun fill them: of Summit's six devices a node none stays idle."""
    system = oracle.system(name)
    for text in ("data:48 tensor:4", "data:16 tensor:3", "pipeline:8,segments=8 data:5 tensor:6"):
        assert as_used(system, plan_of(text)) is system


def test_a_user_says_how_many_devices_of_a_unit_are_used() -> None:
    four = racks(6, used=4, placement="packed")
    assert as_used(four, plan_of("data:16")).levels[0].devices == 4
    assert taken(four, plan_of("data:10"))[0].idle == (
        "4 to 5 of each rack, and 2 to 5 of the last rack"
    )
    for level in ({"used": 7}, {"hosts": 4}):
        with pytest.raises(SpecError):
            racks(6, **level)


def test_sockets_are_used_alike_where_a_node_is() -> None:
    """Of nodes of two sockets of three, groups of four take two devices of each socket."""
    summit = oracle.system("summit")
    levels = (*summit.levels[:1], replace(summit.levels[1], placement="aligned"),
              *summit.levels[2:])  # fmt: skip
    plan = plan_of("data:64 tensor:4")
    used = as_used(replace(summit, levels=levels), plan)
    assert counts_of(used) == (2, 4, 72, 18432)
    assert used.levels[0].ports == 2  # two links to the one other device, as in threes
    assert used.levels[1].ports == 1


def test_answers_say_which_devices_stay_idle(capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "estimate",
        SMALL,
        "gb200-nvl72",
        "--plan",
        "data:128,zero=1 expert:8",
        "--batch",
        "512",
    ]
    assert main(words) == 0
    assert "uses 64 of 72 devices of each of 2 units" in " ".join(capsys.readouterr().out.split())
    assert main([*words, "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert plan["units"] == [{"level": "rack", "devices": 72, "used": 64, "units": 2,
                              "idle": "64 to 71 of each rack"}]  # fmt: skip
    assert main([*words[:3], "--plan", "data:64,zero=1 expert:8", "--batch", "256", "--json"]) == 0
    (plan,) = json.loads(capsys.readouterr().out)["plans"]
    assert "units" not in plan


def test_placements_and_given_nodes_lie_on_the_devices_that_are_used() -> None:
    text = DEALT
    in_order = oracle.estimate(SMALL, RACK, text, batch=512)
    placed = oracle.estimate(SMALL, RACK, text, batch=512, place="best")
    assert placed.seconds[0] <= in_order.seconds[0] * (1 + 1e-9)
    nodes = "0-35"  # two racks of eighteen hosts of four
    there = oracle.estimate(SMALL, RACK, text, batch=512, nodes=nodes)
    assert there.seconds[0] == pytest.approx(in_order.seconds[0], rel=0.05)
    where = devices_of(there.system, plan_of(text))
    assert sorted({*(where // 72).tolist()}) == [0, 1]
    assert {*(where % 72).tolist()} == {*range(64)}


def test_exported_jobs_ask_for_blocks_of_nodes(tmp_path) -> None:
    words = ["export", "slurm", SMALL, "gb200-nvl72", "--plan", DEALT, "--batch",
             "512", "--software", "plain", "-o", str(tmp_path)]  # fmt: skip
    assert main(words) == 0
    script = (tmp_path / "job.sbatch").read_text()
    for line in ("--nodes=32", "--gpus-per-node=4", "--segment=16"):
        assert f"#SBATCH {line}\n" in script
    assert main([*words[:1], "rankfile", *words[2:-1], str(tmp_path / "ranks")]) == 0
    lines = (tmp_path / "ranks" / "devices.txt").read_text().split("\n")
    assert [lines[rank].split()[1] for rank in (0, 4, 64)] == ["+n0", "+n1", "+n16"]


def test_whole_machines_of_units_that_hold_all_groups_stay_themselves() -> None:
    system = racks(64)
    for text in ("data:256", "data:64 tensor:16", "pipeline:4,segments=4 data:64 tensor:2"):
        assert as_used(system, plan_of(text)) is system
    assert using(system, counts_of(system)) is system
    assert used_of(units_of(system), 128, (8, 128), 1024) == (64, 1024)
