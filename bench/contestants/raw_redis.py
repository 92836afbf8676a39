"""The least that two round trips to Redis cost in Python: a socket, SET NX PX and DEL, and no check of who deletes."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable


class RawRedis(Blocking):
    name = "raw socket"
    store = "redis"
    kind = "floor"
    works = ("sequential", "callers*")
    remark = "two round trips without owner, token or queue"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        address = urlsplit(url)
        self._address = (address.hostname, address.port)
        self._milliseconds = str(int(ttl * 1000))
        self._mine = threading.local()

    def acquire(self, resource: str) -> Callable[[], object]:
        answer = self._ask("SET", resource, "me", "NX", "PX", self._milliseconds)
        if answer != b"+OK\r\n":
            raise RuntimeError(answer)
        return lambda: self._ask("DEL", resource)

    def _ask(self, *words: str) -> bytes:
        request = f"*{len(words)}\r\n" + "".join(f"${len(word)}\r\n{word}\r\n" for word in words)
        connection = self._connection()
        connection.sendall(request.encode())
        return connection.recv(64)

    def _connection(self) -> socket.socket:
        connection: socket.socket | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = socket.create_connection(self._address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection
