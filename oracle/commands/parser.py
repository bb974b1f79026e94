"""What verbs take: the parser, the options that several share, and an answer's form.

An option is declared once, in its verb's `arguments`: the parser, the configuration, the shell
completions and the manual page all read that declaration.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from keyword import iskeyword
from types import ModuleType
from typing import Any, NoReturn

from oracle.spec.options import PRECISIONS, SLOTS

VERBS = {
    "recommend": "rank the ways to split a training over N devices",
    "estimate": "predict one plan, with its parts",
    "explain": "a strategy's equations; or what bounds a plan and what would change that",
    "sweep": "scaling curves over devices, batches, what-if factors; resumable",
    "report": "one self-contained HTML file of a recommendation",
    "plot": "figures: breakdown, scaling, memory, Pareto, contention, timeline",
    "specs": "list, show, check model, system and data set files",
    "import": "a model spec from torch, ONNX or a Hugging Face config",
    "export": "launch files of a plan: torchrun, slurm, deepspeed, megatron, trace",
    "measure": "time collectives or kernels on this machine",
    "calibrate": "fit α, β and kernel efficiency to measurements",
    "run": "really train under a plan, and time it",
    "compare": "predictions against measurements",
    "config": "what is set where: flags, environment, files, defaults",
    "schema": "JSON Schema of spec files and of every answer in JSON",
    "completion": "completions for bash, zsh and fish; the manual page",
    "selftest": "is this installation sound? a few seconds",
}
FORMATS = ("text", "json", "csv", "md")
BRIEF = ("plan", "status", "seconds", "seconds_low", "seconds_high", "memory", "capacity", "why")


class Usage(Exception):
    """A command line that cannot be used."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a verb has to say: data, a note beside it, and the exit code."""

    text: str = ""
    code: int = 0
    note: str = ""


class Parser(argparse.ArgumentParser):
    """argparse that suggests the nearest word and never exits by itself."""

    def error(self, message: str) -> NoReturn:
        raise Usage(self._nearer(message))

    def _nearer(self, message: str) -> str:
        from oracle.spec.document import suggest

        if found := re.fullmatch(r"(.*): invalid choice: '(.*)' \(choose from (.*)\)", message):
            known = [word.strip("' ") for word in found[3].split(",")]
            return f"{found[1]}: unknown `{found[2]}`; {suggest(found[2], known, 'write one of')}"
        return message


def module_of(verb: str) -> ModuleType:
    """The file of a verb; `import` is a word of Python's own, so its file has a tail."""
    return import_module(f"oracle.commands.{verb}{'_' if iskeyword(verb) else ''}")


