"""Options that several verbs share, and the types of what they take."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oracle.commands.parser import group
from oracle.spec.options import SLOTS
from oracle.spec.precision import PRECISIONS
from oracle.spec.units import spelled_out
from oracle.spec.what_if import FACTORS, TIMES

if TYPE_CHECKING:
    from oracle.spec.system import System

FORMATS = ("text", "json", "csv", "md")
# columns of a table for people, where the rows have more than they read
BRIEF = ("plan", "status", "seconds", "seconds_low", "seconds_high", "memory", "capacity", "why")


def result_arguments(
    parser: argparse.ArgumentParser, forms: Iterable[str] = FORMATS, *, file: bool = True
) -> None:
    """What every verb that prints a result takes."""
    options = group(parser, "the answer")
    known = list(forms)
    options.add_argument("--format", choices=known, dest="form", metavar="F",
                        help=f"{either(known)} (default: {known[0]})")  # fmt: skip
    options.add_argument("--json", action="store_const", const="json", dest="form",
                        help="short for --format json")  # fmt: skip
    if file:
        options.add_argument("-o", "--output", dest="to", metavar="FILE",
                            help="write it there, whole or not at all; - prints it")  # fmt: skip


def whole(text: str) -> int:
    """A whole number from 1 on, as an option takes it."""
    if not re.fullmatch("[0-9]{1,16}", text) or not 1 <= int(text) < 2**53:
        what = f"`{text}` is not a whole number from 1 on{spelled_out(text)}"
        raise argparse.ArgumentTypeError(what)
    return int(text)


def per_device(text: str) -> float:
    """Samples per device; a fraction where several devices share one sample."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e12:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of samples above zero")
    return value


def lasting(text: str) -> str:
    """A name or a file that several processes can read; what is piped in can be read once."""
    if text == "-":
        raise argparse.ArgumentTypeError("standard input cannot be shared: name a file")
    return text


def names(text: str) -> list[str]:
    """Words between commas."""
    return [word for word in text.replace(",", " ").split() if word]


def prediction_arguments(parser: argparse.ArgumentParser, *, system: bool = True) -> None:
    """What every verb that predicts takes."""
    options = group(parser, "how it is predicted")
    parser.add_argument(
        "model", metavar="MODEL", help="a shipped model, a file, or - for standard input"
    )
    if system:
        parser.add_argument("system", metavar="SYSTEM", help="a shipped system, a file, or -")
    options.add_argument(
        "--dataset", metavar="D", help="a shipped data set, or a file (default: the model's)"
    )
    options.add_argument(
        "--max-memory", metavar="M", help="of a device, e.g. `14 GiB` (default: all it has)"
    )
    recipe_arguments(parser)
    model_arguments(parser)
    options.add_argument("--ideal", action="store_true", help="the published table's assumptions")
    options.add_argument(
        "--gamma", type=float, default=1.0, metavar="G", help="memory reuse, with --ideal"
    )
    options.add_argument(
        "--algorithm",
        metavar="A",
        help="of collectives: ring, tree, nccl, … (default: the library's choice)",
    )
    profile_argument(parser)
    software_arguments(parser)
    options.add_argument(
        "--workspace",
        metavar="W",
        help="of convolutions: 64MiB, `64MiB,micro=best`, `1GiB,shared=on`",
    )
    reading_arguments(parser)
    if system:
        grow_argument(parser)


# of a model, what is said anew in an option of its own; the rest as `MODEL,field=value`
CHANGES = {"sequence": "tokens of a sequence", "layers": "of a transformer",
           "vocab": "words of a transformer"}  # fmt: skip


def model_arguments(parser: argparse.ArgumentParser) -> None:
    """What of the model is otherwise than its file says; any other field as MODEL,field=value."""
    options = group(parser, "the model, where not as its file has it")
    for name, what in CHANGES.items():
        options.add_argument(f"--{name}", type=whole, metavar="N", help=f"{what}, not the model's")
    options.add_argument("--train", metavar="T", help="full, lora:16, lora:16:attention, … forward")
    options.add_argument("--inference", action="store_const", const="forward", dest="train",
                        help="forward passes alone: --train forward")  # fmt: skip


def changed(asked: argparse.Namespace) -> None:
    """Write the options that change a model after its name, where all that is asked sees them."""
    said = [(name, getattr(asked, name, None)) for name in (*CHANGES, "train")]
    words = [f"{name}={value}" for name, value in said if value is not None]
    if words and getattr(asked, "model", None):
        asked.model = ",".join(",".join((each, *words)) for each in specs(asked.model))
    running = [(name, getattr(asked, name, None)) for name in RUNNING]
    words = [f"{name}={value}" for name, value in running if value is not None]
    words += [each.replace("=", TIMES) for each in getattr(asked, "supposed", ())]
    where = "systems" if getattr(asked, "systems", None) else "system"
    if words and getattr(asked, where, None):
        named = ",".join(",".join((each, *words)) for each in specs(getattr(asked, where)))
        setattr(asked, where, named)


