"""Ours, through both faces, on each store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bench.contestant import Async, Blocking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.contestant import Kind


class Lessor(Blocking):
    kind: ClassVar[Kind] = "ours"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        from lessor import Client

        self._client = Client(url)
        self._kept: list[Any] = []

    def acquire(self, resource: str) -> Callable[[], object]:
        return self._client.acquire(resource, self.ttl).release

    def attempt(self, resource: str) -> bool:
        return self._client.try_acquire(resource, self.ttl) is not None

    def keep(self, resource: str) -> None:
        self._kept.append(self._client.acquire(resource, self.ttl))

    def lost(self) -> int:
        from lessor import State

        return sum(lease.state is State.LOST for lease in self._kept)

    def close(self) -> None:
        self._client.close()


class AsyncLessor(Async):
    kind: ClassVar[Kind] = "ours"
    works = ("sequential", "callers*", "renewing")

    async def open(self) -> None:
        from lessor import AsyncClient

        self._client = AsyncClient(self.url)

    async def acquire(self, resource: str) -> Callable[[], Awaitable[object]]:
        return (await self._client.acquire(resource, self.ttl)).release

    async def hold(self, resource: str) -> None:
        self.renewals.append((await self._client.acquire(resource, self.ttl)).renew)

    def close(self) -> None:
        self.run(self._client.close())


class OnRedis(Lessor):
    name = "lessor"
    store = "redis"
    packages = ("lessor", "redis", "hiredis")
    ready = "from lessor import Client; Client('redis://localhost')"


class AsyncOnRedis(AsyncLessor):
    name = "lessor async"
    store = "redis"


class OnPostgresql(Lessor):
    name = "lessor"
    store = "postgresql"
    packages = ("lessor", "psycopg")
    ready = "from lessor import Client; Client('postgresql://localhost/db')"


class AsyncOnPostgresql(AsyncLessor):
    name = "lessor async"
    store = "postgresql"


class OnSqlite(Lessor):
    name = "lessor"
    store = "sqlite"
    packages = ("lessor",)
    ready = "from lessor import Client; Client('sqlite:///leases.db')"


class AsyncOnSqlite(AsyncLessor):
    name = "lessor async"
    store = "sqlite"


class OnEtcd(Lessor):
    name = "lessor"
    store = "etcd"
    packages = ("lessor", "hpack")
    ready = "from lessor import Client; Client('etcd://localhost')"


class AsyncOnEtcd(AsyncLessor):
    name = "lessor async"
    store = "etcd"


class OnZookeeper(Lessor):
    name = "lessor"
    store = "zookeeper"
    packages = ("lessor", "kazoo")


class AsyncOnZookeeper(AsyncLessor):
    name = "lessor async"
    store = "zookeeper"
