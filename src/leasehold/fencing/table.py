"""The table in which a database remembers the newest token of each resource.

It doesn't protect itself: whoever may change its rows may let a stale write in. It has one row for each resource that
was ever written under a guard. Delete rows only of resources that no stale write can reach any more.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Protocol

from leasehold.errors import ConfigError, Fenced

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeAlias

    from leasehold.fencing.stamp import Stamp

DEFAULT: Final = "leasehold_fence"
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_HERE: Final = os.path.dirname(os.path.abspath(__file__))


class Answer(Protocol):
    """What a driver gives back for a statement, as far as a guard looks at it."""

    @property
    def rowcount(self) -> int:
        """How many rows were changed."""

    def fetchone(self) -> Any:
        """Return the next row."""


if TYPE_CHECKING:
    Run: TypeAlias = Callable[[str, Mapping[str, object]], Answer]
    """Carries out a statement with ``:name`` parameters in the guarded transaction."""


class Table:
    """The statements of a guard, for a table of that name: ``name`` or ``schema.name``."""

    __slots__ = ("admit", "create", "name", "newest")

    def __init__(self, name: str) -> None:
        given: object = name
        parts = given.split(".") if isinstance(given, str) else []
        if len(parts) not in (1, 2) or not all(_NAME.fullmatch(part) for part in parts):
            raise ConfigError(
                f"{name!r} can't name the table of a guard: letters, digits and _, at most 63, not a digit first; a "
                "schema and a dot may come before it"
            )
        if parts[-1].lower().startswith("sqlite_"):
            raise ConfigError(f"{name!r} can't name the table of a guard: SQLite keeps sqlite_ for itself")
        self.name = name
        quoted = ".".join(f'"{part}"' for part in parts)
        self.create = _sql("create.sql").format(table=quoted)
        self.admit = _sql("admit.sql").format(table=quoted)
        self.newest = _sql("newest.sql").format(table=quoted)


@cache
def table_named(name: str) -> Table:
    """Return the table of that name, or raise `ConfigError` if it can't be one."""
    return Table(name)


def admit(run: Run, table: Table, stamp: Stamp, *, is_missing: Callable[[Exception], bool]) -> None:
    """Let the stamp in and lock its row until the transaction ends, or raise `Fenced`.

    It can't roll back: whoever calls it does. A table that is missing is made, in the same transaction.
    """
    values = {"resource": stamp.resource, "token": stamp.token}
    try:
        done = run(table.admit, values)
    except Exception as error:
        if not is_missing(error):
            raise
        run(table.create, {})
        done = run(table.admit, values)
    if done.rowcount == 1:
        return
    row = run(table.newest, {"resource": stamp.resource}).fetchone()
    if row is None or not isinstance(row[0], int):
        raise ConfigError(f"the table {table.name} has been tampered with: its token of {stamp.resource!r} is {row!r}")
    raise Fenced(stamp.resource, token=stamp.token, newest=row[0])


def _sql(name: str) -> str:
    """Return the statement of one of our .sql files, without its comments."""
    with open(os.path.join(_HERE, "sql", name), encoding="utf-8") as file:
        return "".join(line for line in file if not line.startswith("--")).strip()
