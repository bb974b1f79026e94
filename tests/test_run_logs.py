"""Logs of runs are read by their content, without their warm-up; what is none is refused, soon."""

from __future__ import annotations

import gzip
import random
import sqlite3
import tracemalloc
from pathlib import Path

import pytest
import run_logs as made
from test_fuzz_readers import mutated

from oracle.readers import runs
from oracle.readers.logs import InputError
from oracle.readers.runs import table
from oracle.readers.runs.kernel_names import group_of, operation_of
from oracle.readers.runs.steady import steady, timing
from oracle.spec.document import SpecError
from oracle.spec.files import unpacked
from oracle.spec.strict_json import Unfit, elements

TEXTS = {
    "megatron": (made.MEGATRON, 1.0), "torchtitan": (made.TORCHTITAN, 1 / 8000),
    "nemo": (made.NEMO, 1.0), "mlperf": (made.MLPERF, 2.0), "blocks": (made.BLOCKS, 2.0),
    "step": (made.STEP, 0.1), "run": (made.RUN, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", TEXTS)
def test_a_log_says_the_median_of_its_steady_steps(name: str) -> None:
    text, seconds = TEXTS[name]
    found = runs.parse(text.encode(), "log")
    assert found.step is not None
    assert found.step.seconds == pytest.approx(seconds)
    assert 0 <= found.step.spread < 0.03


def test_a_log_says_how_it_was_run() -> None:
    said = runs.parse(made.MEGATRON.encode(), "log").settings
    assert said == {"devices": 16, "tensor": 2, "sequence": 1024, "batch": 64}
    assert runs.parse(made.NEMO.encode(), "log").settings["batch"] == 64
    assert runs.parse(made.TORCHTITAN.encode(), "log").settings["token"] == 1
    totals = runs.parse(made.TOTALS.encode(), "log")
    assert (totals.plan, totals.settings["batch"]) == ("data:8", 64)


@pytest.mark.parametrize("form", ["trace", "plain", "nsight"])
def test_a_trace_tells_kernels_by_group_messages_and_what_shows_of_them(
    form: str, tmp_path: Path
) -> None:
    path = tmp_path / "run.bin"
    written = made.nsight(path) if form == "nsight" else made.trace(path, packed=form == "trace")
    found = runs.read(written)
    assert found.step is not None
    assert found.step.seconds == pytest.approx(0.1, rel=1e-6)
    assert found.step.count == made.STEPS - 1
    assert {name: each.seconds for name, each in found.kernels.items()} == pytest.approx(made.BUSY)
    assert {op: each.seconds for op, each in found.messages.items()} == pytest.approx(
        {"allreduce": 0.03})  # fmt: skip
    assert found.exposed is not None
    assert found.exposed.seconds == pytest.approx(made.SHOWN)
    assert found.settings.get("devices", 8) == 8


def test_a_trace_that_was_cut_off_tells_what_it_has(tmp_path: Path) -> None:
    found = runs.read(made.trace(tmp_path / "t.json", packed=False, cut=-100))
    assert found.kernels["conv"].seconds == pytest.approx(0.02)


@pytest.mark.parametrize(("name", "group"), [
    ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>", "gemm"),
    ("Cijk_Alik_Bljk_SB_Bias_AS_SAV_UserArgs_MT64x16x32", "gemm"),
    ("nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNN", "gemm"),
    ("sm80_xmma_wgrad_implicit_gemm_indexed_tf32f32", "conv"),
    ("void cudnn::bn_bw_1C11_kernel_new<float, float, float2, 128, true, 1>", "memory"),
    ("void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel", "attention"),
    ("void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add>", "memory"),
    ("void at::native::multi_tensor_apply_kernel<TensorListMetadata>", "update"),
    ("Memcpy DtoD (Device -> Device)", "memory"), ("never_heard_of_it", "memory"),
])  # fmt: skip
def test_kernels_are_known_by_name(name: str, group: str) -> None:
    assert (group_of(name), operation_of(name)) == (group, None)


@pytest.mark.parametrize(("name", "operation"), [
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long)", "allreduce"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reduce_scatter"),
    ("ncclDevKernel_AllGather_RING_LL", "allgather"), ("ncclDevKernel_SendRecv", "sendrecv"),
    ("ncclDevKernel_Generic", ""),
])  # fmt: skip
def test_messages_are_known_by_name(name: str, operation: str) -> None:
    assert operation_of(name) == operation


def test_warm_up_is_left_out_and_nothing_else() -> None:
    assert steady([9.0, 3.0, 1.0, 1.0, 1.0, 1.0]) == [1.0] * 4
    assert steady([1.0, 1.0, 1.0, 9.0]) == [1.0, 1.0, 9.0]  # a checkpoint: the median bears it
    assert steady([float("nan"), 2.0]) == [2.0]
    assert timing([]) is None


