"""The addresses of the page, all behind the token of its guard.

/                        the page; the question stands behind the `?`
/known                   names and choices that fields may have
/view/NAME?question      one view: its answer, its command, its Python
/size/NAME/K?question    the Kth of its numbers of devices worked out, and how many there are
/download/NAME.FORM?question      the same as a file
/drop?name=…&system=…    takes a spec, a config or a log
"""

from __future__ import annotations

import asyncio
import base64
import logging
import shlex
import socket
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from oracle.commands.serve.guard import Guard
from oracle.commands.serve.job import JobAnswer
from oracle.commands.serve.question import (
    FIELDS,
    NAMED,
    OPTIONS,
    USUAL,
    FieldError,
    Question,
    question,
)
from oracle.commands.serve.uploads import Uploads
from oracle.commands.serve.views import PICTURE, VIEWS, ViewPlans, each_size, python
from oracle.commands.serve.workers import TooLong, Workers
from oracle.spec import catalogue, strict_json
from oracle.spec.files import only_within, read_text
from oracle.spec.system import System

HERE = Path(__file__).parent
KEPT = 256  # answers
NARROW = "390"  # pixels of a phone's pictures
KINDS = {"json": "application/json", "csv": "text/csv; charset=utf-8", "svg": "image/svg+xml",
         "md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8",
         "png": "image/png"}  # fmt: skip
STATIC = {"page.css": "text/css", "page.js": "text/javascript", "icon.svg": "image/svg+xml"}


