"""One connection to one server. redis-py makes it (names, TLS, logging in); requests go over the bare socket.

redis-py's command layer takes as long as the round trip.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import TYPE_CHECKING, Any, Final

import hiredis
import redis

from lessor.errors import StoreUnavailable
from lessor.stores.redis.trouble import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.errors import LessorError
    from lessor.stores.hosts import Node
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import Login

RECEIVE: Final = 16384
AT_ONCE: Final = 16384
"""Bytes that the kernel takes at once, whatever the server does: it has nothing else of ours to keep."""


class Plain(redis.Connection):
    """Connects and logs in within one limit, where redis-py has one for each address of a name, and for each answer."""

    limit: Limit
    _sock: Any

    def _connect(self) -> socket.socket:
        name = self.host
        found = socket.getaddrinfo(name, self.port, type=socket.SOCK_STREAM)
        try:
            for count, (*_, address) in zip(range(len(found), 0, -1), found, strict=True):
                self.host = str(address[0])
                self.socket_connect_timeout = self.limit.share(
                    count
                ).seconds  # one that is silent leaves time for others
                try:
                    connected: socket.socket = super()._connect()  # type: ignore[no-untyped-call]
                except OSError:
                    if count == 1:
                        raise
                else:
                    break
        finally:
            self.host = name
        return connected

    def read_response(self, *how: Any, **more: Any) -> Any:
        """Wait for an answer, but not longer than is left."""
        self._sock.settimeout(self.limit.left())
        return super().read_response(*how, **more)


class Encrypted(redis.SSLConnection, Plain):
    """The same with TLS."""

    def _wrap_socket_with_ssl(self, sock: socket.socket) -> Any:
        sock.settimeout(self.limit.left())
        return super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]


class Wire:
    """A connection. Any error but the server's own refusal makes it useless: a late answer would go astray."""

    def __init__(self, node: Node, login: Login, limit: Limit, *, protocol: int = 2) -> None:
        kind: Any = Encrypted if login.tls else Plain
        self.node = node
        try:
            timeout = limit.left()
            self._connection = kind(
                host=node.host,
                port=node.port,
                **login.settings,
                protocol=protocol,
                socket_keepalive=True,
                socket_timeout=timeout,
                socket_connect_timeout=timeout,
            )
            self._connection.limit = limit
            self._connection.connect()
        except redis.AuthenticationError as error:
            raise explain(f"WRONGPASS {error}", node) from None
        except (redis.TimeoutError, TimeoutError):
            raise StoreUnavailable("redis", f"{node} can't be reached within {limit.seconds:g} s") from None
        except redis.ConnectionError as error:
            raise _unreachable(error, node) from None
        except redis.RedisError as error:
            raise explain(str(error), node) from None
        except OSError as error:
            raise StoreUnavailable("redis", f"{node} can't be reached: {error.strerror or error}") from None
        self.socket: socket.socket = self._connection._sock  # noqa: SLF001 - past the command layer
        self.used_ns = 0
        self.slot: object = None
        self._timeout = 0.0
        self._in_kernel = not login.tls
        if self._in_kernel:
            self.socket.settimeout(None)
        self._limit(timeout)
        self._reader = hiredis.Reader(encoding="utf-8", errors="replace")
        self._idle = select.poll()
        self._idle.register(self.socket, select.POLLIN)
        self._decrypted = getattr(self.socket, "pending", int)

    @contextlib.contextmanager
    def opening(self, limit: Limit) -> Iterator[None]:
        """Close it if what is said over it in the beginning fails. Raises errors of ours."""
        try:
            yield
        except OSError as error:
            self.close()
            raise silence(error, self.node, limit) from None
        except BaseException:
            self.close()
            raise

    def ask(self, request: bytes, limit: Limit) -> Any:
        """Send the request and return the first answer; a refusal is a `hiredis.ReplyError`, returned and not raised."""
        if (left := limit.left()) != self._timeout:
            self._limit(left)
        wire, reader = self.socket, self._reader
        try:
            sent = wire.send(request)
            if sent < len(request) or sent > AT_ONCE:
                self._send_rest(request[sent:], limit)
            data = wire.recv(RECEIVE)
        except BlockingIOError:
            raise TimeoutError from None
        if data:
            reader.feed(data)
            if (answer := reader.gets()) is not False:  # as a rule all of it comes at once
                return answer
        return self.receive(limit)

    def send(self, request: bytes, limit: Limit) -> None:
        """Send without waiting for an answer."""
        self._limit(limit.left())
        try:
            self.socket.sendall(request)
        except BlockingIOError:
            raise TimeoutError from None

    def receive(self, limit: Limit) -> Any:
        """Return the next answer."""
        reader = self._reader
        while (answer := reader.gets()) is False:
            self._limit(limit.left())
            try:
                data = self.socket.recv(RECEIVE)
            except BlockingIOError:
                raise TimeoutError from None
            if not data:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(data)
        return answer

    def complete(self) -> list[Any]:
        """Return the answers that have been received already."""
        answers = []
        while (answer := self._reader.gets()) is not False:
            answers.append(answer)
        return answers

    def take_in(self) -> list[Any]:
        """Receive what there is, which must be something, and return the answers that are complete."""
        try:
            data = self.socket.recv(RECEIVE)
            while data and self._decrypted():
                self._reader.feed(data)
                data = self.socket.recv(RECEIVE)
        except BlockingIOError:
            raise TimeoutError from None
        if not data:
            raise ConnectionResetError("the server closed the connection")
        self._reader.feed(data)
        return self.complete()

    def has_news(self) -> bool:
        """Whether more has come. What was taken in before, and isn't complete, doesn't count: the rest may never come."""
        return bool(self._decrypted() or self._idle.poll(0))

    def pending(self, seconds: float) -> bool:
        """Whether there is something to receive, an end included, within that time. In use, that is bad news."""
        return bool(self._reader.has_data() or self._decrypted() or self._idle.poll(seconds * 1000))

    def fileno(self) -> int:
        """Return its descriptor."""
        return self.socket.fileno()

    def shut_down(self) -> None:
        """Let whoever listens find it closed."""
        self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._connection.disconnect()

    def _send_rest(self, rest: bytes, limit: Limit) -> None:
        """Send what the kernel had no room for, and see what time is left for the answer."""
        self._limit(limit.left())
        while rest:
            rest = rest[self.socket.send(rest) :]
            self._limit(limit.left())

    def _limit(self, timeout: float) -> None:
        """Let no sending or receiving take longer. The kernel's own limit saves a system call each time; not with TLS."""
        if timeout == self._timeout:
            return
        self._timeout = timeout
        if self._in_kernel:
            whole = int(timeout)
            limit = struct.pack("ll", whole, max(1, int((timeout - whole) * 1e6)))  # 0 would be no limit at all
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        else:
            self.socket.settimeout(timeout)


def _unreachable(error: redis.ConnectionError, node: Node) -> LessorError:
    text = str(error)
    if "max number of clients" in text or "LOADING" in text or "loading" in text or "AUTH" in text:
        return explain(text.replace("Redis is loading", "LOADING"), node)
    cause = error.__context__ or error
    why = getattr(cause, "strerror", None) or text
    return StoreUnavailable("redis", f"{node} can't be reached: {why}")


def pack(*words: str | bytes | int) -> bytes:
    """Return the words as a request."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # a tuple of any length
    return packed


def refusal(answer: Any) -> str:
    """Return what the server says where it refuses; else nothing."""
    return str(answer) if type(answer) is hiredis.ReplyError else ""


def check(answer: Any, node: Node) -> Any:
    """Return the answer; raise the error if it is a refusal."""
    if isinstance(answer, hiredis.ReplyError):
        raise explain(str(answer), node)
    return answer


def silence(error: OSError, node: Node, limit: Limit) -> LessorError:
    """Return the error for a request that had no answer."""
    if isinstance(error, TimeoutError):
        return StoreUnavailable("redis", f"{node} didn't answer within {limit.seconds:g} s")
    return StoreUnavailable("redis", f"the connection to {node} broke: {error.strerror or error}")
