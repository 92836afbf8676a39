"""Finds the guard for a connection by the library that it comes from. A guard's module is imported when it is needed."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, overload

from lessor.errors import ConfigError
from lessor.fencing.table import DEFAULT

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Awaitable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from types import ModuleType

    import psycopg
    import redis
    import redis.asyncio as redis_asyncio
    import sqlalchemy.ext.asyncio as sqlalchemy_asyncio
    import sqlalchemy.orm as sqlalchemy_orm
    from sqlalchemy import Connection

    from lessor.fencing.redis import AsyncFencedRedis, FencedRedis
    from lessor.fencing.stamp import Bearer, Stamp

KNOWN = {
    "sqlite3": "lessor.fencing.sqlite",
    "psycopg": "lessor.fencing.psycopg",
    "sqlalchemy": "lessor.fencing.sqlalchemy",
    "redis": "lessor.fencing.redis",
}
"""Library -> the module with its ``guard(connection, bearer, table)`` and ``create_table(connection, table)``."""


@overload
def fence(
    connection: sqlite3.Connection | psycopg.Connection[Any], lease: Bearer, *, table: str = DEFAULT
) -> AbstractContextManager[Stamp]: ...
@overload
def fence(
    connection: psycopg.AsyncConnection[Any], lease: Bearer, *, table: str = DEFAULT
) -> AbstractAsyncContextManager[Stamp]: ...
@overload
def fence(connection: redis.Redis | redis.RedisCluster, lease: Bearer) -> FencedRedis: ...
@overload
def fence(connection: redis_asyncio.Redis | redis_asyncio.RedisCluster, lease: Bearer) -> AsyncFencedRedis: ...
@overload
def fence(
    connection: Connection | sqlalchemy_orm.Session | sqlalchemy_orm.scoped_session[Any],
    lease: Bearer,
    *,
    table: str = DEFAULT,
) -> AbstractContextManager[Stamp]: ...
@overload
def fence(
    connection: sqlalchemy_asyncio.AsyncConnection
    | sqlalchemy_asyncio.AsyncSession
    | sqlalchemy_asyncio.async_scoped_session[Any],
    lease: Bearer,
    *,
    table: str = DEFAULT,
) -> AbstractAsyncContextManager[Stamp]: ...
def fence(connection: Any, lease: Bearer, *, table: str = DEFAULT) -> Any:
    """Guard the writes of a transaction: it is for a ``with``, or for an ``async with`` where the connection is async.

    It does not protect another database than the connection's, writes of transactions that have no guard, or anything
    from a late write that comes before the newer holder's first guarded one. It protects one transaction: a body that
    ends it gets `ConfigError`, since nothing fences what comes after. A connection that several threads write through
    at once is one transaction to the database, so whose writes are guarded is anybody's guess: one a thread.

    If a transaction is open, it is used, and it stays yours to commit: the guard lasts until then, whatever was read
    or written before included. If none is, one is begun (with BEGIN IMMEDIATE on SQLite), committed at the end of the
    ``with`` and rolled back if the body raises. Either way the newest token is kept in the same transaction, in the
    table ``lessor_fence``, which is made when it is missing; ``table=`` names another, also as ``schema.name``. Its
    row is locked until the transaction ends, so a newer holder waits, or gets the database's own error.

    `Fenced` is raised on entering when a newer token has been here, and the transaction is rolled back, with whatever
    it had written before. Inside a ``transaction()`` block of psycopg, which forbids that, it is left such that the
    block can only be rolled back. A lease that knows itself lost raises `LeaseLost` before the database is touched.
    Errors of the database come as the driver raises them. The same token may come as often as it likes.

    A client of redis-py has no transactions: for it, an object is returned whose ``set``, ``hset``, ``delete`` and
    ``eval`` are guarded, see `FencedRedis`.
    """
    return _library(connection).guard(connection, lease, table)


@overload
def create_table(connection: psycopg.AsyncConnection[Any], table: str = DEFAULT) -> Awaitable[None]: ...
@overload
def create_table(
    connection: sqlite3.Connection
    | psycopg.Connection[Any]
    | Connection
    | sqlalchemy_orm.Session
    | sqlalchemy_orm.scoped_session[Any],
    table: str = DEFAULT,
) -> None: ...
def create_table(connection: Any, table: str = DEFAULT) -> Any:
    """Make the guards' table, where those who write may not make tables, in the open transaction if there is one.

    It doesn't commit. For async: ``await create_table(connection)`` with psycopg, and ``await
    connection.run_sync(create_table)`` with SQLAlchemy.
    """
    return _library(connection).create_table(connection, table)


def _library(connection: object) -> ModuleType:
    # By name, so that no library is imported that the program has not imported itself.
    for cls in type(connection).__mro__:
        module = KNOWN.get(cls.__module__.partition(".")[0])
        if module is not None:
            return import_module(module)
    kind = f"{type(connection).__module__}.{type(connection).__qualname__}"
    raise ConfigError(f"no guard for {kind}; fence(connection, lease) takes connections of: {', '.join(KNOWN)}")
