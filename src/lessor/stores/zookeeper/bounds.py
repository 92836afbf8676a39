"""What the servers allow: the shortest and the longest session, and how long a tick is.

ZooKeeper tells a client what it got, never what it could have had. So one asks for too little and for too much, on
connections of their own, and gives the sessions back.
"""

from __future__ import annotations

import contextlib
import re
import ssl
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kazoo.protocol.serialization import CloseInstance, Connect, int_struct

from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.zookeeper.sockets import connect

if TYPE_CHECKING:
    import socket

    from lessor.stores.limit import Limit
    from lessor.stores.zookeeper.address import ZooKeeperAddress

TOO_LITTLE_MS: Final = 1
TOO_MUCH_MS: Final = 2**31 - 1
OPENING: Final = 2.0
"""Seconds that the servers have to answer when the store is opened."""
TICKS_OF_SHORTEST: Final = 2
"""The shortest session has two ticks unless it is configured otherwise."""


class Bounds(NamedTuple):
    """In milliseconds."""

    shortest: int
    longest: int
    tick: int


def probe(address: ZooKeeperAddress, limit: Limit) -> Bounds:
    """Ask the first server that answers. Raises `StoreUnavailable` if none does."""
    why = ""
    for servers_left, node in zip(range(len(address.nodes), 0, -1), address.nodes, strict=True):
        try:
            share = limit.share(servers_left)  # one that is silent leaves time for the others
            shortest = _negotiated(address, node, TOO_LITTLE_MS, share)
            longest = _negotiated(address, node, TOO_MUCH_MS, share)
            tick = address.tick_ms or _configured_tick(address, node, share) or -(-shortest // TICKS_OF_SHORTEST)
            return Bounds(shortest, longest, tick)
        except OSError as error:
            why = f": {error.strerror or error}".rstrip(": ")
    raise StoreUnavailable("zookeeper", f"{address}: no server answers{why}")


def takes_sessions(address: ZooKeeperAddress, node: tuple[str, int], limit: Limit) -> bool:
    """Whether the server lets somebody in who has no session, and has seen nothing."""
    try:
        _negotiated(address, node, TOO_LITTLE_MS, limit)
    except OSError:
        return False
    return True


def _connect(address: ZooKeeperAddress, node: tuple[str, int], limit: Limit) -> socket.socket:
    try:
        return connect(node, node[0], limit, **address.settings)
    except ssl.SSLCertVerificationError as error:
        raise ConfigError(
            f"the certificate of ZooKeeper at {node[0]}:{node[1]} is not trusted: {error.verify_message}"
        ) from None
    except FileNotFoundError:
        raise ConfigError("a file that ssl_ca_certs, ssl_certfile or ssl_keyfile names is not there") from None


def _negotiated(address: ZooKeeperAddress, node: tuple[str, int], timeout_ms: int, limit: Limit) -> int:
    with _connect(address, node, limit) as connection:
        _send(connection, bytes(Connect(0, 0, timeout_ms, 0, b"\0" * 16, False).serialize()))
        try:
            answer: Any = Connect.deserialize(_receive(connection, limit), 0)[0]
        except struct.error:  # on a busy server so short a session may end before it has begun
            raise ConnectionResetError from None
        if answer.time_out <= 0:
            raise ConnectionRefusedError
        _send(connection, int_struct.pack(1) + int_struct.pack(CloseInstance.type))
        with contextlib.suppress(OSError):
            _receive(connection, limit)
        return int(answer.time_out)


def _configured_tick(address: ZooKeeperAddress, node: tuple[str, int], limit: Limit) -> int | None:
    """Return what the server says about itself, where it is allowed to (``4lw.commands.whitelist``)."""
    answer = b""
    with contextlib.suppress(OSError), _connect(address, node, limit) as connection:
        connection.sendall(b"conf")
        while data := connection.recv(65536):
            answer += data
            connection.settimeout(limit.left())
    found = re.search(rb"^tickTime=(\d+)$", answer, re.MULTILINE)
    return int(found[1]) if found else None


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(int_struct.pack(len(message)) + message)


def _receive(connection: socket.socket, limit: Limit) -> bytes:
    size = int_struct.unpack(_exactly(connection, int_struct.size, limit))[0]
    return _exactly(connection, size, limit)


def _exactly(connection: socket.socket, size: int, limit: Limit) -> bytes:
    data = b""
    while len(data) < size:
        connection.settimeout(limit.left())
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionResetError
        data += more
    return data
