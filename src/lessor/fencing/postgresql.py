"""The steps of any guard on PostgreSQL, whichever library sends them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError
from lessor.fencing.table import BODY_ENDED_IT, Table, admit

if TYPE_CHECKING:
    from lessor.fencing.stamp import Stamp
    from lessor.fencing.steps import Steps

DIALECT: Final = "postgresql"

UNDEFINED_TABLE: Final = "42P01"
DUPLICATE_TABLE: Final = "42P07"
UNIQUE_VIOLATION: Final = "23505"
NO_SUCH_SAVEPOINT: Final = "3B001"
NO_TRANSACTION: Final = "25P01"

FAIL: Final = "DO $$ BEGIN RAISE EXCEPTION 'fenced: a newer token has been here'; END $$"
"""Leaves the transaction such that it, or the savepoint that it is in, can only be rolled back."""


def enter(table: Table, stamp: Stamp) -> Steps:
    """Let the stamp in, in the open transaction, or raise `Fenced`. A table that is missing is made.

    A row that another transaction has written is waited for, and compared as that one leaves it; above READ COMMITTED
    the database raises a serialization failure instead. From here on others wait for us.
    """
    try:
        # It saves the transaction when the table is missing. And it is gone when the body ends the transaction, and so
        # tells whether all that the body wrote was guarded.
        yield "SAVEPOINT lessor_guard", {}
    except Exception as error:
        if sqlstate(error) != NO_TRANSACTION:
            raise
        raise ConfigError(
            "this connection is in AUTOCOMMIT, where each statement ends its own transaction and a guard would protect "
            "nothing: use another isolation level"
        ) from None
    try:
        yield from admit(table, stamp)
    except Exception as error:
        if sqlstate(error) != UNDEFINED_TABLE:
            raise
        yield "ROLLBACK TO SAVEPOINT lessor_guard", {}
        yield from create(table)
        yield from admit(table, stamp)


def leave() -> Steps:
    """Raise `ConfigError` if the transaction is not the one that was entered."""
    try:
        yield "RELEASE SAVEPOINT lessor_guard", {}
    except Exception as error:
        if sqlstate(error) not in (NO_SUCH_SAVEPOINT, NO_TRANSACTION):
            raise
        raise ConfigError(BODY_ENDED_IT) from None


def create(table: Table) -> Steps:
    """Make the table, unless it is there or somebody makes it at the same time, who is waited for."""
    yield "SAVEPOINT lessor_create", {}
    try:
        yield table.create, {}
    except Exception as error:
        # IF NOT EXISTS doesn't see what is about to be committed.
        if sqlstate(error) not in (DUPLICATE_TABLE, UNIQUE_VIOLATION):
            raise
        yield "ROLLBACK TO SAVEPOINT lessor_create", {}
    yield "RELEASE SAVEPOINT lessor_create", {}


def sqlstate(error: Exception) -> str | None:
    """Return the database's code of an error, also of one that SQLAlchemy has wrapped."""
    raised = getattr(error, "orig", error)
    code: str | None = getattr(raised, "sqlstate", None) or getattr(raised, "pgcode", None)  # that is psycopg2's name
    return code
