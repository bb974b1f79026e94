"""Predict how long distributed training takes, and which way to split it.

    import oracle
    model = oracle.model("resnet50", dataset="imagenet")
    system = oracle.system("abci")
    oracle.estimate(model, system, "data:16 filter:4", batch=1024)
    oracle.recommend(model, system, devices=64, batch=2048)

Importing this is cheap: nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from oracle.api import estimate, recommend
    from oracle.document import SpecError
    from oracle.models import Model, model
    from oracle.prediction import Estimate
    from oracle.ranking import Ranking
    from oracle.specs import Dataset, Device, System, dataset, device, system

__version__ = "0.1.0"

_HOME = {
    "Dataset": "specs",
    "Device": "specs",
    "Estimate": "prediction",
    "Model": "models",
    "Ranking": "ranking",
    "SpecError": "document",
    "System": "specs",
    "dataset": "specs",
    "device": "specs",
    "estimate": "api",
    "model": "models",
    "recommend": "api",
    "system": "specs",
}

__all__ = [
    "Dataset",
    "Device",
    "Estimate",
    "Model",
    "Ranking",
    "SpecError",
    "System",
    "dataset",
    "device",
    "estimate",
    "model",
    "recommend",
    "system",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'oracle' has no attribute '{name}'")
    return getattr(import_module(f"oracle.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
