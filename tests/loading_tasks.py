"""What ranks do in the proof of loading: read steps in each mode, and compare with the files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from oracle.executor.loading.reader import Data, SampleReader, Share
from oracle.executor.local.batch import inputs
from oracle.executor.local.graph import graph
from oracle.executor.local.local_model import LocalModel
from oracle.executor.messages.mesh import DeviceMesh
from oracle.executor.messages.wire import Wire
from oracle.plan.plan import parse

STEPS = 5


def prove(rank: Any, arguments: Any) -> None:
    """Of each case: seconds, and how many numbers of the rank's part are not those of its files."""
    for case in arguments["cases"]:
        rank.enter("measure", case["name"])
        rank.record(case["name"], **one(rank, case))


def one(rank: Any, case: Any) -> dict[str, Any]:
    layers, plan = graph(case["model"]), parse(case["plan"], case["batch"])
    local = LocalModel(layers, plan, Wire(DeviceMesh(plan, rank.rank, rank.size)), seed=1)
    x, _ = inputs(layers, case["batch"], 0, torch.float32)
    reader = SampleReader(rank, Data(**case["data"]), Share.of_local_model(local), x, seed=1)
    whole = [np.load(path) for path in sorted(Path(case["data"]["folder"]).iterdir())]
    wrong, files, seen = 0, 0, set[int]()
    for step in range(STEPS):
        read = reader.load() if reader.mesh.taking_part else {"files": 0}
        files += int(read["files"])
        if not reader.needs:
            continue
        numbers = reader.batch(step)
        seen |= set(numbers)
        expected = torch.tensor(np.stack([whole[k] for k in numbers]))
        mine = reader._part(x[reader.begin : reader.end], rank.rank)
        wrong += int((mine != reader._part(expected, rank.rank)).sum())
    reader.close()
    return {"wrong": wrong, "files": files, "needs": reader.needs, "readers": len(reader.readers),
            "seen": len(seen)}  # fmt: skip
