"""Kernel timings as CSV: tables of DeepBench, of aiconfigurator, and our own, known by columns.

    m, n, k, *_ms                                   matrix products (both sources)
    w, h, c, n, k, s_filter_w, …, fwd_ms, bwd_*_ms  DeepBench's convolutions, three timings a row
    batch, seq, heads, kv_heads, head_dim, *_ms     attention, queries and keys equally many
    dtype, m, n, k, ms                              of 8 or 4 bits: a cast of A, then the product
    attn_dtype, batch_size, isl, num_heads, …, ms   attention as servers of models time it
    mla_dtype, num_heads, batch_size, isl, ms       latent attention, heads of 128 + 64 channels
    kernel_source, seq_len, d_state, nheads, …, ms  a Mamba-2 layer's scan and short convolution
    moe_dtype, num_tokens, hidden_size, topk, …     both products of a layer of experts, with the
                                                    copies between them, on one of several devices
    op, in_channels, input_shape_ncdhw, time_ms, …  layers of a framework, forward: convolutions
                                                    of planes and volumes, norms, pools
    family, precision, part, shape, seconds         ours; a shape is "m=1024 n=4096 k=4096"

DeepBench's inference rows are other kernels (int8, padded, another library) and are skipped.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from oracle.readers.logs import InputError
from oracle.spec.files import LOG, csv_of, read_text
from oracle.spec.precision import NARROW, PRECISIONS

# the numbers of each family's shape, in order; a convolution's boxes are depth, height, width
SHAPES: dict[str, tuple[str, ...]] = {
    "gemm": ("m", "n", "k", "count"),
    "conv": (
        "batch", "channels", "filters", "out_depth", "out_height", "out_width",
        "window_depth", "window_height", "window_width",
        "stride_depth", "stride_height", "stride_width", "groups",
    ),
    "attention": ("batch", "heads", "kv_heads", "queries", "keys", "width", "causal"),
    "stream": ("bytes",),
    "norm": ("bytes", "elements", "blocks"),
    "pool": ("bytes", "elements", "blocks"),
    "conv1d": ("bytes",),
    "scan": ("batch", "tokens", "heads", "width", "state", "groups", "chunk"),
    "experts": ("tokens", "hidden", "ffn", "visits", "experts", "devices", "gated"),
}  # fmt: skip
SHAPES |= {"linear": SHAPES["gemm"], "latent": SHAPES["attention"]}
# families of convolutions beside that of dense planes
SHAPES |= dict.fromkeys(("conv3d", "grouped", "depthwise"), SHAPES["conv"])
PARTS = {
    "gemm": ("",),
    "conv": ("forward", "data", "weight"),
    "attention": ("forward", "backward"),
    "stream": ("",),
    "norm": ("", "forward", "backward"),
    "pool": ("", "forward", "backward"),
    "conv1d": ("",),
    "scan": ("",),
    "experts": ("",),
    "linear": ("",),
    "latent": ("forward", "backward"),
}
PARTS |= dict.fromkeys(("conv3d", "grouped", "depthwise"), PARTS["conv"])
DEFAULTS = {"count": 1.0, "groups": 1.0, "causal": 1.0, "devices": 1.0, "gated": 1.0} | {
    f"{box}_{axis}": 1.0 for box in ("out", "window", "stride") for axis in ("depth", "height")
}
SAMPLE_CHANNELS = 4  # at most, of a network's samples: sound has 1, an image 3 or 4
FLAGS = ("causal", "gated")  # numbers of a shape that may be 0
LATENT = (192.0 + 128.0) / 2  # channels of DeepSeek's heads: the mean of keys' and values'
# visits of a token and experts of NVIDIA's Nemotron 3, whose experts square what is above zero and
# have no gate (their configurations on huggingface.co); all other mixtures timed have one
UNGATED = ((22.0, 512.0), (6.0, 128.0))
SCALES = {"ms": 1e-3, "us": 1e-6, "s": 1.0, "seconds": 1.0}


@dataclass(frozen=True, slots=True)
class Kernel:
    """One measured kernel: its family, its local shape as `SHAPES` orders it, and seconds."""

    family: str
    precision: str
    shape: tuple[float, ...]
    seconds: float
    part: str = ""
    device: str = ""  # as the file calls it
    where: str = ""  # file:line


@dataclass(frozen=True, slots=True)
class KernelReading:
    """The kernels of a file of timings, and the rows that were skipped, with their reasons."""

    kernels: tuple[Kernel, ...]
    skipped: tuple[tuple[int, str], ...]
    format: str

    @property
    def devices(self) -> tuple[str, ...]:
        return tuple(sorted({kernel.device for kernel in self.kernels}))


def read(path: str | Path, device: str = "") -> KernelReading:
    """Return the kernels of a file, of devices whose name contains `device`."""
    text = read_text(path, "table of kernels", LOG, errors="replace")
    return parse(text, Path(path).name, device)


def parse(text: str, name: str = "kernels.csv", device: str = "") -> KernelReading:
    """Return the kernels of CSV text; `name` precedes the line number in `Kernel.where`."""
    remarks = 0
    while text.startswith("#"):
        text, remarks = text.partition("\n")[2], remarks + 1
    names, rows = csv_of(text, name)
    columns = {column.strip().lower() for column in names}
    form = next((form for form in FORMATS if form[1] <= columns), None)
    if form is None:
        formats = "; ".join(
            f"{title}: {', '.join(sorted(required))}" for title, required, _ in FORMATS
        )
        raise InputError(
            name, 1, "no table of kernel timings has these columns", f"known are {formats}"
        )
    title, _, row_kernels = form
    kernels: list[Kernel] = []
    skipped: list[tuple[int, str]] = []
    for line, row in ((line + remarks, row) for line, row in rows):
        cells = dict.fromkeys(columns, "") | {k.strip().lower(): v.strip() for k, v in row.items()}
        try:
            row_list = list(row_kernels(cells, f"{name}:{line}"))
        except (ValueError, KeyError) as error:
            skipped.append((line, str(error).strip("'\"")))
            continue
        kernels += [kernel for kernel in row_list if device.lower() in kernel.device.lower()]
    return KernelReading(tuple(kernels), tuple(skipped), title)


def text(kernels: Iterable[Kernel]) -> str:
    """Return kernels as CSV in our own format, which `parse` reads again.

    >>> print(text([Kernel("gemm", "bf16", (256, 512, 1024, 1), 3.5e-6, device="a100")]))
    device,family,precision,part,shape,seconds
    a100,gemm,bf16,,m=256 n=512 k=1024 count=1,3.5e-06
    """
    out = io.StringIO()
    write = csv.writer(out, lineterminator="\n").writerow
    write(["device", "family", "precision", "part", "shape", "seconds"])
    for kernel in kernels:
        pairs = zip(SHAPES[kernel.family], kernel.shape, strict=True)
        shape = " ".join(f"{name}={value:.15g}" for name, value in pairs)
        row = (kernel.device, kernel.family, kernel.precision, kernel.part, shape)
        write([*row, repr(kernel.seconds)])
    return out.getvalue().rstrip("\n")


def own_format(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    family, part = cells["family"], cells.get("part", "")
    if family not in SHAPES:
        raise ValueError(f"unknown family {family!r}: {', '.join(SHAPES)}")
    if part not in PARTS[family] and part:
        raise ValueError(f"{family} has no part {part!r}")
    sizes = dict(pair.partition("=")[::2] for pair in cells["shape"].split())
    if unknown := set(sizes) - set(SHAPES[family]):
        raise ValueError(f"{family} has no {', '.join(sorted(unknown))}")
    shape = tuple(
        positive(sizes[name], name, zero=name in FLAGS) if name in sizes else default(name)
        for name in SHAPES[family]
    )
    yield Kernel(
        family, precision(cells["precision"]), shape, positive(cells["seconds"], "seconds"),
        part or PARTS[family][0], cells.get("device", ""), place,
    )  # fmt: skip


def matrix_product(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    refuse_inference(cells)
    m, n, k = (positive(cells[name], name) for name in "mnk")
    shape = (m, n, k, 1.0)
    device, kind = cells.get("device", ""), precision_of(cells)
    # servers of models time a layer's product together with the cast of what goes in
    family = "linear" if kind in NARROW and cells.get("dtype") else "gemm"
    yield Kernel(family, kind, shape, seconds_of(cells), "", device, place)


def convolution(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    refuse_inference(cells)
    names = ("w", "h", "c", "n", "k", "s_filter_w", "r_filter_h", "stride_w", "stride_h")
    w, h, channels, batch, filters, wide, high, across, down = (
        positive(cells[name], name) for name in names
    )
    pad_w, pad_h = (positive(cells[name], name, zero=True) for name in ("pad_w", "pad_h"))
    if pad_w >= wide or pad_h >= high:
        raise ValueError("padding as wide as the window: outputs that see no input")
    # the tables' own P and Q are halves where the extent is odd
    width = (w + 2 * pad_w - wide) // across + 1
    height = (h + 2 * pad_h - high) // down + 1
    shape = (batch, channels, filters, 1, height, width, 1, high, wide, 1, down, across, 1)
    timings = {"forward": "fwd_ms", "data": "bwd_inputs_ms", "weight": "bwd_weights_ms"}
    for part, column in timings.items():
        # some tables time the data gradient of a network's input too, which no training needs
        is_timed = part != "data" or channels > SAMPLE_CHANNELS
        if cells.get(column) and is_timed:
            seconds = positive(cells[column], column) * 1e-3
            device = cells.get("device", "")
            yield Kernel("conv", precision_of(cells), shape, seconds, part, device, place)


def attention(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    batch, length, heads, kv_heads, width = (
        positive(cells[name], name) for name in ("batch", "seq", "heads", "kv_heads", "head_dim")
    )
    shape = (batch, heads, kv_heads, length, length, width, 1.0)
    part = "backward" if cells.get("pass_", "").startswith("backward") else "forward"
    kind = precision(cells.get("dtype") or cells.get("precision") or "bf16")
    yield Kernel("attention", kind, shape, seconds_of(cells), part, cells.get("device", ""), place)


def served_attention(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    """Yield causal attention of prompts, with as many queries as keys."""
    if cells.get("window_size", "0") not in ("", "0"):
        raise ValueError("a window of keys: another kernel")
    names = ("batch_size", "num_heads", "num_key_value_heads", "isl", "isl", "head_dim")
    shape = (*(positive(cells[name], name) for name in names), 1.0)
    kind, device = precision(cells["attn_dtype"]), cells.get("device", "")
    yield Kernel("attention", kind, shape, seconds_of(cells), "forward", device, place)


def latent_attention(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    """Yield causal latent attention of prompts as in training: every head has its own keys."""
    names = ("batch_size", "num_heads", "num_heads", "isl", "isl")
    shape = (*(positive(cells[name], name) for name in names), LATENT, 1.0)
    if (kind := precision(cells["mla_dtype"])) not in ("bf16", "fp16"):
        raise ValueError(f"in {kind} it takes longer than in 16 bits: more than the core was timed")
    device = cells.get("device", "")
    yield Kernel("latent", kind, shape, seconds_of(cells), "forward", device, place)


def experts(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    """Yield both grouped products of one device's experts, forward."""
    names = ("num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_ep_size")
    tokens, hidden, ffn, visits, expert_count, devices = (
        positive(cells[name], name) for name in names
    )
    gated = (visits, expert_count) not in UNGATED or (expert_count == 128.0 and ffn != 1856.0)
    shape = (tokens, hidden, ffn, visits, expert_count, devices, float(gated))
    kind, device = precision(cells["moe_dtype"]), cells.get("device", "")
    yield Kernel("experts", kind, shape, seconds_of(cells), "", device, place)


