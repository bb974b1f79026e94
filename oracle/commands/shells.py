"""Completions for shells and the manual page, made from the options that the parsers declare.

shtab completes an argument by its choices or by one shell function, so that a shipped name or a
file, lists with commas and words without a blank behind them (`data:`) would still be shell code
of ours; argparse-manpage and it want one parser of all verbs, where ours are built one by one.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

from oracle.commands.parser import VERBS, parser_of, parsers
from oracle.spec.version import __version__

FILE, FOLDER = "<file>", "<folder>"  # words that a shell finds by itself
SPECS = {"MODEL": "models", "SYSTEM": "systems", "D": "datasets", "NAME": ""}
PLACES = {"FILE": FILE, "NEW.yaml": FILE, "DIR": FOLDER}


@dataclass(frozen=True, slots=True)
class Option:
    """One option: its spellings, its help, and the words that may follow, or None for no word."""

    flags: tuple[str, ...]
    help: str
    words: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Verb:
    """One verb of the command line as a shell sees it."""

    name: str
    summary: str
    words: tuple[str, ...]  # that may stand without a flag
    options: tuple[Option, ...]


def verbs() -> Iterator[Verb]:
    """Yield every verb, read from its parser."""
    for name, summary in VERBS.items():
        parser = parser_of(name)
        words: dict[str, None] = {}
        verb_options: dict[tuple[str, ...], Option] = {}
        for action in (action for inner in parsers(parser) for action in inner._actions):
            if action.help == argparse.SUPPRESS:
                continue
            if not action.option_strings:
                words |= dict.fromkeys(_words(action, name))
                continue
            flags = tuple(action.option_strings)
            following = None if action.nargs == 0 else tuple(_words(action, name))
            verb_options.setdefault(
                flags, Option(flags, (action.help or "").replace("\n", " "), following)
            )
        yield Verb(name, summary, tuple(words), tuple(verb_options.values()))


def _words(action: argparse.Action, verb: str) -> list[str]:
    """Return the words that an argument may be: choices, shipped names, strategies, files."""
    if action.choices is not None:
        return [str(word) for word in action.choices]
    for name in _names(action):
        if name in SPECS:
            return [*_shipped(SPECS[name]), FILE]
        if name in PLACES:
            return [PLACES[name]]
        if name in ("STRATEGY", "A,B", "A,B+C"):
            return _strategies() if action.dest != "operations" else []
        if name == "FORMAT":
            from oracle.writers.export import formats

            return list(formats())
        if name == "PLAN":
            return [f"{strategy}:" for strategy in _strategies()]
    return []


def _names(action: argparse.Action) -> list[str]:
    metavar = action.metavar if isinstance(action.metavar, str) else ""
    return [word for word in re.split(r"[ |…]+", metavar) if word]


def _shipped(folder: str) -> list[str]:
    from oracle.spec.catalogue import shipped

    folders = [folder] if folder else ["models", "systems", "devices", "datasets"]
    return [name for name in folders for name in shipped(name)]


def _strategies() -> list[str]:
    from oracle.plan.strategies import strategies

    return list(strategies())


def bash() -> str:
    """Return the completions for bash: `eval "$(oracle completion bash)"`."""
    lines = [
        "# completions of oracle for bash; made by `oracle completion bash`",
        "_oracle() {",
        '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}"',
        '  local verb="${COMP_WORDS[1]}" words="" files="" head=""',
        "  COMPREPLY=()",
        "  if ((COMP_CWORD == 1)); then",
        f'    words="{" ".join([*VERBS, "--help", "--version"])}"',
        '  else case "$verb" in',
    ]
    for verb in verbs():
        lines += [f"    {verb.name})", '      case "$before" in']
        for option in verb.options:
            if option.words is not None:
                lines.append(f"        {'|'.join(option.flags)}) {_bash(option.words)} ;;")
        flags = [flag for option in verb.options for flag in option.flags]
        lines += [
            f"        *) {_bash(verb.words)}",
            f'           [[ "$word" == -* ]] && words="{" ".join(flags)}" ;;',
            "      esac ;;",
        ]
    lines += [
        "  esac; fi",
        '  if [[ "$before" == --only || "$before" == --without || "$before" == --each ]]; then',
        '    [[ "$word" == *,* ]] && head="${word%,*},"',
        "  fi",
        "  # shellcheck disable=SC2207  # the words have no blanks",
        '  [[ -n "$words" ]] && COMPREPLY=($(compgen -P "$head" -W "$words" -- "${word#"$head"}"))',
        '  if [[ -n "$files" ]]; then',
        '    local found; while IFS= read -r found; do COMPREPLY+=("$found"); done \\',
        '      < <(compgen "$files" -- "$word")',
        "    compopt -o filenames 2>/dev/null",
        "  fi",
        '  [[ "${COMPREPLY[0]}" == *: ]] && compopt -o nospace 2>/dev/null',
        "  return 0",
        "}",
        "complete -F _oracle oracle",
    ]
    return "\n".join(lines)


def _bash(words: tuple[str, ...]) -> str:
    plain = " ".join(word for word in words if word not in (FILE, FOLDER))
    place = {FILE: "-f", FOLDER: "-d"}
    files = next((place[word] for word in words if word in place), "")
    return f'words="{plain}" files="{files}"'


def zsh() -> str:
    """Return the completions for zsh, a file `_oracle` in a folder of `$fpath`."""
    lines = [
        "#compdef oracle",
        "# completions of oracle for zsh; made by `oracle completion zsh`",
        "_oracle() {",
        "  local -a verbs",
        "  if (( CURRENT == 2 )); then",
        "    verbs=(",
        *(f"      {_quoted(f'{name}:{_plain(summary)}')}" for name, summary in VERBS.items()),
        "    )",
        "    _describe command verbs",
        "    return",
        "  fi",
        "  local verb=$words[2]",
        "  words=($words[2,-1]); (( CURRENT-- ))",
        "  case $verb in",
    ]
    for verb in verbs():
        lines.append(f"    {verb.name}) _arguments \\")
        for option in verb.options:
            repeatable = "*" if option.words is not None else ""
            follows = "" if option.words is None else f":word:{_zsh(option.words)}"
            for flag in option.flags:
                entry = f"{repeatable}{flag}[{_bracketed(option.help)}]{follows}"
                lines.append(f"      {_quoted(entry)} \\")
        lines.append(f"      {_quoted(f'*:word:{_zsh(verb.words)}')} ;;")
    lines += ["  esac", "}", "if [[ $funcstack[1] == _oracle ]]", 'then _oracle "$@"',
              "else compdef _oracle oracle", "fi"]  # fmt: skip
    return "\n".join(lines)


def _zsh(words: tuple[str, ...]) -> str:
    plain = " ".join(word.replace(":", "\\:") for word in words if word not in (FILE, FOLDER))
    if FOLDER in words:
        return "_files -/"
    if FILE in words:
        return f"{{compadd -- {plain}; _files}}" if plain else "_files"
    return f"({plain})" if plain else " "


def _bracketed(text: str) -> str:
    return re.sub(r"([\[\]:\\])", r"\\\1", _plain(text))


def fish() -> str:
    """Return the completions for fish, `~/.config/fish/completions/oracle.fish`."""
    lines = ["# completions of oracle for fish; made by `oracle completion fish`",
             "complete -c oracle -f"]  # fmt: skip
    for name, summary in VERBS.items():
        lines.append(f"complete -c oracle -n __fish_use_subcommand -a {name} "
                     f"-d {_quoted(_plain(summary))}")  # fmt: skip
    for verb in verbs():
        complete = f"complete -c oracle -n '__fish_seen_subcommand_from {verb.name}'"
        lines.append(f"{complete} {_fish(verb.words) or '-f'}")
        for option in verb.options:
            spelled = " ".join(f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
                               for flag in option.flags)  # fmt: skip
            files = option.words and not {FILE, FOLDER}.isdisjoint(option.words)
            only = " -r " if files else " -x "
            follows = "" if option.words is None else only + _fish(option.words)
            lines.append(f"{complete} {spelled}{follows} -d {_quoted(_plain(option.help))}")
    return "\n".join(lines)


def _fish(words: tuple[str, ...]) -> str:
    plain = " ".join(word for word in words if word not in (FILE, FOLDER))
    files = "-F" if FILE in words or FOLDER in words else ""
    return " ".join([*([f"-a {_quoted(plain)}"] if plain else []), files])


def _quoted(text: str) -> str:
    """Return a text in single quotes, for any shell."""
    return "'" + text.replace("'", "'\\''") + "'"


def _plain(text: str) -> str:
    return " ".join(text.replace("`", "").replace("%%", "%").split())


def man() -> str:
    """Return the manual page, for `man`."""
    from oracle.commands.cli import EXAMPLES

    lines = [
        f'.TH ORACLE 1 "" "oracle {__version__}" "User Commands"',
        ".SH NAME",
        "oracle \\- predict how long distributed training takes, and which way to split it",
        ".SH SYNOPSIS",
        ".B oracle", ".I COMMAND", "[options]",
        ".SH EXAMPLES", ".nf", *(_roff(line) for line in EXAMPLES.splitlines()), ".fi",
        ".SH COMMANDS",
    ]  # fmt: skip
    for name, summary in VERBS.items():
        parser = parser_of(name)
        about = [_roff(line) for line in (parser.description or "").splitlines()]
        lines += [f".SS oracle {name}", _roff(summary), ".P", ".nf", *about, ".fi"]
        for inner in parsers(parser):
            if inner is not parser:
                lines += [".P", f".B {_roff(inner.prog)}"]
            lines += [line for action in inner._actions for line in _entry(inner, action)]
    lines += [
        ".SH FILES", ".TP", ".I oracle.toml", "defaults of a project; see oracle config \\-\\-help",
        ".TP", ".I ~/.config/oracle/config.toml", "defaults of a user",
        ".TP", ".I /etc/xdg/oracle/config.toml", "defaults of a site",
        ".SH ENVIRONMENT", ".TP", ".B ORACLE_PRECISION, ORACLE_TOP, ...",
        "defaults of options, stronger than files", ".TP", ".B NO_COLOR",
        "no colour unless \\-\\-color asks for it",
        ".SH EXIT STATUS", "0 done, 1 the answer is no, 2 bad usage or input, 3 a measurement",
        "or run failed, 4 a fault of oracle, 130 interrupted, 143 ended by SIGTERM.",
    ]  # fmt: skip
    return "\n".join(lines)


def _entry(parser: argparse.ArgumentParser, action: argparse.Action) -> list[str]:
    if action.help == argparse.SUPPRESS or isinstance(action, argparse._SubParsersAction):
        return []
    takes = "" if action.nargs == 0 else str(action.metavar or action.dest.upper())
    flags = ", ".join(f"\\fB{_roff(flag)}\\fR" for flag in action.option_strings)
    head = f"{flags} \\fI{_roff(takes)}\\fR".strip() if flags else f"\\fI{_roff(takes)}\\fR"
    return [".TP", head, _roff(_plain(action.help or "as it says"))]


def _roff(text: str) -> str:
    text = text.replace("\\", "\\e").replace("-", "\\-")
    text = "".join(c if c.isascii() else f"\\[u{ord(c):04X}]" for c in text)
    return f"\\&{text}" if text[:1] in (".", "'") else text


SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish, "man": man}


def script(name: str) -> str:
    """Return the completions for a shell, or the manual page."""
    return SCRIPTS[name]()
