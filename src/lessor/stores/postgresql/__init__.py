"""Leases in a PostgreSQL database."""

from lessor.stores.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
