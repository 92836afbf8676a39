"""PALs: PostgreSQL's advisory locks through SQLAlchemy's pool."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = 300
FOR_EVER_MS = 3_600_000


class Pals(Blocking):
    name = "PALs"
    store = "postgresql"
    packages = ("PALs", "SQLAlchemy", "psycopg")
    ready = "import pals; pals.Locker('bench', 'postgresql+psycopg://localhost')"
    remark = "an advisory lock: no TTL, no token, and it is lost with its connection"
    without: ClassVar = {"holding*": "its locks have no TTL and are not renewed; each holds a connection"}
    expires = False

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import pals
        import sqlalchemy

        address = url.replace("://", "+psycopg://", 1)
        self._locker = pals.Locker(
            "bench",
            acquire_timeout_default=FOR_EVER_MS,
            create_engine_callable=lambda: sqlalchemy.create_engine(address, pool_size=POOL),
        )

    def acquire(self, resource: str) -> Callable[[], object]:
        lock = self._locker.lock(resource)
        if not lock.acquire():
            raise TimeoutError(resource)
        release: Callable[[], object] = lock.release
        return release
