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
    """An error of usage: a command line that no verb can take."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer of a verb: data for standard output, a note for standard error, an exit code."""

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

        if refused := re.fullmatch(r"(.*): invalid choice: '(.*)' \(choose from (.*)\)", message):
            choices = [word.strip("' ") for word in refused[3].split(",")]
            hint = suggest(refused[2], choices, "write one of")
            return f"{refused[1]}: unknown `{refused[2]}`; {hint}"
        return message


class ShowHelp(argparse.Action):
    """Show the help of a verb: the usual options, or with `--help all` every option."""

    def __init__(self, option_strings: Sequence[str], dest: str, **more: Any) -> None:
        super().__init__(option_strings, argparse.SUPPRESS, nargs="?", default=argparse.SUPPRESS,
                         **more)  # fmt: skip

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: Any = None) -> None:
        text = parser.format_help() if values == "all" else short_help(parser)
        parser._print_message(text, sys.stdout)
        parser.exit()


# options that most questions need: the short help lists the first five that a verb takes
USUAL = ("--onto", "--plan", "--devices", "--systems", "--batch", "--precision", "--software",
         "--optimizer", "--output", "--nodes", "--json")  # fmt: skip
SHOWN = 5  # usual options in a short help
FEW = 12  # a verb with at most so many options has no short help


def short_help(parser: argparse.ArgumentParser) -> str:
    """Return how a verb is used, its most used options, and the names of the others."""
    actions = {flag: action for action in parser._actions for flag in action.option_strings}
    if len(set(actions.values())) <= FEW:
        return parser.format_help()
    needed = [action for action in parser._actions if action.option_strings and action.required]
    usual = [actions[flag] for flag in USUAL if flag in actions and actions[flag] not in needed]
    formatter = parser._get_formatter()
    formatter.add_usage(parser.usage, parser._actions, parser._mutually_exclusive_groups)
    formatter.add_text(parser.description)
    formatter.start_section("arguments")
    formatter.add_arguments([action for action in parser._actions if not action.option_strings])
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
    """Return one line with the arguments of a verb and the options that it needs."""
    words = [parser.prog]
    for action in parser._actions:
        name = action.metavar or action.dest.upper()
        if isinstance(action, argparse._SubParsersAction):
            words.append("KIND …")
        elif not action.option_strings:
            ellipsis = "…" if action.nargs in ("*", "+") else ""
            text = f"{name}{ellipsis}"
            words.append(f"[{text}]" if action.nargs in ("?", "*") else text)
    needed = [action for action in parser._actions if action.option_strings and action.required]
    needed += [
        exclusive._group_actions[0]
        for exclusive in parser._mutually_exclusive_groups
        if exclusive.required
    ]
    words += [f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}"
              for action in needed]  # fmt: skip
    return " ".join([*words, "[OPTIONS]"])


class Help(argparse.RawDescriptionHelpFormatter):
    """Help that says each option's default, and which options are needed."""

    def _expand_help(self, action: argparse.Action) -> str:
        documented = copy(action)
        documented.help = help_of(action)
        return super()._expand_help(documented)


def help_of(action: argparse.Action) -> str:
    """Return the help of an option with its default, as argparse takes it: % written twice."""
    text = action.help or ""
    if not action.option_strings or action.default is argparse.SUPPRESS or "default:" in text:
        return text
    if action.required:
        return f"{text} (needed)"
    usual = default_text(action.default).replace("%", "%%")
    return f"{text} (default: {usual})" if usual else text