def specs(text: str) -> tuple[str, ...]:
    """Names or files between commas, each with its changes; a file with a comma is one file."""
    if Path(text).is_file():
        return (text,)
    found: list[str] = []
    for word in map(str.strip, text.split(",")):
        if "=" in word and found and not Path(word).is_file():
            found[-1] += f",{word}"
        else:
            found += names(word)
    return tuple(found)


# of a system, what running it costs; its other fields as SYSTEM,field=value
RUNNING = {"price": "of a device here, e.g. `2.5 USD/h`", "pue": "of the site, e.g. 1.1",
           "grid": "CO₂ of its electricity, e.g. `57 g/kWh`"}  # fmt: skip


def price_arguments(parser: argparse.ArgumentParser) -> None:
    """What running a system costs, where its file does not say so."""
    options = group(parser, "the system, where not as its file has it")
    for name, what in RUNNING.items():
        options.add_argument(f"--{name}", metavar="V", help=what)


def what_if_argument(parser: argparse.ArgumentParser) -> None:
    """The system as it would be; a sweep has an option of this name for several of them."""
    options = group(parser, "the system, where not as its file has it")
    options.add_argument("--what-if", action="extend", type=factors, default=[], dest="supposed",
                        metavar="X=K,…", help=f"times K: {either(FACTORS)}")  # fmt: skip


def factors(text: str) -> list[str]:
    """`network=2,memory=0.5`; whether they can be is judged where they are used."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[^=,]+=[^=,]+", word) for word in words):
        raise argparse.ArgumentTypeError(f"`{text}` is not X=K,…, e.g. network=2")
    return words


def grow_argument(parser: argparse.ArgumentParser) -> None:
    """For verbs that refuse what is larger than the system."""
    options = group(parser, "the system, where not as its file has it")
    options.add_argument("--grow", action="store_true",
                        help="let the system's outermost level join more devices")  # fmt: skip


def placement_arguments(parser: argparse.ArgumentParser) -> None:
    """Which nodes a job was given, and how its ranks fill them."""
    options = group(parser, "where ranks sit")
    options.add_argument("--place", choices=PLACED, metavar="W",
                        help=f"ranks on devices: {either(PLACED)}")  # fmt: skip
    options.add_argument("--nodes", metavar="LIST",
                        help="that a scheduler gave: `rack3-[1-16],rack7-[1-16]`, or by number "
                             "0-7,32-39")  # fmt: skip


PLACED = ("block", "cyclic", "best")


def placement_options(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of `oracle.estimate` and `oracle.recommend`."""
    return {"nodes": asked.nodes, "place": asked.place}


def software_arguments(parser: argparse.ArgumentParser) -> None:
    """What runs the training."""
    options = group(parser, "what runs it")
    options.add_argument(
        "--software",
        metavar="S",
        help="a name or file, `nemo,gradients=bf16` (default: megatron-core for tokens, else none)",
    )
    options.add_argument(
        "--any", action="store_true", dest="any_plan", help="plans too that it cannot be told"
    )


WAYS = ("best", "none", "shared", "cached", "staged", "striped", "spatial")


def reading_arguments(parser: argparse.ArgumentParser) -> None:
    """How samples are got."""
    options = group(parser, "how samples are read")
    options.add_argument("--reading", choices=WAYS, default="best", metavar="R", help=either(WAYS))
    options.add_argument("--shuffle", default="global", metavar="S",
                        help="of samples: global, local, or partial:0.1 of a node's")  # fmt: skip
    options.add_argument("--epochs", type=epochs, metavar="E",
                        help="of the training, which what is done once is spread over")  # fmt: skip


def epochs(text: str) -> float:
    """Epochs of a training: a number from 1 on."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of epochs from 1 on")
    return value


def recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """How it is trained; not said, as is usual for the model on the device."""
    options = group(parser, "how it is trained")
    options.add_argument(
        "--precision",
        choices=PRECISIONS,
        metavar="P",
        help=f"{either(PRECISIONS)} (default: 16 bits for tokens, else fp32)",
    )
    options.add_argument("--optimizer", choices=WithKnobs(SLOTS), metavar="O",
                        help=f"{either(SLOTS)}; `kfac,factors=10,inverse=100` "
                         "(default: adam for tokens, else momentum)")  # fmt: skip


class WithKnobs(list[str]):
    """Names, of which each may have knobs behind a comma; what knobs are is judged later."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(str(word).partition(",")[0])


