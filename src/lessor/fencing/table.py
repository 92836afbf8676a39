"""The table in which a database remembers the newest token of each resource.

It doesn't protect itself: whoever may change its rows may let a stale write in. It has one row for each resource that
was ever written under a guard. Delete rows only of resources that no stale write can reach any more.
"""

from __future__ import annotations

import os
import re
from functools import cache
from typing import TYPE_CHECKING, Final

from lessor.errors import ConfigError, Fenced

if TYPE_CHECKING:
    from lessor.fencing.stamp import Stamp
    from lessor.fencing.steps import Steps

DEFAULT: Final = "lessor_fence"
BODY_ENDED_IT: Final = (
    "the transaction was ended inside the guard, so what came after that was not fenced; it has been rolled back as far "
    "as it was still open. Commit after the `with`, not in it"
)
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_HERE: Final = os.path.dirname(os.path.abspath(__file__))


class Table:
    """The statements of a guard, for a table of that name, ``name`` or ``schema.name``, in that database's SQL."""

    __slots__ = ("admit", "create", "name", "newest")

    def __init__(self, name: str, dialect: str) -> None:
        quoted = ".".join(f'"{part}"' for part in check_name(name))
        self.name = name
        self.create = _sql(f"create_{dialect}.sql").format(table=quoted)
        self.admit = _sql("admit.sql").format(table=quoted)
        self.newest = _sql("newest.sql").format(table=quoted)


@cache
def table_named(name: str, dialect: str) -> Table:
    """Return the table of that name, or raise `ConfigError` if it can't be one."""
    return Table(name, dialect)


def check_name(name: str) -> list[str]:
    """Return the name's parts: the schema, if it has one, and the table."""
    given: object = name
    parts = given.split(".") if isinstance(given, str) else []
    if len(parts) not in (1, 2) or not all(_NAME.fullmatch(part) for part in parts):
        raise ConfigError(
            f"{name!r} can't name the table of a guard: letters, digits and _, at most 63, not a digit first; a "
            "schema and a dot may come before it"
        )
    if parts[-1].lower().startswith("sqlite_"):
        raise ConfigError(f"{name!r} can't name the table of a guard: SQLite keeps sqlite_ for itself")
    return parts


def admit(table: Table, stamp: Stamp) -> Steps:
    """Let the stamp in and lock its row until the transaction ends, or raise `Fenced`.

    It can't roll back: whoever calls it does.
    """
    done = yield table.admit, {"resource": stamp.resource, "token": stamp.token}
    if done.changed == 1:
        return
    _, row = yield table.newest, {"resource": stamp.resource}
    if row is None or not isinstance(row[0], int):
        raise ConfigError(f"the table {table.name} has been tampered with: its token of {stamp.resource!r} is {row!r}")
    raise Fenced(stamp.resource, token=stamp.token, newest=row[0])


def _sql(name: str) -> str:
    """Return the statement of one of our .sql files, without its comments."""
    with open(os.path.join(_HERE, "sql", name), encoding="utf-8") as file:
        return "".join(line for line in file if not line.startswith("--")).strip()
