"""The command line: one module a verb in `oracle.commands`, loaded when it is asked for.

A verb returns what to say; only this module prints. Data goes to standard output, talk and
errors to standard error.

    exit 0 done · 1 the answer is no · 2 bad usage or input · 3 a measurement or run failed
         4 a fault of ours · 130 interrupted · 143 ended by SIGTERM
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
from importlib import import_module
from typing import NoReturn

from oracle import __version__

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
}

EXAMPLES = """\
  oracle recommend resnet50 abci --devices 64 --batch 4096
  oracle estimate gpt3-175b dgx-a100 --batch 1536 \\
      --plan "pipeline:8,segments=96 data:16 tensor:8,sequence=on recompute:selective"
  oracle explain filter
  oracle calibrate nccl.log --onto abci -o my-system.yaml
"""


class Usage(Exception):
    """A command line that cannot be used."""


class Parser(argparse.ArgumentParser):
    """argparse that suggests the nearest flag and never exits by itself."""

    def error(self, message: str) -> NoReturn:
        raise Usage(self._nearer(message))

    def _nearer(self, message: str) -> str:
        from oracle.document import nearest

        words = message.split()
        if message.startswith("unrecognized arguments:"):
            flags = [flag for action in self._actions for flag in action.option_strings]
            for word in words[2:]:
                if word.startswith("-") and (meant := nearest(word.split("=")[0], flags)):
                    return f"unknown option `{word}`; did you mean `{meant}`?"
        return message


def main(argv: list[str] | None = None) -> int:
    """Run one command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _main(arguments)
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # what was to be said cannot be: a full disk, say
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        print(_plain(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


def _main(arguments: list[str]) -> int:
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if verb in ("-h", "--help", "help"):
        print(overview())
        return 0
    if verb in ("-V", "--version"):
        print(f"oracle {__version__}")
        return 0
    if verb not in VERBS:
        from oracle.document import suggest

        print(
            f"error: unknown command `{verb}`; {suggest(verb, VERBS, 'commands')}", file=sys.stderr
        )
        return 2
    return _run(verb, rest)


def _run(verb: str, rest: list[str]) -> int:
    if verb not in ("run", "measure"):  # tables of plans are small: threads would only spin
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.set_threshold(100_000)  # answers are short-lived; collecting them young costs a tenth
    module = import_module(f"oracle.commands.{verb}_")
    parser = Parser(
        prog=f"oracle {verb}", description=module.__doc__, allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    parser.add_argument("-q", "--quiet", action="store_true", help="say only what was asked for")
    parser.add_argument("-v", "--verbose", action="store_true", help="say more")
    module.arguments(parser)
    try:
        asked = parser.parse_args(rest)
    except Usage as error:
        print(f"error: {error}\n       `oracle {verb} --help` lists what it takes", file=sys.stderr)
        return 2
    except SystemExit as end:  # --help has printed itself
        return int(end.code or 0)
    try:
        answer = module.run(asked)
    except (OSError, ValueError) as error:
        if not (
            isinstance(error, OSError) or getattr(error, "faults", None) or hasattr(error, "hint")
        ):
            raise  # a fault of ours keeps its traceback
        if isinstance(error, BrokenPipeError):
            raise
        print(_plain(error), file=sys.stderr)
        return 2
    if answer.note and (answer.code or not asked.quiet):
        print(answer.note, file=sys.stderr)
    if answer.text:
        print(answer.text)
        sys.stdout.flush()
    return int(answer.code)


def _plain(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"error[E100]: {error.strerror}: {error.filename or 'standard output'}"
    return str(error)


def overview() -> str:
    """The help of `oracle` itself."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {what}" for verb, what in VERBS.items()]
    return "\n".join(
        [
            "Predict how long distributed training takes, and which way to split it.",
            "",
            "usage: oracle COMMAND [OPTIONS]      oracle COMMAND --help      oracle --version",
            "",
            "examples:",
            EXAMPLES.rstrip(),
            "",
            "commands:",
            *lines,
        ]
    )
