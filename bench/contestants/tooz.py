"""tooz, OpenStack's: redis-py's Lock with a heartbeat, PostgreSQL's advisory locks, kazoo's Lock, etcd's JSON gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable


class Tooz(Blocking):
    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        from tooz import coordination

        self._coordinator = coordination.get_coordinator(self.address(), b"bench")
        self._coordinator.start(start_heart=True)
        self._kept: list[Any] = []

    def address(self) -> str:
        raise NotImplementedError

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._coordinator.get_lock(resource.encode())
        lock.acquire()
        release: Callable[[], object] = lock.release
        return release

    def attempt(self, resource: str) -> bool:
        return bool(self._coordinator.get_lock(resource.encode()).acquire(blocking=False))

    def keep(self, resource: str) -> None:
        lock = self._coordinator.get_lock(resource.encode())
        lock.acquire()
        self._kept.append(lock)

    def lost(self) -> int:
        return sum(not lock.acquired for lock in self._kept)


class ToozRedis(Tooz):
    name = "tooz"
    store = "redis"
    packages = ("tooz", "redis")
    ready = "from tooz import coordination; coordination.get_coordinator('redis://localhost', b'x')"
    polls = 0.1

    def address(self) -> str:
        return f"{self.url.rpartition('/')[0]}?lock_timeout={self.ttl:g}&timeout={self.ttl:g}"


class ToozPostgresql(Tooz):
    name = "tooz"
    store = "postgresql"
    packages = ("tooz", "psycopg2-binary")
    ready = "from tooz import coordination; coordination.get_coordinator('postgresql://localhost', b'x')"
    remark = "an advisory lock on a new connection each time; names are folded into 65,536 values"
    without: ClassVar = {"holding*": "its locks have no TTL and are not renewed; each holds a connection"}
    expires = False

    def address(self) -> str:
        server, _, database = self.url.rpartition("/")
        return f"{server}?dbname={database}"


class ToozZookeeper(Tooz):
    name = "tooz"
    store = "zookeeper"
    packages = ("tooz", "kazoo")
    ready = "from tooz import coordination; coordination.get_coordinator('kazoo://localhost', b'x')"

    def address(self) -> str:
        servers, _, chroot = self.url.removeprefix("zookeeper://").partition("/")
        return f"kazoo://{servers}?timeout={self.ttl:g}&namespace={chroot}"

    def acquire(self, resource: str) -> Callable[[], object]:
        return super().acquire(resource.replace("/", "-"))

    def attempt(self, resource: str) -> bool:
        return super().attempt(resource.replace("/", "-"))

    def keep(self, resource: str) -> None:
        super().keep(resource.replace("/", "-"))


class ToozEtcd(Tooz):
    name = "tooz"
    store = "etcd"
    packages = ("tooz", "etcd3gw")
    ready = "from tooz import coordination; coordination.get_coordinator('etcd3+http://localhost', b'x')"
    polls = 1.0
    remark = "the etcd lease of a lock that was released, or not got, stays until it runs out"

    def address(self) -> str:
        return f"etcd3+http://{self.url.removeprefix('etcd://')}?timeout=30&lock_timeout={self.ttl:g}"
