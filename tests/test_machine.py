"""`measure machine`: what is read of a machine, which kernels are timed, what becomes of them."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from command_line import closed, told

import oracle
from oracle.calibration import kernels
from oracle.calibration import machine as made
from oracle.commands import machine as command
from oracle.executor.measure import disk, kernel_shapes
from oracle.executor.measure.hardware import hardware, host_class, quota
from oracle.executor.measure.kernel_calls import norm_input, seconds, undisturbed
from oracle.executor.measure.kernel_shapes import COUNTS, PASSES, Limits, sweep
from oracle.executor.ranks.records import Records
from oracle.kernels.curve import curve as curve_of
from oracle.kernels.stream import reduction
from oracle.models.layers.base import Shape
from oracle.models.layers.plain import Norm
from oracle.readers.kernels import SHAPES
from oracle.readers.logs import Sample
from oracle.show import contract
from oracle.spec import catalogue

CORE = Limits(60e9, 10e9, 2e-5, 0.04, 1e9)
GPU = Limits(50e12, 2e12, 4e-6, 0.02, 3e9)


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(f"{text}\n")
    return root


def node(root: Path) -> Path:
    """Two sockets of two cores with two threads each, a port of InfiniBand, two of Ethernet."""
    at = "sys/devices/system/cpu/cpu"
    places = {
        f"{at}{k}/topology/{name}": str(value) for k in range(8)
        for name, value in (("physical_package_id", k // 2 % 2), ("core_id", k % 2))
    }  # fmt: skip
    port = "sys/class/infiniband/mlx5_0/ports"
    return tree(root, {
        **places,
        "proc/cpuinfo": "processor\t: 0\nmodel name\t: A  Processor\n\n" * 2,
        "proc/meminfo": "MemTotal:       1048576 kB\nMemFree: 5 kB",
        f"{at}0/cache/index0/size": "32K", f"{at}0/cache/index3/size": "16384K",
        "sys/devices/system/node/node0/x": "", "sys/devices/system/node/node1/x": "",
        f"{port}/1/rate": "200 Gb/sec (4X HDR)", f"{port}/1/state": "4: ACTIVE",
        f"{port}/1/link_layer": "InfiniBand", "sys/class/infiniband/mlx5_0/device/numa_node": "1",
        f"{port}/2/rate": "10 Gb/sec", f"{port}/2/state": "1: DOWN",
        "sys/class/net/eth0/operstate": "up", "sys/class/net/eth0/speed": "25000",
        "sys/class/net/eth0/device/vendor": "x",
        "sys/class/net/eth1/operstate": "up", "sys/class/net/eth1/speed": "-1",
        "sys/class/net/eth1/device/vendor": "x",
        "sys/class/net/lo/operstate": "unknown", "sys/class/net/lo/speed": "9",
        "sys/block/nvme0n1/size": "2048", "sys/block/nvme0n1/queue/rotational": "0",
        "sys/block/loop0/size": "2048", "sys/block/sda/size": "0",
    })  # fmt: skip


def test_what_the_kernel_says_of_a_machine(tmp_path: Path) -> None:
    found = hardware(node(tmp_path))
    assert found["processor"] == {"model": "A Processor", "threads": 8, "cores": 4, "sockets": 2,
                                  "numa_nodes": 2, "cache": 16 * 2**20}  # fmt: skip
    assert found["memory"] == 2**30
    assert found["ports"] == [
        {"name": "mlx5_0/1", "kind": "InfiniBand", "bandwidth": 25e9, "numa_node": 1},
        {"name": "eth0", "kind": "Ethernet", "bandwidth": 25e9 / 8},
        {"name": "eth1", "kind": "Ethernet"},
    ]
    assert found["disks"] == [{"name": "nvme0n1", "size": 2048 * 512, "rotational": False}]
    assert host_class(found) == "A Processor of 4 cores in 2 sockets"
    assert host_class({**found, "gpu": "NVIDIA X", "gpus": 4}) == "4 x NVIDIA X"


def test_a_machine_that_says_nothing_is_one_core(tmp_path: Path) -> None:
    found = hardware(tmp_path)
    assert found["processor"]["cores"] == found["processor"]["sockets"] == 1
    assert found["ports"] == found["disks"] == []
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/memory.max").write_text("1024\n")
    assert hardware(tree(tmp_path, {"proc/meminfo": "MemTotal: 9 kB"}))["memory"] == 1024


def test_quotas_of_all_groups_bound_what_a_process_may_take(tmp_path: Path) -> None:
    assert quota(tmp_path) == math.inf
    new = tree(tmp_path / "v2", {"proc/self/cgroup": "0::/pod/one",
        "sys/fs/cgroup/cpu.max": "max 100000", "sys/fs/cgroup/pod/cpu.max": "150000 100000",
        "sys/fs/cgroup/pod/one/cpu.max": "max 100000"})  # fmt: skip
    assert quota(new) == 1.5
    old = tree(tmp_path / "v1", {"proc/self/cgroup": "4:memory:/m\n1:cpu,cpuacct:/lab/h0\n0::/",
        "sys/fs/cgroup/cpu,cpuacct/lab/h0/cpu.cfs_quota_us": "5000",
        "sys/fs/cgroup/cpu,cpuacct/lab/h0/cpu.cfs_period_us": "10000"})  # fmt: skip
    assert quota(old) == 0.5


@pytest.mark.parametrize("limits", [CORE, GPU])
def test_every_family_has_kernels_enough_within_what_is_allowed(limits: Limits) -> None:
    found = sweep(limits, dict.fromkeys(COUNTS, ("fp32",)))
    assert found == sweep(limits, dict.fromkeys(COUNTS, ("fp32",)))
    groups: dict[tuple[str, str], list[Any]] = {}
    for one in found:
        assert len(one.shape) == len(SHAPES[one.family])
        assert 4 * kernel_shapes.numbers_held(one.family, one.shape) < limits.tensor_bytes
        groups.setdefault((one.family, one.part), []).append(one)
    assert len({one.key for one in found}) == len(found)
    for (family, _), ones in groups.items():
        assert len(ones) >= kernels.FEWEST
        shapes = np.array([one.shape for one in ones], float).T
        work = kernels.size(family, shapes)
        own = [kernel_shapes.work(family, one.shape) for one in ones]
        assert own == pytest.approx(work.tolist())
        assert work.max() > 100 * work.min()
    for count in (1, kernels.FEWEST):
        early = Counter((one.family, one.part) for one in found[: count * len(groups)])
        assert early == dict.fromkeys(groups, count), "a sweep cut short has as many of each"


def test_a_call_is_timed_by_the_clock_and_pauses_are_left_out() -> None:
    now, took = [0.0], iter([1.0, 0.01, *[0.01, 0.03] * 50])

    def once() -> None:
        now[0] += next(took)

    each = seconds(once, 0.02, clock=lambda: now[0])
    assert each == pytest.approx(([0.01, 0.03] * 6)[:-1])
    assert undisturbed(each) == pytest.approx(0.01)
    slow = iter([5.0, 4.0])
    once_slow = seconds(lambda: now.__setitem__(0, now[0] + next(slow)), 0.02, clock=lambda: now[0])
    assert once_slow == pytest.approx([4.0])


def test_a_file_is_read_back_and_removed(tmp_path: Path) -> None:
    ticks: Iterator[int] = iter(range(10**6))
    rate, written, nbytes = disk.rates(tmp_path, 20.0, clock=lambda: float(next(ticks)))
    assert nbytes > 0
    assert 0 < rate <= disk.PIECE
    assert 0 < written <= disk.PIECE
    assert list(tmp_path.iterdir()) == []
    mounts = "a / ext4 x\nb /scratch lustre x\nc /scratch/my\\040own tmpfs x"
    assert disk.kind_of(Path("/scratch/me"), mounts) == "lustre"
    assert disk.kind_of(Path("/scratch/my own/x"), mounts) in disk.RAM
    assert disk.kind_of(Path("/scratchy"), mounts) == "ext4"


TRUTH = "a100-sxm4-80gb"


def records(parts: Path, ranks: int = 2, nodes: int = 1) -> None:
    """What ranks would have left on a device whose curves are known, one rank slower by 10 %."""
    device = catalogue.device(TRUTH)
    families = {"gemm": ("bf16",), "stream": ("fp32",), "norm": ("fp32",), "pool": ("fp32",)}
    wanted = sweep(GPU, families)
    here = {"processor": {"model": "A", "cores": 4, "sockets": 1}, "memory": 2.0**34, "gpus": ranks,
            "gpu": "A GPU", "ports": [{"kind": "InfiniBand", "bandwidth": 25e9}]}  # fmt: skip
    facts = {"ranks": ranks, "nodes": nodes, "ranks_per_node": ranks // nodes, "backend": "nccl",
             "torch": "2.9", "threads": 1, "hardware": here, "memory": 2.0**36, "processors": 108,
             "generation": "ampere", "library": "nccl"}  # fmt: skip
    for rank in range(ranks):
        file = Records(parts / f"rank-{rank:05d}.jsonl")
        file.append({"key": "facts", "facts": facts, "date": "2026-11-22", "asked": {}})
        file.append({"key": "host", "seconds": 12e-6})
        file.append({"key": "probe", "bandwidth": 1.5e12, "rate": 1e13})
        file.append({"key": "disk", "rate": 2e9 if rank == 0 else 0.0,
                     "written": 5e8 if rank == 0 else 0.0, "bytes": 2**28, "why": "",
                     "file_system": "ext4"})  # fmt: skip
        for one in wanted:
            shape = np.array(one.shape, float)[:, None]
            took = float(kernels.seconds_of(device, one.family, one.precision, one.part, shape)[0])
            file.append({"key": one.key, "family": one.family, "part": one.part, "why": "",
                         "precision": one.precision, "shape": list(one.shape),
                         "each": [took * (1 + 0.1 * rank)] * 5})  # fmt: skip
        file.append({"key": "kernel conv x", "family": "conv", "part": "forward", "each": [],
                     "precision": "bf16", "shape": [1], "why": "no engine"})  # fmt: skip
        file.close()


def test_what_is_written_is_what_was_there(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    """Kernels of a known device, priced, come back by the specs that they make; and in JSON."""
    parts, out = tmp_path / "new.parts", tmp_path / "new"
    (parts / "device").mkdir(parents=True)
    records(parts / "device")
    monkeypatch.setattr(command, "topology", lambda _: "GPU0 GPU1\nGPU0 X NV12")
    said = command.written(parts, out)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new"]
    system, truth = catalogue.system(str(out / "system.yaml")), catalogue.device(TRUTH)
    shapes = np.array([(4096, 4096, 4096, 1), (512, 2048, 1024, 1)], float).T
    for family, precision, columns in (("gemm", "bf16", shapes), ("stream", "", [[1e7, 1e9]])):
        args = family, precision, "", np.array(columns)
        ratio = kernels.seconds_of(system.device, *args) / kernels.seconds_of(truth, *args)
        assert ratio == pytest.approx(1.05, abs=0.12)  # half of the ranks are slower by a tenth
    assert {one.family for one in system.device.kernels} == {"gemm", "stream", "norm", "pool"}
    assert system.levels[0].link == "nvlink"
    assert "assumed: no message was timed" in system.levels[0].source
    assert system.device.launch + (system.dispatch or 0) == pytest.approx(12e-6)
    assert system.storage is not None
    assert (system.storage.local.read, system.storage.local.write) == (2e9, 5e8)
    for one in (system.source, system.device.source, system.storage.source,
                *(curve.source for curve in system.device.kernels)):  # fmt: skip
        assert "measured by oracle measure machine, 2026-11-22, 2 x A GPU" in one
    assert said["refused"] == ["kernel conv x: no engine"]
    del said["text"]
    from oracle.show.provenance import stamped

    data = json.loads(json.dumps(stamped({"output": "new", "complete": True, **said})))
    jsonschema.validate(data, closed(contract.answer("measure")))
    line = ["recommend", "gpt2", str(out / "system.yaml"), "--devices", "2", "--batch", "8"]
    assert told(capsys, *line)[0] == 0
    line = ["calibrate", "compute", str(out / "kernels.csv"), "--onto", TRUTH]
    assert told(capsys, *line)[0] == 0


def test_no_folder_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("torch")
    (tmp_path / "new").mkdir()
    code, _, err = told(capsys, "measure", "machine", "-o", str(tmp_path / "new"))
    assert (code, "this is there already" in err) == (2, True)
    assert not [*(tmp_path / "new").iterdir()]


def test_ranks_that_differ_by_a_little_take_what_the_middle_one_does(tmp_path: Path) -> None:
    """Of two, 1 and 1.1 times as long, the slower takes 1.048 times the middle: none is ill."""
    records(tmp_path)
    measured = made.machine(command_records(tmp_path))
    assert measured.slowest == 1
    assert "slowest" not in measured.source


def test_a_rank_that_is_ill_sets_the_pace_of_all(tmp_path: Path) -> None:
    """Of five, 1 to 1.4 times as long, the last takes 1.4 / 1.2 times the middle one's."""
    records(tmp_path, 5)
    found = command_records(tmp_path)
    measured = made.machine(found)
    assert measured.slowest == pytest.approx(1.4 / 1.2)
    assert "the slowest rank, 1.17 times the middle one's" in measured.source
    alone = [{**one, "ranks": [one["ranks"][-1]]} for one in found]
    for mine, last in zip(measured.kernels, made.machine(alone).kernels, strict=True):
        assert mine.seconds == pytest.approx(last.seconds)