def default_text(value: Any) -> str:
    """Return a default as a user would write it; an empty text where there is none."""
    if value is None or isinstance(value, bool) or value in ("", [], ()):
        return ""
    if isinstance(value, tuple):
        return "/".join(map(str, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def group(parser: argparse.ArgumentParser, title: str) -> argparse._ArgumentGroup:
    """Return the section of a parser's help under a title, a new one for a new title."""
    titled = [section for section in parser._action_groups if section.title == title]
    return titled[0] if titled else parser.add_argument_group(title)


def module_of(verb: str) -> ModuleType:
    """Return the module of a verb; `import` is a keyword of Python, so its file is `import_`."""
    name = verb.replace("-", "_")
    return import_module(f"oracle.commands.{name}{'_' if iskeyword(verb) else ''}")


def parser_of(verb: str) -> Parser:
    """Return the parser of everything that a verb takes."""
    module = module_of(verb)
    parser = Parser(
        prog=f"oracle {verb}", description=module.__doc__, allow_abbrev=False,
        formatter_class=Help, add_help=False,
    )  # fmt: skip
    module.arguments(parser)
    for inner in parsers(parser):
        inner.formatter_class = Help
        inner.usage = usage(inner).replace("%", "%%")
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
    """Yield a parser and the parsers of its subcommands."""
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in action.choices.values():
                yield from parsers(inner)


def speaking(parser: argparse.ArgumentParser, words: Sequence[str]) -> argparse.ArgumentParser:
    """Return the parser of the subcommand that is named, as in `oracle plot parts`, or itself."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word in words:
                if word in action.choices:
                    return cast(argparse.ArgumentParser, action.choices[word])
    return parser


def options(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Yield every option of a parser and of its subcommands."""
    for inner in parsers(parser):
        yield from (action for action in inner._actions if action.option_strings)


# options that a second command sets itself, or that the names of model and system hold already
OWN = ("plan", "batch", "batch_per_device", "devices", "output", "to", "form", "as_json", "quiet",
       "verbose", "color", "counts", "title", "width", "sequence", "layers", "vocab", "train",
       "supposed", "price", "pue", "grid")  # fmt: skip


def repeated(words: Sequence[str], verb: str) -> list[str]:
    """Return the options among the words of a command that another verb takes as well."""
    takes = {flag: action for action in options(parser_of(verb)) if action.dest not in OWN
             for flag in action.option_strings}  # fmt: skip
    kept_words, rest = [], iter(words)
    for word in rest:
        flag, equals, _ = word.partition("=")
        if flag in takes:
            kept_words += [
                word,
                *([next(rest, "")] if not equals and takes[flag].nargs != 0 else []),
            ]
    return kept_words


def misspelt(parser: argparse.ArgumentParser, words: Iterable[str]) -> str:
    """Return a complaint about the first unknown option that is near to a known one."""
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
    """Return advice where the words of a plan stand outside the one argument of `--plan`."""
    from shlex import quote

    if not any("--plan" in action.option_strings for action in options(parser)):
        return ""
    from oracle.plan.strategies import strategies

    form = re.compile(rf"({'|'.join(strategies())})[:=][a-z0-9]\S*")
    plan_words = [word for word in words if form.fullmatch(word)]
    behind = [word for before, word in pairwise(words) if before == "--plan"]
    if not plan_words or plan_words == behind:
        return ""
    return f"a plan is one word behind --plan: --plan {quote(' '.join(plan_words))}"


def in_order(args: argparse.Namespace, verb: str) -> None:
    """Refuse a model and a system that stand in each other's place."""
    from oracle.spec.catalogue import swapped

    model_and_system = getattr(args, "model", None), getattr(args, "system", None)
    if (meant := swapped(*model_and_system)) is not None:
        model, system = model_and_system
        complaint = f"`{model}` stands where the model is due, `{system}` where the system is"
        raise Usage(f"{complaint}; did you mean `oracle {verb} {' '.join(meant)} …`?")


def as_json(data: Any) -> str:
    """Return JSON for another program: no NaN, keys in the order of their documentation."""
    return json.dumps(data, indent=2, allow_nan=False)


def with_config(data: dict[str, Any], args: argparse.Namespace) -> dict[str, Any]:
    """Return an answer with the settings from files that changed the question, if any did."""
    settings = getattr(args, "config", None)
    return {**data, "config": settings} if settings else data


def formatted(
    args: argparse.Namespace, text: Callable[[], str], data: Callable[[], Any],
    rows: Callable[[], Iterable[Mapping[str, Any]]], code: int = 0, note: str = "",
    brief: Sequence[str] | None = None,
) -> Answer:  # fmt: skip
    """Return a result as text, JSON, CSV or Markdown; only the form of `args.form` is made.

    `brief` names the columns of the Markdown table where the rows have more than people read.
    """
    form = args.form or "text"
    if form == "json":
        return Answer(as_json(with_config(data(), args)), code, note)
    if form == "text":
        return Answer(text().rstrip("\n"), code, note)
    from oracle.writers.rows import as_csv, as_markdown

    table = list(rows())
    written = as_csv(table) if form == "csv" else as_markdown(table, brief)
    return Answer(written.rstrip("\n"), code, note)
