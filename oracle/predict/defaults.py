"""What a training's options are where nobody says them, and what they may be."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import lru_cache
from typing import Any

from oracle.kernels.curve import precision_on
from oracle.kernels.profile import profile as opened
from oracle.models import masks
from oracle.models.model import Model
from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS
from oracle.network.contention import lacking
from oracle.network.contention.price import ALIASES
from oracle.plan.launchable import software as opened_software
from oracle.plan.plan import Plan
from oracle.plan.plan import parse as parsed
from oracle.spec.document import refusal, suggest
from oracle.spec.optimizer import parted
from oracle.spec.options import SLOTS, Options
from oracle.spec.precision import PRECISIONS
from oracle.spec.software import PLAIN, Software
from oracle.spec.system import System
from oracle.spec.units import parse
from oracle.storage import MODES
from oracle.storage import shuffle as shuffle_of


def options_for(
    model: Model, system: System, precision: str | None = None, optimizer: str | None = None,
    ideal: bool = False, max_memory: float | str | None = None, gamma: float = 1.0,
    algorithm: str | None = None, profile: Any = None, software: Any = None,
    any_plan: bool = False, reading: str = "none", shuffle: str = "global",
    epochs: float | None = None, workspace: str | float | None = None,
) -> Options:  # fmt: skip
    """Options with what was not said filled in: the model's usual recipe on this device.

    A model of tokens is trained in mixed precision with Adam by Megatron-Core, on TPUs by MaxText,
    on processors by no framework; a model of pictures in fp32 with momentum by no framework; one of
    both, such as a diffusion's U-Net, like the first but by no framework. What somebody says comes
    first. A profile is one of this system's device.
    """
    tokens = bool(model.tokens.any())
    if precision is None:
        peak = system.device.peak
        precision = next((p for p in ("bf16", "fp16") if p in peak), "fp32") if tokens else "fp32"
    optimizer = optimizer or ("adam" if tokens else "momentum")
    if precision not in PRECISIONS:
        hint = suggest(precision, PRECISIONS, "write one of")
        raise refusal("options", f"unknown precision `{precision}`", hint, "E110")
    optimizer, kfac = parted(optimizer, SLOTS)
    if optimizer == "kfac":
        _check_second_order(model, ideal)
    if not 0 < gamma < float("inf"):
        raise refusal("options", f"a memory reuse gamma of {gamma:g}", "a number above zero")
    _check_algorithm(algorithm, system)
    _check_reading(reading, epochs)
    measured = None if profile is None else opened(profile).on(system.device)
    software_spec = _software(software, masks.of_tokens(model), ideal, system)
    if not (ideal or any_plan) and (complaint := foreign(software_spec, system)):
        raise refusal("software", complaint, "leave `--software` out, or --any to suppose it does")
    has_units = precision_on(system.device, precision) == precision
    software_spec = software_spec.on(system.device, known=has_units)
    if workspace is not None:
        software_spec = software_spec.but(convolution=software_spec.convolution.said(workspace))
    if measured is not None and not ideal:
        if measured.of not in ("", system.device.name):
            complaint = f"the profile is of {measured.of}, not of {system.device.name}"
            raise refusal("options", complaint, "oracle calibrate run … on a log of this device")
        software_spec = software_spec.but(
            host=replace(software_spec.host, times=measured.factors.times("host"))
        )
    return Options(
        precision, optimizer, ideal, memory_limit(max_memory), gamma, algorithm, profile=measured,
        software=software_spec, any_plan=any_plan, reading=reading,
        shuffle=shuffle_of(shuffle).text, epochs=epochs, kfac=kfac,
    )  # fmt: skip


def room_for(system: System, plans: Iterable[str | Plan], grow: bool = False) -> System:
    """The system, where it has the devices that plans want, or is let `grow` to them."""
    part = (parsed(plan, 1) if isinstance(plan, str) else plan for plan in plans)
    bytes_wanted = (int(devices) for plan in part for devices in plan.devices[:, 0])
    return system.of_size(max(bytes_wanted, default=1), grow)


# what runs a training where nobody says it: of tokens, on GPUs or not, and of pictures
USUAL = {"tokens": "megatron-core", "pictures": "plain", "tpu": "maxtext", "cpu": "plain"}
DEVICES = {"cuda": "NVIDIA's GPUs", "rocm": "AMD's GPUs", "tpu": "TPUs", "cpu": "processors"}


def _software(software_name: Any, tokens: bool, ideal: bool, system: System) -> Software:
    if software_name is not None:
        return opened_software(software_name)
    usual = USUAL.get(system.device.platform, USUAL["tokens"])
    return PLAIN if ideal else _usual(usual if tokens else USUAL["pictures"])


def foreign(software: Software, system: System) -> str:
    """Why software does not run on the system's device at all; nothing where it does."""
    platforms, device = software.launch.platforms, system.device
    if not (platforms and device.platform) or device.platform in platforms:
        return ""
    runs_on = " and ".join(DEVICES[platform] for platform in platforms)
    return f"{software.name} runs on {runs_on} alone, not on {device.name}"


@lru_cache
def _usual(name: str) -> Software:
    return opened_software(name)


def memory_limit(value: float | str | None) -> float | None:
    """Bytes of a memory limit; what is less than any device has was meant in another unit."""
    bare = str(value).strip().isdigit()
    hint = f"e.g. `{value if bare else 16} GB`"
    if isinstance(value, str):
        try:
            value = parse(value, "B")
        except ValueError as error:
            raise refusal("options", f"the memory limit: {error}", hint) from None
    if value is not None and not LEAST_MEMORY <= value < float("inf"):
        raise refusal("options", f"a memory limit of {value:g} bytes", hint)
    return value


LEAST_MEMORY = 1024.0  # bytes
READING = ("none", "best", *MODES)


def _check_reading(reading: str, epochs: float | None) -> None:
    if reading not in READING:
        hint = suggest(reading, READING, "write one of")
        raise refusal("options", f"no way to read is called `{reading}`", hint)
    if epochs is not None and not 1 <= epochs < 1e9:
        raise refusal("options", f"{epochs:g} epochs", "a number from 1 on")


def _check_second_order(model: Model, ideal: bool) -> None:
    """K-FAC where its factors are defined."""
    if ideal:
        hint = "another optimizer, or without --ideal"
        raise refusal("options", "the published table has no second-order update", hint)
    if masks.experts(model).any():
        complaint = "K-FAC is not defined for experts, which see tokens of their own"
        raise refusal("options", f"{model.name}: {complaint}", "another optimizer")


def _check_algorithm(algorithm: str | None, system: System) -> None:
    if algorithm is None or nccl.version_named(algorithm):
        return
    names = {
        "best",
        "nccl",
        *ALIASES,
        *(name for algorithms in ALGORITHMS.values() for name in algorithms),
    }
    bare, _, number = algorithm.partition(":")
    by = next((table[bare] for table in ALGORITHMS.values() if bare in table), None)
    numbered = by is not None and bool(by.number) and number.isdigit()
    if algorithm not in names and not (numbered and int(number)):
        hint = suggest(algorithm, sorted(names), "known")
        raise refusal("options", f"no algorithm is called `{algorithm}`", hint)
    if why := lacking(system, ALIASES.get(algorithm, algorithm)):
        raise refusal("options", f"`{algorithm}`: {why}", "another algorithm, or the level's key")
