"""Leases on a Redis or Valkey server."""

from lessor.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
