"""Settings of a job as a training: model, software, plan, batch; one module a framework.

Every module of this folder with a `NAME` is a framework. It has `claims(sheet) -> int`, how surely
the settings are its own (0: not at all), and `training(sheet, overrides) -> Training`.

megatron          Megatron-LM and its descendants, with DeepSpeed too
megatron_model    the model of Megatron-LM's arguments
megatron_state    software, precision and state of Megatron-LM's arguments
deepspeed         DeepSpeed's JSON around a model of the user's own
torchtitan        torchtitan's TOML or its overrides
training          the training of a job, and the devices that its launch starts
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from oracle.readers.frameworks.training import Overrides, Training
from oracle.readers.jobs.sheet import Sheet
from oracle.spec.document import refusal


@cache
def frameworks() -> tuple[ModuleType, ...]:
    """Return the modules that are frameworks."""
    modules = [import_module(f"{__name__}.{entry.name}") for entry in iter_modules(__path__)]
    return tuple(module for module in modules if hasattr(module, "NAME"))


def training(sheet: Sheet, overrides: Overrides | None = None) -> Training:
    """Return the training of a job's files, or raise a SpecError with every fault."""
    claims = {module: module.claims(sheet) for module in frameworks()}
    chosen = max(claims, key=lambda module: claims[module])
    if not claims[chosen]:
        names = ", ".join(module.NAME for module in claims)
        name = ", ".join(sheet.texts)
        raise refusal(name, "no settings of a known framework stand here", names, "E130")
    result: Training = chosen.training(sheet, overrides or Overrides())
    sheet.check()
    return result
