"""The guard for SQLAlchemy: connections and sessions, of its sync and its asyncio side. On SQLite, so far."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, text

from leasehold.errors import ConfigError, Fenced
from leasehold.fencing.sqlite import BODY_ENDED_IT, is_missing
from leasehold.fencing.stamp import stamp_of
from leasehold.fencing.table import Table, admit, table_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping

    from sqlalchemy import TextClause
    from sqlalchemy.orm import Session

    from leasehold.fencing.stamp import Bearer, Stamp
    from leasehold.fencing.table import Answer

_text: Callable[[str], TextClause] = cache(text)


def guard(target: Any, bearer: Bearer, table: str) -> Any:
    """Return the guard of a transaction: see `leasehold.fencing.fence`."""
    target = _in_use(target)
    if hasattr(target, "run_sync"):
        return _async_guard(target, bearer, table_named(table))
    return _guard(target, bearer, table_named(table))


def create_table(target: Any, table: str) -> None:
    """Make the table of the guards, in the target's transaction. For an async one: ``await it.run_sync(create_table)``."""
    target = _in_use(target)
    if hasattr(target, "run_sync"):
        raise ConfigError("this one is async: call `await connection.run_sync(create_table)`")
    connection = _connection(target)
    _require_sqlite(connection)
    connection.execute(_text(table_named(table).create))


@contextmanager
def _guard(target: Connection | Session, bearer: Bearer, table: Table) -> Iterator[Stamp]:
    stamp = stamp_of(bearer)
    ours = not target.in_transaction()
    if ours:
        target.begin()
    try:
        connection = _connection(target)
        _require_sqlite(connection)
        _become_writer(connection)
        transaction = target.get_transaction()
        admit(_runner(connection), table, stamp, is_missing=lambda error: is_missing(error, table))
    except BaseException as error:
        if ours or isinstance(error, Fenced):
            target.rollback()
        raise
    try:
        yield stamp
    except BaseException:
        if ours:
            target.rollback()
        raise
    if transaction is None or target.get_transaction() is not transaction or not transaction.is_active:
        target.rollback()
        raise ConfigError(BODY_ENDED_IT)
    if ours:
        target.commit()


@asynccontextmanager
async def _async_guard(target: Any, bearer: Bearer, table: Table) -> AsyncIterator[Stamp]:
    inner: Any = None

    def enter(sync: Connection | Session) -> Stamp:
        nonlocal inner
        inner = _guard(sync, bearer, table)
        stamp: Stamp = inner.__enter__()
        return stamp

    stamp = await target.run_sync(enter)
    try:
        yield stamp
    except BaseException as error:
        failure = error  # the name above is gone after its block, and the lambda may run in another greenlet
        await target.run_sync(lambda _: inner.__exit__(type(failure), failure, failure.__traceback__))
        raise
    await target.run_sync(lambda _: inner.__exit__(None, None, None))


def _in_use(target: Any) -> Any:
    """Return the session behind a scoped one, and refuse what has no transaction."""
    registry = getattr(target, "registry", None)
    if callable(registry):
        target = registry()
    if not hasattr(target, "in_transaction"):
        kind = type(target).__name__
        raise ConfigError(f"a guard needs a transaction, and {kind} has none: hand in a connection or a session")
    return target


def _connection(target: Connection | Session) -> Connection:
    return target if isinstance(target, Connection) else target.connection()


def _require_sqlite(connection: Connection) -> None:
    if connection.dialect.name != "sqlite":
        raise ConfigError(
            f"there is no guard for SQLAlchemy on {connection.dialect.name} in this version; on sqlite there is"
        )


def _become_writer(connection: Connection) -> None:
    """See to it that the *driver* has a transaction too: SQLAlchemy's begin() leaves that to it, and it to the first write."""
    driver: Any = connection.connection.driver_connection
    if driver.in_transaction:
        return
    if driver.isolation_level is None or getattr(driver, "autocommit", None) is True:
        raise ConfigError(
            "this connection is in AUTOCOMMIT, where each statement ends its own transaction and a guard would protect "
            "nothing: use the default isolation level"
        )
    connection.execute(_text("BEGIN IMMEDIATE"))


def _runner(connection: Connection) -> Callable[[str, Mapping[str, object]], Answer]:
    def run(statement: str, values: Mapping[str, object]) -> Answer:
        return connection.execute(_text(statement), values)

    return run
