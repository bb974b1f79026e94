"""Logs of further tools: each figure comes out in our units, and what is none says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.readers import log_files, logs
from oracle.readers.logs import InputError, Sample
from oracle.readers.matrices import matrix

LOGS = Path(__file__).parent / "data" / "logs"
US = 1e-6


def read(name: str) -> logs.Reading:
    return logs.read(LOGS / name)


def found(reading: logs.Reading, operation: str, nbytes: float) -> Sample:
    (one,) = (s for s in reading.samples if (s.operation, s.nbytes) == (operation, nbytes))
    return one


# Intel MPI Benchmarks


def test_intel_mpi_counts_whole_messages_and_the_slowest_process() -> None:
    imb = read("imb_mpi1.txt")
    assert imb.machine["tool"] == "Intel MPI Benchmarks 2021.3"
    pong = found(imb, "sendrecv", 4194304)
    assert (pong.ranks, pong.direction, pong.seconds) == (2, "one way", pytest.approx(360 * US))
    reduced = found(imb, "allreduce", 1024)
    assert (reduced.ranks, reduced.seconds) == (16, pytest.approx(12 * US))
    assert reduced.spread == pytest.approx(2 / 11 / 2)
    assert found(imb, "allgather", 16 * 1024).seconds == pytest.approx(22 * US)
    # since 2019 the bytes of Reduce_scatter are one process's part
    assert found(imb, "reduce_scatter", 16 * 1024).seconds == pytest.approx(15 * US)
    assert found(imb, "halo", 1024).ranks == 4
    assert found(imb, "barrier", 0).seconds == pytest.approx(6.6 * US)
    ring = next(s for s in imb.samples if s.operation == "sendrecv" and s.ranks == 16)
    assert (ring.direction, ring.seconds) == ("", pytest.approx(3.2 * US))
    assert imb.counts() == {"the tool gave the row up": 1}
    assert not imb.faults


def test_intel_mpi_of_2018_deals_its_bytes_out() -> None:
    text = (LOGS / "imb_mpi1.txt").read_text().replace("Benchmarks 2021.3", "Benchmarks 2018.1")
    assert found(logs.parse(text, "x"), "reduce_scatter", 1024).ranks == 16
    headless = text[text.index("# Benchmarking Reduce_scatter") :]
    why = logs.parse(headless, "x").counts()
    assert any("keep the first lines" in reason for reason in why)


def test_intel_mpi_groups_streams_and_overlap() -> None:
    imb = read("imb_multi.txt")
    pairs = [s for s in imb.samples if s.groups == 8]
    assert [s.seconds for s in pairs] == pytest.approx([20 * US, 21 * US])
    placed = {s.groups: s.nodes for s in imb.with_facts(ranks=16, nodes=2).samples if s.window == 1}
    assert placed[8] == 1  # ranks side by side share a node, eight pairs or one
    (stream,) = (s for s in imb.samples if s.window > 1)
    # 305,175 messages a second both ways between two pairs
    assert stream.seconds == pytest.approx(2 * 2 / 305175)
    assert (stream.ranks, stream.groups, stream.direction) == (2, 2, "both ways")
    hidden = found(imb, "allreduce", 65536)
    assert (hidden.seconds, hidden.overlap) == (pytest.approx(100 * US), 0.5)


# perftest


def test_perftest_units_windows_and_directions() -> None:
    one, two, both = read("perftest_write_bw.txt").samples
    assert one.seconds == pytest.approx(65536 / (11444.09 * 2**20))
    assert (one.operation, one.window, one.nodes) == ("put", 256, 2)
    assert two.nbytes == 2**20
    assert both.seconds == pytest.approx(2 * 65536 / (180 * 1e9 / 8))
    assert (both.operation, both.direction, both.window) == ("sendrecv", "both ways", 64)
    (read_,) = read("perftest_read_lat.txt").samples
    assert (read_.operation, read_.seconds) == ("get", pytest.approx(1.9 * US))
    assert read_.spread == pytest.approx(0.1)
    assert read("perftest_write_bw.txt").machine["port"] == "mlx5_0"


def test_perftest_json_counts_messages_not_units() -> None:
    """96.00 are Gb/sec or MiB/sec: the file does not say, but 183,105 messages a second do."""
    (one,) = read("perftest_write_bw.json").samples
    assert one.seconds == pytest.approx(1 / 183105)
    assert (one.operation, one.memory) == ("put", "device")


# matrices of pairs


def test_p2p_matrices_hold_pairs_with_access_only() -> None:
    pairs = read("p2p_bandwidth.txt")
    writes = {s.pair: s for s in pairs.samples if s.window > 1 and s.direction == "one way"}
    assert set(writes) == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert writes[0, 1].nbytes / writes[0, 1].seconds == pytest.approx(48e9)
    both = next(s for s in pairs.samples if s.direction == "both ways")
    assert both.nbytes / both.seconds == pytest.approx(96e9 / 2)
    slow = {s.pair: s.seconds for s in pairs.samples if s.window == 1}
    assert slow[1, 2] == pytest.approx(1.95 * US)
    assert pairs.devices == (("Tesla V100-SXM2-16GB", 2),)
    assert pairs.counts()["there is no peer access: it goes through the host"] == 10


def test_nvbandwidth_text_and_json_agree_in_kind() -> None:
    text = read("nvbandwidth.txt")
    reads = [s for s in text.samples if s.operation == "get"]
    assert [s.nbytes / s.seconds for s in reads] == pytest.approx([395e9, 396e9])
    total = [s for s in text.samples if s.direction == "both ways"]
    assert [s.nbytes / s.seconds for s in total] == pytest.approx([380e9, 381e9])
    assert text.machine["host to device"] == pytest.approx(55.4e9)
    assert text.machine["copy within a device"] == pytest.approx(1401e9)
    data = read("nvbandwidth.json")
    assert [s.nbytes / s.seconds for s in data.samples] == pytest.approx([300.25e9, 301.5e9])
    assert {s.algorithm for s in data.samples} == {"sm"}
    assert data.devices == (("NVIDIA H100 80GB HBM3", 1),)
    assert not text.faults


def test_a_matrix_that_is_cut_off_is_a_fault() -> None:
    text = (LOGS / "nvbandwidth.txt").read_text()
    cut = text[: text.index(" 1    396.00")]
    (fault,) = logs.parse(cut, "x").faults
    assert (fault.kind, "2 devices has 1 rows" in fault.what) == ("truncated", True)
    assert matrix(["0 1", "0 1 2", "1 3 4"], 0).pairs() == [(2, 0, 1, 2.0), (3, 1, 0, 3.0)]  # type: ignore[union-attr]
    assert matrix(["0 2", "0 1 2"], 0) is None


# oneCCL, RCCL, GPCNeT, CSV


def test_oneccl_text_and_csv() -> None:
    text = read("oneccl.txt")
    gathered = found(text, "allgather", 4 * 2**20)
    assert (gathered.seconds, gathered.ranks) == (pytest.approx(950 * US), 4)
    assert (gathered.memory, gathered.library) == ("host", "ccl")
    reduced, exchanged = read("oneccl.csv").samples
    # two buffers at once in 32 us: one of 1,024 bytes each 16 us
    assert (reduced.nbytes, reduced.seconds, reduced.window) == (1024, pytest.approx(16 * US), 2)
    assert exchanged.nbytes == 4 * 1024


def test_rccl_tests_are_nccl_tests_of_another_vendor() -> None:
    rccl = read("rccl_tests.txt")
    assert rccl.machine["tool"] == "rccl-tests develop:ae3e635"
    assert {(s.operation, s.ranks, s.nodes) for s in rccl.samples} == {("allreduce", 4, 1)}
    assert rccl.devices == (("AMD Instinct MI250X", 5),)
    assert not rccl.faults
    assert not rccl.skipped


def test_gpcnet_gives_the_interference_of_so_many_nodes() -> None:
    cif = read("gpcnet.txt")
    assert (cif.interference, cif.nodes, cif.samples) == ((1.4, 3.2), 128, ())
    assert cif.short == {"interference_pairs": (2.1, 6.0), "interference_collectives": (1.9, 5.0)}
    text = (LOGS / "gpcnet.txt").read_text()
    cut = logs.parse(text[: text.index("|          Network Tests running")], "x")
    assert cut.interference == ()
    assert cut.faults[0].kind == "truncated"


def test_a_csv_of_ones_own() -> None:
    table = read("own.csv")
    assert logs.sizes(table.samples) == {"allreduce": 2, "allgather": 1}
    first = table.samples[0]
    assert (first.seconds, first.ranks, first.nodes, first.ranks_per_node) == (
        pytest.approx(12.5 * US), 16, 2, 8,
    )  # fmt: skip
    assert table.counts() == {"no usable time": 1}
    (rate,) = logs.parse("op,bytes,bandwidth_GBps,ranks\nsendrecv,1e6,10,2\n", "x").samples
    assert rate.seconds == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ("op,bytes,seconds,warp_factor", "nobody knows the column `warp_factor`"),
        ("op,bytes,ranks", "no column of times"),
        ("op,seconds,ranks", "no column of the bytes"),
        ("op,bytes,time_us,latency_ms", "two columns are times"),
        ("op,bytes,size,seconds", "two columns are the bytes"),
    ],
)
def test_a_csv_whose_columns_do_not_tell_is_refused(head: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        logs.parse(head + "\nallreduce,1,1,1\n", "x")


def test_a_csv_of_two_machines_is_refused_with_both_lines() -> None:
    text = "platform,op,bytes,seconds\na,allreduce,8,1e-5\nb,allreduce,8,1e-5\n"
    with pytest.raises(InputError, match="line 2 is of the system `a`, this one of `b`"):
        logs.parse(text, "x")


# OSU, of every title


TITLES = {  # of 7.4's sources; %s is where a flavour is printed
    "MPI%s All-to-All Personalized Exchange Latency Test": "alltoall",
    "MPI%s All-to-All Personalized Exchange Persistent Latency Test": "alltoall",
    "MPI%s All-to-Allv Personalized Exchange Latency Test": "alltoall",
    "MPI%s All-to-Allw Personalized Exchange Persistent Latency Test": "alltoall",
    "MPI%s Non-blocking All-to-All Latency Test": "alltoall",
    "MPI%s Allgatherv Latency Test": "allgather",
    "MPI%s Non-blocking Allgather Latency Test": "allgather",
    "MPI%s Allreduce Persistent Latency Test": "allreduce",
    "MPI%s Barrier Latency Test": "barrier",
    "MPI%s Non-Blocking Broadcast Latency Test": "broadcast",
    "MPI%s Gatherv Latency Test": "gather",
    "MPI%s Non-blocking Reduce_scatter_block Latency Test": "reduce_scatter",
    "MPI%s Scatterv Persistent Latency Test": "scatter",
    "MPI%s Latency Test": "sendrecv",
    "MPI%s Latency Persistent Test": "sendrecv",
    "MPI%s Bandwidth Test": "sendrecv",
    "MPI%s Bi-Directional Bandwidth Persistent Test": "sendrecv",
    "MPI Multi Latency Test": "sendrecv",
    "MPI Multiple Bandwidth / Message Rate Test": "sendrecv",
    "MPI_Put%s Latency Test": "put",
    "MPI_Put%s Bi-directional Bandwidth Test": "put",
    "MPI_Get%s latency Test": "get",
    "MPI_Get Multi%s Latency Test": "get",
    "MPI_Get Multiple Bandwidth%s Bandwidth Test": "get",
    "NCCL%s All-to-All Personalized Exchange Latency Test": "alltoall",
    "MPI%s Neighborhood Allgather Latency Test": "",
    "MPI%s Non-blocking Neighborhood Alltoallw Latency Test": "",
    "MPI%s Multi-threaded Latency Test": "",
    "MPI%s Multi-process Latency Test": "",
    "MPI_Accumulate%s latency Test": "",
    "MPI_Fetch_and_op%s latency Test": "",
    "MPI_Compare_and_swap%s latency Test": "",
    "MPI_Get_accumulate latency Test": "",
    "MPI Hello World Test": "",
    "OpenSHMEM Reduce Latency Test": "",
    "UPC++ AlltoAll Latency Test": "",
    "UPC Broadcast Latency Test": "",
    "Something Nobody Wrote Test": "",
}


@pytest.mark.parametrize("flavour", ["", "-CUDA"])
@pytest.mark.parametrize("title", TITLES)
def test_osu_titles(title: str, flavour: str) -> None:
    rate = "Bandwidth (MB/s)" if "Bandwidth" in title else "Latency (us)"
    name = title.replace("%s", flavour)
    text = f"# OSU MPI Allreduce Latency Test v7.4\n# OSU {name} v7.4\n# Size  {rate}\n4096  1.50\n"
    reading = logs.parse(text, "x")
    assert [s.operation for s in reading.samples] == [TITLES[title]][: bool(TITLES[title])]
    assert bool(reading.skipped) == (not TITLES[title])


def test_osu_of_several_kinds_in_a_file() -> None:
    osu = read("osu_nonblocking.txt")
    hidden = found(osu, "allreduce", 2**20)
    assert (hidden.seconds, hidden.overlap) == (pytest.approx(190 * US), pytest.approx(0.3684))
    assert found(osu, "put", 2**22).memory == "device"
    assert found(osu, "get", 2**22).memory == "host"
    assert found(osu, "sendrecv", 2**22).direction == "both ways"
    assert len(osu.skipped) == 2
    assert not osu.faults


@pytest.mark.parametrize("end", ["10.5", "10.", "10", "1", ""])
def test_an_osu_row_cut_within_its_number_is_dropped_and_said(end: str) -> None:
    head = "# OSU MPI Allreduce Latency Test v5.7\n# Size  Avg Latency(us)\n1048576  9.51\n2097152 "
    reading = logs.parse(head + end, "x")
    assert [s.nbytes for s in reading.samples] == [2**20]
    assert [fault.kind for fault in reading.faults] == ["truncated"]
    whole = logs.parse(head + "10.55", "x")  # nothing is missing but the end of its line
    assert len(whole.samples) == 2
    assert whole.faults[0].what.startswith("the last row has no end of line")


def test_osu_in_a_page_with_validation() -> None:
    text = """
    $ srun osu_alltoall -c
    # OSU MPI All-to-All Personalized Exchange Latency Test v7.5
    # Size  Avg Latency(us)  Validation
    1048576  5545.28  Pass
