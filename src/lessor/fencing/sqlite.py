"""The guard for SQLite through Python's own ``sqlite3``; and the steps of any guard on SQLite."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from lessor.errors import ConfigError, Fenced
from lessor.fencing.stamp import stamp_of
from lessor.fencing.steps import Answer, carry_out
from lessor.fencing.table import BODY_ENDED_IT, Table, admit, table_named

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from lessor.fencing.stamp import Bearer, Stamp
    from lessor.fencing.steps import Run, Steps

DIALECT: Final = "sqlite"


def enter(table: Table, stamp: Stamp) -> Steps:
    """Let the stamp in, in the open transaction, or raise `Fenced`. A table that is missing is made.

    The write in it makes the transaction *the* writer of the file until it ends: nobody newer slips in between.
    """
    try:
        yield from admit(table, stamp)
    except Exception as error:
        if f"no such table: {table.name}" not in str(error):
            raise
        yield from create(table)
        yield from admit(table, stamp)
    # It is gone when the body ends the transaction, and so tells whether all that the body wrote was guarded.
    yield "SAVEPOINT lessor_guard", {}


def leave() -> Steps:
    """Raise `ConfigError` if the transaction is not the one that was entered."""
    try:
        yield "RELEASE lessor_guard", {}
    except Exception as error:
        if "no such savepoint" not in str(error):
            raise
        raise ConfigError(BODY_ENDED_IT) from None


def create(table: Table) -> Steps:
    """Make the table, unless it is there."""
    yield table.create, {}


# --- Python's sqlite3 ---------------------------------------------------------------------------------------------


def guard(connection: sqlite3.Connection, bearer: Bearer, table: str) -> Any:
    """Return the guard of a transaction: see `lessor.fencing.fence`."""
    return _guard(connection, bearer, table_named(table, DIALECT))


def create_table(connection: sqlite3.Connection, table: str) -> None:
    """Make the table of the guards, in the open transaction if there is one."""
    carry_out(create(table_named(table, DIALECT)), _runner(connection))


@contextmanager
def _guard(connection: sqlite3.Connection, bearer: Bearer, table: Table) -> Iterator[Stamp]:
    stamp = stamp_of(bearer)
    run = _runner(connection)
    ours = not connection.in_transaction
    if ours:
        run("BEGIN IMMEDIATE", {})
    try:
        carry_out(enter(table, stamp), run)
    except BaseException as error:
        if ours or isinstance(error, Fenced):
            _roll_back(connection)
        raise
    try:
        yield stamp
    except BaseException:
        if ours:
            with suppress(sqlite3.Error):  # the body's own error is the one to tell
                _roll_back(connection)
        raise
    try:
        carry_out(leave(), run)
        if ours:
            run("COMMIT", {})
    except BaseException as error:
        if ours or isinstance(error, ConfigError):
            with suppress(sqlite3.ProgrammingError):  # closed
                _roll_back(connection)
        raise


def _runner(connection: sqlite3.Connection) -> Run:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None  # the user's own would apply to our rows

    def run(statement: str, values: Mapping[str, object]) -> Answer:
        cursor.execute(statement, values)
        return Answer(cursor.rowcount, cursor.fetchone())

    return run


def _roll_back(connection: sqlite3.Connection) -> None:
    if getattr(connection, "autocommit", None) is False:
        connection.rollback()  # which also opens the next one, as such a connection (Python 3.12) always has one
    elif connection.in_transaction:
        # Not rollback(), which does nothing where autocommit is True.
        connection.execute("ROLLBACK")
