"""What a process that answers does: a command line, answered in memory, with nothing written.

A form is what is wanted of it: `json`, `csv`, `md`, `text`, `html`; of a picture `svg`, `png`,
`inline` (to stand in the page), `rows` (what is drawn, which takes longer than drawing it).
"""

from __future__ import annotations

import base64
import os
import shlex
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from oracle.commands.parser import Usage, as_json, module_of, parser_of
from oracle.spec import strict_json
from oracle.spec.catalogue import shipped_folder
from oracle.spec.document import SpecError
from oracle.spec.files import only_within

Said = dict[str, Any]  # `text` and what is told beside it, or `fault`


Rows = list[dict[str, Any]]


def answered(words: Sequence[str], form: str, rows: Rows | None = None) -> Said:
    """One command line in one form: `text`, `note`, `alt`; or `fault`, or `crash`.

    `rows` are what a picture is drawn from, where they are there already.
    """
    begin = time.perf_counter()
    try:
        with only_within(Path(__file__).parents[2], shipped_folder(), Path.cwd()):
            said = _answer(list(words), form, rows)
    except SpecError as error:
        return {"fault": [{"what": one.what, "hint": one.hint, "line": one.place.line}
                          for one in error.faults], "name": error.name}  # fmt: skip
    except Usage as error:
        return {"fault": [{"what": str(error), "hint": "", "line": 0}], "name": "options"}
    except Exception:
        sys.stderr.write(f"{shlex.join(['oracle', *words])}\n{traceback.format_exc()}")
        sys.stderr.flush()
        return {"crash": True}
    return {**said, "took": time.perf_counter() - begin}


def _answer(words: list[str], form: str, rows: Rows | None) -> Said:
    from oracle.commands.cli import understood

    verb, *rest = words
    parser = parser_of(verb)
    asked, _, _ = understood(parser, verb, rest)
    if verb == "plot":
        return _figure(asked, form, rows)
    if verb == "report":
        from oracle.commands.report import made

        return {"text": made(asked, shlex.join(["oracle", *words]))[1].decode(), "code": 0}
    if hasattr(asked, "form"):
        asked.form = form
    answer = module_of(verb).run(asked)
    return {"text": answer.text, "code": answer.code, "note": answer.note}


def _figure(asked: Any, form: str, rows: Rows | None) -> Said:
    from oracle.commands.plot import figure_of, rows_of
    from oracle.show.page.pictures import inline
    from oracle.show.plot import rendered

    if hasattr(asked, "jobs"):
        asked.jobs = 1  # others ask too
    if form == "rows":
        return {"text": as_json(rows_of(asked)), "code": 0}
    figure = figure_of(asked, rows)
    said = {"alt": figure.alt, "code": 0, "note": "\n".join(asked.left_out)}
    if form == "inline":
        return {**said, "text": inline(figure, asked.kind)}
    content = rendered(figure, form)
    return {**said, "text": base64.b64encode(content).decode() if form == "png"
            else content.decode()}  # fmt: skip


def serve(pipe: Any, folder: str) -> None:
    """Answer what comes through a pipe until it closes; files of one folder are all it may read."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who started this ends it
    os.chdir(folder)
    tempfile.tempdir = folder
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    try:
        while True:
            words, form, rows = strict_json.loads(pipe.recv_bytes().decode())
            pipe.send_bytes(as_json(answered(words, form, rows)).encode())
    except (EOFError, BrokenPipeError):
        return
