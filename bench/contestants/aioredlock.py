"""aioredlock, on aioredis 1.3, which has been abandoned and doesn't import on newer Pythons."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bench.contestant import Async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

FOR_EVER = 1_000_000


class Aioredlock(Async):
    name = "aioredlock"
    store = "redis"
    packages = ("aioredlock", "aioredis")
    ready = "from aioredlock import Aioredlock; Aioredlock()"
    polls = 0.3
    works = ("sequential", "callers*", "holding*", "imports")

    async def open(self) -> None:
        from aioredlock import Aioredlock as Manager

        address = urlsplit(self.url)
        servers = [{"host": address.hostname, "port": address.port}]
        self._manager = Manager(servers, retry_count=FOR_EVER, internal_lock_timeout=self.ttl)
        self._kept: list[Any] = []

    async def acquire(self, resource: str) -> Callable[[], Awaitable[object]]:
        lock = await self._manager.lock(resource, lock_timeout=self.ttl)
        return lambda: self._manager.unlock(lock)

    async def hold(self, resource: str) -> None:
        self._kept.append(await self._manager.lock(resource))  # without a timeout of its own it is extended

    def lost(self) -> int:
        return sum(not lock.valid for lock in self._kept)
