"""How soon a run begins: ranks of one host, and the weights of a rank.

    python -m benchmarks.start [--quick] [--json]

Ranks of one host are forks of one process, and each makes its own weights. Wall-clock seconds, so
they hold for a machine with nothing else to do; `load` says how busy this one was. A billion
weights of 32 bits and their gradients are 8 GB, whose pages the kernel must find first: `touched`
is how long that alone takes here.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table import Table, figure, text
from oracle.executor.ranks.launch import Outcome, launch
from oracle.executor.ranks.records import of_all_ranks

RANKS, MODEL = 64, "gpt2-xl,layers=31"  # of a billion weights
FEWER, SMALLER = 8, "gpt2"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer ranks, fewer weights")
    parser.add_argument("--json", action="store_true", dest="as_json")
    asked = parser.parse_args()
    ranks, model = (FEWER, SMALLER) if asked.quick else (RANKS, MODEL)
    with tempfile.TemporaryDirectory() as folder:
        met = _launched("meet", {}, Path(folder) / "ranks", ranks)
        _launched("make", {"model": model}, Path(folder) / "weights", 1)
        (made,) = of_all_ranks(Path(folder) / "weights", 1)["weights"]
    figures = {
        "start.ranks": figure(met.seconds, "s", "≤ 25 s" if ranks == RANKS else ""),
        "start.weights": figure(made["made"], "s", "≤ 15 s" if model == MODEL else ""),
        "start.touched": figure(made["touched"], "s", ""),
        "load": figure(os.getloadavg()[0], f"of {os.cpu_count()} cores", ""),
    }
    rows = [{"what": f"{ranks} ranks begin, meet and end", "seconds": round(met.seconds, 2)},
            {"what": f"{made['weights']:,} weights of {model}", "seconds": round(made["made"], 2)},
            {"what": "as many bytes, touched", "seconds": round(made["touched"], 2)}]  # fmt: skip
    table: Table = {"title": "The start of a run", "rows": rows, "figures": figures}
    print(json.dumps({"figures": figures, "rows": rows}, indent=1) if asked.as_json
          else text(table))  # fmt: skip
    return 0


def _launched(task: str, arguments: Mapping[str, Any], folder: Path, ranks: int) -> Outcome:
    outcome = launch(f"benchmarks.start:{task}", arguments, folder, ranks=ranks, trust=True)
    if outcome.code:
        sys.exit(outcome.message)
    return outcome


def meet(rank: Any, _: Mapping[str, Any]) -> None:
    """All ranks agree on a number."""
    rank.agree(float(rank.rank))


def make(rank: Any, arguments: Mapping[str, Any]) -> None:
    """The weights of a model, and before them as many bytes as they and their gradients take."""
    import mmap

    from oracle.executor.local.graph import graph
    from oracle.executor.local.local_model import LocalModel
    from oracle.executor.messages.mesh import DeviceMesh
    from oracle.executor.messages.wire import Wire
    from oracle.plan.plan import parse

    layers, plan = graph(arguments["model"]), parse("serial", 1)
    count = int((layers.model.w * layers.model.repeat).sum())
    began = time.perf_counter()
    with mmap.mmap(-1, 8 * count, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as pages:
        np.frombuffer(pages, np.uint8).fill(0)
    touched = time.perf_counter() - began
    began = time.perf_counter()
    local = LocalModel(layers, plan, Wire(DeviceMesh(plan, 0, 1)))
    rank.record("weights", made=time.perf_counter() - began, touched=touched,
                weights=sum(bundle.size for bundle in local.bundles))  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
