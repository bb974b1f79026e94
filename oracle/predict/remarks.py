"""What a prediction did otherwise than it was asked, and values it used that look wrong."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from oracle.kernels.convolved import KINDS as CONVOLUTIONS
from oracle.kernels.curve import precision_on
from oracle.models.model import Model
from oracle.network import nccl
from oracle.network.collectives import ALGORITHMS
from oracle.network.contention.price import ALIASES
from oracle.spec.options import Options
from oracle.spec.plausible import warnings
from oracle.spec.schema import Clash
from oracle.spec.system import System

STRANGE = 5.0  # times what kernels are expected to take: fits of known devices stay within 2
ANY = (None, "best", "nccl")  # algorithms that say nothing of one operation


def lacking(system: System, precision: str) -> Iterator[Clash]:
    """A precision that the device has no unit for."""
    device = system.device
    if (priced_in := precision_on(device, precision)) != precision:
        complaint = f"{device.name} has no {precision}: its kernels are priced in {priced_in}"
        yield Clash("precision", complaint, f"--precision {' or '.join(device.peak)}")


def fallbacks(
    system: System, options: Options, exchange: Iterable[Iterable[Mapping[str, Any]]]
) -> Iterator[Clash]:
    """A precision the device has no unit for, an algorithm that some operations do not have."""
    yield from lacking(system, options.precision)
    name = options.algorithm
    if name in ANY or nccl.version_named(name):
        return
    name = ALIASES.get(str(name), str(name))
    alike = (name, "collnet") if name == "sharp" else (name,)
    used_by_op: dict[str, set[str]] = {}
    for sent in exchange:
        for message in sent:
            used = str(message["algorithm"]).partition("/")[0].removesuffix(" on circuits")
            as_asked = used in (*alike, "") or used.partition(":")[0] == name
            if message["op"] in ALGORITHMS and not as_asked:
                used_by_op.setdefault(str(message["op"]), set()).add(used)
    for op, used_instead in used_by_op.items():
        instead = " or ".join(sorted(used_instead))
        why = "serves these groups" if name.partition(":")[0] in ALGORITHMS[op] else f"has {op}"
        yield Clash("algorithm", f"no {name} {why}: {op} is priced as {instead}",
                    f"of {op}: {', '.join(ALGORITHMS[op])}")  # fmt: skip


def remarks(
    system: System, dataset: Any, options: Options,
    exchange: Iterable[Iterable[Mapping[str, Any]]],
) -> list[dict[str, str]]:  # fmt: skip
    """All of them as data; `field` says which option, or which place of a spec."""
    clashes = [*fallbacks(system, options, exchange), *warnings(system, "system")]
    clashes += [] if dataset is None else warnings(dataset, "dataset")
    return [{"field": clash.field, "what": clash.what, "hint": clash.hint} for clash in clashes]


def unheard(options: Options, model: Model) -> list[dict[str, str]]:
    """A workspace that nobody wants: nothing is convolved."""
    convolution = options.software.convolution
    if convolution.algorithms == "usual" or any(row.work in CONVOLUTIONS for row in model.rows):
        return []
    complaint = f"{model.name} has no convolutions: nothing takes a workspace"
    return [{"field": "workspace", "what": complaint, "hint": "leave `--workspace` out"}]


def of_profile(system: System, ratio: float) -> list[dict[str, str]]:
    """Whether measured rows can be of this device, by how many times as long they take."""
    if 1 / STRANGE <= ratio <= STRANGE:
        return []
    times, way = (ratio, "longer") if ratio > 1 else (1 / ratio, "shorter")
    complaint = f"its rows take {times:.3g} times {way} than {system.device.name} is expected to"
    return [{"field": "profile", "what": complaint, "hint": "measure on the device that is meant"}]


def elsewhere(options: Options, model: str) -> list[dict[str, str]]:
    """What runs that were logged were otherwise than what is predicted from them."""
    profile = options.profile
    pairs = (("software", profile.under, options.software.label), ("model", profile.trained, model),
             ("precision", profile.precision if profile.of else "", options.precision))  # fmt: skip
    return [
        {"field": "profile", "what": f"its runs had {name} {logged}, not {predicted}",
         "hint": "what they tell may be another's"}
        for name, logged, predicted in pairs if logged not in ("", predicted)
    ]  # fmt: skip
