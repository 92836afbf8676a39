"""What one client hears from the file: calls to itself and, where it watches, all that happens under a prefix."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

from lessor.core.clock import SECOND
from lessor.core.ops import Event, EventKind, Notice, Summons
from lessor.errors import LessorError

if TYPE_CHECKING:
    from lessor.stores.sqlite.store import SqliteStore
    from lessor.stores.sqlite.table import SqliteTable
    from lessor.stores.sqlite.wake import Mailbox

WATCHER_LIFE_NS = 15 * SECOND
REFRESH_NS = 5 * SECOND
TIMEOUT = 5.0
DEREGISTER_TIMEOUT = 0.2


class SqliteSubscription:
    """A mailbox and, for a watcher, a place in the log of events."""

    def __init__(self, store: SqliteStore, mailbox: Mailbox, prefix: str | None) -> None:
        self.address = mailbox.name
        self.interrupt = mailbox.interrupt
        self._store = store
        self._mailbox = mailbox
        self._prefix = prefix
        self._seen = 0
        self._refresh_at = 0
        if prefix is not None:
            self._register(first=True)

    def get(self, timeout: float) -> list[Event | Notice] | None:
        """Return what came; None when events may have been missed."""
        news: list[Event | Notice] = []
        for message in self._mailbox.get(timeout if self._prefix is None else min(timeout, REFRESH_NS / SECOND)):
            news += self._notices(message)
        if self._prefix is not None:
            events = self._register(first=False)
            if events is None:
                return None
            news.extend(events)
        return news

    def close(self) -> None:
        """Stop listening; events needn't be written down any longer for us."""
        self._mailbox.close()
        if self._prefix is not None:
            with contextlib.suppress(LessorError):
                give_up = self._store.give_up(DEREGISTER_TIMEOUT)
                self._store._write(self._deregister, give_up)  # noqa: SLF001 - the store's other half

    def _deregister(self, table: SqliteTable, _now: int) -> None:
        table.db.execute("DELETE FROM watchers WHERE address = ?", (self.address,))
        table.db.execute("UPDATE meta SET watched_until_ns = (SELECT ifnull(max(until_ns), 0) FROM watchers)")

    def _notices(self, message: bytes) -> list[Notice]:
        try:
            return [
                Notice(self.address, Summons(why), resource, lease_id)
                for why, resource, lease_id in json.loads(message)
            ]
        except (ValueError, TypeError):
            return []  # a nudge without a word, or somebody's noise

    def _register(self, *, first: bool) -> list[Event] | None:
        """Read on in the log and, now and then, say that we still watch. None: the log has a gap for us."""
        clock = self._store._clock  # noqa: SLF001 - the store's other half
        if not first and clock.now() < self._refresh_at:
            return self._store._read(self._events, self._store.give_up(TIMEOUT))  # noqa: SLF001
        self._refresh_at = clock.now() + REFRESH_NS

        def refresh(table: SqliteTable, now: int) -> list[Event] | None:
            if first:
                self._seen = table.db.execute("SELECT ifnull(max(seq), 0) FROM sqlite_sequence").fetchone()[0]
            events = self._events(table, now)
            row = (self.address, table.namespace, now + WATCHER_LIFE_NS)
            table.db.execute("DELETE FROM watchers WHERE until_ns <= ?", (now,))
            table.db.execute("REPLACE INTO watchers VALUES (?, ?, ?)", row)
            table.db.execute("UPDATE meta SET watched_until_ns = max(watched_until_ns, ?)", row[2:])
            return [] if first else events

        return self._store._write(refresh, self._store.give_up(TIMEOUT))[0]  # noqa: SLF001

    def _events(self, table: SqliteTable, now: int) -> list[Event] | None:
        db = table.db
        query = "SELECT 1 FROM watchers WHERE address = ? AND until_ns > ?"
        oldest = db.execute("SELECT min(seq) FROM events").fetchone()[0]
        behind = oldest is not None and oldest > self._seen + 1
        complete = db.execute(query, (self.address, now)).fetchone() is not None and not behind
        prefix = self._prefix or ""
        select = "SELECT seq, kind, resource, token, holder, at_us, ttl_ns FROM events WHERE seq > ? AND namespace = ?"
        rows = db.execute(select, (self._seen, table.namespace)).fetchall()
        self._seen = max(self._seen, db.execute("SELECT ifnull(max(seq), 0) FROM events").fetchone()[0])
        return [Event(EventKind(r[1]), *r[2:]) for r in rows if r[2].startswith(prefix)] if complete else None
