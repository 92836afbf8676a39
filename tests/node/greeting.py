"""A client that says to a node just what a test wants."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from lessor.stores.paxos import frames, handshake

if TYPE_CHECKING:
    from typing import Self

PATIENCE = 10.0


class RawClient:
    """A connection to a node, without any manners."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE)
        self._splitter = frames.Splitter(frames.MAX_REPLY)
        self._heard: list[frames.FromNode] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, message: frames.Frame | bytes) -> None:
        self.socket.sendall(message if isinstance(message, bytes) else frames.encode(message))

    def hear(self) -> frames.FromNode | None:
        """Return the next message; None when the node has closed the connection."""
        while not self._heard:
            try:
                data = self.socket.recv(65536)
            except ConnectionError:
                return None
            if not data:
                return None
            self._heard += [frames.decode_node(payload) for payload in self._splitter.feed(data)]
        return self._heard.pop(0)

    def refusal(self) -> str:
        """Return why the node refuses; it must, and close."""
        said = self.hear()
        assert isinstance(said, frames.Refusal), said
        assert self.hear() is None
        return said.why

    def greet(self, secret: bytes = b"", version: int = frames.VERSION) -> Self:
        nonce = handshake.nonce()
        self.send(frames.Hello(frames.MAGIC, version, nonce))
        welcome = self.hear()
        assert isinstance(welcome, frames.Welcome), welcome
        self.send(frames.Proof(handshake.prove(secret, handshake.CLIENT, nonce, welcome.nonce)))
        accepted = self.hear()
        assert isinstance(accepted, frames.Accepted), accepted
        return self
