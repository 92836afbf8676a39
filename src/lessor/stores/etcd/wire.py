"""One connection to one member: gRPC, as far as leases need it, on HTTP/2 over a plain socket.

gRPC's own library can't be used in a child that was forked off, and takes as long as the round trip; the JSON gateway
takes the server five times as long for a batch. What is needed is little: calls, their answers, and streams.
"""

from __future__ import annotations

import contextlib
import select
import socket
import struct
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote

import hpack

from lessor.core.clock import SECOND
from lessor.errors import ConfigError
from lessor.stores.descriptors import keep_from_children
from lessor.stores.dialing import dial
from lessor.stores.etcd.trouble import Elsewhere, explain
from lessor.stores.hosts import no_handshake
from lessor.stores.limit import Limit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from lessor.core.clock import Clock
    from lessor.stores.etcd.address import EtcdAddress
    from lessor.stores.hosts import Node

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 6, 7, 8, 9
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITY = 1, 1, 4, 8, 32
INITIAL_WINDOW_SIZE: Final = 4
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
WINDOW: Final = 65535
"""What either side may send at first before the other one allows for more."""
ENDLESS: Final = 2**31 - 1
REFILL: Final = 2**29
LARGEST_FRAME: Final = 16384
RECEIVE: Final = 65536
KEEPALIVE: Final = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3))


class Stream:
    """A call, and what was answered so far."""

    __slots__ = ("done", "messages", "number", "received", "refusal", "rest", "window")

    def __init__(self, number: int, window: int) -> None:
        self.number = number
        self.messages: list[bytes] = []
        self.done = False
        self.refusal: str | None = None
        """What the server says where it does not do it."""
        self.window = window
        """How much may be sent yet."""
        self.received = 0
        self.rest = b""

    def feed(self, data: bytes) -> None:
        """Take in a piece of the answer."""
        rest = self.rest + data
        while len(rest) >= 5:
            end = 5 + int.from_bytes(rest[1:5], "big")
            if len(rest) < end:
                break
            self.messages.append(rest[5:end])
            rest = rest[end:]
        self.rest = rest


