"""The options of verbs that read real samples: which samples, from where, and how."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oracle.commands.arguments import lasting, whole_number
from oracle.spec.document import refusal

READ_MODES = ("shared", "staged", "cached", "striped", "spatial")
MADE = {"samples": int, "size": float, "spread": float}


def data_argument(parser: argparse.ArgumentParser) -> None:
    """Add the options of which samples are read."""
    parser.add_argument(
        "--data", type=lasting, metavar="FOLDER",
        help="read the samples in this folder; or synthetic:samples=256,size=110kB,spread=0.3, "
        "made for the run (arrays of the model's input without a size)",
    )  # fmt: skip
    parser.add_argument("--throttle", type=lasting, metavar="SYSTEM",
                        help="no faster than the storage of this system")  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of how `oracle run` reads samples."""
    read = parser.add_argument_group("samples (--data)")
    data_argument(read)  # type: ignore[arg-type]
    read.add_argument("--reading", choices=READ_MODES, default="shared", metavar="MODE",
                      help=", ".join(READ_MODES))  # fmt: skip
    read.add_argument(
        "--loader-threads", type=whole_number, default=4, metavar="W", help="of a rank"
    )
    read.add_argument("--prefetch", type=whole_number, default=2, metavar="K",
                      help="batches that are read ahead; 2")  # fmt: skip
    read.add_argument("--shuffle", choices=["global", "local"], default="global", metavar="HOW",
                      help="global, or local: each rank keeps to its part")  # fmt: skip
    read.add_argument(
        "--cache",
        metavar="SIZE",
        help="of a rank's memory, for --reading cached; a quarter of what is free",
    )
    read.add_argument("--stage", metavar="FOLDER", help="on a node's own disk, for staged, striped")


def synthetic(text: str) -> dict[str, Any]:
    """Return the data set that `synthetic:…` describes."""
    from oracle.spec.units import parse

    fields: dict[str, Any] = {}
    for pair in filter(None, text.partition(":")[2].split(",")):
        name, _, value = pair.partition("=")
        if name not in MADE:
            hint = f"{', '.join(MADE)}: synthetic:samples=256,size=110kB,spread=0.3"
            raise refusal("options", f"nobody knows `{name}` of a made data set", hint)
        try:
            fields[name] = parse(value, "B") if name == "size" else MADE[name](value)
        except ValueError:
            raise refusal("options", f"`{pair}` is no number", "size=110kB") from None
        top = {"samples": 10**6, "size": 2**33, "spread": 10}[name]
        if not (0 if name == "spread" else 1) <= fields[name] <= top:
            raise refusal("options", f"`{pair}` cannot be made", f"at most {top:g}")
    return fields


def data_fields(args: argparse.Namespace) -> dict[str, Any] | None:
    """Return the fields of the executor's `Data`, or None where nothing is to be read."""
    from oracle.spec.units import parse

    if not args.data:
        if args.throttle and not getattr(args, "checkpoint", None):
            complaint = "--throttle slows reading, and nothing is read"
            raise refusal("options", complaint, "--data …, or --checkpoint …")
        return None
    out = Path(args.output).absolute()
    made_set = synthetic(args.data) if args.data.partition(":")[0] == "synthetic" else None
    try:
        cache = parse(args.cache, "B") if args.cache else 0.0
    except ValueError as error:
        raise refusal("options", f"--cache: {error}", "--cache 4GB") from None
    if made_set is not None:
        made_set = {"samples": max(256, args.batch), **made_set}
        possible(args, made_set)
    fields: dict[str, Any] = {
        "folder": str(out.with_name(out.name + ".parts") / "samples") if made_set is not None
        else existing_folder(args.data),
        "mode": args.reading, "threads": args.loader_threads, "prefetch": args.prefetch,
        "shuffle": args.shuffle, "cache": cache,
        "stage": str(Path(args.stage).absolute()) if args.stage else "",
    }  # fmt: skip
    if made_set is not None:
        fields["made"] = made_set
    if args.throttle:
        fields["played"] = played(args.throttle)
    return fields


def possible(args: argparse.Namespace, synthetic_set: Mapping[str, Any]) -> None:
    """Refuse samples that cannot be read as the options say, before any are made."""
    if synthetic_set["samples"] < args.batch:
        complaint = f"{synthetic_set['samples']} samples are fewer than a batch of {args.batch}"
        raise refusal("options", complaint, f"synthetic:samples={args.batch}")
    if args.reading == "spatial" and synthetic_set.get("size"):
        complaint = "parts of files without a shape cannot be read alone"
        raise refusal("options", complaint, "synthetic without a size: arrays of the model's input")


def existing_folder(folder: str) -> str:
    """Return the full path of a folder of samples; refuse a missing one before ranks start."""
    if not Path(folder).is_dir():
        hint = "--data FOLDER, or synthetic:samples=256,size=110kB"
        raise refusal(folder, "there is no such folder", hint, "E100")
    return str(Path(folder).absolute())


LARGEST, MOST = 2.0**31, 4096  # bytes and files that `measure storage` makes, at most


def measured_files(args: argparse.Namespace) -> tuple[str, dict[str, Any] | None]:
    """Return the folder whose files are measured, and the samples that it is filled with."""
    from oracle.spec.catalogue import dataset

    word, out = args.data.partition(":")[0], Path(args.output).absolute()
    if word == "synthetic":
        synthetic_set = {"samples": 256, "size": 1e5, **synthetic(args.data)}
        return str(out.with_name(out.name + ".parts") / "samples"), synthetic_set
    if not args.dataset:
        return existing_folder(args.data), None
    chosen = dataset(args.dataset)
    if not chosen.size:
        raise refusal(
            chosen.name, f"{chosen.name} does not say its size", "`size:`, or another --dataset"
        )
    file_bytes = chosen.size / (chosen.files or chosen.samples)
    count = int(min(MOST, LARGEST // file_bytes, chosen.files or chosen.samples))
    if count < 1:
        raise refusal(
            chosen.name, f"one of its files has {file_bytes:.3g} bytes", "--data FOLDER alone"
        )
    folder = Path(args.data).absolute() / ".oracle-storage"
    return str(folder), {"samples": count, "size": file_bytes, "spread": chosen.spread}


def played(name: Any) -> list[Any]:
    """Return a system's storage as the executor plays it: limits, ports, devices of a node."""
    from oracle.spec.catalogue import system

    on_system = system(name)
    storage = on_system.storage
    if storage is None:
        raise refusal(
            on_system.name, f"{on_system.name} says nothing of its storage", "write `storage:`"
        )
    parts = [_fields(part, keep) for part, keep in (
        (storage.shared, ("bandwidth", "write", "per_node", "streams", "open", "metadata", "kind")),
        (storage.local, ("read", "write", "open")))]  # fmt: skip
    level = next((candidate for candidate in on_system.levels if candidate.link == "network"), None)
    ports = level.bandwidth * (level.ports or on_system.node) if level else 0.0
    return [*parts, ports, level.latency if level else 0.0, on_system.node]


def _fields(part: Any, keep: tuple[str, ...]) -> dict[str, Any] | None:
    return {k: v for k, v in asdict(part).items() if k in keep} if part else None
