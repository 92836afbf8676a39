"""Leases on a Redis or Valkey server."""

from leasehold.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
