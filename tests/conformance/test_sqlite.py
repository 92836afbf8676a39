from __future__ import annotations

import contextlib
import sqlite3
from typing import TYPE_CHECKING

from lessor.testing import Harness, StoreCases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from lessor.stores.base import Store


class SqliteHarness(Harness):
    mints_by_our_clock = True

    def url(self) -> str:
        return f"sqlite:///{self.folder}/leases.db"

    def collect(self, store: Store) -> None:
        store.collect()  # type: ignore[attr-defined]

    @contextlib.contextmanager
    def hanging(self) -> Iterator[None]:
        """Another process has the write lock, and doesn't let go."""
        with contextlib.closing(sqlite3.connect(self.folder / "leases.db", isolation_level=None)) as db:
            db.execute("BEGIN IMMEDIATE")
            yield
            db.execute("ROLLBACK")


class TestSqlite(StoreCases):
    harness = SqliteHarness
