"""Operations inside a transaction of the caller's: what is granted there is committed with its writes, or not at all.

The rows stay locked until the caller ends the transaction. Takes connections of psycopg, and connections and sessions of
SQLAlchemy, which is asked for only when one of its own is handed in.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row

from lessor.errors import ConfigError

NO_TRANSACTION: Final = (TransactionStatus.IDLE, TransactionStatus.UNKNOWN)


class Call(NamedTuple):
    """The function of a schema, and what it is called with."""

    schema: str
    namespace: str
    batch: str
    patience_ms: int

    def statement(self, *places: str) -> str:
        """Return it with placeholders of some style."""
        schema = self.schema.replace('"', '""')
        namespace, batch, patience = places
        return f'SELECT "{schema}".apply_within({namespace}, CAST({batch} AS json), {patience})'


def run_in(connection: Any, call: Call) -> str:
    """Carry out the call within the connection's transaction, and return the answers."""
    if isinstance(connection, psycopg.Connection):
        _check(connection)
        with psycopg.Cursor(connection, row_factory=tuple_row) as cursor:
            cursor.execute(call.statement("%s", "%s", "%s"), call[1:])
            return _only(cursor.fetchone())
    if _is_sqlalchemy(connection) and not hasattr(connection, "run_sync"):
        return _run_in_sqlalchemy(connection, call)
    if isinstance(connection, psycopg.AsyncConnection) or hasattr(connection, "run_sync"):
        raise ConfigError(f"{type(connection).__name__} is for asyncio: use an async client with it")
    raise _unknown(connection)


async def run_in_async(connection: Any, call: Call) -> str:
    """Carry out the call within the async connection's transaction, and return the answers."""
    if isinstance(connection, psycopg.AsyncConnection):
        _check(connection)
        async with psycopg.AsyncCursor(connection, row_factory=tuple_row) as cursor:
            await cursor.execute(call.statement("%s", "%s", "%s"), call[1:])
            return _only(await cursor.fetchone())
    if _is_sqlalchemy(connection) and hasattr(connection, "run_sync"):
        answers: str = await connection.run_sync(_run_in_sqlalchemy, call)
        return answers
    if isinstance(connection, psycopg.Connection) or _is_sqlalchemy(connection):
        raise ConfigError(f"{type(connection).__name__} would block the event loop: use an async connection here")
    raise _unknown(connection)


def _run_in_sqlalchemy(target: Any, call: Call) -> str:
    from sqlalchemy import text  # noqa: PLC0415 - there already, since this is one of its objects

    connection = target.connection() if callable(getattr(target, "connection", None)) else target
    if connection.dialect.name != "postgresql":
        raise ConfigError(f"this is a connection to {connection.dialect.name}, and the leases are in PostgreSQL")
    driver = connection.connection.driver_connection
    if isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        if driver.info.transaction_status == TransactionStatus.INERROR:
            raise _failed()
        if driver.autocommit:
            raise _autocommit()
    elif getattr(driver, "autocommit", False):
        raise _autocommit()
    values = {"namespace": call.namespace, "batch": call.batch, "patience": call.patience_ms}
    statement = text(call.statement(":namespace", ":batch", "CAST(:patience AS integer)"))
    return str(connection.execute(statement, values).scalar_one())


def _check(connection: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    status = connection.info.transaction_status
    if status == TransactionStatus.INERROR:
        raise _failed()
    if connection.autocommit and status in NO_TRANSACTION:
        raise _autocommit()


def _failed() -> ConfigError:
    return ConfigError("this transaction has failed: roll it back, and begin again")


def _autocommit() -> ConfigError:
    return ConfigError(
        "this connection is in autocommit mode, with no transaction open: there is nothing that the grant could be "
        "committed with. Begin one first"
    )


def _unknown(connection: object) -> ConfigError:
    return ConfigError(
        f"{type(connection).__name__} is no connection that this store knows: pass one of psycopg's, or a connection "
        "or session of SQLAlchemy's, with the transaction open in it; not the engine or pool that it comes from"
    )


def _is_sqlalchemy(connection: object) -> bool:
    """Tell whether it is a connection or session of SQLAlchemy's; an engine has nothing to commit."""
    theirs = any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(connection).__mro__)
    return theirs and hasattr(connection, "commit")


def _only(row: tuple[Any, ...] | None) -> str:
    assert row is not None
    return str(row[0])
