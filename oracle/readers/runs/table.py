"""CSV of times that a user measured: layers, three totals, or steps.

    layer, forward, backward, update     each layer by its name in the model, an iteration's seconds
    forward, backward, update            three totals of an iteration
    step                                 seconds of an iteration (or `seconds`, `step_time`)

A row is one repetition; a column may end in its unit, `forward_ms` or `forward (ms)`. Lines
`# plan: data:8`, `# batch: 512`, `# devices: 8` before the table say how the run was done.
"""

from __future__ import annotations

import re
from collections import defaultdict

from oracle.readers.logs import InputError, number
from oracle.readers.runs import RunLog, Timing, arguments_of
from oracle.readers.runs.steady import median_of, timing
from oracle.spec.files import csv_of

TITLE = "CSV of layers, totals or steps"
PRECEDENCE = 3
SCALES = {"": 1.0, "s": 1.0, "seconds": 1.0, "ms": 1e-3, "us": 1e-6}
PASSES = ("forward", "backward", "update")
STEPS = ("step", "seconds", "step_time", "step_seconds", "iteration")
_COLUMN = re.compile(r"\s*(\w+?)\s*(?:[_ ]?[(\[]?(s|ms|us|seconds)[)\]]?)?\s*", re.I)
_AHEAD = re.compile(r"(?:\s*+#[^\n]*+)*+\s*+")  # comments and empty lines
_PLAN = re.compile(r"^#[ \t]*plan[ \t]*[:=][ \t]*([^\n]{1,400})", re.M)
SETTINGS = {"devices": "devices", "batch": "batch", "sequence": "sequence"}


def _columns(line: str) -> dict[str, tuple[str, float]]:
    """Return our name and scale of each known column."""
    columns = {}
    for column in line.split(","):
        match = _COLUMN.fullmatch(column.strip().strip('"'))
        name = match[1].lower() if match else ""
        if column.strip().lower() in STEPS:
            columns[column] = "step", 1.0
        elif match and name in (*PASSES, "layer", *STEPS):
            columns[column] = "step" if name in STEPS else name, SCALES[(match[2] or "").lower()]
    return columns


def _parts(text: str) -> tuple[str, str]:
    """Return the comment lines, and the table."""
    ahead = _AHEAD.match(text)
    end = ahead.end() if ahead else 0
    begin = text.rfind("\n", 0, end) + 1 if end < len(text) else 0
    return text[:begin], text[begin:]


def recognises(text: str) -> bool:
    names = {name for name, _ in _columns(_parts(text)[1].partition("\n")[0][:2000]).values()}
    return "step" in names or {"forward", "backward"} <= names


def parse(text: str, path: str) -> RunLog:
    comments, table = _parts(text)
    settings = arguments_of(comments, SETTINGS)
    header, rows = csv_of(table, path)
    columns = _columns(",".join(header))
    values_by_layer: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for line, row in rows:
        cells = {columns[key][0]: (row.get(key, ""), columns[key][1]) for key in columns}
        layer = cells.pop("layer", ("", 1.0))[0].strip()
        for name, (cell, scale) in cells.items():
            value = number(cell.strip())
            if value is None and cell.strip():
                raise InputError(
                    path, line, f"`{cell.strip()[:20]}` is no time", "seconds, e.g. 0.01"
                )
            if value is not None:
                values_by_layer[layer][name].append(value * scale)
    layers = {
        layer: tuple(median_of(values.get(name, [0.0])) or Timing(0.0) for name in PASSES)
        for layer, values in values_by_layer.items() if layer
    }  # fmt: skip
    of_model = values_by_layer.get("", {})
    totals = {name: timed for name in PASSES if (timed := timing(of_model.get(name, [])))}
    step = timing(of_model.get("step", []))
    if not (layers or totals or step):
        raise InputError(path, 1, "no time is in this table", "a row of seconds under the columns")
    plan = _PLAN.search(comments)
    return RunLog(path, TITLE, step, totals, layers=layers, settings=settings,  # type: ignore[arg-type]
                  plan=plan[1].strip() if plan else "")  # fmt: skip
