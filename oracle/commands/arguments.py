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
# columns of the Markdown table, where the rows have more than people read
BRIEF = ("plan", "status", "seconds", "seconds_low", "seconds_high", "memory", "capacity", "why")


def result_arguments(
    parser: argparse.ArgumentParser, forms: Iterable[str] = FORMATS, *, file: bool = True
) -> None:
    """Add the options of every verb that prints a result."""
    options = group(parser, "the answer")
    choices = list(forms)
    options.add_argument("--format", choices=choices, dest="form", metavar="F",
                         help=f"{either(choices)} (default: {choices[0]})")  # fmt: skip
    options.add_argument("--json", action="store_const", const="json", dest="form",
                        help="short for --format json")  # fmt: skip
    if file:
        options.add_argument("-o", "--output", dest="to", metavar="FILE",
                            help="write it there, whole or not at all; - prints it")  # fmt: skip


def whole_number(text: str) -> int:
    """Return the text of an option as a whole number from 1 on."""
    if not re.fullmatch("[0-9]{1,16}", text) or not 1 <= int(text) < 2**53:
        complaint = f"`{text}` is not a whole number from 1 on{spelled_out(text)}"
        raise argparse.ArgumentTypeError(complaint)
    return int(text)


def per_device(text: str) -> float:
    """Return a number of samples per device, a fraction where devices share one sample."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value < 1e12:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of samples above zero")
    return value


def lasting(text: str) -> str:
    """Return a name or a file, but refuse standard input, which only one process can read."""
    if text == "-":
        raise argparse.ArgumentTypeError("standard input cannot be shared: name a file")
    return text


def names(text: str) -> list[str]:
    """Return the words between commas."""
    return [word for word in text.replace(",", " ").split() if word]


def prediction_arguments(parser: argparse.ArgumentParser, *, system: bool = True) -> None:
    """Add the options of every verb that predicts."""
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


# fields of a model that have an option of their own; others are changed by `MODEL,field=value`
CHANGES = {"sequence": "tokens of a sequence", "layers": "of a transformer",
           "vocab": "words of a transformer"}  # fmt: skip


def model_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that change a model; `MODEL,field=value` changes any other field."""
    options = group(parser, "the model, where not as its file has it")
    for name, meaning in CHANGES.items():
        options.add_argument(
            f"--{name}", type=whole_number, metavar="N", help=f"{meaning}, not the model's"
        )
    options.add_argument("--train", metavar="T", help="full, lora:16, lora:16:attention, … forward")
    options.add_argument("--inference", action="store_const", const="forward", dest="train",
                        help="forward passes alone: --train forward")  # fmt: skip


def changed(args: argparse.Namespace) -> None:
    """Append the options that change the model and the system to their names in `args`."""
    model_changes = [(name, getattr(args, name, None)) for name in (*CHANGES, "train")]
    words = [f"{name}={value}" for name, value in model_changes if value is not None]
    if words and getattr(args, "model", None):
        args.model = ",".join(",".join((name, *words)) for name in specs(args.model))
    system_changes = [(name, getattr(args, name, None)) for name in RUNNING]
    words = [f"{name}={value}" for name, value in system_changes if value is not None]
    words += [name.replace("=", TIMES) for name in getattr(args, "supposed", ())]
    dest = "systems" if getattr(args, "systems", None) else "system"
    if words and getattr(args, dest, None):
        changed_names = ",".join(",".join((name, *words)) for name in specs(getattr(args, dest)))
        setattr(args, dest, changed_names)


def specs(text: str) -> tuple[str, ...]:
    """Return names or files between commas, each with its changes; `a,b` may be one file."""
    if Path(text).is_file():
        return (text,)
    separated: list[str] = []
    for word in map(str.strip, text.split(",")):
        if "=" in word and separated and not Path(word).is_file():
            separated[-1] += f",{word}"
        else:
            separated += names(word)
    return tuple(separated)


