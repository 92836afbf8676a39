"""pottery's Redlock, with one master, as everybody else here has."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Blocking
from bench.contestants.redis_py import CONNECTIONS

if TYPE_CHECKING:
    from collections.abc import Callable


class Pottery(Blocking):
    name = "pottery Redlock"
    store = "redis"
    packages = ("pottery", "redis")
    ready = "import redis; from pottery import Redlock; redis.Redis()"
    polls = 0.2
    without: ClassVar = {"holding*": "doesn't renew by itself, and may be extended three times only, by default"}

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import redis
        from pottery import Redlock

        self._masters = {redis.Redis.from_url(url, max_connections=CONNECTIONS)}
        self._lock = Redlock

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._lock(key=resource, masters=self._masters, auto_release_time=self.ttl)
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release
