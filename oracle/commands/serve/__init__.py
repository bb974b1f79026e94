"""A live page on this machine: pick, see the answer at once, turn what-ifs, copy the command.

oracle serve                              says the address to open; Ctrl-C ends it
oracle serve --port 8642 --token "$(openssl rand -hex 16)"    an address that stays the same
ssh -L 8642:127.0.0.1:8642 login-node     then the same address here, served there

Needs the extra `serve`: pip install 'oracle-training[serve,plot]'.

question   the question of the page, as an address, a command line and Python
views      the views of a question, each made by one command line
workers    processes that answer, each within a time limit
job        the work of one process: it answers a command line in memory
uploads    specs, configs and logs that are dropped on the page
guard      limits: who may ask, how much, and what a browser may load
app        the addresses of the page
"""

from __future__ import annotations

import argparse
import secrets
import sys

from oracle.commands.arguments import whole_number
from oracle.commands.parser import Answer, Usage

LEAST_TOKEN = 16  # characters


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", metavar="H",
                        help="to listen on; others than this machine may then ask")  # fmt: skip
    parser.add_argument("--port", type=port, default=8642, metavar="N", help="0 takes a free one")
    parser.add_argument("--token", metavar="T", help="of the address; drawn anew if not said")
    parser.add_argument("--workers", type=whole_number, default=4, metavar="W",
                        help="processes that answer")  # fmt: skip
    parser.add_argument("--limit", type=whole_number, default=120, metavar="S",
                        help="seconds that an answer may take")  # fmt: skip


def port(text: str) -> int:
    """A port of TCP, or 0."""
    if not (text.isascii() and text.isdecimal() and int(text[:6]) < 2**16):
        raise argparse.ArgumentTypeError(f"`{text}` is not a port from 0 to 65535")
    return int(text)


def run(args: argparse.Namespace) -> Answer:
    token = args.token or secrets.token_urlsafe(24)
    if len(token) < LEAST_TOKEN or not token.replace("-", "").replace("_", "").isalnum():
        raise Usage(f"argument --token: at least {LEAST_TOKEN} letters, digits, - or _")
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError:
        from oracle.spec.document import refusal

        hint = "pip install 'oracle-training[serve,plot]'"
        raise refusal("serve", "starlette and uvicorn are not installed here", hint) from None
    from oracle.commands.serve.app import listen

    def opened(address: str) -> None:
        sys.stderr.write(f"open {address}\n")
        if not args.quiet:
            sys.stderr.write(f"{audience(args.host)}; Ctrl-C ends it\n")
        sys.stderr.flush()

    listen(args.host, args.port, token, args.workers, args.limit, opened)
    return Answer(note="ended")


def audience(host: str) -> str:
    """Return who can ask the page, in words."""
    from oracle.commands.serve.guard import loopback

    if loopback(host):
        return "only this machine can ask, and only with this address"
    return "whoever has this address can ask, over a connection that anybody on the way can read"
