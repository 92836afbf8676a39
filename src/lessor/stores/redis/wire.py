"""One connection to one server. redis-py makes it (names, TLS, logging in); requests go over the bare socket.

redis-py's command layer takes as long as the round trip.
"""

from __future__ import annotations

import contextlib
import select
import socket
from typing import TYPE_CHECKING, Any, Final

import hiredis
import redis

from lessor.errors import StoreUnavailable
from lessor.stores.descriptors import keep_from_children
from lessor.stores.hosts import no_handshake
from lessor.stores.redis.trouble import explain

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.errors import LessorError
    from lessor.stores.hosts import Node
    from lessor.stores.limit import Limit
    from lessor.stores.redis.address import Login

RECEIVE: Final = 16384


class Plain(redis.Connection):
    """Connects and logs in within one limit, where redis-py has one for each address of a name, and for each answer."""

    limit: Limit
    shaking_hands = False
    """Connected, but not yet in TLS."""
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
        self.shaking_hands = True
        sock.settimeout(self.limit.left())
        wrapped = super()._wrap_socket_with_ssl(sock)  # type: ignore[no-untyped-call]
        self.shaking_hands = False
        return wrapped


class Wire:
    """A connection. Any error but the server's own refusal makes it useless: a late answer would go astray."""

    def __init__(self, node: Node, login: Login, limit: Limit, *, protocol: int = 2) -> None:
        kind: Any = Encrypted if login.tls else Plain
        self.node = node
        try:
            timeout = limit.left()
        except TimeoutError:
            raise _late(node, limit) from None
        try:
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
            if self._connection.shaking_hands:
                silent = TimeoutError(f"no answer within {limit.seconds:g} s")
                raise StoreUnavailable("redis", f"{node} {no_handshake(silent)}") from None
            raise _late(node, limit) from None
        except redis.ConnectionError as error:
            if self._connection.shaking_hands and isinstance(error.__context__, OSError):
                raise StoreUnavailable("redis", f"{node} {no_handshake(error.__context__)}") from None
            raise _unreachable(error, node) from None
        except redis.RedisError as error:
            raise explain(str(error), node) from None
        except OSError as error:
            raise StoreUnavailable("redis", f"{node} can't be reached: {error.strerror or error}") from None
        self.socket: socket.socket = self._connection._sock  # noqa: SLF001 - past the command layer
        keep_from_children(self.socket)
        self.used_ns = self.inspected_ns = 0
        self.evicting = ""
        """Why no new lease is to be asked for here."""
        self.slot: object = None
        self._encrypted = login.tls
        if not self._encrypted:
            self.socket.settimeout(None)  # each call says itself that it doesn't block
        self._reader = hiredis.Reader(encoding="utf-8", errors="replace")
        self._readable = select.poll()
        self._readable.register(self.socket, select.POLLIN)
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
        self.send(request, limit)
        return self.receive(limit)

    def send(self, request: bytes, limit: Limit) -> None:
        """Send without waiting for an answer."""
        if self._encrypted:
            self.socket.settimeout(limit.left())
            self.socket.sendall(request)
            return
        sent = self._send_some(request)
        if sent == len(request):
            return
        rest = memoryview(request)[sent:]
        waiting = select.poll()
        waiting.register(self.socket, select.POLLOUT)
        while rest:
            if not waiting.poll(limit.left() * 1000):
                raise TimeoutError
            rest = rest[self._send_some(rest) :]

    def receive(self, limit: Limit) -> Any:
        """Return the next answer."""
        reader = self._reader
        while (answer := reader.gets()) is False:
            if self._encrypted:
                self.socket.settimeout(limit.left())
            elif not self._readable.poll(limit.left() * 1000):
                raise TimeoutError
            reader.feed(self._receive_some())
        return answer

    def complete(self) -> list[Any]:
        """Return the answers that have been received already."""
        answers = []
        while (answer := self._reader.gets()) is not False:
            answers.append(answer)
        return answers

    def take_in(self) -> list[Any]:
        """Receive what there is, which must be something, and return the answers that are complete."""
        self._reader.feed(self._receive_some())
        while self._decrypted():
            self._reader.feed(self._receive_some())
        return self.complete()

    def has_news(self) -> bool:
        """Whether more has come. What was taken in before, and isn't complete, doesn't count: the rest may never come."""
        return bool(self._decrypted() or self._readable.poll(0))

    def pending(self, seconds: float) -> bool:
        """Whether there is something to receive, an end included, within that time. In use, that is bad news."""
        return bool(self._reader.has_data() or self._decrypted() or self._readable.poll(seconds * 1000))

    def fileno(self) -> int:
        """Return its descriptor."""
        return self.socket.fileno()

    def shut_down(self) -> None:
        """Let whoever listens find it closed."""
        self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._connection.disconnect()

    # A blocking call would be repeated with its whole timeout after each signal: a timer of 10 ms would make it wait for
    # ever. `poll` counts on, and so does a TLS socket with a timeout.

    def _send_some(self, request: bytes | memoryview) -> int:
        try:
            return self.socket.send(request, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0

    def _receive_some(self) -> bytes:
        """Return what has come, or nothing where that was a false alarm."""
        try:
            data = self.socket.recv(RECEIVE, 0 if self._encrypted else socket.MSG_DONTWAIT)
        except BlockingIOError:
            return b""
        if not data:
            raise ConnectionResetError("the server closed the connection")
        return data


def _late(node: Node, limit: Limit) -> StoreUnavailable:
    return StoreUnavailable("redis", f"{node} can't be reached within {limit.seconds:g} s")


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
