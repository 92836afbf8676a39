"""Leases in a PostgreSQL database."""

from leasehold.stores.postgresql.store import PostgresStore

__all__ = ["PostgresStore"]
