"""Small logs of runs, as the tests make them: traces, exports of Nsight Systems, lines of text."""

from __future__ import annotations

import gzip
import json
import sqlite3
from pathlib import Path
from typing import Any

STEPS = 5
# name, when it begins in a step of 100 ms, how long it takes, ms
KERNELS = [
    ("sm80_xmma_fprop_implicit_gemm_f16", 0, 20), ("ampere_sgemm_128x64_nn", 20, 10),
    ("vectorized_elementwise_kernel<4>", 30, 10), ("flash_fwd_kernel", 40, 5),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 43, 30),
    ("multi_tensor_apply_kernel", 80, 4),
]  # fmt: skip
BUSY = {"conv": 0.02, "gemm": 0.01, "memory": 0.01, "attention": 0.005, "update": 0.004}
SHOWN = 0.028  # of 30 ms, of which the attention kernel covers 2


def begins(step: int) -> float:
    """When a step begins, ms: the first one warms up and takes three times as long."""
    return 1000.0 + 100 * step + 200 * (step > 0)


def trace(path: Path, *, world: int = 8, packed: bool = True, cut: int | None = None) -> Path:
    """As the PyTorch profiler writes it."""
    events: list[dict[str, Any]] = [{"ph": "M", "name": "process_name", "pid": 1, "args": {}}]
    for step in range(STEPS):
        last = begins(step + 1) - begins(step)
        events.append({"ph": "X", "cat": "user_annotation", "name": f"ProfilerStep#{step}",
                       "ts": begins(step) * 1e3, "dur": last * 1e3})  # fmt: skip
        events += [
            {"ph": "X", "cat": "kernel", "name": name, "ts": (begins(step) + at) * 1e3,
             "dur": took * 1e3, "args": {"device": 0, "stream": 7}}
            for name, at, took in KERNELS
        ]  # fmt: skip
    head = {"schemaVersion": 1, "distributedInfo": {"rank": 0, "world_size": world}}
    data = json.dumps({**head, "traceEvents": events}).encode()[:cut]
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def nsight(path: Path) -> Path:
    """As `nsys export --type sqlite` writes it, with no more columns than are read."""
    found = sqlite3.connect(path)
    found.execute("CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL)")
    found.execute("CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INT, end INT, deviceId INT, "
                  "demangledName INT, shortName INT)")  # fmt: skip
    found.execute("CREATE TABLE NVTX_EVENTS (start INT, end INT, text TEXT, textId INT)")
    names = dict(enumerate(name for name, _, _ in KERNELS))
    found.executemany("INSERT INTO StringIds VALUES (?, ?)", names.items())
    for step in range(STEPS):
        last = begins(step + 1)
        found.execute("INSERT INTO NVTX_EVENTS VALUES (?, ?, ?, NULL)",
                      (int(begins(step) * 1e6), int(last * 1e6), f"step {step}"))  # fmt: skip
        found.execute("INSERT INTO NVTX_EVENTS VALUES (?, NULL, 'mark 7', NULL)", (1,))
        found.executemany(
            "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (?, ?, 0, ?, ?)",
            [(int((begins(step) + at) * 1e6), int((begins(step) + at + took) * 1e6), i, i)
             for i, (_, at, took) in enumerate(KERNELS)],
        )  # fmt: skip
    found.commit()
    found.close()
    return path


MEGATRON = """\
  world_size ...................................... 16
  tensor_model_parallel_size ...................... 2
  seq_length ...................................... 1024
""" + "".join(
    f" [2026-04-06 02:59:36] iteration {i:8}/ 100 | consumed samples: {64 * i} | elapsed time per "
    f"iteration (ms): {ms} | throughput per GPU (TFLOP/s/GPU): 239.8 | global batch size: {batch} "
    "| lm loss: 1.8E+00 |\n"
    for i, (ms, batch) in enumerate([(9000.0, 32), (500.0, 32), (4000.0, 64), (1010.0, 64),
                                     (1000.0, 64), (990.0, 64), (1000.0, 64)])
)  # fmt: skip
TORCHTITAN = "".join(
    f"[rank{rank}]:[titan] 2026-02-24 19:46:17,508 - root - INFO - \x1b[31mstep: {step:2}  "
    f"\x1b[32mloss:  7.62  \x1b[33mmemory: 66.91GiB(37.51%)  tps: {tps:,}  tflops: 314.71  "
    "mfu: 13.99%\n"
    for step, tps in [(1, 900), (10, 8000), (20, 8100), (30, 8000), (40, 7900)] for rank in range(2)
)  # fmt: skip
NEMO = "".join(
    f"Training epoch 0, iteration {i}/149 | consumed_samples: 121 | global_batch_size: 64 | "
    f"global_step: {i} | reduced_train_loss: 1.233 | train_step_timing in s: {s}\r"
    for i, s in enumerate([3.0, 1.0, 1.01, 0.99, 1.0]) for _ in range(2)
)  # fmt: skip
MLPERF = ':::MLLOG {"key": "global_batch_size", "value": 256, "time_ms": 1}\n' + "".join(
    f'0: :::MLLOG {{"key": "tracked_stats", "value": {{"throughput": {rate}}}, "time_ms": {i}}}\n'
    for i, rate in enumerate([20.0, 128.0, 129.0, 128.0, 127.0])
)
BLOCKS = ':::MLLOG {"key": "global_batch_size", "value": 256, "time_ms": 1}\n' + "".join(
    f':::MLLOG {{"key": "block_stop", "time_ms": {2000 * i}, "metadata": {{"samples_count": '
    f"{256 * i}}}}}\n" for i in range(6)
)  # fmt: skip
RUN = json.dumps({
    "schema": 1, "measured": True, "model": "resnet50", "plans": [{
        "plan": "data:2,overlap=off", "seconds": {"iteration": 1.0}, "memory": {"total": 1.0},
        "compute": {"forward": 0.2, "backward": 0.4, "update": 0.1},
        "exchange": [{"what": "data: gradients", "op": "allreduce", "seconds": 0.3}],
        "measured": {"model": "resnet50", "batch": 64, "devices": 2, "each": [1.0, 1.01, 0.99]},
    }],
})  # fmt: skip
LAYERS = "layer,forward_ms,backward (ms),update\nconv,1.0,2.0,1e-6\nconv,1.2,2.0,1e-6\n"
TOTALS = "# plan: data:8\n# batch: 64\nforward,backward,update\n0.1,0.2,0.01\n0.1,0.2,0.01\n"
STEP = "step_ms\n900\n101\n100\n99\n"
