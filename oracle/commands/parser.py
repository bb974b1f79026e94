"""The parser of each verb, and the form of its answer.

An option is declared once, in its verb's `arguments`: the parser, the configuration, the shell
completions and the manual page all read that declaration.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from importlib import import_module
from itertools import pairwise
from keyword import iskeyword
from types import ModuleType
from typing import Any, NoReturn, cast

VERBS = {
    "recommend": "rank the ways to split a training over N devices",
    "estimate": "predict one plan, with its parts",
    "explain": "a strategy's equations; or what bounds a plan and what would change that",
    "choose": "which machine, how many of its devices, at what cost",
    "design-network": "which network to buy: step time against switches and cables",
    "sweep": "scaling curves over devices, batches, what-if factors; resumable",
    "workflow": "searches, ensembles, transfer on N nodes: how many at once, nodes each",
    "report": "one self-contained HTML file of a recommendation",
    "serve": "a live page: pick, see the answer at once, turn what-ifs",
    "plot": "figures: breakdown, scaling, memory, Pareto, contention, timeline",
    "specs": "list, show, check model, system and data set files",
    "import": "a model from torch, ONNX, Hugging Face; a job that runs elsewhere",
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

    def parse_args(self, words: Any = None, namespace: Any = None) -> Any:
        for word in words or ():  # argparse makes a list of `--name=--`
            if re.fullmatch(r"--[^=]+=--", word):
                raise Usage(f"argument {word[:-3]}: expected a value, not `--`")
        return super().parse_args(words, namespace)

    def error(self, message: str) -> NoReturn:
        raise Usage(self._nearer(message))

    def _nearer(self, message: str) -> str:
        from oracle.spec.document import suggest

        if found := re.fullmatch(r"(.*): invalid choice: '(.*)' \(choose from (.*)\)", message):
            known = [word.strip("' ") for word in found[3].split(",")]
            return f"{found[1]}: unknown `{found[2]}`; {suggest(found[2], known, 'write one of')}"
        return message


class ShowHelp(argparse.Action):
    """Show the help of a verb: short, or all of it where that word stands behind."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs="?", default=argparse.SUPPRESS,
                         **more)  # fmt: skip

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        text = parser.format_help() if values == "all" else short_help(parser)
        parser._print_message(text, sys.stdout)
        parser.exit()


# options that most questions need, the first five that a verb takes
USUAL = ("--onto", "--plan", "--devices", "--systems", "--batch", "--precision", "--software",
         "--optimizer", "--output", "--nodes", "--json")  # fmt: skip
SHOWN = 5  # of them
FEW = 12  # options that are all shown, however short the help


def short_help(parser: argparse.ArgumentParser) -> str:
    """Return how a verb is used, its most used options, and where the others stand."""
    actions = {flag: action for action in parser._actions for flag in action.option_strings}
    if len(set(actions.values())) <= FEW:
        return parser.format_help()
    needed = [action for action in parser._actions if action.option_strings and action.required]
    usual = [actions[flag] for flag in USUAL if flag in actions and actions[flag] not in needed]
    formatter = parser._get_formatter()
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    formatter.add_text(parser.description)
    formatter.start_section("arguments")
    formatter.add_arguments([one for one in parser._actions if not one.option_strings])
    formatter.end_section()
    formatter.start_section("what most questions need")
    formatter.add_arguments([*needed, *usual][: max(SHOWN, len(needed))])
    formatter.end_section()
    groups = "".join(map(_group_line, parser._action_groups))
    return (f"{formatter.format_help()}\nwhat else there is (`{parser.prog} --help all` says "
            f"what each does):\n{groups}")  # fmt: skip


def _group_line(options: argparse._ArgumentGroup) -> str:
    """Return a group of options as its title with their names; nothing for a group of none."""
    import textwrap

    flags = [action.option_strings[-1] for action in options._group_actions
             if action.option_strings and action.help != argparse.SUPPRESS]  # fmt: skip
    if not flags:
        return ""
    title = "this command" if options.title == "options" else str(options.title)
    return textwrap.fill(f"  {title}: {' '.join(flags)}", 80, subsequent_indent="    ",
                         break_on_hyphens=False) + "\n"  # fmt: skip


def usage(parser: argparse.ArgumentParser) -> str:
    """Return what a verb takes in one line: its arguments, and the options that it needs."""
    words = [parser.prog]
    for action in parser._actions:
        name = action.metavar or action.dest.upper()
        if isinstance(action, argparse._SubParsersAction):
            words.append("KIND …")
        elif not action.option_strings:
            many = "…" if action.nargs in ("*", "+") else ""
            text = f"{name}{many}"
            words.append(f"[{text}]" if action.nargs in ("?", "*") else text)
    needed = [action for action in parser._actions if action.option_strings and action.required]
    needed += [one._group_actions[0] for one in parser._mutually_exclusive_groups if one.required]
    words += [f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}"
              for action in needed]  # fmt: skip
    return " ".join([*words, "[OPTIONS]"])


class Help(argparse.RawDescriptionHelpFormatter):
    """Help that says each option's default, and which options are needed."""

    def _expand_help(self, action: argparse.Action) -> str:
        told = copy(action)
        told.help = said_of(action)
        return super()._expand_help(told)


