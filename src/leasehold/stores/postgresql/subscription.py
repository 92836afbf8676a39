"""What one client hears from the database: calls to itself and, where it watches, all that happens under a prefix.

Nothing is kept for a client that isn't connected. It finds its way back by itself, and then says that it may have
missed something.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import threading
from typing import TYPE_CHECKING, Final

import psycopg

from leasehold.core.clock import SECOND
from leasehold.core.ops import Event, EventKind, Notice, Summons
from leasehold.errors import LeaseholdError
from leasehold.stores.doorbell import Doorbell
from leasehold.stores.postgresql.connection import connect
from leasehold.stores.postgresql.trouble import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from leasehold.core.clock import Clock
    from leasehold.stores.postgresql.address import PostgresAddress
    from leasehold.stores.postgresql.wire import Wire

CONNECT_TIMEOUT: Final = 2.0
REFRESH: Final = 5.0
"""Seconds after which the server is asked for a sign of life and, by a watcher, to go on telling events."""
WATCHED_FOR: Final = 20
"""Seconds for which events are told after that."""
ANSWER_WITHIN: Final = 5.0
PROBE: Final = 0.5
"""Seconds in which a call to oneself comes back, unless a pooler swallows it."""
FIRST_PAUSE: Final = 0.02
LONGEST_PAUSE: Final = 1.0
TROUBLE: Final = (OSError, psycopg.Error, Refused, LeaseholdError)


class Deaf(Exception):  # noqa: N818 - it never leaves the store
    """A pooler that hands connections around stands between: nothing can be heard through it."""


class PostgresSubscription:
    """A connection that listens.

    Raises `Deaf` where that is found out at once; found out later, it calls ``on_deaf``, and listens no more.
    """

    def __init__(self, address: PostgresAddress, clock: Clock, prefix: str | None, on_deaf: Callable[[], None]) -> None:
        self._on_deaf = on_deaf
        self._deaf = False
        self._server = address
        self._clock = clock
        self._prefix = prefix
        self._name = os.urandom(8).hex()
        place = f"{address.schema}.{address.namespace}".encode()
        self._events = f"leasehold:{hashlib.md5(place, usedforsecurity=False).hexdigest()}"
        self._wire: Wire | None = None
        self._news: list[Event | Notice] = []
        self._closed = threading.Event()
        self._doorbell = Doorbell()
        self._rung = False
        self._pause = FIRST_PAUSE
        self._refresh_ns = 0
        self._unaware: int | None = None
        """Transactions before this one may not tell us what they do; once they are over, we have to look for ourselves."""
        with contextlib.suppress(*TROUBLE):
            self._connect()  # else it is found by whoever listens; until then waiters come at the known times

    @property
    def address(self) -> str:
        """How operations name this client; nothing while nobody would hear."""
        return self._name if self._wire is not None else ""

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came; None when the connection was lost in between, and with it what was said meanwhile."""
        give_up = self._clock.now() + int(max(timeout, 0) * SECOND)
        while not self._closed.is_set():
            left = max(0.0, (give_up - self._clock.now()) / SECOND)
            wire = self._wire
            if self._deaf:
                self._rung = self._doorbell.wait(left)
            elif wire is None:
                if self._found_again(left):
                    return None
            else:
                try:
                    if self._listen(wire, left):
                        return None
                except TROUBLE:
                    self._lose()
            if self._news or self._rung or self._clock.now() >= give_up:
                break
        self._rung = False
        if self._closed.is_set():
            self._lose()
        elif self._deaf and self._prefix is not None:
            return None  # there is nothing to hear: look
        news, self._news = self._news, []
        return news

    def interrupt(self) -> None:
        """Let the ``get`` that is under way, or else the next one, return now."""
        self._doorbell.ring()

    def close(self) -> None:
        """End it."""
        self._closed.set()
        self._doorbell.close()
        wire = self._wire
        if wire is not None:
            # Wakes the listener up, which finds it closed. The descriptor is libpq's, and stays so.
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(wire.socket)) as doorbell:
                doorbell.shutdown(socket.SHUT_RDWR)

    # --- inside ---------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        wire = connect(self._server, CONNECT_TIMEOUT, self._clock)
        try:
            if wire.pooled:
                self._probe(wire)
            wire.tell(f'LISTEN "leasehold:{self._name}"'.encode(), ANSWER_WITHIN)
            if self._prefix is not None:
                wire.tell(f'LISTEN "{self._events}"'.encode(), ANSWER_WITHIN)
                self._watch(wire)
                since, unaware = self._watch(wire)  # after the first one's commit: who comes now knows
                self._unaware = unaware if since < unaware else None
        except BaseException:
            wire.close()
            raise
        self._refresh_ns = self._clock.now() + int((REFRESH if self._unaware is None else FIRST_PAUSE) * SECOND)
        self._doorbell.watch(wire.socket)
        self._wire = wire

    def _probe(self, wire: Wire) -> None:
        """Find out whether calls come through, by one over another connection."""
        channel = f"leasehold:probe-{os.urandom(8).hex()}"
        wire.tell(f'LISTEN "{channel}"'.encode(), ANSWER_WITHIN)
        other = connect(self._server, CONNECT_TIMEOUT, self._clock)
        try:
            other.tell(f'NOTIFY "{channel}"'.encode(), ANSWER_WITHIN)
        finally:
            other.close()
        if not (wire.pending(PROBE) and any(heard == channel for heard, _ in wire.heard())):
            raise Deaf
        wire.tell(f'UNLISTEN "{channel}"'.encode(), ANSWER_WITHIN)

    def _watch(self, wire: Wire) -> tuple[int, int]:
        schema = self._server.schema.replace('"', '""')
        asked = f"SELECT \"{schema}\".watch('{self._server.namespace}', {WATCHED_FOR})"
        since, before = json.loads(wire.tell(asked.encode(), ANSWER_WITHIN).get_value(0, 0) or b"[0, 0]")
        return since, before

    def _found_again(self, left: float) -> bool:
        """Try to connect; where that fails, wait a little."""
        try:
            self._connect()
        except Deaf:
            self._deaf = True
            self._on_deaf()
            return False
        except TROUBLE:  # whatever it is: the store's calls tell it, too
            self._rung = self._doorbell.wait(min(left, self._pause))
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            return False
        self._pause = FIRST_PAUSE
        if self._closed.is_set():
            self._lose()
        return True

    def _listen(self, wire: Wire, left: float) -> bool:
        """Take in what is there, or comes within that time. True: something may have been missed."""
        due = max(0.0, (self._refresh_ns - self._clock.now()) / SECOND)
        self._rung = self._doorbell.wait(min(left, due))
        if self._doorbell.ready or wire.pending(0):
            self._take(wire)
            return False
        return self._clock.now() >= self._refresh_ns and self._refresh(wire)

    def _refresh(self, wire: Wire) -> bool:
        """Ask for a sign of life. True: the last of those that knew nothing of us has just ended."""
        pause, looked = REFRESH, False
        if self._prefix is None:
            wire.tell(b"SELECT 1", ANSWER_WITHIN)
        else:
            since, _ = self._watch(wire)
            if self._unaware is not None:
                looked = since >= self._unaware
                pause = REFRESH if looked else 0.2
                self._unaware = None if looked else self._unaware
        self._take(wire)
        self._refresh_ns = self._clock.now() + int(pause * SECOND)
        return looked

    def _take(self, wire: Wire) -> None:
        for channel, payload in wire.heard():
            for said in json.loads(payload):
                if channel != self._events:
                    summons, resource, lease_id = said
                    self._news.append(Notice(self._name, Summons(summons), resource, lease_id))
                    continue
                kind, resource, token, holder, at_us, ttl_us = said
                if resource.startswith(self._prefix or ""):
                    self._news.append(Event(EventKind(kind), resource, token, holder, at_us, ttl_us * 1000))

    def _lose(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            self._doorbell.forget(wire.socket)
            wire.close()
