"""What the oracle says of each training, read from the very module that runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import oracle
from benchmarks.gpu.trainings import Training

SOFTWARE = "pytorch-ddp"  # eager PyTorch 2 on one device; no spec knows torch.compile


def predicted(training: Training, system: Any, profile: Any = None) -> dict[str, Any]:
    """Return the seconds of a step with their interval, the bytes, and the chance that they fit."""
    plan = "data:1 recompute:full" if training.recompute else "serial"
    estimate = oracle.estimate(
        oracle.model(spec_of(training)), system, plan, training.batch,
        precision="bf16", optimizer=training.optimizer, software=software_of(training),
        reading="none", profile=profile,
    )  # fmt: skip
    memory = float(estimate.memory[0])
    return {
        "name": training.name,
        "seconds": float(estimate.seconds[0]),
        "low": float(estimate.seconds_low[0]),
        "high": float(estimate.seconds_high[0]),
        "memory": memory,
        "allocated": memory - float(estimate.memory_kinds["reserve"][0]),
        "fits": float(estimate.fits[0]),
    }


def spec_of(training: Training) -> dict[str, Any]:
    """Return the model spec of a training's network, as `oracle import torch` reads it."""
    import torch

    from benchmarks.gpu.measure import built
    from oracle.readers.importers.torch import convert

    plain = replace(training, recompute=False, build=training.read_as or training.build)
    with torch.device("meta"):
        module = built(plain)
    sample = (training.tokens,) if training.tokens else training.sample
    spec = convert(module, sample, tokens=bool(training.tokens), name=training.build).spec
    return {**spec, "train": training.train}


def software_of(training: Training) -> str:
    """Return the software spec that a training runs as, with what it turns."""
    layout = ",layout=last" if training.last else ""
    graphs = ",graphs=iteration" if training.graph else ""
    return SOFTWARE + layout + graphs
