"""sqlalchemy-dlock: PostgreSQL's advisory locks through SQLAlchemy connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from bench.contestant import Blocking

if TYPE_CHECKING:
    from collections.abc import Callable

POOL = 300


class SqlalchemyDlock(Blocking):
    name = "sqlalchemy-dlock"
    store = "postgresql"
    packages = ("sqlalchemy-dlock", "SQLAlchemy", "psycopg")
    ready = "import sqlalchemy, sqlalchemy_dlock; sqlalchemy.create_engine('postgresql+psycopg://localhost')"
    remark = "an advisory lock: no TTL, no token, and it is lost with its connection"
    without: ClassVar = {"holding*": "its locks have no TTL and are not renewed; each holds a connection"}
    expires = False

    def __init__(self, url: str, ttl: float) -> None:
        super().__init__(url, ttl)
        import sqlalchemy
        from sqlalchemy_dlock import create_sadlock

        self._engine = sqlalchemy.create_engine(url.replace("://", "+psycopg://", 1), pool_size=POOL)
        self._lock = create_sadlock

    def acquire(self, resource: str) -> Callable[[], object]:
        connection = self._engine.connect()
        lock = self._lock(connection, resource)
        lock.acquire()

        def release() -> None:
            lock.release()
            connection.close()

        return release