# costs of a system that have an option; `SYSTEM,field=value` changes its other fields
RUNNING = {"price": "of a device here, e.g. `2.5 USD/h`", "pue": "of the site, e.g. 1.1",
           "grid": "CO₂ of its electricity, e.g. `57 g/kWh`"}  # fmt: skip


def price_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of what running a system costs."""
    options = group(parser, "the system, where not as its file has it")
    for name, meaning in RUNNING.items():
        options.add_argument(f"--{name}", metavar="V", help=meaning)


def what_if_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--what-if`, factors on the system; a sweep's own `--what-if` takes several sets."""
    options = group(parser, "the system, where not as its file has it")
    options.add_argument("--what-if", action="extend", type=factors, default=[], dest="supposed",
                        metavar="X=K,…", help=f"times K: {either(FACTORS)}")  # fmt: skip


def factors(text: str) -> list[str]:
    """Return the words of `network=2,memory=0.5`; who uses the factors judges them."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[^=,]+=[^=,]+", word) for word in words):
        raise argparse.ArgumentTypeError(f"`{text}` is not X=K,…, e.g. network=2")
    return words


def grow_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--grow` to verbs that refuse plans larger than the system."""
    options = group(parser, "the system, where not as its file has it")
    options.add_argument("--grow", action="store_true",
                        help="let the system's outermost level join more devices")  # fmt: skip


def placement_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of which nodes a job has and how its ranks fill them."""
    options = group(parser, "where ranks sit")
    options.add_argument("--place", choices=PLACED, metavar="W",
                        help=f"ranks on devices: {either(PLACED)}")  # fmt: skip
    options.add_argument("--nodes", metavar="LIST",
                        help="that a scheduler gave: `rack3-[1-16],rack7-[1-16]`, or by number "
                             "0-7,32-39")  # fmt: skip


PLACED = ("block", "cyclic", "best")


def placement_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the placement as keyword arguments of `oracle.estimate` and `oracle.recommend`."""
    return {"nodes": args.nodes, "place": args.place}


def software_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the software that runs the training."""
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
    """Add the options of how samples are read."""
    options = group(parser, "how samples are read")
    options.add_argument("--reading", choices=WAYS, default="best", metavar="R", help=either(WAYS))
    options.add_argument("--shuffle", default="global", metavar="S",
                        help="of samples: global, local, or partial:0.1 of a node's")  # fmt: skip
    options.add_argument("--epochs", type=epochs, metavar="E",
                        help="of the training, which what is done once is spread over")  # fmt: skip


def epochs(text: str) -> float:
    """Return a number of epochs from 1 on."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 1 <= value < 1e9:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number of epochs from 1 on")
    return value


def recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of precision and optimizer; without, those usual for the model."""
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
    """Names that may have knobs behind a comma; the spec's reader judges the knobs."""

    def __contains__(self, word: object) -> bool:
        return super().__contains__(str(word).partition(",")[0])


def either(words: Iterable[str]) -> str:
    """Return a list in words: `a, b or c`."""
    *head, last = words
    return f"{', '.join(head)} or {last}"


def profile_argument(parser: argparse.ArgumentParser) -> None:
    """Add `--profile`, measured rows, to a verb that predicts."""
    options = group(parser, "how it is predicted")
    options.add_argument("--profile", metavar="FILE",
                        help="of `measure compute` or `calibrate run`, or a run's log")  # fmt: skip


def samples(text: str) -> int:
    """Return a global batch; refuse `max`, which is a question about one plan."""
    if text == "max":
        complaint = "`max` is for a plan that is named: `oracle estimate … --plan … --batch max`"
        raise argparse.ArgumentTypeError(f"{complaint}; say a number here")
    return whole_number(text)


def samples_or_max(text: str) -> int | str:
    """Return a global batch, or `max`: the largest whose micro-batches fit."""
    return text if text == "max" else whole_number(text)


