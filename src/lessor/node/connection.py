"""One client's connection: the greeting, then requests, each in its turn.

A client that sends more than its share waits: after so many items, or so much to show, the others are served first. One
that doesn't read its answers gets no more of them, and isn't read from either; one that doesn't read what is pushed to
it is dropped. And so is who has the node keep the most, where all together have it keep too much.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from typing import TYPE_CHECKING, Final, cast

from lessor.node.checking import LONGEST_ID
from lessor.node.log import log
from lessor.stores.paxos import frames, handshake
from lessor.stores.paxos.frames import TooLongError, encode

if TYPE_CHECKING:
    from lessor.node.service import Service

GREETING_SECONDS: Final = 5.0
SHARE: Final = 1000
"""Items after which it is somebody else's turn."""
FRAME_COSTS: Final = 8
"""A frame counts for as many items, besides its own."""
MOST_OWED: Final = 1000
"""Answers that may wait for the disk; then nothing more is done for the client."""
KEEPALIVE: Final = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
"""A client whose host is gone, or the way to it, says nothing more: after a minute its connection is over."""
MOST_ADDRESSES: Final = 100
MOST_UNREAD: Final = 4 * 1024 * 1024
"""Bytes that a client may leave unread of what is pushed to it, or that may wait for the disk."""
LADEN: Final = 16 * 1024
"""With fewer bytes to keep for it nobody looks after a client. One that doesn't read its answers always has more."""


