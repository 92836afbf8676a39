"""Connections to one server: one request, one answer, and none is used again of which that isn't certain.

redis-py makes them (names, TLS, logging in); requests go over the bare socket, because its command layer takes as long
as the round trip.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import threading
import weakref
from typing import TYPE_CHECKING, Any, Final

import hiredis
import redis

from leasehold.core.clock import SECOND
from leasehold.errors import ConfigError, StoreUnavailable
from leasehold.stores.redis.trouble import explain

if TYPE_CHECKING:
    from leasehold.core.clock import Clock
    from leasehold.errors import LeaseholdError
    from leasehold.stores.redis.address import RedisAddress

RECEIVE: Final = 65536
CONNECTIONS: Final = 16
"""How many a store opens; who finds all in use waits for one."""
OLDEST: Final = (6, 2)
TRUSTED_NS: Final = SECOND // 10
"""A connection that was idle for longer is looked at before it is used: the server may have closed it."""


class Wire:
    """One connection. Any error but the server's own refusal makes it useless: a late answer would go astray."""

    def __init__(self, address: RedisAddress, timeout: float) -> None:
        kind: Any = redis.SSLConnection if address.tls else redis.Connection
        self._connection = kind(
            **address.settings(),
            protocol=2,
            socket_keepalive=True,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
        )
        try:
            self._connection.connect()
        except redis.AuthenticationError as error:
            raise explain(f"WRONGPASS {error}", address) from None
        except redis.TimeoutError:
            raise StoreUnavailable("redis", f"{address} can't be reached within {timeout:g} s") from None
        except redis.ConnectionError as error:
            raise self._unreachable(error, address) from None
        except redis.RedisError as error:
            raise explain(str(error), address) from None
        except OSError as error:
            raise StoreUnavailable("redis", f"{address} can't be reached: {error.strerror or error}") from None
        self.socket: socket.socket = self._connection._sock  # noqa: SLF001 - past the command layer
        self.used_ns = 0
        self._timeout = 0.0
        self._in_kernel = not address.tls
        if self._in_kernel:
            self.socket.settimeout(None)
        self._limit(timeout)
        self._reader = hiredis.Reader(encoding="utf-8", errors="replace")
        self._idle = select.poll()
        self._idle.register(self.socket, select.POLLIN)
        self._decrypted = getattr(self.socket, "pending", int)

    @staticmethod
    def _unreachable(error: redis.ConnectionError, address: RedisAddress) -> LeaseholdError:
        text = str(error)
        if "max number of clients" in text or "LOADING" in text or "loading" in text or "AUTH" in text:
            return explain(text.replace("Redis is loading", "LOADING"), address)
        cause = error.__context__ or error
        why = getattr(cause, "strerror", None) or text
        return StoreUnavailable("redis", f"{address} can't be reached: {why}")

    def ask(self, request: bytes, timeout: float) -> Any:
        """Send the request and return the answer; a refusal comes as a `hiredis.ReplyError`, which is no exception here."""
        if timeout != self._timeout:
            self._limit(timeout)
        try:
            self.socket.sendall(request)
            return self.receive()
        except BlockingIOError:
            raise TimeoutError from None

    def _limit(self, timeout: float) -> None:
        """Let no sending or receiving take longer. The kernel's own limit saves a system call each time; not with TLS."""
        self._timeout = timeout
        if self._in_kernel:
            whole = int(timeout)
            limit = struct.pack("ll", whole, max(1, int((timeout - whole) * 1e6)))  # 0 would be no limit at all
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        else:
            self.socket.settimeout(timeout)

    def receive(self) -> Any:
        """Return the next answer."""
        reader = self._reader
        while (answer := reader.gets()) is False:
            data = self.socket.recv(RECEIVE)
            if not data:
                raise ConnectionResetError("the server closed the connection")
            reader.feed(data)
        return answer

    def pending(self, seconds: float) -> bool:
        """Whether there is something to receive, an end included, within that time. In use, that is bad news."""
        return bool(self._reader.has_data() or self._decrypted() or self._idle.poll(seconds * 1000))

    def close(self) -> None:
        """Close it."""
        self._connection.disconnect()


def pack(*words: str | bytes | int) -> bytes:
    """Return the words as a request."""
    packed: bytes = hiredis.pack_command(words)  # type: ignore[arg-type] # a tuple of any length
    return packed


