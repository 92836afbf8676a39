"""The guard for SQLAlchemy: connections and sessions, of its sync and its asyncio side, on SQLite and PostgreSQL."""

from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Connection, Text, bindparam, text

from lessor.errors import ConfigError, Fenced
from lessor.fencing.stamp import stamp_of
from lessor.fencing.steps import Answer, carry_out
from lessor.fencing.table import BODY_ENDED_IT, check_name, table_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping
    from types import ModuleType

    from sqlalchemy import TextClause
    from sqlalchemy.orm import Session
    from sqlalchemy.types import TypeEngine

    from lessor.fencing.stamp import Bearer, Stamp
    from lessor.fencing.steps import Run

KNOWN: Final = {"sqlite": "lessor.fencing.sqlite", "postgresql": "lessor.fencing.postgresql"}
"""Dialect -> the module with its steps: ``enter(table, stamp)``, ``leave()`` and ``create(table)``."""


def guard(target: Any, bearer: Bearer, table: str) -> Any:
    """Return the guard of a transaction: see `lessor.fencing.fence`."""
    target = _in_use(target)
    check_name(table)
    return _async_guard(target, bearer, table) if hasattr(target, "run_sync") else _guard(target, bearer, table)


def create_table(target: Any, table: str) -> None:
    """Make the table of the guards, in the target's transaction. For an async one: ``await it.run_sync(create_table)``."""
    target = _in_use(target)
    if hasattr(target, "run_sync"):
        raise ConfigError("this one is async: call `await connection.run_sync(create_table)`")
    check_name(table)
    connection = _connection(target)
    database = _database(connection)
    carry_out(database.create(table_named(table, database.DIALECT)), _runner(connection))


@contextmanager
def _guard(target: Connection | Session, bearer: Bearer, table: str) -> Iterator[Stamp]:
    stamp = stamp_of(bearer)
    ours = not target.in_transaction()
    if ours:
        target.begin()
    try:
        leave = _enter(target, stamp, table)
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
    try:
        leave()
        if ours:
            target.commit()
    except BaseException as error:
        if ours or isinstance(error, ConfigError):
            target.rollback()
        raise


def _enter(target: Connection | Session, stamp: Stamp, table: str) -> Callable[[], None]:
    """Let the stamp in, and return what is to be called after the body."""
    connection = _connection(target)
    database = _database(connection)
    if database.DIALECT == "sqlite":
        _become_writer(connection)
    transaction = target.get_transaction()
    carry_out(database.enter(table_named(table, database.DIALECT), stamp), _runner(connection))

    def leave() -> None:
        if transaction is None or target.get_transaction() is not transaction or not transaction.is_active:
            raise ConfigError(BODY_ENDED_IT)
        carry_out(database.leave(), _runner(connection))

    return leave


@asynccontextmanager
async def _async_guard(target: Any, bearer: Bearer, table: str) -> AsyncIterator[Stamp]:
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


def _database(connection: Connection) -> ModuleType:
    name = connection.dialect.name
    if name not in KNOWN:
        raise ConfigError(f"there is no guard for SQLAlchemy on {name}; there is on: {', '.join(KNOWN)}")
    return import_module(KNOWN[name])


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
    connection.execute(text("BEGIN IMMEDIATE"))


def _runner(connection: Connection) -> Run:
    def run(statement: str, values: Mapping[str, object]) -> Answer:
        result = connection.execute(_text(statement), values)
        return Answer(result.rowcount, result.fetchone() if result.returns_rows else None)

    return run


@cache
def _text(statement: str) -> TextClause:
    # Without their types, tokens would be sent as 32 bits.
    types: dict[str, TypeEngine[Any]] = {"resource": Text(), "token": BigInteger()}
    return text(statement).bindparams(
        *[bindparam(name, type_=kind) for name, kind in types.items() if f":{name}" in statement]
    )
