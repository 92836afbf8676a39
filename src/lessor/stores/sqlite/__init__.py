"""Leases in one SQLite file, for all processes of one host. The default store."""

from lessor.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
