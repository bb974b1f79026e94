"""How `oracle run` is told to keep checkpoints, to go on from one, and to fail."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from oracle.commands.arguments import lasting
from oracle.commands.reading import played
from oracle.spec.document import refusal


def arguments(parser: argparse.ArgumentParser) -> None:
    """What `oracle run` takes beside."""
    kept = parser.add_argument_group("checkpoints and failures")
    kept.add_argument(
        "--checkpoint", type=lasting, metavar="WAY,to=FOLDER",
        help="rank0, sharded or async; `sharded,every=5,keep=2,to=FOLDER`, of steps",
    )  # fmt: skip
    kept.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    kept.add_argument(
        "--fail", action="append", default=[], metavar="STEP",
        help="kill a rank in this step, and start all again: 7, step=7,rank=1; "
        "step=5,at=checkpoint halfway through writing it; step=7,at=hang lets it hang",
    )  # fmt: skip


def asked_checkpoints(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as fields of a `PlanRun`."""
    from oracle.executor.checkpointing.keeping import keeping, planted
    from oracle.plan.plan import parse

    if not asked.checkpoint:
        if asked.resume or asked.fail:
            what = "--resume and --fail go on from a checkpoint, and none are kept"
            raise refusal("options", what, "--checkpoint sharded,every=5,to=FOLDER")
        return {}
    storage = played(asked.throttle) if asked.throttle else None
    devices = int(parse(asked.plan[0], asked.batch).devices[0, 0])
    failures = tuple(asdict(planted(text, devices)) for text in asked.fail)
    return {"checkpoint": asdict(keeping(asked.checkpoint, asked.resume, storage)),
            "fail": failures}  # fmt: skip
