"""Completions for a shell, or the manual page, made from the declared options.

oracle completion bash > ~/.local/share/bash-completion/completions/oracle
oracle completion zsh  > ~/.zfunc/_oracle            where ~/.zfunc is in $fpath
oracle completion fish > ~/.config/fish/completions/oracle.fish
oracle completion man  > ~/.local/share/man/man1/oracle.1
"""

from __future__ import annotations

import argparse

from oracle.commands.parser import Answer

FOR = ("bash", "zsh", "fish", "man")


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", choices=FOR, metavar="bash|zsh|fish|man",
                        help="for which shell, or the manual page")  # fmt: skip
    parser.add_argument("-o", "--output", dest="to", metavar="FILE",
                        help="write it there, whole or not at all; - prints it")  # fmt: skip


def run(args: argparse.Namespace) -> Answer:
    from oracle.commands.shells import script

    return Answer(script(args.what))
