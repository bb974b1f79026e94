"""Ways to ask the command line, and lines that are asked often."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from oracle.commands.cli import main

ROOT = Path(__file__).parents[1]
SMALL = ["resnet50", "abci", "--devices", "16", "--batch", "1024"]
FEW = [*SMALL, "--only", "data,filter"]  # a tenth of the time, where the answer matters little
ONE = ["resnet50", "abci", "--plan", "data:4 filter:4", "--batch", "256"]
NCCL = str(ROOT / "notebooks" / "data" / "two-servers.nccl")


def told(capsys: Any, *line: str) -> tuple[int, str, str]:
    code = main(list(line))
    out, err = capsys.readouterr()
    return code, out, err


def spawn(*line: str, environment: dict[str, str] | None = None, **more: Any) -> Any:
    return subprocess.run(
        [sys.executable, "-m", "oracle", *line], capture_output=True, timeout=120, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})}, **more,
    )  # fmt: skip


def closed(schema: Any) -> Any:
    """The same schema, with nothing allowed that it does not name."""
    schema = copy.deepcopy(schema)
    nodes = [schema]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            if "properties" in node:
                node.setdefault("additionalProperties", False)
            nodes += node.values()
        elif isinstance(node, list):
            nodes += node
    return schema