def mamba(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    """Yield the scan of a Mamba-2 layer, or the short convolution before it, forward."""
    names = ("batch_size", "seq_len", "nheads", "head_dim", "d_state", "n_groups", "chunk_size")
    shape = tuple(positive(cells[name], name) for name in names)
    batch, tokens, heads, width, state, groups, _ = shape
    family = {"causal_conv1d_fn": "conv1d", "mamba_chunk_scan_combined": "scan"}.get(
        cells["kernel_source"].strip()
    )
    if family is None:
        raise ValueError(f"unknown kernel {cells['kernel_source']!r}")
    if family == "conv1d":  # read and written in 16 bits
        shape = (4.0 * batch * tokens * (heads * width + 2 * groups * state),)
    yield Kernel(family, "bf16", shape, seconds_of(cells), "", cells.get("device", ""), place)


def layer(cells: Mapping[str, str], place: str) -> Iterator[Kernel]:
    """Yield a layer's forward pass as a framework runs it, channels first."""
    if cells.get("pass", "forward") != "forward":
        raise ValueError(f"a {cells['pass']} pass")
    op, device = cells["op"], cells.get("gpu") or cells.get("device", "")
    # where 32 bits are multiplied as TF32 by default: matrix units of Ampere and later
    kind = cells["precision"].split()[0]
    if kind == "fp32" and "TF32" in cells["precision"] and not device.startswith(("T4", "V100")):
        kind = "tf32"
    input_dims = [int(word) for word in cells["input_shape_ncdhw"].split("x")]
    seconds = positive(cells["time_ms"], "time_ms") * 1e-3
    if "norm" in op or "pool" in op:
        family, shape = (
            ("norm", normed(op, input_dims)) if "norm" in op else ("pool", pooled(cells))
        )
        yield Kernel(family, kind, shape, seconds, "", device, place)
        return
    rank, transposed = len(input_dims) - 2, "transpose" in op
    if op not in ("conv2d", "conv3d", "conv_transpose2d", "conv_transpose3d"):
        raise ValueError(f"{op} is more than one kernel")

    def three(name: str, default: int) -> list[int]:
        words = [int(word) for word in cells[name].split("x")] if cells[name] else [default]
        words = words * rank if len(words) == 1 else words
        return [default] * (3 - rank) + words

    window, stride, dilation = three("kernel", 1), three("stride", 1), three("dilation", 1)
    pads = [0] * (3 - rank) + ([int(w) for w in cells["padding"].split("x")] or [0])[:rank]
    channels, filters = int(cells["in_channels"]), round(float(cells["out_channels"]))
    groups = round(float(cells["groups"] or 1))
    input_extents = [1] * (3 - rank) + input_dims[2:]
    output_extents = [
        (n + 2 * p - d * (k - 1) - 1) // s + 1
        for n, p, d, k, s in zip(input_extents, pads, dilation, window, stride, strict=True)
    ]
    if transposed:  # the data gradient of the convolution the other way round
        output_extents, channels, filters = input_extents, filters, channels
    family = "conv" if rank < 3 else "conv3d"
    if groups > 1:
        family = "depthwise" if channels == groups else "grouped"
    shape = (input_dims[0], channels, filters, *output_extents, *window, *stride, groups)
    part = "data" if transposed else "forward"
    yield Kernel(family, kind, tuple(map(float, shape)), seconds, part, device, place)


def normed(op: str, input_dims: list[int]) -> tuple[float, ...]:
    """Return bytes, elements and blocks of a norm: read twice, written once, in 32 bits."""
    elements = 3.0 * math.prod(input_dims)
    samples = 1 if op == "batchnorm" else input_dims[0]
    return 4 * elements, elements, float(samples * input_dims[1])


def pooled(cells: Mapping[str, str]) -> tuple[float, ...]:
    """Return bytes, elements and blocks of a pool: its input and its output, in 32 bits."""
    samples, channels, *input_extents = (
        int(word) for word in cells["input_shape_ncdhw"].split("x")
    )
    numbers = (cells[name] for name in ("kernel", "stride", "padding", "dilation"))
    window, stride, pad, dilation = (int(word or 1) for word in numbers)
    output_extents = [
        (n + 2 * pad - dilation * (window - 1) - 1) // stride + 1 for n in input_extents
    ]
    elements = float(samples * channels * (math.prod(input_extents) + math.prod(output_extents)))
    return 4 * elements, elements, float(samples * channels)


def refuse_inference(cells: Mapping[str, str]) -> None:
    """Refuse DeepBench's inference rows, which are other kernels than those of training."""
    if cells.get("phase", "train") != "train":
        raise ValueError(f"a {cells['phase']} row: other kernels than a training step's")


def precision_of(cells: Mapping[str, str]) -> str:
    return precision(cells.get("precision") or cells.get("dtype") or "")


def precision(word: str) -> str:
    """Return our name of a precision; DeepBench's mixed mode multiplies 16-bit numbers.

    Blocks of 128 numbers with a scale (`fp8_block`) stand in for those of 32 (`mxfp8`).

    >>> precision("Float"), precision("bfloat16"), precision("16 bit inputs, 32 bit multiplication")
    ('fp32', 'bf16', 'fp16')
    """
    word = word.strip().lower()
    names = {"float": "fp32", "float32": "fp32", "bfloat16": "bf16", "float16": "fp16",
             "half": "fp16", "float8": "fp8", "fp8_block": "mxfp8"}  # fmt: skip
    if word in PRECISIONS:
        return word
    if word.startswith("16 bit inputs"):
        return "fp16"
    if word in names:
        return names[word]
    raise ValueError(f"unknown precision {word!r}")


def seconds_of(cells: Mapping[str, str]) -> float:
    """Return the seconds of the first column of time, in any unit."""
    for name, cell in cells.items():
        stem, _, unit = name.rpartition("_")
        if cell and unit in SCALES and stem in ("", "time", "latency"):
            return positive(cell, name) * SCALES[unit]
    raise ValueError("no column of time")


def default(name: str) -> float:
    """Return the value of a number of a shape that a row leaves out."""
    if name not in DEFAULTS:
        raise ValueError(f"the shape lacks {name}")
    return DEFAULTS[name]


def positive(cell: str, name: str, zero: bool = False) -> float:
    value = float(cell)
    if not math.isfinite(value) or value < 0 or (value == 0 and not zero) or value > 2**62:
        raise ValueError(f"{name} is {cell}")
    return value


FORMATS: tuple[tuple[str, set[str], Callable[[Mapping[str, str], str], Iterator[Kernel]]], ...] = (
    ("own kernel measurement", {"family", "precision", "shape", "seconds"}, own_format),
    ("DeepBench convolutions", {"w", "h", "c", "n", "k", "s_filter_w", "fwd_ms"}, convolution),
    ("layers of a framework", {"op", "in_channels", "input_shape_ncdhw", "time_ms"}, layer),
    ("attention", {"batch", "seq", "heads", "kv_heads", "head_dim"}, attention),
    ("attention of prompts", {"attn_dtype", "batch_size", "isl", "num_heads", "head_dim"},
     served_attention),
    ("latent attention of prompts", {"mla_dtype", "batch_size", "isl", "num_heads"},
     latent_attention),
    ("Mamba-2", {"kernel_source", "batch_size", "seq_len", "d_state", "nheads", "chunk_size"},
     mamba),
    ("experts", {"moe_dtype", "num_tokens", "hidden_size", "inter_size", "topk", "num_experts",
                 "moe_ep_size"}, experts),
    ("matrix products", {"m", "n", "k"}, matrix_product),
)  # fmt: skip
