"""python-redis-lock: waiters block in BLPOP; renewal is a thread a lock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bench.contestant import Blocking
from bench.contestants.redis_py import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable


class PythonRedisLock(Blocking):
    name = "python-redis-lock"
    store = "redis"
    packages = ("python-redis-lock", "redis")
    ready = "import redis, redis_lock; redis.Redis()"
    without: ClassVar = {"holding10000": "renews with a thread a lock: 10,000 threads"}

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import redis
        import redis_lock

        self._redis = redis.Redis.from_url(url, max_connections=CONNECTIONS)
        self._lock = redis_lock.Lock
        self._kept: list[Any] = []

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._lock(self._redis, resource, expire=int(self.ttl))
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release

    def keep(self, resource: str) -> None:
        lock = self._lock(self._redis, resource, expire=int(self.ttl), auto_renewal=True)
        lock.acquire()
        self._kept.append(lock)

    def lost(self) -> int:
        return sum(not lock._lock_renewal_thread.is_alive() for lock in self._kept)
