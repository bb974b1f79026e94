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
from oracle.commands.serve.job import Said
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
from oracle.commands.serve.views import PICTURE, VIEWS, Found, each_size, python
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
    """What the page knows: its workers, what was dropped on it, what was answered before."""

    def __init__(self, folder: Path, workers: Workers) -> None:
        self.uploads, self.workers = Uploads(folder), workers
        self.answers: OrderedDict[tuple[str, ...], asyncio.Task[Said]] = OrderedDict()

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

        verb = {flag: one for one in options(parser_of("recommend")) for flag in one.option_strings}
        names = {kind: list(catalogue.shipped(kind)) for kind in NAMED.values()}
        dropped = [{"name": name, "kind": one.kind, "told": one.told}
                   for name, one in self.uploads.kept.items()]  # fmt: skip
        return {
            "names": names, "dropped": dropped, "usual": USUAL, "fields": FIELDS,
            "choices": {name: list(verb[f"--{name}"].choices or ()) for name in OPTIONS},
            "told": {name: verb[f"--{name}"].help for name in OPTIONS},
            "factors": {name: words for name, (words, _) in FACTORS.items()},
            "strategies": list(strategies()), "colours": {"kinds": style.KINDS},
            "views": {name: {"title": one.title, "told": one.told, "forms": one.forms,
                                "searches": one.searches, "sized": one.sized}
                      for name, one in VIEWS.items()},
        }  # fmt: skip

    async def view(self, request: Request) -> Response:
        asked, found, name = self.asked(request)
        words = await self.words(name, asked, found)
        picture = VIEWS[name].forms[0] == "svg"
        said = await self.answer(name, words, "inline" if picture else "json", asked)
        told = {
            "view": name, "address": asked.address, "command": shlex.join(["oracle", *words]),
            "python": python(name, words), "note": said["note"], "took": said["took"],
            "code": said["code"], "usd_per_hour": self.price(asked),
        }  # fmt: skip
        if picture:
            return JSONResponse({**told, "alt": said["alt"], "picture": said["text"]})
        return JSONResponse({**told, "data": strict_json.loads(said["text"])})

    async def size(self, request: Request) -> Response:
        """One size of a view that is over several: worked out, so that the view has it."""
        asked, found, name = self.asked(request)
        words = await self.words(name, asked, found)
        lines = each_size(words) if VIEWS[name].sized else []
        if request.path_params["number"] >= len(lines):
            raise HTTPException(404)
        await self.answer(name, lines[request.path_params["number"]], "rows", asked)
        return JSONResponse({"of": len(lines)})

    async def download(self, request: Request) -> Response:
        asked, found, name = self.asked(request)
        form = request.path_params["form"]
        if form not in VIEWS[name].forms:
            raise HTTPException(404)
        said = await self.answer(name, await self.words(name, asked, found), form, asked)
        text: Any = base64.b64decode(said["text"]) if form == "png" else said["text"]
        file = f"{Path(asked['model']).stem}-{Path(asked['system']).stem}-{name}.{form}"
        return Response(text, media_type=KINDS[form], headers={
            "content-disposition": f'attachment; filename="{file}"'})  # fmt: skip

    def asked(self, request: Request) -> tuple[Question, Found, str]:
        """The question of an address, the plan that was picked and a width, and the view."""
        name = request.path_params["name"]
        if name not in VIEWS:
            raise HTTPException(404)
        said = dict(request.query_params)
        plan, width = said.pop("plan", ""), said.pop("width", "")
        if len(request.query_params) < len(request.query_params.multi_items()):
            raise FieldError("", "a field is said twice")
        if width not in ("", NARROW):
            raise FieldError("width", f"pictures are {NARROW} pixels wide, or as usual")
        if plan.startswith("-") or len(plan) > 400 or not plan.isprintable():
            raise FieldError("plan", "this is not a plan")
        found = Found((plan,) if plan else (), 0, width)
        return question(said, self.uploads.kinds()), found, name

    async def words(self, name: str, asked: Question, found: Found) -> list[str]:
        """The command line of a view."""
        view = VIEWS[name]
        if view.sized:
            found = replace(found, most=self.opened(asked["system"]).devices)
        if view.needs and not found.plans:
            base = asked.as_it_is() if name == "again" else asked
            found = replace(found, plans=await self.plans(base))
        return view.words(asked, found)

    async def plans(self, asked: Question) -> list[str]:
        """The plans that a search finds, best first; the nearest misses where none fits."""
        said = await self.answer("ranking", asked.words("recommend"), "json", asked)
        found = strict_json.loads(said["text"])["plans"]
        return [one["plan"] for one in found if one["feasible"]] or [one["plan"] for one in found]

    def opened(self, name: str) -> System:
        """A system that was found sound before."""
        dropped = name in self.uploads.kept
        with only_within(self.uploads.folder, catalogue.shipped_folder()):
            return catalogue.system(self.uploads.folder / name if dropped else name)

    def price(self, asked: Question) -> float | None:
        """USD an hour and device, where the page or the system says it."""
        from oracle.run.costs import price_of

        if asked["price"]:
            return float(asked["price"])
        price = price_of(self.opened(asked["system"]))
        return None if price is None else price * 3600

    async def answer(self, name: str, words: Sequence[str], form: str, asked: Question) -> Said:
        """One sound answer, worked out once however many ask for it at a time."""
        key = (form, *words)
        if key in self.answers:
            self.answers.move_to_end(key)
        else:
            self.answers[key] = asyncio.create_task(self.worked(name, words, form, asked))
            while len(self.answers) > KEPT:
                self.answers.popitem(last=False)
        task = self.answers[key]
        try:
            said = await asyncio.shield(task)
            _sound(said, asked)
            return said
        except TooLong as late:
            self.answers.pop(key, None)
            raise TooLong(shlex.join(["oracle", *words])) from late
        except (FieldError, HTTPException):
            self.answers.pop(key, None)
            raise

    async def worked(self, name: str, words: Sequence[str], form: str, asked: Question) -> Said:
        """An answer of a worker; of a view over several sizes that of each, then the picture."""
        view, rows = VIEWS[name], None
        if view.sized and form != "rows":
            sizes = [self.answer(name, line, "rows", asked) for line in each_size(words)]
            rows = [row for said in await asyncio.gather(*sizes)
                    for row in strict_json.loads(said["text"])]  # fmt: skip
        kind = "picture" if view.forms == PICTURE else "search" if view.searches else ""
        return await self.workers.ask(words, form, kind, rows)

    async def drop(self, request: Request) -> Response:
        name, system = (request.query_params.get(key, "")[:200] for key in ("name", "system"))
        asked = question({**USUAL, "system": system or USUAL["system"]}, self.uploads.kinds())
        content = await request.body()

        async def ask(words: Sequence[str], form: str) -> Said:
            return await self.workers.ask(words, form, "search")

        new, found = await self.uploads.take(name, content, asked["system"], ask)
        return JSONResponse({"name": new, "kind": found.kind, "told": found.told})


