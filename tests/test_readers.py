"""What is in a log comes out, what is unusable is counted, what is not ours is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from oracle.readers import logs
from oracle.readers.logs import InputError, nccl_tests
from oracle.readers.logs.slurm_topology import Hosts
from oracle.spec import strict_json

LOGS = Path(__file__).parent / "data" / "logs"


def read(name: str) -> logs.Reading:
    return logs.read(LOGS / name)


def test_every_module_of_the_folder_is_a_format() -> None:
    names = [each.__name__.rpartition(".")[2] for each in logs.formats()]
    assert set(names) == {path.stem for path in Path(logs.__file__).parent.glob("*.py")} - {
        "__init__"
    }
    assert names == ["csv_table", "dlio", "fio", "measurement", "mlperf_storage", "nccl_json",
                     "nccl_topology", "oneccl_benchmark", "storage_measurement", "gpcnet",
                     "intel_mpi", "ior", "mdtest", "nccl_tests", "nvbandwidth", "osu",
                     "p2p_bandwidth_latency", "perftest", "nvidia_smi_topo",
                     "slurm_topology"]  # fmt: skip
    assert len({each.TITLE for each in logs.formats()}) == len(names)


# nccl-tests text


def test_old_table_between_warnings() -> None:
    found = read("nccl_old_warnings.txt")
    assert len(found.samples) == 12
    first = found.samples[0]
    assert (first.operation, first.nbytes, first.ranks, first.nodes) == ("allreduce", 1024, 4, 2)
    assert first.seconds == pytest.approx(20.10e-6)
    assert first.ranks_per_node == 2
    assert first.in_place is False
    assert found.samples[1].in_place is True
    assert first.iterations == 40
    assert found.machine["device"] == "Tesla V100-SXM2-16GB"
    assert found.machine["date"] == "2023-11-14"  # from the epoch in a UCX warning
    assert found.counts() == {"a message of UCX": 1, "a message of NCCL": 1}


def test_an_unchecked_in_place_column_means_alltoall() -> None:
    found = read("nccl_mid_alltoall.txt")
    assert logs.sizes(found.samples) == {"alltoall": 6}
    assert found.samples[0].ranks == 4
    assert found.machine["nccl"] == "2.18.3"


def test_new_table_with_groups_prefixes_and_extra_columns() -> None:
    found = read("nccl_new_split.txt")
    samples = found.samples
    assert {s.operation for s in samples} == {"reduce_scatter"}
    assert {(s.ranks, s.groups, s.nodes) for s in samples} == {(2, 2, 2)}
    assert samples[0].spread == pytest.approx(0.021)
    assert len(samples) == 6  # four rows: one half wrong, one cut off after its first
    why = found.counts()
    assert why["the results were wrong (#wrong is not 0)"] == 1
    assert why["the row ends before its in place numbers"] == 1
    assert found.machine["tool"] == "nccl-tests 2.19.6"
    assert found.machine["nccl"] == "2.27.3"


def test_cpu_time_is_no_elapsed_time() -> None:
    found = read("nccl_cputime.txt")
    assert not found.samples
    assert found.counts() == {"-C 1 prints the CPU's time, not the elapsed time": 4}


@pytest.mark.parametrize("ending", ["\r\n", "\n"])
@pytest.mark.parametrize("prefix", ["", "0: ", "[1,0]<stdout>:", "2024-05-06T07:08:09 ", "   "])
def test_prefixes_and_line_ends_change_nothing(prefix: str, ending: str) -> None:
    plain = (LOGS / "nccl_old_warnings.txt").read_text().splitlines()
    text = ending.join(prefix + line for line in plain)
    found = logs.parse(text.encode(), "x")
    usual = logs.parse("\n".join(plain), "x")
    assert [s.seconds for s in found.samples] == [s.seconds for s in usual.samples]
    assert [s.ranks for s in found.samples] == [s.ranks for s in usual.samples]


def test_several_tables_in_a_file_keep_apart() -> None:
    both = (LOGS / "nccl_old_warnings.txt").read_text() + (
        LOGS / "nccl_mid_alltoall.txt"
    ).read_text()
    found = logs.parse(both, "both")
    assert logs.sizes(found.samples) == {"allreduce": 12, "alltoall": 6}
    assert {s.nodes for s in found.samples if s.operation == "alltoall"} == {1}


HEADER = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong\n"


@pytest.mark.parametrize(
    ("redop", "root", "ratio", "operation", "ranks"),
    [
        ("sum", -1, 1.875, "allreduce", 16),
        ("sum", -1, 1.0, "allreduce", 2),
        ("sum", -1, 0.9375, "reduce_scatter", 16),
        ("none", -1, 0.875, "allgather", 8),
        ("none", 0, 1.0, "broadcast", None),
        ("sum", 0, 1.0, "reduce", None),
        ("none", -1, 1.0, "sendrecv", None),
    ],
)
def test_operation_and_ranks_from_the_ratio(
    redop: str, root: int, ratio: float, operation: str, ranks: int | None
) -> None:
    half = f"100.0  200.00  {200 * ratio:.2f}  0"
    text = HEADER + f"  20000000  5000000  float  {redop}  {root}  {half}  {half}\n"
    found = logs.parse(text, "x")
    assert {s.operation for s in found.samples} == {operation}
    assert {s.ranks for s in found.samples} == {ranks}


@pytest.mark.parametrize("root", ["", "  -1"])  # which newer versions print
def test_rows_without_a_header_are_read_by_their_place(root: str) -> None:
    """20 MB in 100 us are 200 GB/s; 2 · 15/16 of that on the bus: an allreduce of 16."""
    half = "100.0  200.00  375.00  0"
    found = logs.parse(f"20000000  5000000  float  sum{root}  {half}  {half}\n", "x")
    assert [(s.operation, s.ranks) for s in found.samples] == [("allreduce", 16)] * 2
    assert [(s.nbytes, s.seconds) for s in found.samples] == [(20e6, pytest.approx(1e-4))] * 2


def test_a_table_that_could_be_two_operations_is_skipped_with_its_reason() -> None:
    half = "100.0  200.00  175.00  N/A"
    found = logs.parse(HEADER + f"  80  20  float  none  -1  {half}  {half}\n", "x")
    assert not found.samples
    assert "does not say which operation" in next(iter(found.counts()))
    named = logs.parse("$ ./alltoall_perf -b 80\n" + HEADER +
                          f"  80  20  float  none  -1  {half}  {half}\n", "x")  # fmt: skip
    assert {s.operation for s in named.samples} == {"alltoall"}


@pytest.mark.parametrize("time", ["nan", "inf", "-1.0", "0.00", "1e400", "N/A"])
def test_a_time_that_is_none_is_skipped(time: str) -> None:
    good = "100.0  1.00  1.50  0"
    text = HEADER + f"  80  20  float  sum  -1  {time} 1.00 1.50 0  {good}\n"
    found = logs.parse(text, "x")
    assert len(found.samples) == 1
    assert found.counts() == {"no usable time out of place": 1}


def test_nothing_is_dropped_silently() -> None:
    """Every line is a comment, a sample's row, blank, or counted."""
    for name in ("nccl_old_warnings.txt", "nccl_mid_alltoall.txt"):
        found = read(name)
        lines = (LOGS / name).read_text().splitlines()
        rows = {int(s.where.rpartition(":")[2]) for s in found.samples}
        counted = rows | {line for line, _ in found.skipped}
        rest = [line for k, line in enumerate(lines, 1) if k not in counted and line.strip()]
        assert all(line.startswith("#") or "NCCL version" in line for line in rest)