def parser_of(verb: str) -> Parser:
    """Everything that a verb takes."""
    module = module_of(verb)
    parser = Parser(
        prog=f"oracle {verb}", description=module.__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-q", "--quiet", action="store_true", help="say only what was asked for")
    parser.add_argument("-v", "--verbose", action="store_true",
                        help="say what was read, what is set where, how long it took")  # fmt: skip
    parser.add_argument("--color", choices=["auto", "always", "never"], default="auto",
                        metavar="WHEN", help="auto, always or never")  # fmt: skip
    module.arguments(parser)
    return parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its own verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option of a parser and of its own verbs."""
    for one in parsers(parser):
        yield from (action for action in one._actions if action.option_strings)


def misspelt(parser: argparse.ArgumentParser, words: Iterable[str]) -> str:
    """The first option of a line that nobody knows but that is near to one, in words."""
    from oracle.spec.document import nearest

    flags = [flag for action in options(parser) for flag in action.option_strings]
    for word in words:
        if word == "--":
            break
        flag = word.split("=")[0]
        if (
            len(flag) > 1
            and flag[0] == "-"
            and flag not in flags
            and (meant := nearest(flag, flags))
        ):
            return f"unknown option `{flag}`; did you mean `{meant}`?"
    return ""


def as_json(data: Any) -> str:
    """JSON for another program: no NaN, keys in the order they are documented."""
    return json.dumps(data, indent=2, allow_nan=False)


def told(
    asked: argparse.Namespace, text: Callable[[], str], data: Callable[[], Any],
    rows: Callable[[], Iterable[Mapping[str, Any]]], code: int = 0, note: str = "",
    brief: Sequence[str] | None = None,
) -> Answer:  # fmt: skip
    """A result in the form that was asked for; only that form is made.

    `brief` are the columns of a table for people, where the rows have more than they read.
    """
    form = asked.form or "text"
    if form == "json":
        return Answer(as_json(data()), code, note)
    if form == "text":
        return Answer(text().rstrip("\n"), code, note)
    from oracle.writers.rows import as_csv, as_markdown

    found = list(rows())
    written = as_csv(found) if form == "csv" else as_markdown(found, brief)
    return Answer(written.rstrip("\n"), code, note)


def result_arguments(
    parser: argparse.ArgumentParser, forms: Iterable[str] = FORMATS, *, file: bool = True
) -> None:
    """What every verb that prints a result takes."""
    known = list(forms)
    parser.add_argument("--format", choices=known, dest="form", metavar="F",
                        help=either(known))  # fmt: skip
    parser.add_argument("--json", action="store_const", const="json", dest="form",
                        help="short for --format json")  # fmt: skip
    if file:
        parser.add_argument("-o", "--output", dest="to", metavar="FILE",
                            help="write it there, whole or not at all; - prints it")  # fmt: skip


def whole(text: str) -> int:
    """A whole number from 1 on, as an option takes it."""
    if not text.isdigit() or not 1 <= int(text) < 2**53:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number from 1 on")
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
    parser.add_argument(
        "model", metavar="MODEL", help="a shipped model, a file, or - for standard input"
    )
    if system:
        parser.add_argument("system", metavar="SYSTEM", help="a shipped system, a file, or -")
    parser.add_argument("--dataset", metavar="D", help="a shipped data set, or a file")
    parser.add_argument("--max-memory", metavar="M", help="of a device, e.g. `14 GiB`")
    recipe_arguments(parser)
    parser.add_argument("--ideal", action="store_true", help="the published table's assumptions")
    parser.add_argument(
        "--gamma", type=float, default=1.0, metavar="G", help="memory reuse, with --ideal"
    )
    parser.add_argument("--algorithm", metavar="A", help="of collectives: ring, tree, nccl, …")
    profile_argument(parser)


def recipe_arguments(parser: argparse.ArgumentParser) -> None:
    """How it is trained; not said, as is usual for the model on the device."""
    parser.add_argument("--precision", choices=PRECISIONS, metavar="P", help=either(PRECISIONS))
    parser.add_argument("--optimizer", choices=list(SLOTS), metavar="O", help=either(SLOTS))


def either(known: Iterable[str]) -> str:
    """`a, b or c`."""
    *most, last = known
    return f"{', '.join(most)} or {last}"


def profile_argument(parser: argparse.ArgumentParser) -> None:
    """Measured rows, for every verb that predicts."""
    parser.add_argument("--profile", metavar="FILE",
                        help="rows as `oracle measure compute` timed them")  # fmt: skip


def batch_arguments(parser: argparse.ArgumentParser) -> None:
    """The global batch, or the batch per device."""
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--batch", type=whole, metavar="B", help="samples per iteration, all devices")
    size.add_argument("--batch-per-device", type=per_device, metavar="b", help="samples per device")


def batch_of(asked: argparse.Namespace, plan: str) -> int:
    """The global batch of a plan: as it was said, or for as many devices as the plan has."""
    if asked.batch is not None:
        return int(asked.batch)
    from oracle.plan.plan import parse

    samples: int = round(asked.batch_per_device * int(parse(plan, 1).devices[0, 0]))
    return max(1, samples)


def objective_argument(parser: argparse.ArgumentParser) -> None:
    """What a ranking is by."""
    parser.add_argument("--objective", choices=["time", "cost", "memory"], default="time",
                        metavar="X", help="time, cost (device-seconds) or memory")  # fmt: skip


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
    }
