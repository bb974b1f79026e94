"""HTML that cannot be broken out of: what is not made by `tag` is text, and text is escaped."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape


class Html(str):
    """Markup that is meant as such."""

    __slots__ = ()


VOID = ("meta", "br", "hr", "img", "link", "input")


def tag(_name: str, *inside: object, **attributes: object) -> Html:
    """One element; `class_` and `data_x` are the attributes `class` and `data-x`.

    >>> tag("p", "a < b", class_="x")
    '<p class="x">a &lt; b</p>'
    """
    said = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(plain(str(value)), quote=True)}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if _name in VOID:
        return Html(f"<{_name}{said}>")
    return Html(f"<{_name}{said}>{join(inside)}</{_name}>")


def join(parts: Iterable[object]) -> Html:
    """Parts one after the other; lists are taken apart, `None` is nothing."""
    found: list[str] = []
    for part in parts:
        if isinstance(part, Html):
            found.append(part)
        elif isinstance(part, list | tuple):
            found.append(join(part))
        elif part is not None:
            found.append(escape(plain(str(part)), quote=True))
    return Html("".join(found))


def plain(text: str) -> str:
    """Text without characters that hide or reorder what stands beside them."""
    return "".join(c if c.isprintable() or c in "\n\t" else "�" for c in text)
