"""Predict how long distributed training takes, and which way to split it.

    import oracle
    model = oracle.model("resnet50", dataset="imagenet")
    system = oracle.system("abci")
    oracle.estimate(model, system, "data:16 filter:4", batch=1024)
    oracle.recommend(model, system, devices=64, batch=2048)
    oracle.design_network(["resnet50", "gpt3-175b"], devices=1024, ports=36)
    oracle.choose(model, ["abci", "dgx-a100"], "8..64", batch=2048, epochs=90, within="1d")

Importing this is cheap: nothing is loaded before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from oracle.spec.version import __version__ as __version__

if TYPE_CHECKING:
    from oracle.api import (
        calibrate,
        choose,
        compare,
        design_network,
        estimate,
        explain,
        export,
        plot,
        recommend,
        sweep,
        workflow,
    )
    from oracle.ask.ranking import Ranking
    from oracle.models.model import Model, model
    from oracle.predict.estimate import Estimate
    from oracle.spec.catalogue import dataset, device, system
    from oracle.spec.dataset import Dataset
    from oracle.spec.device import Device
    from oracle.spec.document import SpecError
    from oracle.spec.system import System

_HOME = {
    "Dataset": "spec.dataset",
    "Device": "spec.device",
    "Estimate": "predict.estimate",
    "Model": "models.model",
    "Ranking": "ask.ranking",
    "SpecError": "spec.document",
    "System": "spec.system",
    "calibrate": "api",
    "choose": "api",
    "compare": "api",
    "dataset": "spec.catalogue",
    "design_network": "api",
    "device": "spec.catalogue",
    "estimate": "api",
    "explain": "api",
    "export": "api",
    "model": "models.model",
    "plot": "api",
    "recommend": "api",
    "sweep": "api",
    "system": "spec.catalogue",
    "workflow": "api",
}

__all__ = [
    "Dataset",
    "Device",
    "Estimate",
    "Model",
    "Ranking",
    "SpecError",
    "System",
    "calibrate",
    "choose",
    "compare",
    "dataset",
    "design_network",
    "device",
    "estimate",
    "explain",
    "export",
    "model",
    "plot",
    "recommend",
    "sweep",
    "system",
    "workflow",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'oracle' has no attribute '{name}'{_nearest(name)}")
    found = getattr(import_module(f"oracle.{home}"), name)
    if name[0].islower():  # a question: its arguments are checked at this door
        found = import_module("oracle.api.arguments").checked(found)
    globals()[name] = found
    return found


def _nearest(name: str) -> str:
    from oracle.spec.document import nearest

    alike = [one for one in __all__ if one[0].islower() == name[0].islower()]
    near = "" if name.startswith("_") else nearest(name, alike)
    return f"; did you mean `{near}`?" if near else ""


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
