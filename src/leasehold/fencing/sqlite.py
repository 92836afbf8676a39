"""The guard for SQLite through Python's own ``sqlite3``."""

from __future__ import annotations

import sqlite3
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from leasehold.errors import ConfigError, Fenced
from leasehold.fencing.stamp import stamp_of
from leasehold.fencing.table import Table, admit, table_named

if TYPE_CHECKING:
    from collections.abc import Iterator

    from leasehold.fencing.stamp import Bearer, Stamp

BODY_ENDED_IT = (
    "the transaction was ended inside the guard, so what came after that was not fenced; it has been rolled back as far "
    "as it was still open. Commit after the `with`, not in it"
)


def guard(connection: sqlite3.Connection, bearer: Bearer, table: str) -> Any:
    """Return the guard of a transaction: see `leasehold.fencing.fence`."""
    return _guard(connection, bearer, table_named(table))


def create_table(connection: sqlite3.Connection, table: str) -> None:
    """Make the table of the guards, in the open transaction if there is one."""
    _cursor(connection).execute(table_named(table).create)


@contextmanager
def _guard(connection: sqlite3.Connection, bearer: Bearer, table: Table) -> Iterator[Stamp]:
    stamp = stamp_of(bearer)
    cursor = _cursor(connection)
    ours = not connection.in_transaction
    if ours:
        cursor.execute("BEGIN IMMEDIATE")
    try:
        # The write in it makes this transaction *the* writer of the file until it ends: nobody newer slips in between.
        admit(cursor.execute, table, stamp, is_missing=lambda error: is_missing(error, table))
        # It is gone when the body ends the transaction, and so tells whether all that the body wrote was guarded.
        cursor.execute("SAVEPOINT leasehold_guard")
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
    _finish(connection, cursor, ours=ours)


def _finish(connection: sqlite3.Connection, cursor: sqlite3.Cursor, *, ours: bool) -> None:
    try:
        cursor.execute("RELEASE leasehold_guard")
    except sqlite3.OperationalError as error:
        if "no such savepoint" not in str(error):
            raise
        _roll_back(connection)
        raise ConfigError(BODY_ENDED_IT) from None
    if not ours:
        return
    try:
        cursor.execute("COMMIT")
    except BaseException:
        _roll_back(connection)
        raise


def is_missing(error: Exception, table: Table) -> bool:
    """Whether the error says that the table isn't there."""
    return f"no such table: {table.name}" in str(error)


def _cursor(connection: sqlite3.Connection) -> sqlite3.Cursor:
    cursor = sqlite3.Cursor(connection)
    cursor.row_factory = None  # the user's own would apply to our rows
    return cursor


def _roll_back(connection: sqlite3.Connection) -> None:
    if getattr(connection, "autocommit", None) is False:
        connection.rollback()  # which also opens the next one, as such a connection (Python 3.12) always has one
    elif connection.in_transaction:
        # Not rollback(), which does nothing where autocommit is True.
        connection.execute("ROLLBACK")