def test_nccl_version_numbers() -> None:
    assert nccl_tests.readable(2708) == "2.7.8"
    assert nccl_tests.readable(21903) == "2.19.3"


# nccl-tests JSON


def test_a_killed_json_keeps_what_is_whole_and_no_secret() -> None:
    found = read("nccl_killed.json")
    assert [s.seconds for s in found.samples] == pytest.approx([12.5e-6, 12.4e-6, 12.9e-6])
    assert found.samples[0].spread == pytest.approx(0.02)
    assert found.machine["environment"] == {"NCCL_ALGO": "Ring", "UCX_TLS": "rc"}
    for secret in ("do-not-keep-me", "someone", "/opt/build"):
        assert secret not in repr(found)
    assert "cut off" in found.skipped[0][1]


@pytest.mark.parametrize(
    "env",
    ['{"TOKEN": "hush", "NCCL_X": "1"}', '[{"name": "TOKEN", "value": "hush"}]', '["TOKEN=hush"]',
     '["NCCL_X=1", ["TOKEN", "hush"], 3, null]', '"TOKEN=hush"'],
)  # fmt: skip
def test_no_form_of_the_environment_leaks(env: str) -> None:
    text = '{"env": ' + env + ', "config": {}, "results": []}'
    assert "hush" not in repr(logs.parse(text, "x"))


