"""kazoo's ``Lock``, ZooKeeper's usual recipe: a sequential node, and the lowest one holds. One session keeps them all."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable


class Kazoo(Blocking):
    name = "kazoo Lock"
    store = "zookeeper"
    packages = ("kazoo",)
    ready = "from kazoo.client import KazooClient; KazooClient()"
    remark = "no fencing token; kept alive by pings of the session, whatever becomes of the work"

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        from kazoo.client import KazooClient

        self._client = KazooClient(url.removeprefix("zookeeper://"), timeout=ttl)
        self._client.start()
        self._kept: list[Any] = []

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._client.Lock(f"/locks/{resource}", "bench")
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release

    def attempt(self, resource: str) -> bool:
        return bool(self._client.Lock(f"/locks/{resource}", "bench").acquire(blocking=False))

    def keep(self, resource: str) -> None:
        lock = self._client.Lock(f"/locks/{resource}", "bench")
        lock.acquire()
        self._kept.append(lock)

    def lost(self) -> int:
        return 0 if self._client.connected else len(self._kept)

    def close(self) -> None:
        with contextlib.suppress(Exception):
            self._client.stop()
