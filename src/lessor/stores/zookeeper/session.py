"""One session with the ensemble: kazoo's connection, its negotiated timeout, and calls that don't wait."""

from __future__ import annotations

import contextlib
import logging
import socket
from typing import TYPE_CHECKING, Any, Final

from kazoo.client import KazooClient
from kazoo.protocol.serialization import CloseInstance
from kazoo.protocol.states import KazooState, KeeperState

from lessor.core.clock import MILLISECOND, SECOND
from lessor.errors import StoreUnavailable
from lessor.stores.limit import Limit
from lessor.stores.locks import new_lock
from lessor.stores.zookeeper.bounds import takes_sessions
from lessor.stores.zookeeper.connection import Connection, Handler
from lessor.stores.zookeeper.trouble import login_refused
from lessor.stores.zookeeper.wire import Multi

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock
    from lessor.stores.zookeeper.address import ZooKeeperAddress

CLOSE_BOUND: Final = 0.5
"""Seconds that a server has to say goodbye."""
PROBE: Final = 1.0
"""Seconds that a server has to let somebody in."""
LONGEST_SILENCE_NS: Final = 2 * SECOND
RECONNECT: Final = {"max_tries": -1, "delay": 0.02, "backoff": 2, "max_jitter": 0.3, "max_delay": 0.5}

# At its more talkative levels kazoo writes passwords of users and sessions into the log.
_log = logging.getLogger("lessor.zookeeper")
_log.setLevel(logging.WARNING)


class _Client(KazooClient):  # type: ignore[misc]
    """Kazoo's client, which also remembers that it was refused."""

    refused = False

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self._connection: Connection = Connection(
            self, self._conn_retry.copy(), logger=self.logger, sasl_options=settings.get("sasl_options")
        )

    def _session_callback(self, state: str) -> None:
        if state == KeeperState.AUTH_FAILED:
            self.refused = True
        if state not in (KeeperState.CONNECTED, KeeperState.CONNECTED_RO):
            self._connection.shut()
        super()._session_callback(state)


class Session:
    """Opened when it is first needed; finds its way back by itself, to whichever server is there."""

    def __init__(
        self, address: ZooKeeperAddress, clock: Clock, timeout_ms: int, on_change: Callable[[Session, str, int], None]
    ) -> None:
        self._address = address
        self._clock = clock
        self._on_change = on_change
        self._lock = new_lock()
        self.closed = False
        self._last_id = 0
        self._silent_since: int | None = None
        self._words = ""
        logger = logging.Logger(_log.name, _log.level)  # noqa: LOG001 - one for each session, for its last words
        logger.parent = _log
        logger.addFilter(self._is_news)
        self.timeout_ms = timeout_ms
        self.ready_id = 0
        """The session for which all is prepared."""
        self._client = _Client(
            handler=Handler(clock, self._takes_sessions),
            hosts=address.hosts,
            timeout=timeout_ms / 1000,
            connection_retry=RECONNECT,
            logger=logger,
            **address.settings,
        )
        self._client.add_listener(self._changed)

    @property
    def id(self) -> int:
        """The session's number at the servers; another one after it has expired."""
        return self._client._session_id or 0

    @property
    def negotiated_ms(self) -> int:
        """After how long without a word the servers end it."""
        return self._client._connection.negotiated_ms or self.timeout_ms

    def connect(self, give_up: int) -> None:
        """Wait, but not for longer, until it is connected."""
        client = self._client
        if client.connected:
            return
        with self._lock:
            if self.closed:
                raise StoreUnavailable("zookeeper", "the store is closed")
            routine = client._connection._connection_routine
            if routine is None or not routine.is_alive():  # it was never started, or ended when it was refused
                client.refused = False
                client.start_async()
        seconds = max(0, give_up - self._clock.now()) / SECOND
        client._live.wait(seconds)
        if client.refused:
            raise login_refused(self._address)
        if not client.connected:
            why = f": {self._words}" if self._words else ""
            raise StoreUnavailable("zookeeper", f"{self._address}: no connection within {seconds:.2g} s{why}")

    def call(self, request: Any) -> Any:
        """Send it behind those before it; the answer comes into what is returned."""
        client = self._client
        answer = client.handler.async_result()
        if not client._connection.send_now(request, answer):
            client._call(request, answer)
        return answer

    def multi(self, *operations: Any) -> Any:
        """Send a transaction."""
        return self.call(Multi(operations))

    def answered(self) -> None:
        """Take note that the server does what it is asked."""
        self._silent_since = None

    def unanswered(self, since_ns: int, now: int) -> None:
        """Take note that a request got no answer in time, and give the server up if it goes on like that.

        A server that is cut off from its leader answers pings, so that is no sign of life.
        """
        if self._silent_since is None:
            self._silent_since = since_ns
        if now - self._silent_since >= min(self.negotiated_ms * MILLISECOND // 4, LONGEST_SILENCE_NS):
            self._silent_since = None
            self.drop()

    def forget_watch(self, path: str) -> None:
        """Be told nothing about this node any more."""
        self._client._data_watchers.pop(path, None)

    def drop(self) -> None:
        """Give up on the connection, not on the session: another server may answer."""
        connected = self._client._connection._socket
        if connected is not None:
            with contextlib.suppress(OSError):
                connected.shutdown(socket.SHUT_RDWR)

    def close(self, *, keep: Callable[[], bool]) -> None:
        """End it, and with it all its nodes; or leave those to the servers, which end it after its timeout.

        Which of them is asked once it is closed: so whoever enters a lease, and then finds it open, keeps that.
        """
        with self._lock:
            if self.closed:
                return
            self.closed = True
        client = self._client
        client.remove_listener(self._changed)
        connection = client._connection
        client._stopped.set()
        if not keep() and client.connected:
            client._queue.append((CloseInstance, None))
            with contextlib.suppress(OSError, AttributeError):
                connection._write_sock.send(b"\0")
            connection.connection_stopped.wait(CLOSE_BOUND)
        self.drop()
        client.handler.stop()
        if connection.connection_stopped.wait(CLOSE_BOUND):
            connection.stop(0)
            client.close()

    def abandon(self) -> None:
        """In a forked child: it is the parent's, so let go of it without a word."""
        import atexit  # noqa: PLC0415 - hardly ever

        atexit.unregister(self._client.handler.stop)
        connection = self._client._connection
        for end in (connection._socket, connection._read_sock, connection._write_sock):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.close()

    def _takes_sessions(self, server: tuple[str, int]) -> bool:
        return takes_sessions(self._address, server, Limit(self._clock, PROBE))

    def _is_news(self, record: logging.LogRecord) -> bool:
        """Whether kazoo says something new. What it says before the first connection is in the error that follows."""
        words, self._words = self._words, record.getMessage()
        return record.levelno > logging.WARNING or (self._last_id != 0 and self._words != words)

    def _changed(self, state: str) -> None:
        """On kazoo's thread: tell what has become of it."""
        if state == KazooState.CONNECTED:
            self._last_id = self.id
        self._on_change(self, state, self._last_id)
