"""An edge list: two names a line, the bandwidth between them, and how many links there are."""

from __future__ import annotations

TITLE = "an edge list"
LAST = True  # asked after all others: any text of lines may be one


def recognises(text: str) -> bool:
    """Any text of plain lines."""
    return not text.lstrip().startswith(("<", "{", "["))


def lines(text: str, name: str) -> list[str]:
    """As they are."""
    return text.splitlines()
