"""The output of ibnetdiscover: switches, adapters, and what each of their ports leads to.

A link is as wide and as fast as its line says (`4xEDR`); what is sent is the rate times what the
code leaves of it: 8 of 10 bits up to QDR, 64 of 66 from FDR on [InfiniBand Architecture
Specification, volume 2]. Adapters of one host go by the first word of what they are called.
"""

from __future__ import annotations

import re

from oracle.spec.graphs.graph import Unread

TITLE = "ibnetdiscover's output"
# Gbit/s of data that a lane carries
LANE = {"SDR": 2.0, "DDR": 4.0, "QDR": 8.0, "FDR10": 10.0, "FDR": 13.64, "EDR": 25.0, "HDR": 50.0,
        "NDR": 100.0, "XDR": 200.0}  # fmt: skip
_HEAD = re.compile(r'(Switch|Ca|Rt)\s+\d+\s+"([SHR]-[0-9a-fA-F]{1,16})"\s*(?:#\s*"([^"]{0,256})")?')
_PORT = re.compile(
    r'\[(\d{1,3})\](?:\([0-9a-fA-F]+\))?\s+"([SHR]-[0-9a-fA-F]{1,16})"\[(\d{1,3})\]([^\n]{0,400})'
)
_RATE = re.compile(r"\b(\d{1,2})x([A-Z]{2,3}(?:10)?)\b")


def recognises(text: str) -> bool:
    """A switch's or an adapter's head."""
    return re.search(r'^(Switch|Ca)\s+\d+\s+"[SH]-', text[: 2**20], re.M) is not None


def lines(text: str, name: str) -> list[str]:
    """The lines of an edge list."""
    called: dict[str, str] = {}
    links: dict[tuple[tuple[str, str], tuple[str, str]], tuple[int, str]] = {}
    here = ""
    for at, line in enumerate(text.splitlines(), 1):
        if head := _HEAD.match(line):
            kind, here, said = head[1], head[2], head[3] or ""
            called[here] = _called(kind, here, said)
        elif port := _PORT.match(line):
            if not here:
                raise Unread(at, "a port of nobody", 'Switch 36 "S-…" before it')
            ends = sorted([(here, port[1]), (port[2], port[3])])
            links.setdefault((ends[0], ends[1]), (at, port[4]))
    found = [f"hosts {host}" for host in dict.fromkeys(
        name for own, name in called.items() if own.startswith("H-"))]  # fmt: skip
    for ((a, _), (b, _)), (at, rest) in links.items():
        if a not in called or b not in called:
            lost = b if a in called else a
            raise Unread(at, f"a port leads to `{lost[:24]}`, which the file does not have",
                         "the whole output of ibnetdiscover")  # fmt: skip
        if called[a] != called[b]:
            found.append(f"{called[a]} {called[b]} {_speed(rest, at)}")
    return found


def _called(kind: str, own: str, said: str) -> str:
    """A host by its name, a switch by its number: many are called alike."""
    words = re.sub(r"[^A-Za-z0-9._ -]", "-", said).split()
    return words[0] if kind == "Ca" and words else own


def _speed(rest: str, at: int) -> str:
    rates = _RATE.findall(rest)
    if not rates:
        return ""
    width, rate = rates[-1]
    if rate not in LANE:
        raise Unread(at, f"a link of {width}x{rate}", f"rates known: {', '.join(LANE)}")
    return f"{int(width) * LANE[rate]:g} Gbit/s"
