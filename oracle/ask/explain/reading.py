"""What is to be said of a plan's reading beside the seconds of its step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from oracle.predict.estimate import Estimate
from oracle.predict.reading import Read
from oracle.spec.units import show
from oracle.storage import MODES, file_system


def of_reading(shown: Estimate) -> Iterator[str]:
    """Sentences on how one plan gets its samples."""
    work = shown.work[0]
    read, one = work.block.read, shown.reading[0]
    if read is None or one is None:
        asked = shown.options.reading == "none"
        yield "reading is not counted" + ("" if asked else f": {shown.unread}")
    else:
        yield from _said(read, one, float(shown.seconds[0]))


def _said(read: Read, one: dict[str, Any], step: float) -> Iterator[str]:
    ahead = ", ahead of its use" if one["exposed"] <= 0 else ""
    yield (f"{one['mode']}: a batch is read from {one['where']} in {show(one['seconds'], 's')}"
           f"{ahead}; {one['cause']}")  # fmt: skip
    yield (f"{one['files_per_second']:,.0f} files/s and {show(one['bytes_per_second'], 'B/s')} by "
           f"{one['nodes']:.0f} nodes; first epoch {show(one['first_epoch'], 's')}")  # fmt: skip
    if one["staging"]:
        pays = one["pays_after"]
        after = f", which pays after {pays['epochs']:.2g} epochs" if pays else ""
        yield f"staging takes {show(one['staging'], 's')} once{after}"
    yield from _listed(read, one)
    waits, effort = one["exposed"] > 0.001 * step, MODES[one["mode"]].effort
    for each in one["alternatives"]:
        if not waits and MODES[each["mode"]].effort > effort:
            continue  # what asks for more helps nothing
        if not each["possible"]:
            yield f"{each['mode']}: not possible, {each['why']}"
        else:
            slower = "no slower" if each["step"] <= step * 1.001 else f"+{_more(each, step)}"
            yield f"{each['mode']}: {slower} a step, {show(each['once'], 's')} once"
    if one["assumed"]:
        yield f"assumed, since nobody says them: {', '.join(one['assumed'])}"


def _more(each: dict[str, Any], step: float) -> str:
    return show(each["step"] - step, "s")


def _listed(read: Read, one: dict[str, Any]) -> Iterator[str]:
    """The storm at the start: every rank that reads lists all directories."""
    if one["listing"] <= 0:
        return
    question = read.loads.question
    shared, data = question.machine.shared, question.samples
    if shared is None:
        return
    ranks = one["listing"] / float(file_system.listing(shared, 1.0, data.files, data.directories))
    looked = float(file_system.listing(shared, ranks, data.files, data.directories, look=True))
    yield (
        f"{ranks:.0f} ranks list {data.directories:,.0f} directories at the start in "
        f"{show(one['listing'], 's')}; in {show(looked, 's')} if each looks at every file"
    )