class Connections:
    """The connections of a store, the last one used first."""

    def __init__(self, address: RedisAddress, clock: Clock) -> None:
        self._address = address
        self._clock = clock
        self._closed = False
        self.warned = False
        self.forget()
        _all.add(self)

    def forget(self) -> None:
        """Have no connections: at the start, and in a forked child, where those that there are belong to the parent."""
        self._idle: list[Wire] = []
        self._free = threading.Condition()
        self._open = self._waiting = 0

    def ask(self, request: bytes, timeout: float, *, urgent: bool = False) -> Any:
        """Send a request over some connection, and return the answer. Raises only errors of ours.

        It is never sent twice: what became of one without an answer isn't known here.
        """
        idle = self._idle
        try:
            wire = idle.pop()
        except IndexError:
            wire = None
        now = self._clock.now()
        if wire is None or (now - wire.used_ns > TRUSTED_NS and wire.pending(0)):
            wire = self._another(wire, timeout, urgent=urgent)
        wire.used_ns = now
        try:
            answer = wire.ask(request, timeout)
        except OSError as error:
            self._drop(wire)
            raise self._silence(error, timeout) from None
        except BaseException:
            self._drop(wire)
            raise
        if self._closed:
            self._drop(wire)
        else:
            idle.append(wire)
            if self._waiting:
                with self._free:
                    self._free.notify()
        return answer

    def renew(self) -> None:
        """Close what is idle, since another server may answer now."""
        while self._idle:
            self._drop(self._idle.pop())

    def close(self) -> None:
        """Close all; one that is in use is closed by whoever uses it."""
        self._closed = True
        while self._idle:
            self._drop(self._idle.pop())
        with self._free:
            self._free.notify_all()

    # --- the slow path --------------------------------------------------------------------------------------------

    def _another(self, spoilt: Wire | None, timeout: float, *, urgent: bool) -> Wire:
        """Return a connection that works: an idle one, or a new one."""
        while spoilt is not None:
            self._drop(spoilt)
            try:
                spoilt = self._idle.pop()
            except IndexError:
                break
            if not spoilt.pending(0):
                return spoilt
        give_up = self._clock.now() + int(timeout * SECOND)
        with self._free:
            while self._open >= CONNECTIONS and not urgent and not self._closed:
                left = (give_up - self._clock.now()) / SECOND
                if left <= 0:
                    raise StoreUnavailable("redis", f"all {CONNECTIONS} connections were in use for {timeout:g} s")
                self._waiting += 1
                try:
                    self._free.wait(left)
                finally:
                    self._waiting -= 1
                if self._idle:
                    return self._idle.pop()
            if self._closed:
                raise StoreUnavailable("redis", f"the store on {self._address} is closed")
            self._open += 1
        try:
            return self._connect(max(0.001, (give_up - self._clock.now()) / SECOND))
        except BaseException:
            self._lessen()
            raise

    def _connect(self, timeout: float) -> Wire:
        wire = Wire(self._address, timeout)
        try:
            self._check(wire, timeout)
        except OSError as error:
            wire.close()
            raise self._silence(error, timeout) from None
        except BaseException:
            wire.close()
            raise
        return wire

    def _check(self, wire: Wire, timeout: float) -> None:
        """Refuse a server on which leases can't be kept."""
        answer = wire.ask(pack("INFO"), timeout)
        if isinstance(answer, hiredis.ReplyError):
            if "NOPERM" not in str(answer):
                raise explain(str(answer), self._address)
            self._warn()
            return
        facts = dict(line.split(":", 1) for line in answer.splitlines() if ":" in line)
        if facts.get("redis_mode") == "sentinel":
            raise ConfigError(f"{self._address} is a Sentinel, which is not supported yet: name the Redis server")
        version = facts.get("redis_version", "")
        if tuple(int(part) for part in version.split(".")[:2] if part.isdecimal()) < OLDEST:
            raise ConfigError(f"Redis at {self._address} has version {version}, and 6.2 is the oldest that works")
        if facts.get("role") == "slave":
            raise ConfigError(
                f"Redis at {self._address} is a replica (of {facts.get('master_host')}:{facts.get('master_port')}): "
                "leases need the master"
            )
        policy = facts.get("maxmemory_policy", "noeviction")
        if policy != "noeviction":
            raise ConfigError(
                f"Redis at {self._address} may drop leases and tokens when memory runs short "
                f"(maxmemory-policy {policy}): set it to noeviction"
            )

    def _warn(self) -> None:
        if not self.warned:
            self.warned = True
            import logging  # noqa: PLC0415 - hardly ever needed

            logging.getLogger("leasehold").warning(
                "this user may not ask Redis at %s for INFO, so nobody has checked that it is a master, and that its "
                "maxmemory-policy is noeviction",
                self._address,
            )

    def _silence(self, error: OSError, timeout: float) -> LeaseholdError:
        if isinstance(error, TimeoutError):
            return StoreUnavailable("redis", f"{self._address} didn't answer within {timeout:g} s")
        return StoreUnavailable("redis", f"the connection to {self._address} broke: {error.strerror or error}")

    def _drop(self, wire: Wire) -> None:
        wire.close()
        self._lessen()

    def _lessen(self) -> None:
        with self._free:
            self._open -= 1
            self._free.notify()


_all: weakref.WeakSet[Connections] = weakref.WeakSet()


def _after_fork() -> None:
    for connections in list(_all):
        connections.forget()


os.register_at_fork(after_in_child=_after_fork)


def check(answer: Any, address: RedisAddress) -> Any:
    """Return the answer; raise the error if it is a refusal."""
    if isinstance(answer, hiredis.ReplyError):
        raise explain(str(answer), address)
    return answer