@pytest.mark.parametrize("value", ["NaN", "Infinity", "1e999", "9" * 30])
def test_json_numbers_are_numbers(value: str) -> None:
    text = '{"config": {}, "results": [{"size": 8, "out_of_place": {"time": ' + value + "}}]}"
    with pytest.raises(InputError, match="number"):
        logs.parse(text, "x")


def test_strict_json_refuses_a_key_twice_and_deep_nests() -> None:
    with pytest.raises(strict_json.Unfit, match="`a` stands twice"):
        strict_json.loads('{"a": 1, "a": 2}')
    with pytest.raises(strict_json.Unfit, match="deep"):
        strict_json.loads("[" * 100 + "]" * 100)
    assert strict_json.loads('{"s": "[[[{{{", "x": [1, {"y": 2.5}]}')["x"][1]["y"] == 2.5
    assert (
        strict_json.closed('{"a": [1, 2], "b": {"c": "}"}, "d') == '{"a": [1, 2], "b": {"c": "}"}}'
    )


# OSU


def test_every_osu_table_of_a_file() -> None:
    found = read("osu_many.txt")
    by = {(s.operation, s.nbytes, s.window): s for s in found.samples}
    assert by["allreduce", 1024, 1].seconds == pytest.approx(27.4e-6)
    assert by["allreduce", 1024, 1].memory == "device"
    assert by["allreduce", 1024, 1].spread == pytest.approx(0.5 / 27.4 / 2)
    assert by["allreduce", 1024, 1].iterations == 1000
    assert by["allgather", 65536, 1].per_rank
    assert by["sendrecv", 2**20, 32].groups == 4
    assert by["sendrecv", 2**20, 32].seconds == pytest.approx(4 * 2**20 / 20e9)
    assert by["sendrecv", 4194304, 64].seconds == pytest.approx(2 * 4194304 / 24e9)
    assert by["barrier", 0, 1].seconds == pytest.approx(3.41e-6)
    assert by["sendrecv", 8, 1].seconds == pytest.approx(1.6e-6)  # OMB-Py
    overlapped = [s for s in found.samples if s.seconds == pytest.approx(4.38e-6)]
    assert len(overlapped) == 1  # of a non-blocking test the pure communication counts
    assert found.counts()["not part of a table"] == 0


def test_osu_prefixes_warnings_and_no_numbers() -> None:
    found = read("osu_prefixed.txt")
    assert [s.nbytes for s in found.samples] == [0, 1024]
    assert {s.groups for s in found.samples} == {None}  # multi latency does not say how many
    assert len(found.skipped) == 2


def test_given_supplies_what_a_log_leaves_out() -> None:
    found = read("osu_many.txt").with_facts(ranks=8, nodes=2)
    gathered = next(s for s in found.samples if s.operation == "allgather" and s.nbytes > 2**17)
    assert gathered.nbytes == 8 * 65536
    assert not gathered.per_rank
    assert gathered.ranks_per_node == 4
    pair = next(s for s in found.samples if s.operation == "sendrecv")
    assert pair.ranks == 2  # what the log does say stands