def either(known: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = known
    return f"{', '.join(most)} or {last}"


def profile_argument(parser: argparse.ArgumentParser) -> None:
    """Measured rows, for every verb that predicts."""
    options = group(parser, "how it is predicted")
    options.add_argument("--profile", metavar="FILE",
                        help="of `measure compute` or `calibrate run`, or a run's log")  # fmt: skip


def samples(text: str) -> int:
    """A global batch; `max` is a question about one plan."""
    if text == "max":
        what = "`max` is for a plan that is named: `oracle estimate … --plan … --batch max`"
        raise argparse.ArgumentTypeError(f"{what}; say a number here")
    return whole(text)


def samples_or_max(text: str) -> int | str:
    """A global batch, or `max`: the largest whose micro-batches fit."""
    return text if text == "max" else whole(text)


def length_arguments(parser: argparse.ArgumentParser) -> None:
    """How long the whole training is; `--epochs` says it too."""
    options = group(parser, "the whole training")
    end = options.add_mutually_exclusive_group()
    end.add_argument("--to-target", action="store_true",
                     help="until the model's target is met, by what runs needed")  # fmt: skip
    end.add_argument("--tokens", type=many, metavar="T", help="so many, e.g. 15T")
    end.add_argument("--steps", type=many, metavar="S", help="so many iterations")
    price_arguments(parser)
    running_arguments(parser)


def limit_arguments(parser: argparse.ArgumentParser) -> None:
    """What a whole training may take."""
    options = group(parser, "the whole training")
    options.add_argument("--within", metavar="T", help="of time: 7d, 12h, 45min")
    options.add_argument("--budget", action="append", default=[], metavar="B",
                        help="1MUSD, 500MWh, 30tCO2, 20k device-hours; several times")  # fmt: skip


def running_arguments(parser: argparse.ArgumentParser) -> None:
    """What interrupts a training, and how it saves its state."""
    options = group(parser, "the whole training")
    options.add_argument("--failures", metavar="F",
                        help="e.g. `50 kh,restart=10 min,elastic,repair=1 day`; none")  # fmt: skip
    options.add_argument("--checkpoint", metavar="C",
                        help="rank0, sharded or async; `async,to=host,every=30 min`")  # fmt: skip


def running(asked: argparse.Namespace, system: System) -> System:
    """The system with what the options say of it."""
    from oracle.spec.told import as_said

    return as_said(system, getattr(asked, "failures", None), getattr(asked, "checkpoint", None))


def many(text: str) -> float:
    """A large number with a letter behind it: 300B, 15T."""
    found = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?(?:e[0-9]{1,2})?)\s*([kKMGBT]?)", text)
    value = float(found[1]) * SCALES[found[2]] if found else 0.0
    if not 1 <= value < 1e18:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number such as 300B or 15T")
    return value


SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def as_runs_did(asked: argparse.Namespace) -> None:
    """To a target, the optimizer of the runs that met it, where none is said."""
    if asked.to_target and asked.optimizer is None:
        from oracle.models.model import model

        asked.optimizer = next((one.optimizer for one in model(asked.model).convergence), None)


def length_options(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of `oracle.run.target.length`."""
    return {"target": asked.to_target, "epochs": asked.epochs, "tokens": asked.tokens,
            "steps": asked.steps}  # fmt: skip


def batch_arguments(
    parser: argparse.ArgumentParser, *, largest: bool = False, needed: bool = True
) -> None:
    """The global batch, or the batch per device; `largest`: `max` is taken too."""
    size = parser.add_mutually_exclusive_group(required=needed)
    more = ", or max: of the largest micro-batches that fit" if largest else ""
    size.add_argument("--batch", type=samples_or_max if largest else samples, metavar="B",
                      help=f"samples per iteration, all devices{more}")  # fmt: skip
    size.add_argument("--batch-per-device", type=per_device, metavar="b", help="samples per device")


def batch_of(asked: argparse.Namespace, plan: str) -> int:
    """The global batch of a plan: as it was said, or for as many devices as the plan has."""
    if asked.batch is not None:
        return int(asked.batch)
    from oracle.plan.plan import parse

    samples: int = round(asked.batch_per_device * int(parse(plan, 1).devices[0, 0]))
    return max(1, samples)


def objective_argument(parser: argparse._ActionsContainer) -> None:
    """What a ranking is by."""
    known = ["time", "cost", "memory", "money", "energy", "carbon"]
    parser.add_argument("--objective", choices=known, default="time", metavar="X",
                        help="time, cost (device-seconds), "
                        "memory, money, energy or carbon")  # fmt: skip


def prediction_options(asked: argparse.Namespace) -> dict[str, Any]:
    """The same as keyword arguments of `oracle.estimate` and `oracle.recommend`."""
    return {
        "dataset": asked.dataset,
        "precision": asked.precision,
        "optimizer": asked.optimizer,
        "ideal": asked.ideal,
        "max_memory": asked.max_memory,
        "gamma": asked.gamma,
        "algorithm": asked.algorithm,
        "profile": asked.profile,
        "software": asked.software,
        "any_plan": asked.any_plan,
        "grow": getattr(asked, "grow", False),
        "reading": asked.reading,
        "shuffle": asked.shuffle,
        "epochs": asked.epochs,
        "workspace": asked.workspace,
    }
