"""The guard of the page: who may ask, how much, and what a browser may load.

The token is the first part of the path, so every address of the page carries it and no cookie is
needed; a page elsewhere that knows the port but not the token gets nothing. A name that somebody's
DNS turns into this machine's address is refused by its `Host`.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

LARGEST = 5 * 2**20  # bytes of an upload
QUERY = 8192  # bytes of an address
HEADERS = {
    "content-security-policy": "default-src 'self'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
    "cache-control": "no-store",
}
Scope = MutableMapping[str, Any]
App = Callable[[Scope, Any, Any], Awaitable[None]]


def loopback(host: str) -> bool:
    """Return whether a host is this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


class Guard:
    """An application behind a token, with limits and headers on everything that goes out."""

    def __init__(self, app: App, token: str, host: str) -> None:
        self.app, self.token, self.host = app, token, host

    async def __call__(self, scope: Scope, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def guarded(message: Any) -> None:
            if message["type"] == "http.response.start":
                set_headers = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(
                    (name.encode(), value.encode()) for name, value in HEADERS.items()
                    if name.encode() not in set_headers)]  # fmt: skip
            await send(message)

        refused = self.refused(scope)
        if refused:
            await _say(guarded, *refused)
            return
        _, _, rest = scope["path"][1:].partition("/")
        inner = {**scope, "path": f"/{rest}", "raw_path": None, "root_path": ""}
        await self.app(inner, _bounded(receive), guarded)

    def refused(self, scope: Scope) -> tuple[int, str] | None:
        """Return the status and the words that refuse a request, or None where it is answered."""
        headers = {name.decode("latin-1").lower(): value.decode("latin-1")
                   for name, value in scope["headers"]}  # fmt: skip
        host = _name(headers.get("host", ""))
        if not loopback(host) and (loopback(self.host) or not _address(host, self.host)):
            return 421, "this page is asked by another name than its own"
        first = scope["path"][1:].partition("/")[0]
        if not secrets.compare_digest(first.encode(), self.token.encode()):
            return 403, "open the whole address that `oracle serve` said, with its token"
        if scope["path"] == f"/{self.token}":
            return 404, "the address ends in /"
        if scope["method"] not in ("GET", "HEAD", "POST"):
            return 405, "GET or POST"
        if len(scope.get("query_string", b"")) > QUERY:
            return 414, f"an address of more than {QUERY} bytes"
        if scope["method"] == "POST":
            origin = headers.get("origin", "")
            if headers.get("sec-fetch-site", "same-origin") != "same-origin" or (
                origin and origin.partition("//")[2] != headers.get("host")
            ):
                return 403, "another page may not ask this"
            length = headers.get("content-length", "")
            if not length.isdecimal():
                return 411, "say how long it is"
            if int(length[:18]) > LARGEST:
                return 413, f"more than {LARGEST >> 20} MB"
        return None


def _name(host: str) -> str:
    """Return a `Host` without its port."""
    return host[: host.index("]") + 1] if host.startswith("[") and "]" in host else (
        host.rpartition(":")[0] if ":" in host else host)  # fmt: skip


def _address(host: str, listens: str) -> bool:
    """Return whether a host is the one listened on, or a numeric address, which needs no DNS."""
    if host == listens:
        return True
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


def _bounded(receive: Any) -> Any:
    """Return a receiver that ends a request whose body is longer than the limit."""
    count = 0

    async def bounded() -> Any:
        nonlocal count
        message = await receive()
        count += len(message.get("body", b""))
        return {"type": "http.disconnect"} if count > LARGEST else message

    return bounded


async def _say(send: Any, status: int, words: str) -> None:
    body = words.encode()
    await send({"type": "http.response.start", "status": status, "headers": [
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", str(len(body)).encode())]})  # fmt: skip
    await send({"type": "http.response.body", "body": body})