@pytest.mark.parametrize("flavour", ["MPI", "MPI-CUDA", "MPI-ROCM", "NCCL"])
@pytest.mark.parametrize(
    ("name", "operation"),
    [("Allreduce", "allreduce"), ("Allgather", "allgather"), ("Alltoall", "alltoall"),
     ("Broadcast", "broadcast"), ("Reduce", "reduce"), ("Reduce_scatter", "reduce_scatter"),
     ("Gather", "gather"), ("Scatter", "scatter")],
)  # fmt: skip
def test_osu_names(flavour: str, name: str, operation: str) -> None:
    text = f"# OSU {flavour} {name} Latency Test v5.6\n# Size  Avg Latency(us)\n8  1.5\n"
    (sample,) = logs.parse(text, "x").samples
    assert sample.operation == operation
    assert sample.memory == ("host" if flavour == "MPI" else "device")
    assert sample.library == ("nccl" if flavour == "NCCL" else "mpi")


# our own measurements


def test_our_own_measurement() -> None:
    found = read("measured.jsonl")
    first, second = found.samples
    assert first.seconds == 0.00011  # the median of three
    assert first.iterations == 3
    assert first.spread == pytest.approx(0.1 / 1.1)
    assert second.groups == 2
    assert found.machine == {"tool": "oracle 0.1.0", "date": "2026-11-21", "backend": "gloo",
                             "device": "cpu", "nodes": 1}  # fmt: skip
    assert not found.skipped


HEAD = '{"oracle-measurement": 1}\n'
ROW = '{"operation": "allreduce", "bytes": 8, "ranks": 2, "seconds": 1e-5}\n'


def test_a_measurement_that_was_killed_keeps_its_samples() -> None:
    found = logs.parse(HEAD + ROW + ROW[:30], "x")
    assert len(found.samples) == 1
    assert "cut off" in found.skipped[0][1]
    assert "no end mark" in found.skipped[1][1]
    ended = logs.parse(HEAD + ROW + '{"end": "incomplete", "why": "SIGTERM"}\n', "x")
    assert ended.counts() == {"the run did not finish: SIGTERM": 1}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("1e-5", "NaN", "not a number"),
        ("1e-5", "-1e-5", "above 0"),
        ("1e-5", "[]", "above 0"),
        ("1e-5", "true", "above 0"),
        ("8", "1e999", "too large"),
        ("8", '"8"', "`bytes`"),
        ('"ranks": 2', '"ranks": 2.5', "whole number"),
        ('"ranks": 2', '"ranks": 0', "whole number"),
        ('"ranks": 2', '"ranks": 2, "ranks": 4', "twice"),
        ('"ranks": 2, ', "", "missing"),
        ('"ranks"', '"rank"', "nobody knows"),
        ('"allreduce"', "7", "a word"),
        ("}", "}}", "not JSON"),
    ],
)
def test_a_measurement_is_refused_with_its_line(old: str, new: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        logs.parse(HEAD + ROW.replace(old, new) + ROW, "x")
    assert caught.value.line == 2


def test_another_version_of_our_measurements_is_refused() -> None:
    with pytest.raises(InputError, match="version 1"):
        logs.parse(HEAD.replace("1", "2"), "x")


# topologies


def test_topology_matrix() -> None:
    found = read("topo_matrix.txt")
    level, network = found.levels
    assert network["ports"] == 2
    # 12 links to each of three peers are more than a device has: they end at a switch
    assert (level["devices"], level["kind"], level["ports"]) == (4, "switch", 12)
    assert ("GPU0", "GPU1", "NV12") in found.links
    assert ("GPU0", "NIC1", "SYS") in found.links
    assert found.machine["network ports"] == 2


def test_a_matrix_of_pairs_is_a_mesh() -> None:
    rows = ["GPU0 GPU1 GPU2 GPU3", "GPU0 X NV2 NV2 NV2", "GPU1 NV2 X NV2 NV2",
            "GPU2 NV2 NV2 X NV2", "GPU3 NV2 NV2 NV2 X"]  # fmt: skip
    (level,) = logs.parse("\n".join(rows), "x").levels
    assert (level["kind"], level["ports"]) == ("mesh", 6)
    (level,) = logs.parse("\n".join(rows).replace("NV2", "PHB"), "x").levels
    assert "no NVLink" in level["note"]


def test_nccl_topology() -> None:
    found = read("nccl_topology.xml")
    node, network = found.levels
    assert (node["devices"], node["kind"], node["ports"], node["bandwidth"]) == (
        2, "switch", 12, "20 GB/s")  # fmt: skip
    assert (network["ports"], network["bandwidth"]) == (1, "25 GB/s")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('<!DOCTYPE s [<!ENTITY a "b">]><system>&a;</system>', "DTD"),
        ('<?xml version="1.0"?><!DOCTYPE s SYSTEM "file:///etc/passwd"><system/>', "DTD"),
        ("<system><cpu>", "not whole XML"),
        ("<system/>", "no <gpu>"),
        ("<system>" + "<pci>" * 100 + "</pci>" * 100 + "</system>", "deep"),
        ('<?xml version="1.0" encoding="klingon"?><system/>', "XML"),
    ],
)
def test_xml_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        logs.parse(text, "x")


