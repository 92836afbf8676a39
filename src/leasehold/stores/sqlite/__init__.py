"""Leases in one SQLite file, for all processes of one host. The default store."""

from leasehold.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
