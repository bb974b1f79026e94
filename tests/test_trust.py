"""Planted faults are found in logs, and none in logs that are sound."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import told

from oracle.calibration.trust import bound, capacity, concerns, model, reached
from oracle.readers import logs
from oracle.readers.logs import Reading, Sample
from oracle.spec import catalogue

LOGS = Path(__file__).parent / "data" / "logs"
SIZES = [2**k for k in range(10, 31)]


def run(
    device: str = "NVIDIA H100 80GB HBM3", nodes: int = 2, inner: int = 8, rate: float = 300e9,
    host: str = "gpu", start: float = 40e-6,
) -> str:  # fmt: skip
    """An all_reduce_perf of nodes that send `rate` bytes a second each, as the tool prints it."""
    ranks = nodes * inner
    lines = [f"# nThread 1 nGpus 1 minBytes {SIZES[0]} maxBytes {SIZES[-1]} step: 2(factor) "
             "warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0",
             "#", "# Using devices"]  # fmt: skip
    for node in range(nodes):
        for k in range(inner):
            lines.append(f"#  Rank {node * inner + k:2d} Group  0 Pid {7000 + k} on "
                         f"{host}{node:03d} device {k:2d} [0x{k + 16:x}] {device}")  # fmt: skip
    lines += ["#", "#       size         count      type   redop    root     time   algbw   busbw "
              "#wrong     time   algbw   busbw #wrong"]  # fmt: skip
    units = nodes if nodes > 1 else ranks
    for size in SIZES:
        seconds = start + 2 * (units - 1) / units * size / rate
        algbw = size / seconds / 1e9
        half = f"{seconds * 1e6:9.2f} {algbw:7.2f} {algbw * 2 * (ranks - 1) / ranks:7.2f}      0"
        lines.append(f"{size:12d} {size // 4:12d}     float     sum      -1 {half} {half}")
    lines += ["# Out of bounds values : 0 OK", "# Avg bus bandwidth    : 100.1", "#"]
    return "\n".join(lines) + "\n"


def parsed(text: str, path: str = "a.log", **facts: int) -> Reading:
    return logs.parse(text, path).checked_with_facts(**facts)


def said(readings: list[Reading], system: str = "dgx-h100") -> list[str]:
    return [
        f"{each.severity} {each.words}" for each in concerns(readings, catalogue.system(system))
    ]


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_a_sound_log_raises_nothing(nodes: int) -> None:
    assert said([parsed(run(nodes=nodes))]) == []
    assert said([parsed(run(nodes=nodes)), parsed(run(nodes=2), "b.log")]) == []


ALTERED: dict[str, tuple[Callable[[str], str], str]] = {
    "another device": (lambda s: s.replace("H100 80GB HBM3", "A100-SXM4-80GB"),
                       "refuse a.log:4: its device is NVIDIA A100-SXM4-80GB"),
    "another vendor": (lambda s: s.replace("NVIDIA H100 80GB HBM3", "AMD Instinct MI300X"),
                       "refuse a.log:4: its device is AMD Instinct MI300X"),
    "another form": (lambda s: s.replace("H100 80GB HBM3", "H100 PCIe"),
                     "warn a.log:4: its device is NVIDIA H100 PCIe"),
    "two kinds of device": (lambda s: s.replace("001 device  0 [0x10] NVIDIA H100 80GB HBM3",
                                                "001 device  0 [0x10] NVIDIA A100-SXM4-80GB"),
                            "in one log: two machines"),
    "cut between rows": (lambda s: s[: s.index("# Out of")], "warn a.log:42: the run ended before"),
    "cut within a row": (lambda s: s[: s.index("# Out of") - 30], "warn a.log:42: the run ended"),
    "half of it": (lambda s: s[: len(s) * 2 // 3], "the run ended before its closing line"),
    "rows missing": (lambda s: "\n".join(s.split("\n")[:40] + s.split("\n")[42:]),
                     "the header promises messages up to 1073741824 bytes"),
    "wrong results": (lambda s: s.replace("values : 0 OK", "values : 3 FAILED"),
                      "refuse a.log:43: wrong results"),
    "ranks missing": (lambda s: "\n".join(x for x in s.split("\n") if " gpu001 " not in x),
                      "is that of 16 ranks, and the device list has 8"),
    "hosts renamed to one": (lambda s: s.replace("gpu001", "gpu000"),
                             "is on the device of the rank"),
    "hosts renamed apart": (lambda s: s.replace("gpu001 device  7", "gpu777 device  7"),
                            "refuse a.log:22: 16 ranks on 3 nodes: they are not the same number"),
    "ten times too fast": (lambda s: run(rate=3000e9), "no algorithm does that"),
    "far too slow": (lambda s: run(rate=12e9), "3% of the datasheet is too little"),
    "half the devices": (lambda s: run(inner=4), "leave 4 of 8 devices of a node idle"),
    "more devices a node": (lambda s: run(inner=16), "a node of dgx-h100 has 8 devices"),
}  # fmt: skip


@pytest.mark.parametrize("name", ALTERED)
def test_a_planted_fault_is_found(name: str) -> None:
    alter, expected = ALTERED[name]
    found = said([parsed(alter(run()))])
    assert any(expected in each for each in found), found


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"nodes": 4}, "refuse a.log: nodes=4 is said of it, and the log has 2"),
        ({"ranks": 8}, "refuse a.log: ranks=8 is said of it, and the log has 16"),
    ],
)
def test_what_is_said_of_a_log_and_denied_by_it(facts: dict[str, int], expected: str) -> None:
    assert any(each.startswith(expected) for each in said([parsed(run(), **facts)]))


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [(1, "a node of dgx-h100 has 8"), (3, "not the same number"), (4, "leave 4 of 8"), (2, "")],
)
def test_nodes_said_of_a_log_without_a_device_list(nodes: int, expected: str) -> None:
    """busbw/algbw tells 16 ranks; how many nodes is said."""
    rows = "\n".join(line for line in run().split("\n") if " Rank " not in line)
    found = said([parsed(rows, nodes=nodes)])
    assert any(expected in each for each in found) if expected else found == []


def test_two_machines_in_one_call() -> None:
    mine, other = parsed(run()), parsed(run(device="NVIDIA H200"), "b.log")
    found = said([mine, other])
    assert any("b.log:4: its device is NVIDIA H200, that of a.log is" in each for each in found)
    hosts = said([mine, parsed(run(host="node"), "b.log")])
    assert [each.split(";")[0] for each in hosts] == [
        "warn b.log:4: its hosts are called node…, those of a.log gpu…: two machines?"
    ]


def test_the_device_is_told_by_its_model() -> None:
    systems = catalogue.shipped("systems")
    titles = {catalogue.system(name).device.title for name in systems}
    vendors = [title for title in titles if "NVIDIA" in title or "AMD Instinct" in title]
    assert all(model(title) for title in vendors)
    assert model("NVIDIA H100 80GB HBM3") == model("NVIDIA H100 SXM5 80 GB HBM3") == "h100"
    assert model("Tesla V100-SXM2-16GB") == "v100"


def test_bounds_by_hand() -> None:
    """2 (N-1)/N n of an allreduce leaves each of N nodes, n if the switches add up."""
    one = Sample("allreduce", 8e9, 1.0, 32, 4, 8)
    assert bound(one, 4, 8) == (12e9, 8e9)
    assert bound(one._replace(operation="allgather"), 4, 8) == (6e9, 6e9)
    # each of 8 ranks of a node sends 3/4 of its buffer out of it
    assert bound(one._replace(operation="alltoall"), 4, 8) == (48e9, 48e9)
    pairs = Sample("sendrecv", 1e9, 1.0, 2, 2, 1, groups=4)
    assert bound(pairs, 2, 1) == (4e9, 4e9)
    abci = catalogue.system("abci")
    assert capacity(abci.levels[: abci.inside]) == 150e9  # six NVLinks of 25 GB/s
    assert capacity(abci.levels[abci.inside :]) == 25e9  # two EDR ports
    frontier = catalogue.system("frontier")
    assert capacity(frontier.levels[: frontier.inside]) == 4 * 50e9 + 5 * 50e9


def test_in_a_node_switches_may_add_up() -> None:
    """NVLS gets an allreduce past the busbw of NVLinks: on H100, not on A100."""
    h100 = run(nodes=1, rate=480e9, start=1e-6)
    assert said([parsed(h100)]) == []
    a100 = run("NVIDIA A100-SXM4-80GB", nodes=1, rate=330e9, start=1e-6)
    assert "only switches that reduce" in said([parsed(a100)], "dgx-a100")[0]


def test_what_share_of_the_datasheet_is_reached() -> None:
    (one,) = reached([parsed(run(rate=200e9))], catalogue.system("dgx-h100"))
    assert (one.level, one.beyond, one.capacity) == ("unit", True, 400e9)
    assert one.share == pytest.approx(0.5, rel=0.01)
    (pair,) = reached([parsed((LOGS / "perftest_write_bw.txt").read_text().split("Send Bi")[0])],
                      catalogue.system("abci"))  # fmt: skip
    assert pair.rate == pytest.approx(11571 * 2**20)


def test_the_command_refuses_and_warns(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "a.log"
    log.write_text(run(device="NVIDIA B200"))
    code, out, err = told(capsys, "calibrate", str(log), "dgx-h100")
    assert (code, out) == (2, "")
    assert "its device is NVIDIA B200" in err
    log.write_text(run().split("# Out of")[0])
    code, out, err = told(capsys, "calibrate", f"{log}:nodes=2,ranks=16", "dgx-h100")
    assert code == 0
    assert "warning: " in err
    assert "the run ended before its closing line" in err


def test_congestion_becomes_interference(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = told(capsys, "calibrate", str(LOGS / "gpcnet.txt"), "--onto", "abci")
    assert code == 0
    assert "system: interference [1.4, 3.2]: added" in out
    assert "interference_collectives [1.9, 5]: added" in out
