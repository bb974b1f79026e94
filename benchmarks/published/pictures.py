"""Images a second of convolutional networks under data parallelism."""

from __future__ import annotations

from collections.abc import Iterator

from benchmarks.published.table import Case, Row, number, table

CNN = {"ResNet-50": "resnet50", "ResNet-50 v1.5": "resnet50", "ResNet-152": "resnet152",
       "ResNet-50 v1.5 (MLPerf)": "resnet50",
       "VGG16": "vgg16", "AlexNet": "alexnet-tf", "InceptionV3": "inception-v3"}  # fmt: skip
CARDS = {"P100-SXM2": "dgx-1-p100", "V100-SXM2-16GB": "v100-ib100", "V100-SXM2-32GB": "dgx-1-v100",
         "V100-SXM3": "dgx-1-v100", "V100": "dgx-1-v100", "Nvidia Tesla V100": "dgx-1-v100",
         "A100-SXM4-80GB": "dgx-a100", "A100-SXM-80GB": "dgx-a100", "DGX A100 80GB": "dgx-a100",
         "A100-SXM4-40GB": "dgx-a100-40gb", "A100-SXM-40GB": "dgx-a100-40gb"}  # fmt: skip
HALF = ("AMP", "mixed", "FP16")
# the first word that a row's framework contains, in lower case; entries of MLPerf list all
# containers of a submission, of which ResNet ran in MXNet's
SOFTWARE = {"tf_cnn_benchmarks": "tf-cnn-benchmarks", "ngc tensorflow 1": "horovod-tensorflow",
            "mxnet": "mxnet", "paddle": "plain", "oneflow": "plain",
            "pytorch": "pytorch-ddp", "tensorflow": "horovod-tensorflow",
            "tf2": "horovod-tensorflow"}  # fmt: skip


def software(row: Row) -> str:
    """What ran a row, by the name of its spec; NVIDIA's MLPerf entries where nothing is said."""
    said = row["framework"].lower()
    name = next((SOFTWARE[word] for word in SOFTWARE if word in said), "mxnet")
    return "mlperf-resnet" if name == "mxnet" and "MLPerf" in row["model"] else name


@table("cnn", "cnn_data_parallel*.csv", "MAPE ≤ 12 % up to 64 GPUs")
def cnn(found: list[Row]) -> Iterator[Case]:
    """Up to 64 GPUs, where gradients are reduced among the GPUs themselves."""
    for row in found:
        name, card = (
            CNN.get(row["model"]),
            next((c for c in CARDS if row["gpu"].removeprefix("NVIDIA ").startswith(c)), None),
        )
        gpus = number(row, "gpus")
        try:
            each, rate = int(float(row["batch_per_gpu"])), float(row["images_per_s"])
        except ValueError:
            continue
        if name is None or card is None or not 0 < gpus <= 64 or "XLA" in row["variable_update"]:
            continue
        served = "parameter" in row["variable_update"] and not (
            "replicated NCCL" in row["variable_update"] and name in ("alexnet-tf", "vgg16")
        )
        if served and gpus > 1:
            continue  # a parameter server on the host's CPUs is another machine
        text = row["precision"]
        precision = "fp16" if any(h in text for h in HALF) else "tf32" if text == "TF32" else "fp32"
        yield Case((row["system"], row["model"], each, precision), name, CARDS[card],
                   f"data:{gpus}" if gpus > 1 else "serial", each * gpus, each * gpus / rate,
                   {"precision": precision, "optimizer": "momentum"},
                   software=software(row))  # fmt: skip


@table("cnn_one_gpu", "cnn_data_parallel*.csv", "median ≤ 10 %")
def cnn_one_gpu(found: list[Row]) -> Iterator[Case]:
    """Those of them that ran on one GPU."""
    yield from (case for case in cnn(found) if case.plan == "serial")
