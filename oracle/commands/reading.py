"""How verbs that read samples for real are told which, from where and how."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from oracle.commands.arguments import lasting, whole
from oracle.spec.document import refusal

READ_MODES = ("shared", "staged", "cached", "striped", "spatial")
MADE = {"samples": int, "size": float, "spread": float}


def data_argument(parser: argparse.ArgumentParser) -> None:
    """Which samples are read."""
    parser.add_argument(
        "--data", type=lasting, metavar="FOLDER",
        help="read the samples in this folder; or synthetic:samples=256,size=110kB,spread=0.3, "
        "made for the run (arrays of the model's input without a size)",
    )  # fmt: skip
    parser.add_argument("--throttle", type=lasting, metavar="SYSTEM",
                        help="no faster than the storage of this system")  # fmt: skip


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `oracle run` takes beside."""
    read = parser.add_argument_group("samples (--data)")
    data_argument(read)  # type: ignore[arg-type]
    read.add_argument("--reading", choices=READ_MODES, default="shared", metavar="MODE",
                      help=", ".join(READ_MODES))  # fmt: skip
    read.add_argument("--loader-threads", type=whole, default=4, metavar="W", help="of a rank")
    read.add_argument("--prefetch", type=whole, default=2, metavar="K",
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
    """The data set that `synthetic:…` asks for."""
    from oracle.spec.units import parse

    found: dict[str, Any] = {}
    for pair in filter(None, text.partition(":")[2].split(",")):
        name, _, value = pair.partition("=")
        if name not in MADE:
            hint = f"{', '.join(MADE)}: synthetic:samples=256,size=110kB,spread=0.3"
            raise refusal("options", f"nobody knows `{name}` of a made data set", hint)
        try:
            found[name] = parse(value, "B") if name == "size" else MADE[name](value)
        except ValueError:
            raise refusal("options", f"`{pair}` is no number", "size=110kB") from None
        top = {"samples": 10**6, "size": 2**33, "spread": 10}[name]
        if not (0 if name == "spread" else 1) <= found[name] <= top:
            raise refusal("options", f"`{pair}` cannot be made", f"at most {top:g}")
    return found


def asked_data(asked: argparse.Namespace) -> dict[str, Any] | None:
    """Fields of the executor's `Data`; None where nothing is to be read."""
    from oracle.spec.units import parse

    if not asked.data:
        if asked.throttle and not getattr(asked, "checkpoint", None):
            what = "--throttle slows reading, and nothing is read"
            raise refusal("options", what, "--data …, or --checkpoint …")
        return None
    out = Path(asked.output).absolute()
    made = synthetic(asked.data) if asked.data.partition(":")[0] == "synthetic" else None
    try:
        cache = parse(asked.cache, "B") if asked.cache else 0.0
    except ValueError as error:
        raise refusal("options", f"--cache: {error}", "--cache 4GB") from None
    if made is not None:
        made = {"samples": max(256, asked.batch), **made}
        possible(asked, made)
    found: dict[str, Any] = {
        "folder": str(out.with_name(out.name + ".parts") / "samples") if made is not None
        else there(asked.data),
        "mode": asked.reading, "threads": asked.loader_threads, "prefetch": asked.prefetch,
        "shuffle": asked.shuffle, "cache": cache,
        "stage": str(Path(asked.stage).absolute()) if asked.stage else "",
    }  # fmt: skip
    if made is not None:
        found["made"] = made
    if asked.throttle:
        found["played"] = played(asked.throttle)
    return found


def possible(asked: argparse.Namespace, made: Mapping[str, Any]) -> None:
    """Refuse samples that nobody could read so, before any are made."""
    if made["samples"] < asked.batch:
        what = f"{made['samples']} samples are fewer than a batch of {asked.batch}"
        raise refusal("options", what, f"synthetic:samples={asked.batch}")
    if asked.reading == "spatial" and made.get("size"):
        what = "parts of files without a shape cannot be read alone"
        raise refusal("options", what, "synthetic without a size: arrays of the model's input")


def there(folder: str) -> str:
    """A folder of samples, which is looked for before any rank starts."""
    if not Path(folder).is_dir():
        hint = "--data FOLDER, or synthetic:samples=256,size=110kB"
        raise refusal(folder, "there is no such folder", hint, "E100")
    return str(Path(folder).absolute())


LARGEST, MOST = 2.0**31, 4096  # bytes and files that `measure storage` makes, at most


def measured_files(asked: argparse.Namespace) -> tuple[str, dict[str, Any] | None]:
    """The folder whose files are measured, and what it is filled with for that."""
    from oracle.spec.catalogue import dataset

    word, out = asked.data.partition(":")[0], Path(asked.output).absolute()
    if word == "synthetic":
        made = {"samples": 256, "size": 1e5, **synthetic(asked.data)}
        return str(out.with_name(out.name + ".parts") / "samples"), made
    if not asked.dataset:
        return there(asked.data), None
    one = dataset(asked.dataset)
    if not one.size:
        raise refusal(
            one.name, f"{one.name} does not say its size", "`size:`, or another --dataset"
        )
    each = one.size / (one.files or one.samples)
    count = int(min(MOST, LARGEST // each, one.files or one.samples))
    if count < 1:
        raise refusal(one.name, f"one of its files has {each:.3g} bytes", "--data FOLDER alone")
    folder = Path(asked.data).absolute() / ".oracle-storage"
    return str(folder), {"samples": count, "size": each, "spread": one.spread}


def played(name: Any) -> list[Any]:
    """A system's storage as the executor plays it: limits, ports, who shares a node."""
    from oracle.spec.catalogue import system

    where = system(name)
    said = where.storage
    if said is None:
        raise refusal(where.name, f"{where.name} says nothing of its storage", "write `storage:`")
    parts = [_fields(part, keep) for part, keep in (
        (said.shared, ("bandwidth", "write", "per_node", "streams", "open", "metadata", "kind")),
        (said.local, ("read", "write", "open")))]  # fmt: skip
    level = next((each for each in where.levels if each.link == "network"), None)
    ports = level.bandwidth * (level.ports or where.node) if level else 0.0
    return [*parts, ports, level.latency if level else 0.0, where.node]


def _fields(part: Any, keep: tuple[str, ...]) -> dict[str, Any] | None:
    return {k: v for k, v in asdict(part).items() if k in keep} if part else None
