"""The least that a lease costs on PostgreSQL with psycopg, and the server's own advisory lock, which is no lease."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable

    import psycopg

TABLE = (
    "CREATE TABLE IF NOT EXISTS bench_raw ("
    "resource text PRIMARY KEY, holder text NOT NULL, token bigint NOT NULL, expiry timestamptz NOT NULL)"
)
UPSERT = (
    "INSERT INTO bench_raw VALUES (%s, 'me', 1, clock_timestamp() + make_interval(secs => %s)) "
    "ON CONFLICT (resource) DO UPDATE SET token = bench_raw.token + 1, expiry = excluded.expiry "
    "WHERE bench_raw.expiry < clock_timestamp() RETURNING token"
)
DELETE = "DELETE FROM bench_raw WHERE resource = %s"
DELETE_AND_NOTIFY = (
    "WITH gone AS (DELETE FROM bench_raw WHERE resource = %s RETURNING 1) SELECT pg_notify(%s, '') FROM gone"
)


class PerThread(Blocking):
    """Each thread has a connection, in autocommit mode."""

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        self._mine = threading.local()

    def connection(self) -> psycopg.Connection:
        connection: psycopg.Connection | None = getattr(self._mine, "connection", None)
        if connection is None:
            connection = self._mine.connection = self.connect()
        return connection

    def connect(self) -> psycopg.Connection:
        import psycopg

        return psycopg.connect(self.url, autocommit=True)


class RawTable(PerThread):
    """With a table of its own."""

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import psycopg

        with contextlib.suppress(psycopg.errors.UniqueViolation):  # somebody else has just made it
            self.connection().execute(TABLE)


class RawUpsert(RawTable):
    name = "raw psycopg"
    store = "postgresql"
    kind = "floor"
    packages = ("psycopg",)
    works = ("sequential", "callers*")
    remark = "upsert + delete, each a commit: no queue, nobody can wait"

    def acquire(self, resource: str) -> Callable[[], object]:
        connection = self.connection()
        if connection.execute(UPSERT, (resource, self.ttl)).fetchone() is None:
            raise RuntimeError("held")
        return lambda: connection.execute(DELETE, (resource,))


class RawNotify(RawTable):
    name = "raw psycopg + NOTIFY"
    store = "postgresql"
    kind = "floor"
    packages = ("psycopg",)
    works = ("handover",)
    remark = "commit with NOTIFY, wake, commit: no queue, all waiters are woken"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        self._ear = self.connect()
        self._ear.execute("LISTEN bench_raw")

    def acquire(self, resource: str) -> Callable[[], object]:
        connection = self.connection()
        while connection.execute(UPSERT, (resource, self.ttl)).fetchone() is None:
            for _ in self._ear.notifies(timeout=self.ttl, stop_after=1):
                pass
        return lambda: connection.execute(DELETE_AND_NOTIFY, (resource, "bench_raw"))


class Advisory(PerThread):
    name = "pg_advisory_lock"
    store = "postgresql"
    kind = "floor"
    packages = ("psycopg",)
    works = ("sequential", "callers*", "handover", "contention", "takeover")
    remark = "no TTL, no token, nothing is written, and it is lost with its connection"
    expires = False

    def acquire(self, resource: str) -> Callable[[], object]:
        connection = self.connection()
        connection.execute("SELECT pg_advisory_lock(hashtextextended(%s, 0))", (resource,))
        return lambda: connection.execute("SELECT pg_advisory_unlock(hashtextextended(%s, 0))", (resource,))
