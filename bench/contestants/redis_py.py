"""redis-py's own ``Lock``, which most people start with. It renews nothing; for many leases, each needs a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Async, Blocking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

CONNECTIONS = 1000
"""More than the 100 of its default, which many callers would break."""


class RedisPy(Blocking):
    name = "redis-py Lock"
    store = "redis"
    packages = ("redis", "hiredis")
    ready = "import redis; redis.Redis()"
    polls = 0.1
    without: ClassVar = {"holding*": "doesn't renew by itself; its async Lock with a task a lease stands for it"}

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import redis

        self._redis = redis.Redis.from_url(url, max_connections=CONNECTIONS)

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._redis.lock(resource, timeout=self.ttl)
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release


class AsyncRedisPy(Async):
    name = "redis-py async Lock"
    store = "redis"
    packages = ("redis", "hiredis")
    ready = "import redis.asyncio; redis.asyncio.Redis()"
    polls = 0.1
    works = ("sequential", "callers*", "holding*", "imports")

    async def open(self) -> None:
        import redis.asyncio

        self._redis = redis.asyncio.Redis.from_url(self.url, max_connections=CONNECTIONS)
        pool = redis.asyncio.BlockingConnectionPool.from_url(self.url, max_connections=64, timeout=None)
        self._bounded = redis.asyncio.Redis(connection_pool=pool)  # thousands of renewals may come at once
        self._renewals: list[asyncio.Task[None]] = []

    async def acquire(self, resource: str) -> Callable[[], Awaitable[object]]:
        lock = self._redis.lock(resource, timeout=self.ttl)
        await lock.acquire()
        return lock.release

    async def hold(self, resource: str) -> None:
        lock = self._bounded.lock(resource, timeout=self.ttl)
        await lock.acquire()

        async def renew() -> None:
            while True:
                await asyncio.sleep(self.ttl / 3)
                await lock.reacquire()

        self._renewals.append(self._loop.create_task(renew()))

    def lost(self) -> int:
        return sum(task.done() for task in self._renewals)
