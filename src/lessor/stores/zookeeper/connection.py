"""Kazoo's connection, with as few system calls and threads on the way as may be.

Kazoo writes each request by itself, reads each answer in two pieces, waits before every piece, and hands what a watch
says to another thread. Here a request goes out on the thread of whoever asks; where several wait they go out at once;
all answers that have come are read at once; and a watch is called where it is read: ours only fill a queue.
"""

from __future__ import annotations

import contextlib
import select
import ssl
import threading
from collections import deque
from typing import TYPE_CHECKING, Any, Final

from kazoo.exceptions import ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, ConnectionHandler
from kazoo.protocol.serialization import ReplyHeader, int_int_struct, int_struct

from lessor.core.clock import MILLISECOND
from lessor.stores.limit import Limit
from lessor.stores.zookeeper.sockets import connect

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Sequence

    from lessor.core.clock import Clock

RECEIVE: Final = 65536
MOST_BYTES: Final = 65536
"""After so much, what is to be sent goes out before more is put together."""
LAST_XID: Final = 2**31 - 1


class Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """Kazoo's threads, with a cheaper way to wait for a socket than an epoll of its own each time."""

    def __init__(self, clock: Clock, takes_sessions: Callable[[tuple[str, int]], bool]) -> None:
        super().__init__()
        self.clock = clock
        self.takes_sessions = takes_sessions

    def create_connection(self, address: tuple[str, int], hostname: str, timeout: float, **tls: Any) -> socket.socket:
        """Connect in our own way."""
        return connect(address, hostname, Limit(self.clock, timeout), **tls)

    def select(
        self, readers: Sequence[Any], writers: Sequence[Any], _others: Sequence[Any], timeout: float | None = None
    ) -> tuple[list[Any], list[Any], list[Any]]:
        """Wait for one of them."""
        waiting = select.poll()
        for one in readers:
            waiting.register(one, select.POLLIN)
        for one in writers:
            waiting.register(one, select.POLLOUT)
        ready = {number for number, _ in waiting.poll(None if timeout is None else max(0.0, timeout * 1000))}
        return [r for r in readers if r.fileno() in ready], [w for w in writers if w.fileno() in ready], []

    def dispatch_callback(self, callback: Any) -> None:
        """Call the one who watches."""
        callback.func(*callback.args)


class Alarm:
    """The end of a pair of sockets by which the connection's thread is woken: once, for all that it is to send then."""

    def __init__(self, end: socket.socket) -> None:
        self._end = end
        self.rings = False

    def send(self, data: bytes) -> None:
        """Wake it, unless somebody has done so already."""
        if not self.rings:
            self.rings = True
            self._end.send(data)

    def close(self) -> None:
        """Close it."""
        self._end.close()


