"""Lines of JSON that our own measurements append one by one: objects of known keys."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from oracle.readers.logs import InputError
from oracle.spec.strict_json import Unfit, loads


def object_of(
    line: str, path: str, line_number: int, text: str = "", may_be_cut: bool = False
) -> dict[str, Any] | None:
    """Return the object of a line; None for a line that was cut off, where that may be."""
    try:
        data = loads(line)
    except Unfit as error:
        hint = "a measurement holds finite numbers"
        raise InputError(path, line_number, str(error), hint, text) from None
    except (ValueError, RecursionError):
        if may_be_cut:
            return None
        hint = "one object a line"
        raise InputError(path, line_number, "this line is not JSON", hint, text) from None
    if not isinstance(data, dict):
        raise InputError(path, line_number, "this line is not an object", "one object a line", text)
    return data


def check_keys(
    data: dict[str, Any], keys: Collection[str], path: str, line_number: int, text: str = ""
) -> None:
    """Refuse an object with an unknown key."""
    for key in data:
        if key not in keys:
            hint = f"known: {', '.join(sorted(keys))}"
            complaint = f"nobody knows the key `{key[:40]}`"
            raise InputError(path, line_number, complaint, hint, text)
