"""The command line: finds the verb, runs it, prints its answer or its fault.

A verb returns what to say; only this module prints. Data goes to standard output, talk and
errors to standard error.

    exit 0 done · 1 the answer is no · 2 bad usage or input · 3 a measurement or run failed
         4 a fault of ours · 130 interrupted · 143 ended by SIGTERM
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from oracle.commands.parser import (
    VERBS,
    Answer,
    Parser,
    Usage,
    in_order,
    misspelt,
    module_of,
    parser_of,
    repeated,
    speaking,
    stray_plan,
)
from oracle.show import terminal
from oracle.spec.version import __version__

EXAMPLES = """\
  oracle recommend resnet50 abci --devices 64 --batch 4096
  oracle estimate gpt3-175b dgx-a100 --batch 1536 \\
      --plan "pipeline:8,segments=96 data:16 tensor:8,sequence=on recompute:selective"
  oracle explain filter
  oracle calibrate nccl.log --onto abci -o my-system.yaml
"""
INTERNAL_ERROR = """\
This is a fault of oracle, not of what you asked. Please report it with the lines above and:
  oracle   {version}, Python {python}, {platform}
  command  {command}"""


def main(argv: list[str] | None = None) -> int:
    """Run one command line; the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:  # `>&-`: what is said there goes nowhere, as with any other program
        setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        terminal.spell(stream)
    try:
        return _main(arguments)
    except BrokenPipeError:  # the reader has seen enough
        _say_no_more()
        return 0
    except OSError as error:  # what was to be said cannot be: a full disk, say
        _say_no_more()
        with contextlib.suppress(OSError):
            print(_error_text(error), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception:
        return _internal_error(arguments)


def _encodes(word: str) -> bool:
    with contextlib.suppress(UnicodeEncodeError):
        return bool(word == "" or os.fsencode(word))
    return False


def _say_no_more(stream: Any = None) -> None:
    """What is still to be flushed to a stream, standard output, goes nowhere."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), (stream or sys.stdout).fileno())


def _main(arguments: list[str]) -> int:
    if any("\0" in word or not _encodes(word) for word in arguments):  # of a program, not a shell
        print("error: a word of the command line has a character that no name can", file=sys.stderr)
        return 2
    verb, rest = (arguments[0], arguments[1:]) if arguments else ("--help", [])
    if verb == "help" and rest:
        verb, rest = rest[0], ["--help"]
    if verb in ("-h", "--help", "help"):
        print(overview())
        return 0
    if verb in ("-V", "--version"):
        print(f"oracle {__version__}")
        return 0
    if verb not in VERBS:
        from oracle.spec.document import nearest, suggest

        flag = nearest(verb, ("--help", "--version")) if verb.startswith("-") else ""
        what = "option" if verb.startswith("-") else "command"
        hint = f"did you mean `{flag}`?" if flag else suggest(verb, VERBS, "commands")
        print(f"error: unknown {what} `{verb}`; {hint}", file=sys.stderr)
        return 2
    return _run(verb, rest)


def _run(verb: str, rest: list[str]) -> int:
    begin = time.perf_counter()
    if verb not in ("run", "measure"):  # tables of plans are small: threads would only spin
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.set_threshold(100_000)  # answers are short-lived; collecting them young costs a tenth
    parser = parser_of(verb)
    colour = "auto"
    try:
        asked, set_elsewhere, warnings = understood(parser, verb, rest)
        colour = asked.color
        if asked.counts:
            os.environ["ORACLE_COUNTS"] = asked.counts
        if asked.config and not asked.quiet:
            rows = (f"{k} = {one['value']} ({one['origin']})" for k, one in asked.config.items())
            warnings.append(f"config: {', '.join(rows)}")
        for line in warnings:
            _to_stderr(line, colour)
        with _progress(asked, verb):
            answer = module_of(verb).run(asked)
        try:
            _print_answer(answer, asked)
        except BrokenPipeError:  # the reader has seen enough; the answer stays what it is
            _say_no_more()
            return int(answer.code)
    except Usage as error:
        # what is missing may stand there, misspelt or in another place
        said = misspelt(parser, rest) or stray_plan(parser, rest) or error
        whose = speaking(parser, rest).prog
        _to_stderr(f"error: {said}\n       `{whose} --help` lists what it takes", colour)
        return 2
    except SystemExit as end:  # --help has printed itself
        return int(end.code or 0)
    except (OSError, ValueError) as error:
        if not (
            isinstance(error, OSError) or getattr(error, "faults", None) or hasattr(error, "hint")
        ):
            raise  # a fault of ours keeps its traceback
        _to_stderr(_error_text(error), colour)
        return 2
    if asked.verbose and not asked.quiet:
        _to_stderr(
            "\n".join(_verbose_lines(asked, set_elsewhere, time.perf_counter() - begin)), colour
        )
    return int(answer.code)


def _progress(asked: Any, verb: str) -> contextlib.AbstractContextManager[None]:
    """A line of progress on a terminal, for what has none of its own and asks nothing there."""
    own = ("sweep", "run", "measure", "serve", "specs")
    if asked.quiet or verb in own or not terminal.overwrites(sys.stderr):
        return contextlib.nullcontext()
    from oracle.commands.progress import shown

    return shown(verb)


def understood(parser: Parser, verb: str, rest: list[str]) -> tuple[Any, dict[str, Any], list[str]]:
    """What the words after a verb ask, what is set elsewhere, and warnings of that."""
    from oracle.commands.arguments import changed
    from oracle.commands.settings import origins, settle

    warnings: list[str] = []
    set_elsewhere = settle(parser, verb, say=warnings.append)
    asked = parser.parse_args(rest)
    in_order(asked, verb)
    files = os.path.exists(str(getattr(asked, "model", None) or "").partition(",")[0])
    if files or "micro=" in str(getattr(asked, "plan", "")):
        from oracle.commands.foreign import micro_batches, read_foreign

        lines = read_foreign(asked)
        warnings += [] if asked.quiet else lines
        micro_batches(asked)
    changed(asked)
    asked.repeated, asked.words = partial(repeated, rest), rest
    asked.origins = origins(parser, rest, set_elsewhere)
    asked.config = {
        key: {"value": one.text, "origin": one.origin}
        for key, one in set_elsewhere.items()
        if one.file and asked.origins.get(key) == one.origin
    }
    return asked, set_elsewhere, warnings


def _print_answer(answer: Answer, asked: Any) -> None:
    """Say the note, and put the answer where it was wanted."""
    if answer.note and (answer.code or not asked.quiet):
        _to_stderr(answer.note, asked.color)
    place = getattr(asked, "to", None) or "-"
    if answer.text and place != "-":
        from oracle.spec.files import write

        write(Path(place), f"{answer.text}\n".encode())
        if not asked.quiet:
            _to_stderr(f"wrote {place}", asked.color)
    elif answer.text:
        plain = (getattr(asked, "form", None) or "text") != "text"
        in_colour = not plain and terminal.takes_colour(sys.stdout, asked.color)
        print(terminal.painted(answer.text) if in_colour else answer.text)
        sys.stdout.flush()


def _to_stderr(text: str, colour: str) -> None:
    in_colour = terminal.takes_colour(sys.stderr, colour)
    try:
        print(terminal.painted(text) if in_colour else text, file=sys.stderr, flush=True)
    except BrokenPipeError:  # nobody listens: what is wrong stays wrong
        _say_no_more(sys.stderr)


def _verbose_lines(asked: Any, set_elsewhere: dict[str, Any], seconds: float) -> list[str]:
    """What `-v` adds: what was read, what was set where, how long it took."""
    lines = [f"set: {key} = {one.text} ({one.origin})" for key, one in set_elsewhere.items()]
    if getattr(asked, "model", None) and getattr(asked, "system", None):
        from oracle.commands.arguments import specs
        from oracle.show.provenance import inputs_of, resolved, usual
        from oracle.spec.catalogue import system as opened
        from oracle.spec.plausible import warnings

        for system in specs(asked.system):
            lines += [f"warning: {system}: {one.field}: {one.what}; {one.hint}"
                      for one in warnings(opened(system))]  # fmt: skip
        read = inputs_of(asked, specs(asked.model), specs(asked.system))
        lines += sorted(f"read: {one.kind} {one.name}, sha256 {one.sha256[:16]}…" for one in read)
        if (specs(asked.model), specs(asked.system)) == ((asked.model,), (asked.system,)):
            lines += [f"option: {name} = {one['value']} ({one['origin']})"
                      for name, one in resolved(usual(asked), asked).items()]  # fmt: skip
    return [*lines, f"took {seconds:.2f} s"]


def _internal_error(arguments: list[str]) -> int:
    """A fault of ours: its traceback, and what to send us."""
    import platform
    import shlex
    import traceback

    traceback.print_exc()
    said = INTERNAL_ERROR.format(
        version=__version__, python=platform.python_version(), platform=platform.platform(),
        command=shlex.join(["oracle", *arguments]),
    )  # fmt: skip
    print(said, file=sys.stderr)
    return 4


def _error_text(error: Exception) -> str:
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