def test_slurm_tree_and_blocks() -> None:
    for name, nodes in (("topology.conf", 7), ("topology.yaml", 8)):
        found = read(name)
        assert [(level["name"], level["nodes"]) for level in found.levels] == [
            ("leaf", 4), ("switches-2", nodes)]  # fmt: skip
        assert ("leaf0", "spine", "") in found.links
        assert ("n03", "leaf0", "") in found.links
    assert read("topology.conf").levels[0]["note"] == "uneven: 3 to 4 nodes"
    assert read("topology.yaml").skipped == ((11, "a topology that is not the default"),)
    (blocks,) = read("blocks.conf").levels
    assert (blocks["nodes"], blocks["block sizes"]) == (18, [18, 36])


def test_host_lists() -> None:
    expand = Hosts("x").expand
    assert expand("tux[08-10,12],login", 1) == ["tux08", "tux09", "tux10", "tux12", "login"]
    assert expand("r[0-1]n[1-2]", 1) == ["r0n1", "r0n2", "r1n1", "r1n2"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("SwitchName=a Nodes=n[0-999999999]", "more than"),
        ("SwitchName=a Nodes=n[3-1]", "backwards"),
        ("SwitchName=a Nodes=n[1", "never closed"),
        ("SwitchName=a Nodes=n[x]", "not a range"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "above itself"),
        ("SwitchName=a Switches=b", "no switch of that name"),
        ("SwitchName=a Nodes=x\nSwitchName=a Nodes=y", "defined twice"),
        ("BlockSizes=4", "no switch and no block"),
        ("- topology: a\n  flat: true", "flat"),
        ("- topology: a\n  tree: &x\n    switches: *x", "anchors"),
        ("topology: a\ntree: 1", "list of topologies"),
    ],
)
def test_slurm_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        logs.parse(text, "x")


# what is not ours


@pytest.mark.parametrize(
    "text", ["", "  \n", "hello", "a,b\n1,2\n", "{}", "[]", "name: x\n", "<html>"]
)
def test_what_is_nothing_of_ours_is_refused(text: str) -> None:
    with pytest.raises(InputError):
        logs.parse(text, "x")


def test_files_that_are_none(tmp_path: Path) -> None:
    for path, message in ((tmp_path, "regular"), (tmp_path / "none", "no such")):
        with pytest.raises(InputError, match=message):
            logs.read(path)
    binary = tmp_path / "b"
    binary.write_bytes(b"\x7fELF\0\0")
    with pytest.raises(InputError, match="binary"):
        logs.read(binary)
    with pytest.raises(InputError):
        logs.read("a\0b")


def test_the_name_of_a_file_says_nothing(tmp_path: Path) -> None:
    for name in ("osu_many.txt", "measured.jsonl", "nccl_killed.json", "topology.conf"):
        copy = tmp_path / "core.xml"
        copy.write_bytes((LOGS / name).read_bytes())
        assert logs.read(copy).format == read(name).format


def test_encodings() -> None:
    text = (LOGS / "nccl_old_warnings.txt").read_text()
    for encoding in ("utf-8-sig", "utf-16", "latin-1"):
        assert len(logs.parse(text.encode(encoding), "x").samples) == 12
