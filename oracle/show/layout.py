"""The lines that every first screen is built of: facts, a note of the rest, a command to type.

A screen has its answer in the first line, then facts with a label of one word, then a table with a
line a plan, then one command to type next.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from oracle.show.terminal import fit, width, wrapped

LABEL = 12  # columns in front of what a fact says


def fact(label: str, text: str) -> str:
    """Return a line of the answer: what it is about, then what is known.

    >>> fact("plan", "data:64")
    '  plan      data:64'
    """
    return fit(f"{'  ' + label.strip():<{LABEL}}{text}", LABEL)


def within(text: str) -> str:
    """Return a text whose lines that are wider than the screen go on below, further in."""
    lines = []
    for line in text.split("\n"):
        indent = len(line) - len(line.lstrip()) + 2
        lines += wrapped(line, indent) if len(line) > width() else [line]
    return "\n".join(lines)


def several_of(items: Sequence[str], most: int, joint: str = "; ") -> str:
    """Return the first of many, and how many more there are.

    >>> several_of(["a", "b", "c"], 2)
    'a; b; 1 more'
    """
    more = len(items) - most
    return joint.join([*items[:most], *([f"{more:,} more"] if more > 0 else [])])


def several(count: int, noun: str) -> str:
    """Return a count with its noun.

    >>> several(1, "node"), several(1024, "device")
    ('1 node', '1,024 devices')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def as_fits(parts: Sequence[str], joint: str = ", ") -> str:
    """Return as many parts, the first ones, as a fact has room for on one line."""
    text = parts[0]
    for part in parts[1:]:
        if LABEL + len(text + joint + part) > width():
            break
        text += joint + part
    return text


def on_a_screen(facts: Sequence[str], labels: Sequence[str], rest: int, screen: int) -> list[str]:
    """Return the facts without those of these labels, the first ones first, that have no room.

    `rest` are the lines that stand below the facts.
    """
    kept = list(facts)
    for label in labels:
        if "\n".join(kept).count("\n") + 1 + rest <= screen:
            break
        kept = [text for text in kept if not text.startswith(f"  {label} ")]
    return kept


def percent(share: float) -> str:
    """Return a share in percent, its unit on the same line."""
    return f"{100 * share:.0f}\u00a0%"


def grouped(words: Sequence[str]) -> list[list[str]]:
    """Return the words of a command line, each option with what stands behind it.

    >>> grouped(["resnet50", "--batch", "64", "--ideal"])
    [['resnet50'], ['--batch', '64'], ['--ideal']]
    """
    groups: list[list[str]] = []
    for word in words:
        behind = groups and groups[-1][0].startswith("-") and len(groups[-1]) == 1
        if behind and not word.startswith("-") and "=" not in groups[-1][0]:
            groups[-1].append(word)
        else:
            groups.append([word])
    return groups


def command(words: Sequence[Sequence[str]]) -> str:
    """Return a command to copy, on as many lines as it takes; a flag stays with its value."""
    groups = [words[0][0], *map(shlex.join, words[1:])]
    lines = [f"next: {groups[0]}"]
    for group in groups[1:]:
        if len(lines[-1]) + len(group) + 3 > width():
            lines[-1] += " \\"
            lines.append(f"        {group}")
        else:
            lines[-1] += f" {group}"
    return "\n".join(lines)
