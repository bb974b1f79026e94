"""Training of three-dimensional and other scientific networks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.published.networks import cosmic, efficientnet, resnext, unet
from benchmarks.published.table import Case, Row, number, table

# the first words of what a row calls its card, and the shipped system it is in
CARDS = {"V100-SXM2-16GB": "v100-ib100", "V100-SXM2-32GB": "dgx-1-v100",
         "Tesla V100-SXM2-32GB": "dgx-1-v100", "V100-32GB": "dgx-1-v100",
         "V100 32GB SXM3": "dgx-2", "A100-SXM4-80GB": "dgx-a100", "A100-SXM-80GB": "dgx-a100",
         "A100-SXM4-40GB": "dgx-a100-40gb", "A100 40GB (DGX A100)": "dgx-a100-40gb",
         "A100 40GB PCIe": "gpu-server"}  # fmt: skip
ALONE = {"Quadro RTX6000": "quadro-rtx-6000", "GeForce RTX 2080 Ti": "rtx-2080-ti"}
NETWORKS: dict[str, Any] = {
    "UNet3D-Medical (TF1, BraTS19)": "unet3d-brats",
    "nnU-Net 2D (PyTorch)": "nnunet-2d",
    "nnU-Net 3D (PyTorch)": "nnunet-3d",
    "V-Net (TF1, 32^3)": "vnet",
    "UNet3D (MLPerf Training, KiTS19)": "unet3d-kits19",
    "UNet3D-cosmo (NERSC, 64^3 crop)": cosmic(),
    "resnext101-32x4d": resnext((3, 4, 23, 3), groups=32, width=4),
    "efficientnet-b0": efficientnet(1.0, 1.0, 224),
    "efficientnet-v1-b0": efficientnet(1.0, 1.0, 224),
    "efficientnet-widese-b0": efficientnet(1.0, 1.0, 224, wide=True),
    "efficientnet-b4": efficientnet(1.4, 1.8, 380),
    "efficientnet-v1-b4": efficientnet(1.4, 1.8, 380),
}
DEEP = {"Task002_Heart": (1, 2), "Task003_Liver": (1, 3), "Task005_Prostate": (2, 3)}
# RMSprop with momentum has two numbers a weight, as Adam has
OPTIMIZERS = {"adam": "adam", "rmsprop": "adam", "nag": "momentum", "sgd": "momentum"}


def network(row: Row) -> Any:
    """The network of a row: a shipped name, or a spec made for its patch; None where unknown."""
    extents = tuple(int(n) for n in row["input_shape"].split("x")) if (
        row["input_shape"].replace("x", "").isdigit()
    ) else ()  # fmt: skip
    for task, (channels, classes) in DEEP.items():
        if task in row["model"]:
            return unet(extents[1:], channels, classes, deep=True)
    if row["model"].startswith("UNet3D (EMBL"):
        return unet(extents[1:], 1, 1, norm="", features=(32, 64, 128, 256, 512), pools=True)
    return NETWORKS.get(row["model"])


def alone(device: str) -> dict[str, Any]:
    """A system of one device."""
    host = {"name": "host", "devices": 1, "link": "pcie", "bandwidth": "16 GB/s",
            "latency": "1 us", "source": "nothing to talk to"}  # fmt: skip
    return {"name": device, "device": device, "levels": [host], "source": "one card"}


def machine(row: Row) -> Any:
    """The system of a row."""
    if row["system"].startswith("Perlmutter"):  # a tutorial of November 2021 ran on its first phase
        return "perlmutter-2021" if "sc21" in row["source"] else "perlmutter"
    for words, device in ALONE.items():
        if row["gpu"].startswith(words):
            return alone(device)
    return next((CARDS[words] for words in CARDS if row["gpu"].startswith(words)), None)


def software(row: Row) -> str:
    """What ran it."""
    framework, flags, precision = row["framework"], row["flags"], row["precision"]
    if framework.startswith("MXNet"):
        return "mlperf-unet3d"
    if framework.startswith("TensorFlow"):
        return "tensorflow-xla" if flags.startswith("XLA") else "horovod-tensorflow"
    last = "channels_last" in flags or ("NHWC for AMP" in flags and precision.startswith("amp"))
    name = "pytorch-channels-last" if last else "pytorch-channels-first"
    # NVIDIA's apex has an Adam of one kernel; nnU-Net takes it from its second release on
    later = framework.startswith("PyTorch NGC 2") and not framework.startswith("PyTorch NGC 20.1")
    apex = "APEX" in flags or (later and row["model"].startswith("nnU-Net"))
    # cuDNN up to 8.2, as its best practices for 3-D convolutions say
    old = any(word in framework for word in ("NGC 20", "NGC 21.0", "cuDNN 8.1", "1.7.1"))
    changes = ["kernels.optimizer=fused"] * apex + ["convolution.strided_volumes=vector"] * old
    changes += ["rebased=false"] * ("nvfuser" in flags)  # NVIDIA's own norm returns no view
    return ",".join([name, *changes])


def plan(row: Row) -> str:
    """How it was split."""
    gpus = number(row, "gpus")
    spatial = 8 if "spatial" in row["parallelism"] else 1
    words = [f"data:{gpus // spatial}"] if gpus > spatial else []
    # slabs along the depth down to 32 voxels, statistics of whole samples: SpatialNetwork and
    # GroupInstanceNorm of its model/unet3d.py
    slabs = [f"spatial:{spatial}x1x1,least=32,norms=shared"] * (spatial > 1)
    return " ".join(words + slabs) or "serial"


@table("science3d", "science3d*.csv", "MAPE ≤ 18 %")
def science(found: list[Row]) -> Iterator[Case]:
    """All that says which network it is; video networks, bound by decoding, are left out."""
    for row in found:
        model, system = network(row), machine(row)
        if model is None or system is None:
            continue
        text = row["precision"]
        precision = next(p for p in ("tf32", "fp32", "fp16") if p in text.replace("amp-", ""))
        precision = "fp16" if "fp16" in text else precision
        optimizer = next(OPTIMIZERS[o] for o in OPTIMIZERS if row["optimizer"].startswith(o))
        said = f"{software(row)},tf32=none" if "TF32 off" in text else software(row)
        seconds = float(row["step_ms"]) / 1000 if row["step_ms"] else float("inf")
        yield Case(
            (row["model"], precision, row["framework"]), model, system, plan(row),
            number(row, "global_batch"), seconds,
            {"precision": precision, "optimizer": optimizer}, software=said,
        )  # fmt: skip
