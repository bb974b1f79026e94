"""What the hooks of FSDP2 cost the host for each unit: `python -m benchmarks.hooks`.

    python -m benchmarks.hooks [--units 24] [--steps 40] [--json]

Two ranks train units of a few weights, bare and under `fully_shard`. What a step takes more of the
main thread's processor, less the calls of the collectives themselves, is the hooks': `host.unit`
of `pytorch-fsdp` and `torchtitan` is their mean. It needs torch and half a minute.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RANKS, WIDTH = 2, 8


def per_unit(units: int, steps: int) -> dict[str, float]:
    """CPU seconds a unit on this rank: of each collective's hooks, and of its call alone."""
    import torch
    import torch.distributed as dist
    from torch import nn
    from torch.distributed.fsdp import fully_shard

    from oracle.executor.messages.calls import newest

    def made() -> nn.Sequential:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(units)))

    def sharded(again: bool) -> nn.Sequential:
        network = made()
        for unit in network:
            fully_shard(unit, reshard_after_forward=again)
        fully_shard(network)
        return network

    def passes(network: nn.Module) -> tuple[float, float]:
        began = time.thread_time()
        y = network(torch.ones(1, WIDTH))
        between = time.thread_time()
        y.sum().backward()
        return between - began, time.thread_time() - between

    def spent(network: nn.Module) -> tuple[float, float]:
        warm = [passes(network) for _ in range(steps)][steps // 4 :]
        forward, backward = (
            statistics.median(column) / units for column in zip(*warm, strict=True)
        )
        return forward, backward

    def calling(call: Callable[[], Any]) -> float:
        each = []
        for _ in range(steps):
            dist.barrier()
            began = time.thread_time()
            for _ in range(units):
                call()
            each.append((time.thread_time() - began) / units)
        return statistics.median(each)

    held = WIDTH * (WIDTH + 1)
    part, whole = torch.zeros(held // RANKS), torch.zeros(held)
    gather = newest("all_gather_single", "all_gather_into_tensor")
    scatter = newest("reduce_scatter_single", "reduce_scatter_tensor")
    gathering = calling(lambda: gather(whole, part))
    scattering = calling(lambda: scatter(part, whole))
    (forward, backward), kept, fetched = map(spent, (made(), sharded(False), sharded(True)))
    return {
        "gathered": kept[0] - forward - gathering,
        "gathered again": fetched[1] - kept[1] - gathering,
        "scattered": kept[1] - backward - scattering,
    }


def rank(number: int, folder: str, units: int, steps: int) -> None:
    """One of the ranks."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meeting", rank=number, world_size=RANKS
    )
    found = per_unit(units, steps)
    dist.barrier()
    if number == 0:
        (Path(folder) / "found.json").write_text(json.dumps(found))
    dist.destroy_process_group()


def measured(units: int, steps: int) -> dict[str, Any]:
    """CPU seconds of each collective's hooks, and their mean."""
    import torch.multiprocessing as processes

    with tempfile.TemporaryDirectory() as folder:
        processes.spawn(rank, (folder, units, steps), nprocs=RANKS)
        found = json.loads((Path(folder) / "found.json").read_text())
    return {"seconds": found, "mean": statistics.mean(found.values())}


def main() -> None:
    """Measure, and say it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--units", type=int, default=24)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    found = measured(asked.units, asked.steps)
    if asked.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'hooks of a unit that is':<26}{'CPU time':>10}")
    for name, seconds in found["seconds"].items():
        print(f"{name:<26}{seconds * 1e6:>7.0f} us")
    print(f"{'mean':<26}{found['mean'] * 1e6:>7.0f} us")


if __name__ == "__main__":
    main()