class Page:
    """The state of the page: its workers, the dropped files, the answers so far."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.uploads, self.workers = Uploads(folder), workers
        self.answers: OrderedDict[tuple[str, ...], asyncio.Task[JobAnswer]] = OrderedDict()

    def application(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/", self.front), Route("/known", self.known),
                Route("/view/{name}", self.view), Route("/download/{name}.{form}", self.download),
                Route("/size/{name}/{number:int}", self.size),
                Route("/drop", self.drop, methods=["POST"]), Route("/{file}", self.static),
            ],
            exception_handlers={FieldError: _refused, TooLong: _late},
        )  # fmt: skip

    async def front(self, request: Request) -> Response:
        return Response(read_text(HERE / "page.html"), media_type="text/html")

    async def static(self, request: Request) -> Response:
        file = request.path_params["file"]
        if file == "look.css":
            from oracle.show.page.look import STYLE

            return Response(STYLE, media_type="text/css")
        if file == "palette.css":
            return Response(palette(), media_type="text/css")
        if file not in STATIC:
            raise HTTPException(404)
        return Response(read_text(HERE / file), media_type=STATIC[file])

    async def known(self, request: Request) -> Response:
        """Names and choices, for the fields of the page."""
        return JSONResponse(self.choices())

    def choices(self) -> dict[str, Any]:
        from oracle.commands.parser import options, parser_of
        from oracle.plan.strategies import strategies
        from oracle.show.plot import style
        from oracle.spec.what_if import FACTORS

        verb = {
            flag: action
            for action in options(parser_of("recommend"))
            for flag in action.option_strings
        }
        names = {kind: list(catalogue.shipped(kind)) for kind in NAMED.values()}
        dropped = [{"name": name, "kind": upload.kind, "told": upload.summary}
                   for name, upload in self.uploads.by_name.items()]  # fmt: skip
        return {
            "names": names, "dropped": dropped, "usual": USUAL, "fields": FIELDS,
            "choices": {name: list(verb[f"--{name}"].choices or ()) for name in OPTIONS},
            "told": {name: verb[f"--{name}"].help for name in OPTIONS},
            "factors": {name: words for name, (words, _) in FACTORS.items()},
            "strategies": list(strategies()), "colours": {"kinds": style.KINDS},
            "views": {name: {"title": view.title, "told": view.caption, "forms": view.forms,
                             "searches": view.searches, "sized": view.sized}
                      for name, view in VIEWS.items()},
        }  # fmt: skip

    async def view(self, request: Request) -> Response:
        query, plans, name = self.requested(request)
        words = await self.words(name, query, plans)
        picture = VIEWS[name].forms[0] == "svg"
        answer = await self.answer(name, words, "inline" if picture else "json", query)
        body = {
            "view": name, "address": query.address, "command": shlex.join(["oracle", *words]),
            "python": python(name, words), "note": answer["note"], "took": answer["took"],
            "code": answer["code"], "usd_per_hour": self.price(query),
        }  # fmt: skip
        if picture:
            return JSONResponse({**body, "alt": answer["alt"], "picture": answer["text"]})
        return JSONResponse({**body, "data": strict_json.loads(answer["text"])})

    async def size(self, request: Request) -> Response:
        """One size of a view that is over several: worked out, so that the view has it."""
        query, plans, name = self.requested(request)
        words = await self.words(name, query, plans)
        lines = each_size(words) if VIEWS[name].sized else []
        if request.path_params["number"] >= len(lines):
            raise HTTPException(404)
        await self.answer(name, lines[request.path_params["number"]], "rows", query)
        return JSONResponse({"of": len(lines)})

    async def download(self, request: Request) -> Response:
        query, plans, name = self.requested(request)
        form = request.path_params["form"]
        if form not in VIEWS[name].forms:
            raise HTTPException(404)
        answer = await self.answer(name, await self.words(name, query, plans), form, query)
        text: Any = base64.b64decode(answer["text"]) if form == "png" else answer["text"]
        file = f"{Path(query['model']).stem}-{Path(query['system']).stem}-{name}.{form}"
        return Response(text, media_type=KINDS[form], headers={
            "content-disposition": f'attachment; filename="{file}"'})  # fmt: skip

    def requested(self, request: Request) -> tuple[Question, ViewPlans, str]:
        """Return the question of an address, its plan and width, and the name of its view."""
        name = request.path_params["name"]
        if name not in VIEWS:
            raise HTTPException(404)
        fields = dict(request.query_params)
        plan, width = fields.pop("plan", ""), fields.pop("width", "")
        if len(request.query_params) < len(request.query_params.multi_items()):
            raise FieldError("", "a field is said twice")
        if width not in ("", NARROW):
            raise FieldError("width", f"pictures are {NARROW} pixels wide, or as usual")
        if plan.startswith("-") or len(plan) > 400 or not plan.isprintable():
            raise FieldError("plan", "this is not a plan")
        plans = ViewPlans((plan,) if plan else (), 0, width)
        return question(fields, self.uploads.kinds()), plans, name

    async def words(self, name: str, query: Question, plans: ViewPlans) -> list[str]:
        """Return the command line of a view."""
        view = VIEWS[name]
        if view.sized:
            plans = replace(plans, largest=self.opened(query["system"]).devices)
        if view.needs and not plans.plans:
            base = query.as_it_is() if name == "again" else query
            plans = replace(plans, plans=await self.plans(base))
        return view.words(query, plans)

    async def plans(self, query: Question) -> list[str]:
        """Return the plans that a search finds, best first, or the nearest misses if none fits."""
        answer = await self.answer("ranking", query.words("recommend"), "json", query)
        plans = strict_json.loads(answer["text"])["plans"]
        return [plan["plan"] for plan in plans if plan["feasible"]] or [
            plan["plan"] for plan in plans
        ]

    def opened(self, name: str) -> System:
        """Return a system that has been checked before."""
        dropped = name in self.uploads.by_name
        with only_within(self.uploads.folder, catalogue.shipped_folder()):
            return catalogue.system(self.uploads.folder / name if dropped else name)

    def price(self, query: Question) -> float | None:
        """Return USD an hour and device, where the page or the system says it."""
        from oracle.run.costs import price_of

        if query["price"]:
            return float(query["price"])
        price = price_of(self.opened(query["system"]))
        return None if price is None else price * 3600

    async def answer(
        self, name: str, words: Sequence[str], form: str, query: Question
    ) -> JobAnswer:
        """Return a sound answer, worked out once for all who ask for it at a time."""
        key = (form, *words)
        if key in self.answers:
            self.answers.move_to_end(key)
        else:
            self.answers[key] = asyncio.create_task(self.worked(name, words, form, query))
            while len(self.answers) > KEPT:
                self.answers.popitem(last=False)
        task = self.answers[key]
        try:
            answer = await asyncio.shield(task)
            _sound(answer, query)
            return answer
        except TooLong as late:
            self.answers.pop(key, None)
            raise TooLong(shlex.join(["oracle", *words])) from late
        except (FieldError, HTTPException):
            self.answers.pop(key, None)
            raise

    async def worked(
        self, name: str, words: Sequence[str], form: str, query: Question
    ) -> JobAnswer:
        """Return a worker's answer; a view over several sizes asks for each size first."""
        view, rows = VIEWS[name], None
        if view.sized and form != "rows":
            sizes = [self.answer(name, line, "rows", query) for line in each_size(words)]
            rows = [row for answer in await asyncio.gather(*sizes)
                    for row in strict_json.loads(answer["text"])]  # fmt: skip
        kind = "picture" if view.forms == PICTURE else "search" if view.searches else ""
        return await self.workers.ask(words, form, kind, rows)

    async def drop(self, request: Request) -> Response:
        name, system = (request.query_params.get(key, "")[:200] for key in ("name", "system"))
        query = question({**USUAL, "system": system or USUAL["system"]}, self.uploads.kinds())
        content = await request.body()

        async def ask(words: Sequence[str], form: str) -> JobAnswer:
            return await self.workers.ask(words, form, "search")

        new, upload = await self.uploads.take(name, content, query["system"], ask)
        return JSONResponse({"name": new, "kind": upload.kind, "told": upload.summary})


