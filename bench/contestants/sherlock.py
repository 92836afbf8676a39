"""sherlock on Redis."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Blocking
from bench.contestants.redis_py import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 3600


class Sherlock(Blocking):
    name = "sherlock"
    store = "redis"
    packages = ("sherlock", "redis")
    ready = "import redis, sherlock; redis.Redis()"
    polls = 0.1
    without: ClassVar = {"holding*": "doesn't renew by itself"}

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import redis
        import sherlock

        self._redis = redis.Redis.from_url(url, max_connections=CONNECTIONS)
        self._lock = sherlock.RedisLock

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._lock(resource, client=self._redis, expire=int(self.ttl), timeout=PATIENCE)
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release
