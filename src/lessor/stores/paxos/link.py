"""A connection to one node, after the greeting. It never waits: what can't be sent yet is kept, and what is there is read."""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
from collections import deque
from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.descriptors import keep_from_children
from lessor.stores.hosts import no_handshake
from lessor.stores.paxos import frames, handshake

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.stores.paxos.address import Place

CHUNK: Final = 64 * 1024
"""More at once is fetched from the system, and given back to it, for each reading."""
MOST_UNSENT: Final = 8 * 1024 * 1024
"""Bytes that wait for a node to take them; beyond that it counts as dead, until it is connected to again."""
_NOT_NOW: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class Link:
    """Made by `connect`. Not safe for threads: whoever uses it holds a lock."""

    def __init__(self, sock: socket.socket, welcome: frames.Welcome) -> None:
        self.acceptor = welcome.acceptor
        self.incarnation = welcome.incarnation
        self.cluster = welcome.cluster
        self.descriptor = sock.fileno()
        self._socket = sock
        self._encrypted = isinstance(sock, ssl.SSLSocket)
        self._splitter = frames.Splitter(frames.MAX_REPLY)
        self._unsent: deque[memoryview] = deque()
        self._unsent_bytes = 0
        sock.setblocking(False)

    @property
    def wants_to_send(self) -> bool:
        """Whether something waits to be sent."""
        return bool(self._unsent)

    def send(self, frame: bytes | bytearray) -> None:
        """Send it, or as much as goes. Raises OSError when the connection is dead."""
        if not self._unsent:
            try:
                sent = self._socket.send(frame)
            except _NOT_NOW:
                sent = 0
            if sent == len(frame):
                return
            frame = frame[sent:]
        self._unsent.append(memoryview(frame))
        self._unsent_bytes += len(frame)
        if self._unsent_bytes > MOST_UNSENT:
            raise ConnectionAbortedError("it doesn't take what it is sent")

    def send_more(self) -> None:
        """Send what waits, as much as goes."""
        while self._unsent:
            try:
                sent = self._socket.send(self._unsent[0])
            except _NOT_NOW:
                return
            self._unsent_bytes -= sent
            left = self._unsent.popleft()[sent:]
            if left:
                self._unsent.appendleft(left)

    def receive(self) -> Iterator[frames.FromNode]:
        """Return what is there. Raises OSError when the connection is dead, or the node says what it can't."""
        while True:
            try:
                data = self._socket.recv(CHUNK)
            except _NOT_NOW:
                return
            if not data:
                raise ConnectionResetError("the node closed the connection")
            try:
                for payload in self._splitter.feed(data):
                    yield frames.decode_node(payload)
            except (*frames.NOT_UNDERSTOOD, frames.TooLongError) as error:
                raise ConnectionAbortedError(f"the node can't be understood: {error}") from error
            if len(data) < CHUNK and not self._encrypted:
                return

    def shut(self) -> None:
        """End the connection; whoever polls it finds it ended. Its descriptor stays until `close`."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


def connect(place: Place, secret: bytes, context: ssl.SSLContext | None, seconds: float) -> Link:
    """Connect to a node and greet it. Blocks; each step for no longer than that."""
    try:
        sock = socket.create_connection((place.host, place.port), seconds)
    except OSError as error:
        raise StoreUnavailable("paxos", f"{place} can't be reached: {error.strerror or error}") from error
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            try:
                sock = context.wrap_socket(sock, server_hostname=place.host)
            except ssl.SSLCertVerificationError:
                raise
            except OSError as error:
                raise StoreUnavailable("paxos", f"{place} {no_handshake(error)}") from error
        keep_from_children(sock)
        return Link(sock, _greet(sock, place, secret))
    except ssl.SSLCertVerificationError as error:
        sock.close()
        raise ConfigError(f"the certificate of {place} is not trusted: {error.verify_message}") from error
    except OSError as error:
        sock.close()
        raise StoreUnavailable("paxos", f"{place} did not greet: {error.strerror or error}") from error
    except BaseException:
        sock.close()
        raise


def _greet(sock: socket.socket, place: Place, secret: bytes) -> frames.Welcome:
    nonce = handshake.nonce()
    hello = frames.Hello(frames.MAGIC, frames.VERSION, nonce, f"{socket.gethostname()}:{os.getpid()}")
    welcome = _exchange(sock, place, hello)
    if not isinstance(welcome, frames.Welcome):
        raise ConnectionAbortedError("that is no lessor node")
    if welcome.version != frames.VERSION:
        raise ConfigError(f"{place} speaks version {welcome.version} of the protocol, and this client {frames.VERSION}")
    if bool(secret) != welcome.needs_proof:
        raise ConfigError(f"{place} {'wants a' if welcome.needs_proof else 'has no'} secret")
    nonces = (nonce, welcome.nonce)
    accepted = _exchange(sock, place, frames.Proof(handshake.prove(secret, handshake.CLIENT, *nonces)))
    if not isinstance(accepted, frames.Accepted):
        raise ConnectionAbortedError("that is no lessor node")
    if not handshake.proven(accepted.proof, secret, handshake.NODE, *nonces):
        raise ConfigError(f"{place} doesn't know the secret")
    return welcome


def _exchange(sock: socket.socket, place: Place, message: frames.Frame) -> frames.FromNode:
    sock.sendall(frames.encode(message))
    splitter = frames.Splitter(frames.MAX_GREETING)
    try:
        while True:
            data = sock.recv(frames.MAX_GREETING)
            if not data:
                raise ConnectionResetError("the node closed the connection")
            for payload in splitter.feed(data):
                answer = frames.decode_node(payload)
                if isinstance(answer, frames.Refusal):
                    if answer.for_good:
                        raise ConfigError(f"{place} refuses: {answer.why}")
                    raise ConnectionAbortedError(answer.why)
                return answer
    except (*frames.NOT_UNDERSTOOD, frames.TooLongError) as error:
        raise ConnectionAbortedError("that is no lessor node") from error


def answers(link: Link, seconds: float) -> Iterator[frames.FromNode]:
    """Return what comes, waiting so long for each: for those who have a link for themselves."""
    poll = select.poll()
    poll.register(link.descriptor, select.POLLIN)
    while poll.poll(seconds * 1000):
        yield from link.receive()


def ask(link: Link, message: frames.Frame, seconds: float) -> frames.FromNode:
    """Send one message and wait for one answer."""
    link.send(frames.encode(message))
    for answer in answers(link, seconds):
        return answer
    raise TimeoutError("no answer")
