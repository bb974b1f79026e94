"""The options of `oracle run` that keep checkpoints, go on from one, and plant failures."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from typing import Any

from oracle.commands.arguments import lasting
from oracle.commands.reading import played
from oracle.spec.document import refusal


def arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of checkpoints and failures to `oracle run`."""
    options = parser.add_argument_group("checkpoints and failures")
    options.add_argument(
        "--checkpoint", type=lasting, metavar="WAY,to=FOLDER",
        help="rank0, sharded or async; `sharded,every=5,keep=2,to=FOLDER`, of steps",
    )  # fmt: skip
    options.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    options.add_argument(
        "--fail", action="append", default=[], metavar="STEP",
        help="kill a rank in this step, and start all again: 7, step=7,rank=1; "
        "step=5,at=checkpoint halfway through writing it; step=7,at=hang lets it hang",
    )  # fmt: skip


def checkpoint_fields(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as fields of a `PlanRun`."""
    from oracle.executor.checkpointing.keeping import keeping, planted
    from oracle.plan.plan import parse

    if not args.checkpoint:
        if args.resume or args.fail:
            complaint = "--resume and --fail go on from a checkpoint, and none are kept"
            raise refusal("options", complaint, "--checkpoint sharded,every=5,to=FOLDER")
        return {}
    storage = played(args.throttle) if args.throttle else None
    devices = int(parse(args.plan[0], args.batch).devices[0, 0])
    failures = tuple(asdict(planted(text, devices)) for text in args.fail)
    return {"checkpoint": asdict(keeping(args.checkpoint, args.resume, storage)),
            "fail": failures}  # fmt: skip