"""
    (one,) = logs.parse(text, "x").samples
    assert (one.operation, one.nbytes) == ("alltoall", 2**20)
    wrong = logs.parse(text.replace("Pass", "Fail"), "x")
    assert (wrong.samples, wrong.faults[0].kind) == ((), "wrong results")
    broken = logs.parse(text[: text.index("    1048576")], "x")
    assert broken.faults[0].what == "no result follows this title: the run broke off"


def test_perftest_knows_whose_memory_it_sent() -> None:
    text = (LOGS / "perftest_write_bw.txt").read_text().split("Send Bidirectional")[0]
    off = text.replace(" Link type", " Use ROCm memory : OFF\n Link type")
    assert {s.memory for s in logs.parse(off, "x").samples} == {"host"}
    name = "Using ROCm Device with ID: 0, Name: AMD Instinct MI300X, PCI Bus ID: 0x5\n"
    on = logs.parse(name + text, "x")
    assert {s.memory for s in on.samples} == {"device"}
    assert on.machine["device"] == "AMD Instinct MI300X"


# what is said of a file


def test_names_of_logs_with_facts(tmp_path: Path) -> None:
    (tmp_path / "b" / "c").mkdir(parents=True)
    for place in ("a.txt", "b/a.txt", "b/c/imb.txt"):
        source = "imb_mpi1.txt" if "imb" in place else "osu_many.txt"
        (tmp_path / place).write_bytes((LOGS / source).read_bytes())
    (tmp_path / "b" / "picture.png").write_bytes(b"\0\1\2")
    (tmp_path / "b" / ".hidden").write_text("x")
    both = log_files.gathered([f"{tmp_path}/a.txt:nodes=2,ranks=8", f"{tmp_path}/b"], nodes=4)
    assert [Path(r.path).name for r in both.readings] == ["a.txt", "a.txt", "imb.txt"]
    assert both.passed == ((f"{tmp_path}/b/picture.png", "this is a binary file"),)
    first, second, imb = both.readings
    assert {(s.ranks, s.nodes) for s in first.samples if s.operation == "allreduce"} == {(8, 2)}
    assert {s.nodes for s in second.samples if s.operation == "allreduce"} == {4}
    # a group of 2 of 16 processes on 4 nodes lies on the first of them
    assert {s.ranks: s.nodes for s in imb.samples} == {2: 1, 4: 1, 16: 4}


@pytest.mark.parametrize(
    ("name", "why"),
    [("a:node=2", "nobody knows what `node`"), ("a:nodes=two", "`nodes=two` is no whole number"),
     ("a:nodes=0", "`nodes=0` is no whole"), ("a:nodes=", "`nodes=` is no whole")],
)  # fmt: skip
def test_facts_that_are_none_are_refused(name: str, why: str) -> None:
    with pytest.raises(InputError, match=why):
        log_files.named(name)
    assert log_files.named("C:\\runs\\a.log") == ("C:\\runs\\a.log", {})


def test_a_folder_without_a_log_is_refused(tmp_path: Path) -> None:
    (tmp_path / "readme").write_text("nothing")
    with pytest.raises(InputError, match="there is no log in this folder"):
        log_files.gathered([str(tmp_path)])
