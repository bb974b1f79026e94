"""Settings of a job as a training: model, software, plan, batch; one module a framework.

Every module of this folder with a `NAME` is a framework, found by itself. It has
`claims(sheet) -> int`, how surely the settings are its own (0: not at all), and
`training(sheet, given) -> Training`.

megatron          Megatron-LM and its descendants, with DeepSpeed too
megatron_model    the model that Megatron-LM's arguments say
megatron_state    software, precision and state, by Megatron-LM's arguments
deepspeed         DeepSpeed's JSON around a model of the user's own
torchtitan        torchtitan's TOML or its overrides
training          what comes of it, and how many devices a launch starts
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from oracle.readers.frameworks.training import Given, Training
from oracle.readers.jobs.sheet import Sheet
from oracle.spec.document import refusal


@cache
def frameworks() -> tuple[ModuleType, ...]:
    """The modules that are frameworks."""
    found = [import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__)]
    return tuple(module for module in found if hasattr(module, "NAME"))


def training(sheet: Sheet, given: Given | None = None) -> Training:
    """What the files of a job train, and how; a SpecError with every fault otherwise."""
    claims = {module: module.claims(sheet) for module in frameworks()}
    chosen = max(claims, key=lambda module: claims[module])
    if not claims[chosen]:
        known = ", ".join(module.NAME for module in claims)
        name = ", ".join(sheet.texts)
        raise refusal(name, "no settings of a known framework stand here", known, "E130")
    found: Training = chosen.training(sheet, given or Given())
    sheet.check()
    return found
