"""The guard for PostgreSQL through psycopg 3, blocking and asyncio."""

from __future__ import annotations

import re
from contextlib import asynccontextmanager, contextmanager, nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from psycopg import AsyncConnection, AsyncCursor, Connection, Cursor, Error, ProgrammingError
from psycopg.pq import PipelineStatus, TransactionStatus
from psycopg.rows import tuple_row

from lessor.errors import ConfigError, Fenced
from lessor.fencing.postgresql import DIALECT, FAIL, create, enter, leave
from lessor.fencing.stamp import stamp_of
from lessor.fencing.steps import Answer, carry_out, carry_out_async
from lessor.fencing.table import Table, table_named

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping

    from lessor.fencing.stamp import Bearer, Stamp
    from lessor.fencing.steps import AsyncRun, Run


def guard(connection: Any, bearer: Bearer, table: str) -> Any:
    """Return the guard of a transaction: see `lessor.fencing.fence`."""
    named = table_named(table, DIALECT)
    return _async_guard(connection, bearer, named) if _is_async(connection) else _guard(connection, bearer, named)


def create_table(connection: Any, table: str) -> Coroutine[Any, Any, None] | None:
    """Make the table of the guards. For an async connection, await it."""
    named = table_named(table, DIALECT)
    if _is_async(connection):
        return _create_async(connection, named)
    with connection.transaction() if _needs_begin(connection) else nullcontext():
        carry_out(create(named), _runner(connection))
    return None


async def _create_async(connection: AsyncConnection[Any], table: Table) -> None:
    async with connection.transaction() if _needs_begin(connection) else nullcontext():
        await carry_out_async(create(table), _async_runner(connection))


# --- the guard ----------------------------------------------------------------------------------------------------


@contextmanager
def _guard(connection: Connection[Any], bearer: Bearer, table: Table) -> Iterator[Stamp]:
    stamp = stamp_of(bearer)
    _refuse_pipeline(connection)
    run = _runner(connection)
    with connection.transaction() if _is_idle(connection) else nullcontext() as ours:
        try:
            carry_out(enter(table, stamp), run)
        except Fenced:
            if ours is None:
                _give_up(connection, run)
            raise
        yield stamp
        try:
            carry_out(leave(), run)
        except ConfigError:
            if ours is None:
                _give_up(connection, run)
            raise


@asynccontextmanager
async def _async_guard(connection: AsyncConnection[Any], bearer: Bearer, table: Table) -> AsyncIterator[Stamp]:
    stamp = stamp_of(bearer)
    _refuse_pipeline(connection)
    run = _async_runner(connection)
    async with connection.transaction() if _is_idle(connection) else nullcontext() as ours:
        try:
            await carry_out_async(enter(table, stamp), run)
        except Fenced:
            if ours is None:
                await _give_up_async(connection, run)
            raise
        yield stamp
        try:
            await carry_out_async(leave(), run)
        except ConfigError:
            if ours is None:
                await _give_up_async(connection, run)
            raise


def _give_up(connection: Connection[Any], run: Run) -> None:
    """See to it that nothing of the user's transaction is committed."""
    try:
        connection.rollback()
    except ProgrammingError:
        # Inside a transaction() block only the block may roll back: leave it nothing else to do.
        with suppress(Error):
            run(FAIL, {})


async def _give_up_async(connection: AsyncConnection[Any], run: AsyncRun) -> None:
    """See to it that nothing of the user's transaction is committed."""
    try:
        await connection.rollback()
    except ProgrammingError:
        with suppress(Error):
            await run(FAIL, {})


# --- the connection -----------------------------------------------------------------------------------------------


def _is_async(connection: object) -> bool:
    if isinstance(connection, (Connection, AsyncConnection)):
        return isinstance(connection, AsyncConnection)
    kind = type(connection).__name__
    raise ConfigError(f"a guard needs a transaction, and {kind} has none: hand in the connection")


def _is_idle(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status == TransactionStatus.IDLE


def _needs_begin(connection: Connection[Any] | AsyncConnection[Any]) -> bool:
    return connection.autocommit and _is_idle(connection)


def _refuse_pipeline(connection: Connection[Any] | AsyncConnection[Any]) -> None:
    if connection.info.pipeline_status != PipelineStatus.OFF:
        raise ConfigError(
            "in a pipeline the writes are sent before the guard has an answer: open the pipeline inside the guard"
        )


def _runner(connection: Connection[Any]) -> Run:
    def run(statement: str, values: Mapping[str, object]) -> Answer:
        # Not connection.execute(): the user's own cursors and rows would apply to ours.
        with Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(_with_percents(statement), values or None)
            return Answer(cursor.rowcount, cursor.fetchone() if cursor.description else None)

    return run


def _async_runner(connection: AsyncConnection[Any]) -> AsyncRun:
    async def run(statement: str, values: Mapping[str, object]) -> Answer:
        async with AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(_with_percents(statement), values or None)
            return Answer(cursor.rowcount, await cursor.fetchone() if cursor.description else None)

    return run


@cache
def _with_percents(statement: str) -> bytes:
    return re.sub(r":(\w+)", r"%(\1)s", statement).encode()