def said_of(action: argparse.Action) -> str:
    """The help of an option with its default, as argparse takes it: a % is written twice."""
    said = action.help or ""
    if not action.option_strings or action.default is argparse.SUPPRESS or "default:" in said:
        return said
    if action.required:
        return f"{said} (needed)"
    usual = said_default(action.default).replace("%", "%%")
    return f"{said} (default: {usual})" if usual else said


def said_default(value: Any) -> str:
    """A default as one would write it; nothing where nothing is said."""
    if value is None or isinstance(value, bool) or value in ("", [], ()):
        return ""
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """The options of a parser that the help shows under this title; made when first asked for."""
    known = [one for one in parser._action_groups if one.title == title]
    return known[0] if known else parser.add_argument_group(title)


def module_of(verb: str) -> ModuleType:
    """The file of a verb; `import` is a word of Python's own, so its file has a tail."""
    name = verb.replace("-", "_")
    return import_module(f"oracle.commands.{name}{'_' if iskeyword(verb) else ''}")


def parser_of(verb: str) -> Parser:
    """Everything that a verb takes."""
    module = module_of(verb)
    parser = Parser(
        prog=f"oracle {verb}", description=module.__doc__, allow_abbrev=False,
        formatter_class=Help, add_help=False,
    )  # fmt: skip
    module.arguments(parser)
    for one in parsers(parser):
        one.formatter_class = Help
        one.usage = usage(one).replace("%", "%%")
    shared = group(parser, "of every command")
    shared.add_argument("-h", "--help", action=ShowHelp, metavar="all",
                        help="show what most questions need; `--help all`: everything")  # fmt: skip
    shared.add_argument("-q", "--quiet", action="store_true", help="say only what was asked for")
    shared.add_argument("-v", "--verbose", action="store_true",
                        help="say what was read, what is set where, how long it took")  # fmt: skip
    shared.add_argument("--color", choices=["auto", "always", "never"], default="auto",
                        metavar="WHEN", help="auto, always or never")  # fmt: skip
    shared.add_argument("--counts", metavar="FOLDER",
                        help="where counts of large networks are kept; off keeps none")  # fmt: skip
    return parser


def parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    """A parser and those of its own verbs."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def speaking(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """The parser that takes what stands behind a kind, `oracle plot parts`; itself without one."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in words:
                if word in action.choices:
                    return cast(argparse.ArgumentParser, action.choices[word])
    return parser


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every option of a parser and of its own verbs."""
    for one in parsers(parser):
        yield from (action for action in one._actions if action.option_strings)


# what a second command says itself, or stands in the names of the model and the system already
OWN = ("plan", "batch", "batch_per_device", "devices", "output", "to", "form", "as_json", "quiet",
       "verbose", "color", "counts", "title", "width", "sequence", "layers", "vocab", "train",
       "supposed", "price", "pue", "grid")  # fmt: skip


def repeated(words: Sequence[str], verb: str) -> list[str]:
    """Of the words of a command the options that another verb takes as well."""
    takes = {flag: action for action in options(parser_of(verb)) if action.dest not in OWN
             for flag in action.option_strings}  # fmt: skip
    found, rest = [], iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if flag in takes:
            found += [word, *([next(rest, "")] if not equals and takes[flag].nargs != 0 else [])]
    return found


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


def stray_plan(parser: argparse.ArgumentParser, words: Sequence[str]) -> str:
    """Advice where words of a plan do not stand behind `--plan` as one, in words."""
    from shlex import quote

    if not any("--plan" in action.option_strings for action in options(parser)):
        return ""
    from oracle.plan.strategies import strategies

    form = re.compile(rf"({'|'.join(strategies())})[:=][a-z0-9]\S*")
    found = [word for word in words if form.fullmatch(word)]
    behind = [word for before, word in pairwise(words) if before == "--plan"]
    if not found or found == behind:
        return ""
    return f"a plan is one word behind --plan: --plan {quote(' '.join(found))}"


def in_order(asked: argparse.Namespace, verb: str) -> None:
    """Refuse a model and a system that stand in each other's place."""
    from oracle.spec.catalogue import swapped

    named = getattr(asked, "model", None), getattr(asked, "system", None)
    if (meant := swapped(*named)) is not None:
        what = f"`{named[0]}` stands where the model is due, `{named[1]}` where the system is"
        raise Usage(f"{what}; did you mean `oracle {verb} {' '.join(meant)} …`?")


def as_json(data: Any) -> str:
    """JSON for another program: no NaN, keys in the order they are documented."""
    return json.dumps(data, indent=2, allow_nan=False)


def with_config(data: dict[str, Any], asked: argparse.Namespace) -> dict[str, Any]:
    """An answer beside what files of settings made of the question, where they did."""
    found = getattr(asked, "config", None)
    return {**data, "config": found} if found else data


def formatted(
    asked: argparse.Namespace, text: Callable[[], str], data: Callable[[], Any],
    rows: Callable[[], Iterable[Mapping[str, Any]]], code: int = 0, note: str = "",
    brief: Sequence[str] | None = None,
) -> Answer:  # fmt: skip
    """A result in the form that was asked for; only that form is made.

    `brief` are the columns of a table for people, where the rows have more than they read.
    """
    form = asked.form or "text"
    if form == "json":
        return Answer(as_json(with_config(data(), asked)), code, note)
    if form == "text":
        return Answer(text().rstrip("\n"), code, note)
    from oracle.writers.rows import as_csv, as_markdown

    found = list(rows())
    written = as_csv(found) if form == "csv" else as_markdown(found, brief)
    return Answer(written.rstrip("\n"), code, note)