def palette() -> str:
    """Return the colours of figures as classes: `part-forward`, `kind-weights`, `exchange-0`."""
    from oracle.show.plot import style
    from oracle.show.plot.parts import EXCHANGES

    named = {f"part-{name}": look for name, look in style.PARTS.items()}
    named |= {f"kind-{name}": look for name, look in style.KINDS.items()}
    sent = [*EXCHANGES, (style.GREEN, "////")]
    named |= {f"exchange-{number}": look for number, look in enumerate(sent)}
    stripes = ("background-image: repeating-linear-gradient(45deg, transparent 0 3px, "
               "rgb(255 255 255 / 55%) 3px 5px);")  # fmt: skip
    return "\n".join(
        f".{name} {{ --c: {colour}; {stripes if hatch else ''} }}"
        for name, (colour, hatch) in named.items()
    )


def _sound(answer: JobAnswer, query: Question) -> None:
    """Raise the fault of an answer, if it has one."""
    if "crash" in answer:
        raise HTTPException(500, "a fault of oracle: its terminal says more")
    if "fault" in answer:
        words = "; ".join(
            fault["what"] + (f" ({fault['hint']})" if fault["hint"] else "")
            for fault in answer["fault"]
        )
        complaint = " ".join(fault["what"] for fault in answer["fault"])
        raise FieldError(field_of(complaint, answer["name"], query), words)


def field_of(words: str, name: str, query: Question) -> str:
    """Return the field that a fault is about, as far as the words of the fault tell."""
    named = [field for field in NAMED if query[field] and query[field] == name]
    spoken = [field for field in FIELDS if field.replace("-", " ") in words.replace("-", " ")]
    spoken.sort(key=lambda field: not (query[field] and query[field] in words))
    return next(iter([*named, *spoken]), "")


def _refused(request: Request, error: Any) -> Response:
    return JSONResponse({"field": error.field, "words": error.words}, 422)


def _late(request: Request, error: Any) -> Response:
    words = "this takes longer than the page waits; on the command line it may take its time"
    return JSONResponse({"field": "", "words": f"{words}: {error}"}, 504)


def _unless_ended(record: logging.LogRecord) -> bool:
    """Return whether a line of the log is worth reading: requests cut off by Ctrl-C are not."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError)


def listen(
    host: str, port: int, token: str, workers: int, limit: float, opened: Callable[[str], None]
) -> None:
    """Answer at an address until somebody ends it.

    The question of a page opened without one is answered at once: a process that has answered has
    loaded what other questions need too.
    """
    import uvicorn

    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, port), family=family) as listening,
        tempfile.TemporaryDirectory(prefix="oracle-serve-") as folder,
    ):
        number = listening.getsockname()[1]
        crew = Workers(workers, folder, limit)
        page = Page(Path(folder), crew)
        app: Any = Guard(page.application(), token, host)
        config = uvicorn.Config(app, log_level="warning", access_log=False, lifespan="off",
                                server_header=False, limit_concurrency=256,
                                timeout_graceful_shutdown=2)  # fmt: skip
        logging.getLogger("uvicorn.error").addFilter(_unless_ended)
        opened(f"http://{f'[{host}]' if ':' in host else host}:{number}/{token}/")

        async def answering() -> None:
            first = asyncio.create_task(page.plans(question(USUAL, {})))
            await uvicorn.Server(config).serve(sockets=[listening])
            first.cancel()

        try:
            asyncio.run(answering())
        finally:
            crew.end()
