"""CUDA graphs where MLPerf's submissions replay them, against what their logs have."""

from __future__ import annotations

import pytest

import oracle
from benchmarks.published.nemo import cluster

LORA = "llama2-70b,train=lora:16:attention,sequence=8192"


@pytest.mark.parametrize(("nodes", "launched", "replayed"), [
    # mlcommons/training_results_v4.0, @6fe9543 NVIDIA eos_n8 and eos_n128, in mlperf_llm.csv;
    # v4.1, @b87b9e396, the same plans with LAYER_CUDA_GRAPH=1: `tracked_stats` of result_0.txt
    (8, 0.6374, 8 / 14.78), (128, 0.675, 128 / 233.3),
])  # fmt: skip
def test_graphs_of_layers_take_away_what_a_host_needs(
    nodes: int, launched: float, replayed: float
) -> None:
    plan = f"data:{nodes},zero=1 context:2 tensor:4,sequence=on"
    for software, seconds in (("mlperf-nemo", launched), ("mlperf-nemo,graphs=attn+mlp", replayed)):
        found = oracle.estimate(LORA, cluster(8 * nodes), plan, batch=nodes, precision="fp8",
                                software=software, optimizer="adam")  # fmt: skip
        assert found.seconds[0] == pytest.approx(seconds, rel=0.1), software


@pytest.mark.parametrize(("system", "devices", "each", "milliseconds"), [
    # from `epoch_start` to `eval_start` over the steps between, the median of result_1.txt:
    # mlcommons/hpc_results_v1.0, @2ba081f, and v2.0, @ad77f6c
    ("dgx-a100", 512, 2, 72.6), ("dgx-a100", 2048, 1, 54.0), ("dgx-a100", 2048, 1, 47.8),
    ("juwels-booster", 1024, 1, 75.0), ("juwels-booster", 2048, 1, 76.7),
])  # fmt: skip
def test_deepcam_replays_whole_steps(
    system: str, devices: int, each: int, milliseconds: float
) -> None:
    """Within its interval; launched one by one its kernels take 180 ms."""
    one_by_one, replayed = (
        oracle.estimate("deepcam", cluster(devices, "", system), f"data:{devices}", devices * each,
                        precision="fp16", optimizer="lamb", software=software)
        for software in ("pytorch-channels-last", "mlperf-deepcam")
    )  # fmt: skip
    said = replayed.to_dict()["plans"][0]["seconds"]
    assert said["low"] < milliseconds / 1000 < said["high"]
    assert one_by_one.seconds[0] > 2 * milliseconds / 1000