def test_levels_are_those_that_messages_crossed(tmp_path: Path) -> None:
    """Bandwidth and latency of a neighbour inside and between nodes; ports by all at once."""
    records(tmp_path, ranks=8, nodes=2)
    measured = made.machine(command_records(tmp_path))

    def message(nbytes: float, took: float, ranks: int, nodes: int, groups: int) -> Sample:
        return Sample("sendrecv", nbytes, took, ranks, nodes, ranks // nodes, groups=groups)

    samples = [
        message(256, 5e-6, 4, 1, 1), message(1e8, 1e-3, 4, 1, 1), message(256, 2e-5, 2, 2, 1),
        message(1e8, 5e-3, 2, 2, 1), message(1e8, 1e-2, 2, 2, 4), message(1e8, 1.0, 8, 2, 1),
    ]  # fmt: skip
    within, between = made.levels(measured, samples)
    assert (within["devices"], within["bandwidth"], within["latency"]) == (4, "100 GB/s", "5 us")
    assert (between["devices"], between["bandwidth"]) == (8, "20 GB/s")
    assert between["latency"] == "20 us"
    assert between["ports"] == 2.0  # four at once take twice as long as one
    assert made.system(measured, samples)["storage"]["bandwidth"] == "2 GB/s"


@pytest.mark.parametrize(("cells", "level", "rate"), [
    ("X 4 4 4 4 X 4 4 4 4 X 4 4 4 4 X", {"kind": "mesh", "ports": 12}, "25 GB/s"),
    ("X 1 1 2 1 X 2 1 1 2 X 2 2 1 2 X", {"kind": "mesh", "ports": 5, "wires": [
        "0-1", "0-2", "0-3", "0-3", "1-2", "1-2", "1-3", "2-3", "2-3"]}, "100 GB/s"),
    ("X 12 12 12 12 X 12 12 12 12 X 12 12 12 12 X", {}, "100 GB/s"),
], ids=["mesh", "wires", "switch"])  # fmt: skip
def test_links_of_a_node_are_those_of_its_matrix(
    tmp_path: Path, cells: str, level: dict[str, Any], rate: str
) -> None:
    """What a message to a neighbour gets is shared by the links that the driver counts there."""
    names = [f"GPU{k}" for k in range(4)]
    every = [cell if cell == "X" else f"NV{cell}" for cell in cells.split()]
    rows = [f"{name} {' '.join(every[4 * k : 4 * k + 4])}" for k, name in enumerate(names)]
    records(tmp_path, ranks=4)
    measured = made.machine(command_records(tmp_path))
    sent = [Sample("sendrecv", size, took, 4, 1, 4, groups=1)
            for size, took in ((256, 5e-6), (1e8, 1e-3))]  # fmt: skip
    (node,) = made.levels(measured, sent, "\n".join([" ".join(names), *rows]))
    assert {key: node[key] for key in level} == level
    assert ("kind" in node, node["link"], node["bandwidth"]) == (bool(level), "nvlink", rate)


def command_records(parts: Path) -> list[dict[str, Any]]:
    from oracle.executor.measure.machine import measured_records

    return measured_records(parts)


def test_norms_and_pools_are_fitted_to_their_kernels() -> None:
    """A curve of a precision was never looked up: the fit kept what was assumed."""
    device = catalogue.device("laptop-cpu")
    pace = {"forward": 2e8, "backward": 2e9}  # elements a second of all processors
    timed = [made.Kernel("pool", "fp32", tuple(map(float, one.shape)),
                         one.shape[1] / pace[one.part], one.part)
             for one in sweep(CORE, {"pool": ("fp32",)})]  # fmt: skip
    fit = kernels.fit(timed, device, everything=True)
    assert fit.held_out < 0.05
    tuned = replace(device, kernels=fit.kernels)
    for part in pace:
        took = reduction(tuned, "pool", 4e6, 1e6, 4096, part)
        assert took == pytest.approx(1e6 / pace[part], rel=0.1), part
    ahead = replace(device, kernels=tuple(one for one in fit.kernels if not one.part))
    assert reduction(ahead, "pool", 4e6, 1e6, 4096, "backward") == pytest.approx(5e-3, rel=0.1)


def test_gradients_of_norms_move_what_their_row_says() -> None:
    """Three passes over the tensor forward, five backward, as its row has them."""
    shapes = {part: sorted(one.shape for one in sweep(CORE, {"norm": ("fp32",)})
                           if one.part == part) for part in ("forward", "backward")}  # fmt: skip
    assert len(shapes["forward"]) == 18
    row = Norm().rows([Shape(8, (4, 4))])
    passes = [(sum(one.reads), sum(one.rereads)) for one in row]
    assert passes == [PASSES["norm"]]
    for ahead, back in zip(shapes["forward"], shapes["backward"], strict=True):
        assert [5 * n / 3 for n in ahead[:2]] == [*back[:2]]
        assert norm_input(ahead) == norm_input(back, "backward")


def test_pools_of_the_executor_take_their_elements_one_by_one() -> None:
    """Its tensors have channels first: a processor's pool is as slow as it was measured."""
    where = oracle.system("abci")
    slow = replace(curve_of(where.device, "pool"), pace=1e6)
    where = replace(where, device=replace(where.device, kernels=(slow,)))
    told = {"batch": 64, "any_plan": True, "reading": "none", "precision": "fp32"}
    seconds = {name: float(oracle.estimate("lenet5", where, ["serial"], software=name,
                                           **told).compute["forward"][0])
               for name in ("plain", "executor")}  # fmt: skip
    assert seconds["executor"] > 2 * seconds["plain"]