class Wire:
    """A connection, for one thread at a time. An error of the connection makes it useless; a refusal doesn't."""

    def __init__(self, node: Node, address: EtcdAddress, clock: Clock, give_up: int) -> None:
        self.node = node
        self.used_ns = 0
        self._clock = clock
        self._streams: dict[int, Stream] = {}
        self._next = 1
        self._window = self._first_window = WINDOW
        self._received = 0
        self._headers: dict[tuple[str, str], bytes] = {}
        self._decoder = hpack.Decoder()
        self._block = b""
        self._ends = False
        self._buffer = b""
        self.leaving = False
        """Whether the server has said that it takes no more calls here."""
        self._secure = address.context is not None
        self.socket = self._connect(address, give_up)
        self._readable = select.poll()
        self._readable.register(self.socket, select.POLLIN)
        settings = struct.pack(">HI", INITIAL_WINDOW_SIZE, ENDLESS)
        more = struct.pack(">I", ENDLESS - WINDOW)
        self._out = bytearray(PREFACE + _frame(SETTINGS, 0, 0, settings) + _frame(WINDOW_UPDATE, 0, 0, more))

    def _connect(self, address: EtcdAddress, give_up: int) -> socket.socket:
        node = self.node
        try:
            bare = dial(node.host, node.port, Limit(self._clock, self._left(give_up)))
        except OSError as error:
            raise Elsewhere("etcd", f"{node} can't be reached: {error.strerror or error}") from None
        try:
            bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            bare.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in KEEPALIVE:
                bare.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
            bare.settimeout(self._left(give_up))
            context = address.context
            if context is None:
                return bare
            wrapped = context.wrap_socket(bare, server_hostname=node.host)
            keep_from_children(wrapped)
        except OSError as error:
            bare.close()
            if type(error).__name__ == "SSLCertVerificationError":
                raise ConfigError(f"etcd at {node} has no certificate that can be trusted: {error}") from None
            raise Elsewhere("etcd", f"{node} {no_handshake(error)}") from None
        else:
            return wrapped

    def call(self, method: str, messages: Sequence[bytes], token: str, give_up: int, *, last: bool = True) -> Stream:
        """Begin a call; `flush` or `finish` sees to it that it is sent. ``last``: nothing more is sent in it."""
        stream = Stream(self._next, self._first_window)
        self._next += 2
        self._streams[stream.number] = stream
        self._out += _frame(HEADERS, END_HEADERS, stream.number, self._request_headers(method, token))
        body = b"".join(b"\0" + len(message).to_bytes(4, "big") + message for message in messages)
        at = 0
        while at < len(body) or not body:
            size = min(len(body) - at, LARGEST_FRAME, self._window, stream.window)
            if size <= 0 and body:
                self.flush(give_up)
                self._receive(give_up)  # it allows for more
                continue
            piece = body[at : at + size]
            at += size
            self._window -= size
            stream.window -= size
            self._out += _frame(DATA, END_STREAM if last and at == len(body) else 0, stream.number, piece)
            if not body:
                break
        return stream

    def flush(self, give_up: int) -> None:
        """Send what is to be sent."""
        if self._out:
            out, self._out = bytes(self._out), bytearray()
            self.socket.settimeout(self._left(give_up))
            self.socket.sendall(out)

    def finish(self, streams: Sequence[Stream], give_up: int) -> list[list[bytes]]:
        """Wait for the answers. Raises what the first refusal means."""
        self.flush(give_up)
        for stream in streams:
            while not stream.done:
                self._receive(give_up)
        for stream in streams:
            if stream.refusal is not None:
                raise explain(stream.refusal, self.node)
        return [stream.messages for stream in streams]

    def heard(self, stream: Stream, give_up: int) -> list[bytes]:
        """Return what came in a stream that goes on and on, after waiting for something to come at all."""
        self.flush(give_up)
        if not stream.messages:
            self._receive(give_up)
        messages, stream.messages = stream.messages, []
        if stream.done:
            raise explain(stream.refusal or "the stream ended", self.node)
        return messages

    def ping(self, give_up: int) -> None:
        """Ask for a sign of life."""
        self._out += _frame(PING, 0, 0, b"leasehld")
        self.flush(give_up)

    def pending(self, seconds: float) -> bool:
        """Whether there is something to receive, an end included, within that time."""
        decrypted = self.socket.pending() if self._secure else 0  # type: ignore[attr-defined]
        return bool(decrypted or self._readable.poll(seconds * 1000))

    def usable(self, give_up: int) -> bool:
        """Whether the server still is at the other end, as far as is known without asking."""
        try:
            while self.pending(0):
                self._receive(give_up)
        except OSError:
            return False
        return not self.leaving and self._next < ENDLESS

    def close(self) -> None:
        """Close it."""
        self.socket.close()

    def wake(self) -> None:
        """Let whoever receives find it ended."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)

    # --- frames ---------------------------------------------------------------------------------------------------

    def _left(self, give_up: int) -> float:
        left = give_up - self._clock.now()
        if left <= 0:
            raise TimeoutError("out of time")
        return left / SECOND

    def _request_headers(self, method: str, token: str) -> bytes:
        block = self._headers.get((method, token))
        if block is None:
            fields = [
                (":method", "POST"),
                (":scheme", "https" if self._secure else "http"),
                (":path", f"/etcdserverpb.{method}"),
                (":authority", str(self.node)),
                ("content-type", "application/grpc"),
                ("te", "trailers"),
                ("hasleader", "true"),
            ]
            if token:
                fields.append(("token", token))
            # As literals that neither side remembers, so that the block can be sent again as it is.
            block = b"".join(b"\0" + _literal(name) + _literal(value) for name, value in fields)
            self._headers[method, token] = block
        return block

    def _receive(self, give_up: int) -> None:
        """Wait for something, and take in all that has come."""
        self.socket.settimeout(self._left(give_up))
        data = self.socket.recv(RECEIVE)
        if not data:
            raise ConnectionResetError("the server closed the connection")
        buffer = self._buffer + data
        at = 0
        while len(buffer) - at >= 9:
            size = int.from_bytes(buffer[at : at + 3], "big")
            if len(buffer) - at < 9 + size:
                break
            kind, flags = buffer[at + 3], buffer[at + 4]
            number = int.from_bytes(buffer[at + 5 : at + 9], "big") & ENDLESS
            self._take(kind, flags, number, buffer[at + 9 : at + 9 + size])
            at += 9 + size
        self._buffer = buffer[at:]
        self.flush(give_up)

    def _take(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == DATA:
            self._data(flags, number, payload)
        elif kind in (HEADERS, CONTINUATION):
            self._fields(kind, flags, number, payload)
        elif kind == RST_STREAM:
            self._end(number, "the server broke the call off")
        elif kind == SETTINGS and not flags & ACK:
            self._settings(payload)
        elif kind == PING and not flags & ACK:
            self._out += _frame(PING, ACK, 0, payload)
        elif kind == GOAWAY:
            self._goodbye(int.from_bytes(payload[:4], "big") & ENDLESS)
        elif kind == WINDOW_UPDATE:
            self._allowed(number, int.from_bytes(payload, "big") & ENDLESS)

    def _goodbye(self, last: int) -> None:
        self.leaving = True
        if any(number > last for number in self._streams):
            raise ConnectionResetError("the server is leaving")

    def _allowed(self, number: int, more: int) -> None:
        if number == 0:
            self._window += more
        elif number in self._streams:
            self._streams[number].window += more

    def _data(self, flags: int, number: int, payload: bytes) -> None:
        stream = self._streams.get(number)
        self._received += len(payload)
        if self._received > REFILL:
            self._out += _frame(WINDOW_UPDATE, 0, 0, struct.pack(">I", self._received))
            self._received = 0
        if stream is None:
            return
        stream.received += len(payload)
        if stream.received > REFILL:
            self._out += _frame(WINDOW_UPDATE, 0, number, struct.pack(">I", stream.received))
            stream.received = 0
        stream.feed(payload[1 : -payload[0] or None] if flags & PADDED else payload)
        if flags & END_STREAM:
            self._end(number, None)

    def _fields(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == HEADERS:
            if flags & PADDED:
                payload = payload[1 : -payload[0] or None]
            if flags & PRIORITY:
                payload = payload[5:]
            self._ends = bool(flags & END_STREAM)
        self._block += payload
        if not flags & END_HEADERS:
            return
        block, self._block = self._block, b""
        fields = {str(name): str(value) for name, value in self._decoder.decode(block)}
        if self._ends or "grpc-status" in fields:
            done = fields.get("grpc-status") == "0"
            http = fields.get(":status", "200")
            text = unquote(fields.get("grpc-message", "") or f"HTTP status {http}")
            self._end(number, None if done else text)

    def _settings(self, payload: bytes) -> None:
        for at in range(0, len(payload), 6):
            name, value = struct.unpack_from(">HI", payload, at)
            if name == INITIAL_WINDOW_SIZE:
                for stream in self._streams.values():
                    stream.window += value - self._first_window
                self._first_window = value
        self._out += _frame(SETTINGS, ACK, 0, b"")

    def _end(self, number: int, refusal: str | None) -> None:
        stream = self._streams.pop(number, None)
        if stream is not None:
            stream.refusal = refusal
            stream.done = True


def _frame(kind: int, flags: int, number: int, payload: bytes) -> bytes:
    return struct.pack(">IBI", len(payload) << 8 | kind, flags, number) + payload


def _literal(text: str) -> bytes:
    data = text.encode()
    size = len(data)
    if size < 127:
        return bytes([size]) + data
    out = bytearray([127])
    size -= 127
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes([*out, size]) + data