def palette() -> str:
    """The colours of figures, as classes: `part-forward`, `kind-weights`, `exchange-0`."""
    from oracle.show.plot import style
    from oracle.show.plot.parts import EXCHANGES

    named = {f"part-{name}": look for name, look in style.PARTS.items()}
    named |= {f"kind-{name}": look for name, look in style.KINDS.items()}
    sent = [*EXCHANGES, (style.GREEN, "////")]
    named |= {f"exchange-{at}": look for at, look in enumerate(sent)}
    stripes = ("background-image: repeating-linear-gradient(45deg, transparent 0 3px, "
               "rgb(255 255 255 / 55%) 3px 5px);")  # fmt: skip
    return "\n".join(
        f".{name} {{ --c: {colour}; {stripes if hatch else ''} }}"
        for name, (colour, hatch) in named.items()
    )


def _sound(said: Said, asked: Question) -> None:
    """Raise what an answer says is wrong."""
    if "crash" in said:
        raise HTTPException(500, "a fault of oracle: its terminal says more")
    if "fault" in said:
        words = "; ".join(
            one["what"] + (f" ({one['hint']})" if one["hint"] else "") for one in said["fault"]
        )
        what = " ".join(one["what"] for one in said["fault"])
        raise FieldError(field_of(what, said["name"], asked), words)


def field_of(words: str, name: str, asked: Question) -> str:
    """The field that a fault is about, as far as its words say: beside it stands the fault."""
    named = [field for field in NAMED if asked[field] and asked[field] == name]
    spoken = [field for field in FIELDS if field.replace("-", " ") in words.replace("-", " ")]
    spoken.sort(key=lambda field: not (asked[field] and asked[field] in words))
    return next(iter([*named, *spoken]), "")


def _refused(request: Request, error: Any) -> Response:
    return JSONResponse({"field": error.field, "words": error.words}, 422)


def _late(request: Request, error: Any) -> Response:
    words = "this takes longer than the page waits; on the command line it may take its time"
    return JSONResponse({"field": "", "words": f"{words}: {error}"}, 504)


def _unless_ended(record: logging.LogRecord) -> bool:
    """Whether a line of the log is worth a look: requests cut off by Ctrl-C are not."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError)


def listen(
    host: str, port: int, token: str, workers: int, limit: float, opened: Callable[[str], None]
) -> None:
    """Answer at an address until somebody ends it.

    What a page asks that is opened without a question is worked out at once: a process that has
    answered has loaded what other questions need too.
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