def length_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of how long the whole training is; `--epochs` says it too."""
    options = group(parser, "the whole training")
    end = options.add_mutually_exclusive_group()
    end.add_argument("--to-target", action="store_true",
                     help="until the model's target is met, by what runs needed")  # fmt: skip
    end.add_argument("--tokens", type=large_number, metavar="T", help="so many, e.g. 15T")
    end.add_argument("--steps", type=large_number, metavar="S", help="so many iterations")
    price_arguments(parser)
    running_arguments(parser)


def limit_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the limits of a whole training."""
    options = group(parser, "the whole training")
    options.add_argument("--within", metavar="T", help="of time: 7d, 12h, 45min")
    options.add_argument("--budget", action="append", default=[], metavar="B",
                        help="1MUSD, 500MWh, 30tCO2, 20k device-hours; several times")  # fmt: skip


def running_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of what interrupts a training and how it saves its state."""
    options = group(parser, "the whole training")
    options.add_argument("--failures", metavar="F",
                        help="e.g. `50 kh,restart=10 min,elastic,repair=1 day`; none")  # fmt: skip
    options.add_argument("--checkpoint", metavar="C",
                        help="rank0, sharded or async; `async,to=host,every=30 min`")  # fmt: skip


def running(args: argparse.Namespace, system: System) -> System:
    """Return the system with the failures and checkpoints that the options say."""
    from oracle.spec.told import as_said

    return as_said(system, getattr(args, "failures", None), getattr(args, "checkpoint", None))


def large_number(text: str) -> float:
    """Return a large number that a letter may follow: 300B, 15T."""
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?(?:e[0-9]{1,2})?)\s*([kKMGBT]?)", text)
    value = float(match[1]) * SCALES[match[2]] if match else 0.0
    if not 1 <= value < 1e18:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number such as 300B or 15T")
    return value


SCALES = {"": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9, "T": 1e12}


def as_runs_did(args: argparse.Namespace) -> None:
    """Set the optimizer, where none is said, to that of the runs that met the target."""
    if args.to_target and args.optimizer is None:
        from oracle.models.model import model

        args.optimizer = next((run.optimizer for run in model(args.model).convergence), None)


def length_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the length of the training as keyword arguments of `oracle.run.target.length`."""
    return {"target": args.to_target, "epochs": args.epochs, "tokens": args.tokens,
            "steps": args.steps}  # fmt: skip


def batch_arguments(
    parser: argparse.ArgumentParser, *, largest: bool = False, needed: bool = True
) -> None:
    """Add the global batch and the batch per device; with `largest`, `max` is taken too."""
    size = parser.add_mutually_exclusive_group(required=needed)
    more = ", or max: of the largest micro-batches that fit" if largest else ""
    size.add_argument("--batch", type=samples_or_max if largest else samples, metavar="B",
                      help=f"samples per iteration, all devices{more}")  # fmt: skip
    size.add_argument("--batch-per-device", type=per_device, metavar="b", help="samples per device")


def batch_of(args: argparse.Namespace, plan: str) -> int:
    """Return the global batch of a plan: `--batch`, or the batch per device times devices."""
    if args.batch is not None:
        return int(args.batch)
    from oracle.plan.plan import parse

    samples: int = round(args.batch_per_device * int(parse(plan, 1).devices[0, 0]))
    return max(1, samples)


def objective_argument(parser: argparse._ActionsContainer) -> None:
    """Add the objective of a ranking."""
    choices = ["time", "cost", "memory", "money", "energy", "carbon"]
    parser.add_argument("--objective", choices=choices, default="time", metavar="X",
                        help="time, cost (device-seconds), "
                        "memory, money, energy or carbon")  # fmt: skip


def prediction_options(args: argparse.Namespace) -> dict[str, Any]:
    """Return the options as keyword arguments of `oracle.estimate` and `oracle.recommend`."""
    return {
        "dataset": args.dataset, "precision": args.precision, "optimizer": args.optimizer,
        "ideal": args.ideal, "max_memory": args.max_memory, "gamma": args.gamma,
        "algorithm": args.algorithm, "profile": args.profile, "software": args.software,
        "any_plan": args.any_plan, "grow": getattr(args, "grow", False), "reading": args.reading,
        "shuffle": args.shuffle, "epochs": args.epochs, "workspace": args.workspace,
    }  # fmt: skip