class Connection(ConnectionHandler):  # type: ignore[misc]
    """One to some server, and to another one when that is gone; it remembers what timeout the server gave it."""

    negotiated_ms = 0
    _xid: int
    _write_sock: Any
    _received = b""
    """What came of an answer that isn't complete."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._answers: deque[bytes] = deque()
        self._sending = threading.Lock()
        """Held by whoever sends, so that requests are answered in the order in which they are remembered."""
        self._unsent = b""
        self._is_open = False
        self._turned_away_ns: int | None = None
        """Since when servers close the connection instead of answering; None while they don't."""

    def start(self) -> None:
        """Begin, with a thread of its own."""
        super().start()
        if not isinstance(self._write_sock, Alarm):
            self._write_sock = Alarm(self._write_sock)

    def send_now(self, request: Any, answer: Any) -> bool:
        """Send it on the caller's own thread. False: it has to queue up, behind others or until there is a connection."""
        if self._sending.locked():
            return False
        with self._sending:  # an interrupt between an acquire and a try would leave it locked for ever
            if not self._is_open or self.client._queue or self._unsent:
                return False
            try:
                message = self._message(request, answer)
                sent = 0
                with contextlib.suppress(OSError):  # then its thread finds out what is wrong
                    sent = self._socket.send(message)
                if sent < len(message):
                    self._unsent = message[sent:]
                    self._write_sock.send(b"\0")
            except BaseException:  # an interrupt: an answer may be expected to what was not sent
                self._is_open = False
                with contextlib.suppress(OSError):
                    self._socket.shutdown(2)
                raise
            return True

    def shut(self) -> None:
        """Let nobody send anything: before those who wait for answers are told that there will be none."""
        with self._sending:
            self._is_open = False

    def _message(self, request: Any, answer: Any) -> bytes:
        """Return the request as it is sent, and expect the answer."""
        self._xid = self._xid % LAST_XID + 1
        body = request.serialize()
        self.client._pending.append((request, answer, self._xid))
        return b"".join((int_struct.pack(len(body) + 8), int_int_struct.pack(self._xid, request.type), body))

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        self._received = self._unsent = b""
        self._answers.clear()
        try:
            read_timeout, connect_timeout = super()._connect(host, hostip, port)
        except ConnectionDropped:
            if self._socket is not None and self._is_behind((hostip, port)):
                raise SessionExpiredError from None
            raise
        self._turned_away_ns = None
        self.negotiated_ms = round(read_timeout * 3 / 2)
        self._is_open = not isinstance(self._socket, ssl.SSLSocket)  # which can't be read and written at once
        return read_timeout, connect_timeout

    def _is_behind(self, server: tuple[str, int]) -> bool:
        """Whether the server's data is older than what this session has seen, and no other server has newer.

        A server refuses such a session, by closing the connection; so does one without a leader, for a while. One that
        was put back to older data refuses it for ever. So it is given up, once it would have expired, and with it all
        of its leases, where the server lets somebody in who has seen nothing. The next session begins afresh.
        """
        handler, now = self.handler, self.handler.clock.now()
        if self._turned_away_ns is None:
            self._turned_away_ns = now
        waited = now - self._turned_away_ns >= self.negotiated_ms * MILLISECOND
        return bool(self.client._session_id and waited and handler.takes_sessions(server))

    def _send_request(self, _read_timeout: float, connect_timeout: float) -> None:
        """Send all that waits. Whatever is lost on the way is answered with the loss of the connection."""
        with contextlib.suppress(OSError):
            self._read_sock.recv(RECEIVE)
        # Between the two: the alarm that was heard is over, and whoever finds nobody awake from here on rings again.
        self._write_sock.rings = False
        waiting = self.client._queue
        with self._sending:
            while waiting or self._unsent:
                out, self._unsent = [self._unsent], b""
                size = 0
                while waiting and size < MOST_BYTES:
                    out.append(self._message(*waiting.popleft()))
                    size += len(out[-1])
                self._write(b"".join(out), connect_timeout)

    def _send_ping(self, connect_timeout: float) -> None:
        with self._sending:
            if not self._unsent:  # else that is the sign of life
                super()._send_ping(connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Take in all answers that have come."""
        self._receive()
        response = None
        while self._answers and response != CLOSE_RESPONSE:
            response = super()._read_socket(read_timeout)
        return response

    def _read_header(self, timeout: float) -> tuple[Any, bytes, int]:
        if not self._answers:  # while it connects
            found: tuple[Any, bytes, int] = super()._read_header(timeout)
            return found
        answer = self._answers.popleft()
        header, offset = ReplyHeader.deserialize(answer, 0)
        return header, answer, offset

    def _receive(self) -> None:
        """Read what is there, and cut it into answers."""
        pieces = [self._received]
        while True:
            try:
                pieces.append(self._socket.recv(RECEIVE))
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                break
            if not pieces[-1]:
                raise ConnectionDropped("socket connection broken")
            if len(pieces[-1]) < RECEIVE and not getattr(self._socket, "pending", int)():
                break
        data = b"".join(pieces)
        at = 0
        while len(data) - at >= int_struct.size:
            end = at + int_struct.size + int_struct.unpack_from(data, at)[0]
            if end > len(data):
                break
            self._answers.append(data[at + int_struct.size : end])
            at = end
        self._received = data[at:]