class Connection(asyncio.Protocol):
    """From the first byte to the last."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._splitter = frames.Splitter(frames.MAX_GREETING)
        self._backlog: deque[frames.Payload] = deque()
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle
        self.hello: frames.Hello | None = None
        self._nonce = b""
        self._ready = False
        self._resting = False
        """Whether the rest of the backlog waits, for its turn or for the client."""
        self._called = False
        """Whether its turn will come by itself."""
        self._clogged = False
        """Whether the client doesn't read its answers."""
        self._closed = False
        self._working = False
        self._out: list[bytes | bytearray] = []
        self._owed = self._owed_bytes = 0
        self.addresses: set[str] = set()
        """Under which it is called."""
        self.peer = ""

    # --- what the event loop calls --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a greeting."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's has another base
        self.peer = str(transport.get_extra_info("peername"))
        service = self._service
        self._deadline = asyncio.get_running_loop().call_later(GREETING_SECONDS, self._too_late)
        client = transport.get_extra_info("socket")
        if client is not None:
            _notice_when_gone(client)
        service.greeting[self] = None
        if len(service.greeting) > service.settings.max_greeting:
            waiting = (one for one in service.greeting if one.hello is None)  # who means it has said something by now
            oldest = next(waiting, self)
            del service.greeting[oldest]
            oldest.refuse("too many connections that haven't greeted")

    def data_received(self, data: bytes) -> None:
        """Take bytes in."""
        try:
            self._backlog.extend(self._splitter.feed(data))
        except TooLongError as error:
            self._work()
            self.refuse(str(error))
            return
        if self._splitter.held > LADEN:
            self._service.laden.add(self)
        if not self._resting:
            self._work()

    def pause_writing(self) -> None:
        """Do nothing while the client doesn't read."""
        self._clogged = True
        self._service.laden.add(self)
        self._adjust()

    def resume_writing(self) -> None:
        """Go on."""
        self._clogged = False
        self._go_on()

    def connection_lost(self, _error: Exception | None) -> None:
        """Forget it."""
        self._closed = True
        self._deadline.cancel()
        self._backlog.clear()
        self._service.left(self)

    # --- what the service calls -----------------------------------------------------------------------------------

    def send(self, frame: bytes | bytearray) -> None:
        """Send an answer."""
        if self._closed:
            return
        if self._working:
            self._out.append(frame)
        else:
            self._transport.write(frame)

    def owe(self, frame: bytes | bytearray) -> None:
        """Take note of an answer that waits for the disk."""
        self._owed += 1
        self._owed_bytes += len(frame)
        if self._owed_bytes > LADEN:
            self._service.laden.add(self)
        if self._is_held_up:
            self._adjust()

    def pay(self, frame: bytes | bytearray) -> None:
        """Send an answer that waited."""
        was_held_up = self._is_held_up
        self._owed -= 1
        self._owed_bytes -= len(frame)
        self.send(frame)
        if was_held_up:
            self._go_on()

    def push(self, frame: bytes | bytearray) -> None:
        """Send what wasn't asked for, unless too much of it is unread already."""
        if self._transport.get_write_buffer_size() > MOST_UNREAD:
            self._service.counts["dropped listeners"] += 1
            self.drop("a listener doesn't read what it is told, and is dropped")
            return
        self.send(frame)

    @property
    def kept(self) -> int:
        """How many bytes the node keeps for the client: of what it has yet to read, and of what it has sent so far."""
        unread = self._transport.get_write_buffer_size() + self._owed_bytes
        return unread + self._splitter.held + sum(map(len, self._backlog))

    def drop(self, why: str) -> None:
        """End it, and keep nothing for the client any longer."""
        log(why, peer=self.peer)
        self._closed = True
        self._backlog.clear()
        self._transport.abort()

    def refuse(self, why: str, *, for_good: bool = False) -> None:
        """Say why, and close."""
        if self._closed:
            return
        self._service.counts["refusals"] += 1
        log("refused a connection", peer=self.peer, why=why)
        self._transport.write(encode(frames.Refusal(why, for_good)))
        self.close()

    def close(self) -> None:
        """Close it, once what was said has been sent."""
        self._closed = True
        self._backlog.clear()
        self._transport.close()

    # --- inside ---------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        """Carry out what has come, up to the client's share; the rest has its turn after the others'."""
        self._resting = False
        self._working = True
        done = 0.0
        try:
            while self._backlog and done < SHARE and not self._closed and not self._is_held_up:
                done += FRAME_COSTS + self._take(self._backlog.popleft())
        except frames.NOT_UNDERSTOOD as error:
            self.refuse(f"a frame can't be understood: {error}")
        except Exception as error:  # noqa: BLE001 - a fault of ours costs this connection, and not the node
            log("internal error", level="error", error=repr(error))
            self.refuse("internal error")
        finally:
            self._working = False
            if self._out:
                out, self._out = self._out, []
                if not self._transport.is_closing():
                    self._transport.write(b"".join(out) if len(out) > 1 else out[0])
        self._resting = bool(self._backlog) and not self._closed
        self._go_on()

    @property
    def _is_held_up(self) -> bool:
        """Whether the client has to take its answers, or the disk to be written, before anything else is done for it."""
        return self._clogged or self._owed >= MOST_OWED or self._owed_bytes > MOST_UNREAD

    def _go_on(self) -> None:
        """Have the rest of the backlog carried out when it is its turn, or read on."""
        if self._resting and not self._called and not self._is_held_up:
            self._called = True
            asyncio.get_running_loop().call_soon(self._resume)
        self._adjust()

    def _resume(self) -> None:
        self._called = False
        if not self._closed:
            self._work()

    def _adjust(self) -> None:
        """Read from the client, or let it wait."""
        if self._closed or self._transport.is_closing():
            return
        if self._resting or self._is_held_up:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _take(self, payload: frames.Payload) -> float:
        """Carry out one frame; return how many items it had, or as many as it was worth."""
        message = frames.decode_client(payload)
        service = self._service
        if not self._ready:
            self._greet(message)
            return 0
        if isinstance(message, frames.Ask):
            if len(message.items) > frames.MAX_ITEMS:
                self.refuse(f"a request has {len(message.items)} items, and {frames.MAX_ITEMS} are the most")
                return 0
            return len(message.items) + SHARE * service.ask(message, self)
        if isinstance(message, frames.Listen):
            if len(message.address) > LONGEST_ID or len(self.addresses) >= MOST_ADDRESSES:
                self.refuse("too many addresses, or too long a one")
            else:
                service.listen(self, message)
        elif isinstance(message, frames.AskSeed):
            self.send(encode(service.seed(message.serial)))
        elif isinstance(message, frames.AskStatus):
            self.send(encode(service.status(message.serial)))
        elif isinstance(message, frames.Ping):
            self.send(encode(service.sign_of_life(message.serial)))
        else:
            self.refuse("a second greeting on one connection")
        return 0

    def _greet(self, message: frames.FromClient) -> None:
        """Take part in the greeting."""
        settings = self._service.settings
        if self.hello is None:
            if not isinstance(message, frames.Hello) or message.magic != frames.MAGIC:
                self.refuse("this is a lessor node, and that was no greeting")
            elif message.version != frames.VERSION:
                why = f"the client speaks version {message.version} of the protocol, and this node {frames.VERSION}"
                self.refuse(why, for_good=True)
            else:
                self.hello = message
                self._nonce = handshake.nonce()
                incarnation = self._service.acceptor.incarnation
                self.send(
                    encode(
                        frames.Welcome(
                            frames.VERSION,
                            settings.id,
                            incarnation,
                            settings.cluster,
                            self._nonce,
                            bool(settings.secret),
                        )
                    )
                )
            return
        if not isinstance(message, frames.Proof):
            self.refuse("a request before the greeting was over")
            return
        nonces = (self.hello.nonce, self._nonce)
        if not handshake.proven(message.proof, settings.secret, handshake.CLIENT, *nonces):
            why = "the secret is another one" if message.proof else "this node wants a secret"
            self.refuse(why if settings.secret else "this node has no secret", for_good=True)
            return
        self._deadline.cancel()
        service = self._service
        service.greeting.pop(self, None)
        if len(service.connections) >= settings.max_connections:
            self.refuse("too many connections")
            return
        service.connections.add(self)
        self._ready = True
        self._splitter.limit = frames.MAX_REQUEST
        self.send(encode(frames.Accepted(handshake.prove(settings.secret, handshake.NODE, *nonces))))

    def _too_late(self) -> None:
        self.refuse(f"no greeting within {GREETING_SECONDS:g} s")


def _notice_when_gone(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if hasattr(socket, name):
            client.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
