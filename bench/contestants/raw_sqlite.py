"""The least that SQLite can do for a lease: an upsert and a delete, at the durability that ours has."""

from __future__ import annotations

import os
import sqlite3
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable

UPSERT = (
    "INSERT INTO leases VALUES (?, ?, ?, ?) "
    "ON CONFLICT (resource) DO UPDATE SET holder = excluded.holder, token = excluded.token, expiry = excluded.expiry"
)


class RawSqlite(Blocking):
    name = "raw SQLite"
    store = "sqlite"
    kind = "floor"
    works = ("sequential",)
    remark = "upsert + delete: no owner checked, no queue, nobody can wait"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        folder = os.path.dirname(urlsplit(url).path)
        self._db = sqlite3.connect(os.path.join(folder, "raw.db"), isolation_level=None)
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute("PRAGMA synchronous = NORMAL")
        self._db.execute(
            "CREATE TABLE IF NOT EXISTS leases "
            "(resource TEXT PRIMARY KEY, holder TEXT, token INTEGER, expiry INTEGER) WITHOUT ROWID"
        )

    def acquire(self, resource: str) -> Callable[[], object]:
        self._db.execute(UPSERT, (resource, "me", 1, 2))
        return lambda: self._db.execute("DELETE FROM leases WHERE resource = ?", (resource,))
