"""Which shipped file of a family was the newest at a date: `nemo@26.02`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from oracle.spec.document import refusal
from oracle.spec.files import read_text


def newest_until(name: str, files: Mapping[str, Path]) -> str:
    """The name of the file that `family@date` means.

    Files of a family are called by their dates, `nemo-25.11`; the newest has no date in its name
    and its own as `version`, or is newer than all others where that is no number.
    """
    family, _, date = name.partition("@")
    dated = {numbers(file.removeprefix(f"{family}-")): file for file in files
             if numbers(file.removeprefix(f"{family}-"))}  # fmt: skip
    if family in files:
        version = re.search(r'^version: "?([^"\n]*)', read_text(files[family]), re.MULTILINE)
        own_date = numbers(version[1]) if version else ()
        dated[own_date or (*max(dated, default=()), 0)] = family
    until = [file_date for file_date in dated if file_date <= numbers(date)]
    if until:
        return dated[max(until)]
    hint = ", ".join(f"`{dated[day]}`" for day in sorted(dated)) or "a name of a shipped file"
    raise refusal(name, f"nothing is called `{family}` at `{date}`", hint, "E110")


def numbers(date: str) -> tuple[int, ...]:
    """A date or version as numbers that can be compared, `26.02`; nothing of any other text."""
    return tuple(map(int, date.split("."))) if re.fullmatch(r"[0-9]+([.][0-9]+)*", date) else ()