def test_layers_totals_and_steps_are_told_by_their_columns() -> None:
    layers = runs.parse(made.LAYERS.encode(), "log").layers
    forward, backward, update = layers["conv"]
    assert (forward.seconds, backward.seconds, update.seconds) == pytest.approx(
        (1.1e-3, 2e-3, 1e-6))  # fmt: skip
    assert forward.spread == pytest.approx(1.4826 * 0.1 / 1.1)
    totals = runs.parse(made.TOTALS.encode(), "log").totals
    assert {name: each.seconds for name, each in totals.items()} == pytest.approx(
        {"forward": 0.1, "backward": 0.2, "update": 0.01})  # fmt: skip


def test_what_oracle_measured_of_a_plan_is_a_log_too() -> None:
    found = runs.parse(made.RUN.encode(), "log")
    assert (found.plan, found.settings) == ("data:2,overlap=off", {"batch": 64, "devices": 2})
    assert found.totals["backward"].seconds == 0.4
    assert found.messages["allreduce"].seconds == 0.3
    assert found.exposed is None
    with pytest.raises(InputError, match="no measurement of one plan"):
        runs.parse(made.RUN.replace('"plans": [', '"plans": [{}, ').encode(), "log")


def two_devices(path: Path) -> bytes:
    made.nsight(path)
    with sqlite3.connect(path) as found:
        found.execute("UPDATE CUPTI_ACTIVITY_KIND_KERNEL SET deviceId = start % 2 + start / 9")
    return path.read_bytes()


@pytest.mark.parametrize(("data", "why"), [
    (b"", "empty"), (b"hello\n", "no log of a training run"), (b"step\nsoon\n", "is no time"),
    (b"forward,backward\n", "no time"), (b'{"traceEvents": []}', "no step is marked"),
    (b"\x1f\x8bnonsense", "gzip file is damaged"),
    (gzip.compress(b"x" * 99, mtime=0)[:-9], "damaged"),
    (b"SQLite format 3\0" + b"\0" * 500, "cannot be read"),
    (b'{"traceEvents": [{"ph": "X", nonsense', "not JSON at character"),
])  # fmt: skip
def test_what_is_no_log_of_a_run_is_refused_in_words(data: bytes, why: str) -> None:
    with pytest.raises(InputError, match=why):
        runs.parse(data, "log")


def test_kernels_of_several_devices_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="devices in one export"):
        runs.parse(two_devices(tmp_path / "run"), "log")


def test_what_unpacks_to_more_than_a_bound_is_refused() -> None:
    bomb = gzip.compress(bytes(10_000))
    assert len(unpacked(bomb * 2, "bomb")) == 20_000
    with pytest.raises(SpecError, match="unpacks to more than 15000 bytes"):
        unpacked(bomb * 2, "bomb", 15_000)


def test_elements_of_a_list_come_one_by_one() -> None:
    assert list(elements('{"a": [1, {"b": [2]}, "]"], "c": [3]}')) == [1, {"b": [2]}, "]"]
    assert list(elements('[1, 2, {"a": 3')) == [1, 2]  # cut off
    with pytest.raises(Unfit):
        list(elements("[1, nonsense, 2, 3]"))
    with pytest.raises(Unfit):
        list(elements("[" * 100_000))


def test_nothing_but_a_refusal_comes_of_damaged_logs(tmp_path: Path) -> None:
    seeds = [text.encode() for text, _ in TEXTS.values()]
    seeds += [made.LAYERS.encode(), made.TOTALS.encode(), two_devices(tmp_path / "b")]
    seeds += [made.nsight(tmp_path / "a").read_bytes(), made.trace(tmp_path / "t").read_bytes()]
    seeds += [made.trace(tmp_path / "p", packed=False).read_bytes()]
    dice = random.Random(1)
    for number in range(600):
        data = mutated(seeds[number % len(seeds)], dice)
        try:
            found = runs.parse(data, "log")
        except SpecError:
            continue
        assert found.step is None or 0 <= found.step.seconds < 1e10


def test_what_may_be_a_log_is_asked_without_a_list_of_its_lines() -> None:
    """A million empty lines were 60 MB of list before the first was looked at."""
    text = "\n" * 1_000_000
    tracemalloc.start()
    assert not table.recognises(text)
    assert tracemalloc.get_traced_memory()[1] < 4e6
    tracemalloc.stop()
    assert table.recognises("\n # plan: data:2\n\t\n step\n1\n")
    assert not table.recognises("# step\n# seconds")
