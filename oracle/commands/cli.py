"""The command line: it finds the verb, runs it, and prints the answer or the error.

A verb returns its answer; only this module prints. Data goes to standard output, remarks and
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
    """Run one command line and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    closed = [name for name in ("stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:  # `>&-`: text to a closed stream goes nowhere, as with any other program
        setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        terminal.spell(stream)
    try:
        return _main(arguments)
    except BrokenPipeError:  # the reader has seen enough
        _say_no_more()
        return 0
    except OSError as error:  # the answer cannot be written: the disk is full, for instance
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
    """Send what a stream (by default standard output) still has to flush to nowhere."""
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
        noun = "option" if verb.startswith("-") else "command"
        hint = f"did you mean `{flag}`?" if flag else suggest(verb, VERBS, "commands")
        print(f"error: unknown {noun} `{verb}`; {hint}", file=sys.stderr)
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
        args, set_elsewhere, warnings = understood(parser, verb, rest)
        colour = args.color
        if args.counts:
            os.environ["ORACLE_COUNTS"] = args.counts
        if args.config and not args.quiet:
            rows = (
                f"{k} = {setting['value']} ({setting['origin']})"
                for k, setting in args.config.items()
            )
            warnings.append(f"config: {', '.join(rows)}")
        for line in warnings:
            _to_stderr(line, colour)
        with _progress(args, verb):
            answer = module_of(verb).run(args)
        try:
            _print_answer(answer, args)
        except BrokenPipeError:  # the reader has seen enough; the answer stays what it is
            _say_no_more()
            return int(answer.code)
    except Usage as error:
        # an argument that seems to be missing may be misspelt or in another place
        complaint = misspelt(parser, rest) or stray_plan(parser, rest) or error
        program = speaking(parser, rest).prog
        _to_stderr(f"error: {complaint}\n       `{program} --help` lists what it takes", colour)
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
    if args.verbose and not args.quiet:
        _to_stderr(
            "\n".join(_verbose_lines(args, set_elsewhere, time.perf_counter() - begin)), colour
        )
    return int(answer.code)


def _progress(args: Any, verb: str) -> contextlib.AbstractContextManager[None]:
    """Show progress on a terminal for verbs that neither show their own nor ask questions."""
    with_their_own = ("sweep", "run", "measure", "serve", "specs")
    if args.quiet or verb in with_their_own or not terminal.overwrites(sys.stderr):
        return contextlib.nullcontext()
    from oracle.commands.progress import progress_line

    return progress_line(verb)


def understood(parser: Parser, verb: str, rest: list[str]) -> tuple[Any, dict[str, Any], list[str]]:
    """Return the parsed options of a verb, the settings from elsewhere, and warnings of those."""
    from oracle.commands.arguments import changed
    from oracle.commands.settings import origins, settle

    warnings: list[str] = []
    set_elsewhere = settle(parser, verb, say=warnings.append)
    args = parser.parse_args(rest)
    in_order(args, verb)
    files = os.path.exists(str(getattr(args, "model", None) or "").partition(",")[0])
    if files or "micro=" in str(getattr(args, "plan", "")):
        from oracle.commands.foreign import micro_batches, read_foreign

        lines = read_foreign(args)
        warnings += [] if args.quiet else lines
        micro_batches(args)
    changed(args)
    args.repeated, args.words = partial(repeated, rest), rest
    args.origins = origins(parser, rest, set_elsewhere)
    args.config = {
        key: {"value": setting.text, "origin": setting.origin}
        for key, setting in set_elsewhere.items()
        if setting.file and args.origins.get(key) == setting.origin
    }
    return args, set_elsewhere, warnings


def _print_answer(answer: Answer, args: Any) -> None:
    """Print the note to standard error, and the answer to its file or to standard output."""
    if answer.note and (answer.code or not args.quiet):
        _to_stderr(answer.note, args.color)
    place = getattr(args, "to", None) or "-"
    if answer.text and place != "-":
        from oracle.spec.files import write

        write(Path(place), f"{answer.text}\n".encode())
        if not args.quiet:
            _to_stderr(f"wrote {place}", args.color)
    elif answer.text:
        plain = (getattr(args, "form", None) or "text") != "text"
        in_colour = not plain and terminal.takes_colour(sys.stdout, args.color)
        print(terminal.painted(answer.text) if in_colour else answer.text)
        sys.stdout.flush()


def _to_stderr(text: str, colour: str) -> None:
    in_colour = terminal.takes_colour(sys.stderr, colour)
    try:
        print(terminal.painted(text) if in_colour else text, file=sys.stderr, flush=True)
    except BrokenPipeError:  # nobody listens
        _say_no_more(sys.stderr)


def _verbose_lines(args: Any, set_elsewhere: dict[str, Any], seconds: float) -> list[str]:
    """Return the lines of `-v`: what was read, what was set where, how long it took."""
    lines = [f"set: {key} = {entry.text} ({entry.origin})" for key, entry in set_elsewhere.items()]
    if getattr(args, "model", None) and getattr(args, "system", None):
        from oracle.commands.arguments import specs
        from oracle.show.provenance import inputs_of, resolved, usual
        from oracle.spec.catalogue import system as opened
        from oracle.spec.plausible import warnings

        for system in specs(args.system):
            lines += [f"warning: {system}: {entry.field}: {entry.what}; {entry.hint}"
                      for entry in warnings(opened(system))]  # fmt: skip
        read = inputs_of(args, specs(args.model), specs(args.system))
        lines += sorted(
            f"read: {entry.kind} {entry.name}, sha256 {entry.sha256[:16]}…" for entry in read
        )
        if (specs(args.model), specs(args.system)) == ((args.model,), (args.system,)):
            lines += [f"option: {name} = {entry['value']} ({entry['origin']})"
                      for name, entry in resolved(usual(args), args).items()]  # fmt: skip
    return [*lines, f"took {seconds:.2f} s"]


def _internal_error(arguments: list[str]) -> int:
    """Print the traceback of an error of oracle itself, and what a report of it should hold."""
    import platform
    import shlex
    import traceback

    traceback.print_exc()
    report = INTERNAL_ERROR.format(
        version=__version__, python=platform.python_version(), platform=platform.platform(),
        command=shlex.join(["oracle", *arguments]),
    )  # fmt: skip
    print(report, file=sys.stderr)
    return 4


def _error_text(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return f"error[E100]: {error.strerror}: {error.filename or 'standard output'}"
    return str(error)


def overview() -> str:
    """Return the help of `oracle` itself."""
    width = max(map(len, VERBS))
    lines = [f"  {verb:<{width}}  {summary}" for verb, summary in VERBS.items()]
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
