"""What one client hears from the database: calls to itself and, where it watches, all that happens under a prefix."""

from __future__ import annotations

import hashlib
import json
import os
from typing import TYPE_CHECKING, Final

import psycopg

from lessor.core.clock import SECOND
from lessor.core.ops import Event, EventKind, Notice, Summons
from lessor.errors import LessorError
from lessor.stores.limit import Limit
from lessor.stores.listening import FIRST_PAUSE, Listening
from lessor.stores.postgresql.connection import connect
from lessor.stores.postgresql.trouble import Refused

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.core.clock import Clock
    from lessor.stores.postgresql.address import PostgresAddress
    from lessor.stores.postgresql.wire import Wire

CONNECT_TIMEOUT: Final = 2.0
"""Seconds, for all that is said in the beginning, too."""
REFRESH: Final = 5.0
"""Seconds after which the server is asked for a sign of life and, by a watcher, to go on telling events."""
WATCHED_FOR: Final = 20
"""Seconds for which events are told after that."""
ANSWER_WITHIN: Final = 5.0
PROBE: Final = 0.5
"""Seconds in which a call to oneself comes back, unless a pooler swallows it."""


class Deaf(Exception):  # noqa: N818 - it never leaves the store
    """A pooler that hands connections around stands between: nothing can be heard through it."""


class PostgresSubscription(Listening["Wire"]):
    """A connection that listens.

    Raises `Deaf` where that is found out at once; found out later, it calls ``on_deaf``, and listens no more.
    """

    trouble = (OSError, psycopg.Error, Refused, LessorError)

    def __init__(self, address: PostgresAddress, clock: Clock, prefix: str | None, on_deaf: Callable[[], None]) -> None:
        super().__init__(clock, prefix)
        self._on_deaf = on_deaf
        self._deaf = False
        self._server = address
        place = f"{address.schema}.{address.namespace}".encode()
        self._events = f"lessor:{hashlib.md5(place, usedforsecurity=False).hexdigest()}"
        self._refresh_ns = 0
        self._unaware: int | None = None
        """Transactions before this one may not tell us what they do; once they are over, we have to look for ourselves."""
        self._begin(*self.trouble)

    def _get(self, timeout: float) -> list[Event | Notice] | None:
        news = super()._get(timeout)
        deaf = self._deaf and self._prefix is not None and not self._closed.is_set()
        return None if deaf else news  # there is nothing to hear then: look

    def _connect(self) -> Wire:
        limit = Limit(self._clock, CONNECT_TIMEOUT)
        wire = connect(self._server, limit)
        try:
            if wire.pooled:
                self._probe(wire, limit)
            wire.tell(f'LISTEN "lessor:{self._name}"'.encode(), limit)
            if self._prefix is not None:
                wire.tell(f'LISTEN "{self._events}"'.encode(), limit)
                self._watch(wire, limit)
                since, unaware = self._watch(wire, limit)  # after the first one's commit: who comes now knows
                self._unaware = unaware if since < unaware else None
        except BaseException:
            wire.close()
            raise
        self._refresh_ns = self._clock.now() + int((REFRESH if self._unaware is None else FIRST_PAUSE) * SECOND)
        return wire

    def _probe(self, wire: Wire, limit: Limit) -> None:
        """Find out whether calls come through, by one over another connection."""
        channel = f"lessor:probe-{os.urandom(8).hex()}"
        wire.tell(f'LISTEN "{channel}"'.encode(), limit)
        other = connect(self._server, limit)
        try:
            other.tell(f'NOTIFY "{channel}"'.encode(), limit)
        finally:
            other.close()
        if not (wire.pending(PROBE) and any(heard == channel for heard, _ in wire.heard())):
            raise Deaf
        wire.tell(f'UNLISTEN "{channel}"'.encode(), limit)

    def _watch(self, wire: Wire, limit: Limit) -> tuple[int, int]:
        schema = self._server.schema.replace('"', '""')
        asked = f"SELECT \"{schema}\".watch('{self._server.namespace}', {WATCHED_FOR})"
        since, before = json.loads(wire.tell(asked.encode(), limit).get_value(0, 0) or b"[0, 0]")
        return since, before

    def _found_again(self, left: float) -> bool:
        if self._deaf:
            self._rung = self._doorbell.wait(left)
            return False
        try:
            return super()._found_again(left)
        except Deaf:
            self._deaf = True
            self._on_deaf()
            return False

    def _listen(self, wire: Wire, left: float) -> bool:
        due = max(0.0, (self._refresh_ns - self._clock.now()) / SECOND)
        self._rung = self._doorbell.wait(min(left, due))
        if self._doorbell.ready or wire.pending(0):
            self._take(wire)
            return False
        return self._clock.now() >= self._refresh_ns and self._refresh(wire)

    def _refresh(self, wire: Wire) -> bool:
        """Ask for a sign of life. True: the last of those that knew nothing of us has just ended."""
        pause, looked = REFRESH, False
        limit = Limit(self._clock, ANSWER_WITHIN)
        if self._prefix is None:
            wire.tell(b"SELECT 1", limit)
        else:
            since, _ = self._watch(wire, limit)
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
