"""Sources in full: what `kahira2021, Table III` points at, from citations.bib."""

from __future__ import annotations

import re
import unicodedata
from functools import cache
from pathlib import Path

from oracle.spec.files import read_text

ACCENTS = {"'": "\u0301", "`": "\u0300", "^": "\u0302", '"': "\u0308", "~": "\u0303", "c": "\u0327"}


@cache
def bibliography() -> dict[str, dict[str, str]]:
    """Key -> fields of every entry in citations.bib, in plain letters."""
    text = read_text(Path(__file__).parents[1] / "citations.bib")
    found = {}
    for key, body in re.findall(r"^@\w+\{([^,\s]+),\n(.*?)^\}", text, re.MULTILINE | re.DOTALL):
        fields = re.findall(r"^\s*(\w+)\s*=\s*\{(.*?)\},?$", body, re.MULTILINE | re.DOTALL)
        found[key] = {name: plain(value) for name, value in fields}
    return found


def plain(text: str) -> str:
    r"""LaTeX's accents and braces as the letters they stand for.

    >>> plain(r"M{\'e}haut, Jean-Fran{\c{c}}ois")
    'Méhaut, Jean-François'
    """
    text = re.sub(r"\{?\\(['`^\"~c])\{?(\w)\}?\}?", lambda m: m[2] + ACCENTS[m[1]], text)
    text = re.sub(r"[{}]", "", text).replace("--", "–").replace("\\", "")
    return unicodedata.normalize("NFC", " ".join(text.split()))


def citation(key: str) -> str:
    """One work as a reference list has it.

    >>> citation("chen2016")
    'T. Chen, B. Xu, C. Zhang, C. Guestrin: Training Deep Nets with Sublinear Memory Cost. arXiv 1604.06174, 2016'
    """  # noqa: E501
    entry = bibliography()[key]
    people = [_person(name) for name in entry.get("author", "").split(" and ")]
    if len(people) > 4:
        people = [*people[:3], "others"]
    where = entry.get("journal") or entry.get("booktitle") or entry.get("publisher", "")
    if entry.get("volume"):
        where += f" {entry['volume']}"
        where += f"({entry['number']})" if entry.get("number") else ""
        where += f":{entry['pages']}" if entry.get("pages") else ""
    places = [where, entry.get("note", ""), entry.get("year", "")]
    return f"{', '.join(people)}: {entry['title']}. {', '.join(p for p in places if p)}"


def cited(source: str) -> list[str]:
    """The works that a strategy's or algorithm's `source` names, in full, with the place in each.

    >>> cited("kahira2021, eq. 15")[0].endswith(", 2021 (kahira2021, eq. 15)")
    True
    """
    found: list[tuple[str, list[str]]] = []
    for part in source.split(";"):
        key = part.split(",")[0].strip().split(" ")[0]
        if key in bibliography():
            found.append((key, [part.strip()]))
        elif found:
            found[-1][1].append(part.strip())
    return [f"{citation(key)} ({'; '.join(places)})" for key, places in found] or [source]


def _person(name: str) -> str:
    last, comma, first = name.strip().partition(",")
    initials = " ".join(f"{word[0]}." for word in first.split())
    return f"{initials} {last}" if comma and initials else last
