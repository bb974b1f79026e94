"""The work of a process that answers: it runs a command line in memory and writes nothing.

The form of an answer is `json`, `csv`, `md`, `text` or `html`; that of a picture is `svg`, `png`,
`inline` (a part of the page) or `rows` (the data of the picture, slower to make than the drawing).
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

JobAnswer = dict[str, Any]  # `text`, `code`, `note` and more; or `fault`, or `crash`


Rows = list[dict[str, Any]]


def answered(words: Sequence[str], form: str, rows: Rows | None = None) -> JobAnswer:
    """Answer one command line in one form: `text`, `note`, `alt`; or `fault`, or `crash`.

    `rows` are the data of a picture, where an earlier answer has them.
    """
    begin = time.perf_counter()
    try:
        with only_within(Path(__file__).parents[2], shipped_folder(), Path.cwd()):
            answer = _answer(list(words), form, rows)
    except SpecError as error:
        return {"fault": [{"what": fault.what, "hint": fault.hint, "line": fault.place.line}
                          for fault in error.faults], "name": error.name}  # fmt: skip
    except Usage as error:
        return {"fault": [{"what": str(error), "hint": "", "line": 0}], "name": "options"}
    except Exception:
        sys.stderr.write(f"{shlex.join(['oracle', *words])}\n{traceback.format_exc()}")
        sys.stderr.flush()
        return {"crash": True}
    return {**answer, "took": time.perf_counter() - begin}


def _answer(words: list[str], form: str, rows: Rows | None) -> JobAnswer:
    from oracle.commands.cli import understood

    verb, *rest = words
    parser = parser_of(verb)
    args, _, _ = understood(parser, verb, rest)
    if verb == "plot":
        return _figure(args, form, rows)
    if verb == "report":
        from oracle.commands.report import report_file

        return {"text": report_file(args, shlex.join(["oracle", *words]))[1].decode(), "code": 0}
    if hasattr(args, "form"):
        args.form = form
    answer = module_of(verb).run(args)
    return {"text": answer.text, "code": answer.code, "note": answer.note}


def _figure(args: Any, form: str, rows: Rows | None) -> JobAnswer:
    from oracle.commands.plot import figure_of, rows_of
    from oracle.show.page.pictures import inline
    from oracle.show.plot import rendered

    if hasattr(args, "jobs"):
        args.jobs = 1  # others ask too
    if form == "rows":
        return {"text": as_json(rows_of(args)), "code": 0}
    figure = figure_of(args, rows)
    answer = {"alt": figure.alt, "code": 0, "note": "\n".join(args.left_out)}
    if form == "inline":
        return {**answer, "text": inline(figure, args.kind)}
    content = rendered(figure, form)
    return {**answer, "text": base64.b64encode(content).decode() if form == "png"
            else content.decode()}  # fmt: skip


def serve(pipe: Any, folder: str) -> None:
    """Answer the command lines of a pipe until it closes, reading files of one folder alone."""
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
