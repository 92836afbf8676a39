"""Ours, through both faces, on each store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bench.contestant import Async, Blocking

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bench.contestant import Kind


class Leasehold(Blocking):
    kind: ClassVar[Kind] = "ours"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        from leasehold import Client

        self._client = Client(url)
        self._kept: list[Any] = []

    def acquire(self, resource: str) -> Callable[[], object]:
        return self._client.acquire(resource, self.ttl).release

    def attempt(self, resource: str) -> bool:
        return self._client.try_acquire(resource, self.ttl) is not None

    def keep(self, resource: str) -> None:
        self._kept.append(self._client.acquire(resource, self.ttl))

    def lost(self) -> int:
        from leasehold import State

        return sum(lease.state is State.LOST for lease in self._kept)

    def close(self) -> None:
        self._client.close()


class AsyncLeasehold(Async):
    kind: ClassVar[Kind] = "ours"
    works = ("sequential", "callers*", "renewing")

    async def open(self) -> None:
        from leasehold import AsyncClient

        self._client = AsyncClient(self.url)

    async def acquire(self, resource: str) -> Callable[[], Awaitable[object]]:
        return (await self._client.acquire(resource, self.ttl)).release

    async def hold(self, resource: str) -> None:
        self.renewals.append((await self._client.acquire(resource, self.ttl)).renew)

    def close(self) -> None:
        self.run(self._client.close())


class OnRedis(Leasehold):
    name = "leasehold"
    store = "redis"
    packages = ("leasehold", "redis", "hiredis")
    ready = "from leasehold import Client; Client('redis://localhost')"


class AsyncOnRedis(AsyncLeasehold):
    name = "leasehold async"
    store = "redis"


class OnPostgresql(Leasehold):
    name = "leasehold"
    store = "postgresql"
    packages = ("leasehold", "psycopg")
    ready = "from leasehold import Client; Client('postgresql://localhost/db')"


class AsyncOnPostgresql(AsyncLeasehold):
    name = "leasehold async"
    store = "postgresql"


class OnSqlite(Leasehold):
    name = "leasehold"
    store = "sqlite"
    packages = ("leasehold",)
    ready = "from leasehold import Client; Client('sqlite:///leases.db')"


class AsyncOnSqlite(AsyncLeasehold):
    name = "leasehold async"
    store = "sqlite"


class OnEtcd(Leasehold):
    name = "leasehold"
    store = "etcd"
    packages = ("leasehold", "hpack")
    ready = "from leasehold import Client; Client('etcd://localhost')"


class AsyncOnEtcd(AsyncLeasehold):
    name = "leasehold async"
    store = "etcd"


class OnZookeeper(Leasehold):
    name = "leasehold"
    store = "zookeeper"
    packages = ("leasehold", "kazoo")


class AsyncOnZookeeper(AsyncLeasehold):
    name = "leasehold async"
    store = "zookeeper"
