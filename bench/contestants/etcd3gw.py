"""etcd3gw's ``Lock``: an etcd lease and a key each time, through the JSON gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable


class Etcd3gw(Blocking):
    name = "etcd3gw Lock"
    store = "etcd"
    packages = ("etcd3gw",)
    ready = "import etcd3gw; etcd3gw.client()"
    remark = "the etcd lease of a lock that was released, or not got, stays until it runs out"
    without: ClassVar = {
        "handover": "it doesn't wait",
        "contention": "it doesn't wait",
        "takeover": "it doesn't wait",
        "holding*": "it doesn't renew by itself; aetcd's with a task a lease stands for it",
    }

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import etcd3gw

        host, _, port = url.removeprefix("etcd://").partition(":")
        self._client = etcd3gw.client(host=host, port=int(port))

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._client.lock(resource, int(self.ttl))
        if not lock.acquire():
            raise RuntimeError("somebody else has it")
        release: Callable[[], object] = lock.release
        return release

    def attempt(self, resource: str) -> bool:
        return bool(self._client.lock(resource, int(self.ttl)).acquire())
