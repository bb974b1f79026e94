"""A store over ranks: each holds a part of all samples, and serves it to the others over sockets.

A request is a sample's number, its answer the length and the bytes. Who connects says a word first
that only the ranks of this run know. Each loader thread has a connection of its own to each rank.
"""

from __future__ import annotations

import contextlib
import hmac
import socket
import struct
import threading
from collections.abc import Callable, Sequence

from oracle.executor.loading.throttle import Throttle

WORD = 16  # bytes of the word
PATIENCE = 60.0  # seconds for an answer
NOT_HERE = 2**64 - 1
_NUMBER = struct.Struct("!Q")

Held = Callable[[int], bytes | None]


class Store:
    """Serves one rank's samples, and asks the other ranks for theirs."""

    def __init__(self, content_of: Held, throttle: Throttle, word: bytes, alone: bool) -> None:
        self.content_of, self.throttle, self.word = content_of, throttle, word
        self.listener = socket.create_server(("127.0.0.1" if alone else "", 0), backlog=256)
        self.port = int(self.listener.getsockname()[1])
        self.peers: list[tuple[str, int]] = []
        self.open = True
        self._mine = threading.local()
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def meet(self, peers: Sequence[tuple[str, int]]) -> None:
        """Learn where each of the ranks that hold samples listens."""
        self.peers = list(peers)

    # --- serving -------------------------------------------------------------------------

    def _accept(self) -> None:
        while self.open:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self._sockets.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError), connection:
            connection.settimeout(PATIENCE)
            if not hmac.compare_digest(_exactly(connection, WORD), self.word):
                return
            connection.settimeout(None)
            while self.open:
                (number,) = _NUMBER.unpack(_exactly(connection, _NUMBER.size))
                content = self.content_of(number)
                if content is None:
                    connection.sendall(_NUMBER.pack(NOT_HERE))
                    continue
                self.throttle.sent(len(content))
                connection.sendall(_NUMBER.pack(len(content)))
                connection.sendall(content)

    # --- asking --------------------------------------------------------------------------

    def get(self, owner: int, number: int) -> bytes:
        """A sample from the rank that holds it."""
        connection = self._to(owner)
        self.throttle.sent(0)  # the request's way
        connection.sendall(_NUMBER.pack(number))
        (length,) = _NUMBER.unpack(_exactly(connection, _NUMBER.size))
        if length == NOT_HERE:
            raise OSError(f"sample {number} is not where it should be")
        return _exactly(connection, length)

    def _to(self, owner: int) -> socket.socket:
        connections: dict[int, socket.socket] = self._mine.__dict__.setdefault("known", {})
        if owner not in connections:
            connection = socket.create_connection(self.peers[owner], timeout=PATIENCE)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection.sendall(self.word)
            connections[owner] = connection
            self._sockets.append(connection)
        return connections[owner]

    def close(self) -> None:
        """Stop serving; threads that wait on a connection end with it."""
        self.open = False
        for endpoint in (self.listener, *self._sockets):
            with contextlib.suppress(OSError):
                endpoint.close()


def _exactly(connection: socket.socket, count: int) -> bytes:
    parts = []
    while count:
        part = connection.recv(min(count, 2**20))
        if not part:
            raise EOFError
        parts.append(part)
        count -= len(part)
    return b"".join(parts)
