"""aetcd's ``Lock``: an etcd lease and a key each time, over gRPC. It renews nothing, so each lease needs a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bench.contestant import Async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


class Aetcd(Async):
    name = "aetcd Lock"
    store = "etcd"
    packages = ("aetcd", "grpcio")
    ready = "import aetcd; aetcd.Client()"
    remark = "the etcd lease of a lock that was released, or not got, stays until it runs out"

    async def open(self) -> None:
        import aetcd

        host, _, port = self.url.removeprefix("etcd://").partition(":")
        self._client = aetcd.Client(host=host, port=int(port), timeout=30)
        await self._client.connect()
        self._tasks: list[asyncio.Task[None]] = []

    async def acquire(self, resource: str) -> Callable[[], Awaitable[object]]:
        lock = self._client.lock(resource.encode(), int(self.ttl))
        await lock.acquire(timeout=None)
        release: Callable[[], Awaitable[object]] = lock.release
        return release

    def attempt(self, resource: str) -> bool:
        return bool(self.run(self._client.lock(resource.encode(), int(self.ttl)).acquire(timeout=0)))

    async def hold(self, resource: str) -> None:
        lock = self._client.lock(resource.encode(), int(self.ttl))
        await lock.acquire(timeout=None)

        async def renew() -> None:
            while True:
                await asyncio.sleep(self.ttl / 3)
                await lock.refresh()

        self.renewals.append(lock.refresh)
        self._tasks.append(self._loop.create_task(renew()))

    def lost(self) -> int:
        return sum(task.done() for task in self._tasks)
