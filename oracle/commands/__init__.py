"""The verbs of the command line, one file each: `arguments(parser)` and `run(asked)`."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb has to say: data, a note beside it, and the exit code."""

    text: str = ""
    code: int = 0
    note: str = ""


def as_json(data: Any) -> str:
    """JSON for another program: no NaN, keys in the order they are documented."""
    return json.dumps(data, indent=2, allow_nan=False)


def whole(text: str) -> int:
    """A whole number from 1 on, as an option takes it."""
    if not text.isdigit() or not 1 <= int(text) < 2**53:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 1 on")
    return int(text)


def per_device(text: str) -> float:
    """Samples per device; a fraction where several devices share one sample."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e12:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of samples above zero")
    return value


def names(text: str) -> list[str]:
    """Words between commas."""
    return [word for word in text.replace(",", " ").split() if word]


def prediction_arguments(parser: argparse.ArgumentParser, *, system: bool = True) -> None:
    """What every verb that predicts takes."""
    parser.add_argument("model", metavar="MODEL", help="a shipped model, or a file")
    if system:
        parser.add_argument("system", metavar="SYSTEM", help="a shipped system, or a file")
    parser.add_argument("--dataset", metavar="D", help="a shipped data set, or a file")
    parser.add_argument("--max-memory", metavar="M", help="of a device, e.g. `14 GiB`")
    parser.add_argument("--precision", metavar="P", help="fp32, tf32, fp16, bf16 or fp8")
    parser.add_argument("--optimizer", metavar="O", help="sgd, momentum, adam, lars or lamb")
    parser.add_argument("--ideal", action="store_true", help="the published table's assumptions")
    parser.add_argument("--gamma", type=float, default=1.0, help="memory reuse, with --ideal")
    parser.add_argument("--algorithm", metavar="A", help="of collectives: ring, tree, nccl, …")
    profile_argument(parser)
    parser.add_argument("--json", action="store_true", dest="as_json", help="for another program")


def profile_argument(parser: argparse.ArgumentParser) -> None:
    """Measured rows, for every verb that predicts."""
    parser.add_argument("--profile", metavar="FILE",
                        help="rows as `oracle measure compute` timed them")  # fmt: skip


def batch_arguments(parser: argparse.ArgumentParser) -> None:
    """The global batch, or the batch per device."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--batch", type=whole, metavar="B", help="samples per iteration, all devices")
    size.add_argument("--batch-per-device", type=per_device, metavar="b", help="samples per device")


def prediction_options(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of `oracle.estimate` and `oracle.recommend`."""
    return {
        "dataset": asked.dataset,
        "precision": asked.precision,
        "optimizer": asked.optimizer,
        "ideal": asked.ideal,
        "max_memory": asked.max_memory,
        "gamma": asked.gamma,
        "algorithm": asked.algorithm,
        "profile": asked.profile,
    }
