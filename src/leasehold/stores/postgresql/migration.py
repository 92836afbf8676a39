"""The schema: which version there is, and how it becomes the one that this package knows.

Each version has a file of changes to tables; the functions are made anew every time. All is one transaction under an
advisory lock, so two at once are no harm, and nothing is half done.
"""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg import sql

from leasehold.errors import ConfigError, LeaseholdError
from leasehold.stores.postgresql.trouble import Refused, explain, explain_connecting

if TYPE_CHECKING:
    from leasehold.stores.postgresql.address import PostgresAddress

STEPS: Final = ("0001.sql",)
"""What leads from each version to the next."""
FUNCTIONS: Final = ("queue.sql", "rules.sql", "apply.sql", "quick.sql", "read.sql", "care.sql", "privileges.sql")
VERSION: Final = len(STEPS)


class Migrated(NamedTuple):
    """What was found, and what there is now."""

    schema: str
    found: int
    now: int


def too_new(found: int, schema: str) -> ConfigError:
    """Return the error for a schema that a newer package made."""
    return ConfigError(
        f"the schema {schema!r} has version {found}, and this leasehold knows {VERSION} and older: upgrade leasehold here"
    )


def script(schema: str, found: int = 0) -> str:
    """Return the SQL that leads from the version found to ours, without the transaction around it."""
    texts = [_text(name) for name in (*STEPS[found:], *FUNCTIONS)]
    # Objects without a schema are made in this one, and the functions keep looking there, whoever calls them.
    path = f"SET LOCAL search_path = {sql.Identifier(schema).as_string(None)}, pg_temp;\n"
    return "\n".join([path, *texts, f"UPDATE meta SET version = {VERSION};\n"])


def printed(schema: str) -> str:
    """Return the whole migration from nothing, for somebody who runs it by hand."""
    create = f"CREATE SCHEMA {sql.Identifier(schema).as_string(None)};\n"
    return f"-- Makes version {VERSION} of leasehold's schema.\nBEGIN;\n{create}{script(schema)}COMMIT;\n"


def migrate(address: PostgresAddress, timeout: float) -> Migrated:
    """Bring the schema to our version, from any older one or from nothing. Raises errors of ours."""
    last: LeaseholdError | None = None
    for conninfo in address.attempts():
        try:
            connection = psycopg.connect(
                conninfo.decode(), connect_timeout=max(2, int(timeout)), prepare_threshold=None
            )
        except psycopg.OperationalError as error:
            last = explain_connecting(str(error), address)
            continue
        try:
            with connection:
                return _migrate(connection, address.schema)
        except psycopg.errors.ReadOnlySqlTransaction as error:
            last = explain(Refused(error.sqlstate or "", str(error)), address)
        except psycopg.errors.InsufficientPrivilege as error:
            said = address.scrub(error.diag.message_primary)
            raise ConfigError(
                f"the schema {address.schema!r} at {address} is missing or old, and this role may not make it ({said}): "
                "run `leasehold migrate` as one that may, or `leasehold migrate --print` for the SQL"
            ) from None
        except psycopg.Error as error:
            raise explain(Refused(error.sqlstate or "", str(error)), address) from None
    assert last is not None
    raise last


def _migrate(connection: psycopg.Connection, schema: str) -> Migrated:
    connection.execute("SELECT set_config('lock_timeout', '30s', true)")
    connection.execute("SELECT pg_advisory_xact_lock(hashtextextended('leasehold:' || %s, 0))", (schema,))
    found = _version(connection, schema)
    if found > VERSION:
        raise too_new(found, schema)
    if found < VERSION:
        if found == 0:
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(schema)))
        connection.execute(script(schema, found).encode())
    return Migrated(schema, found, VERSION)


def _version(connection: psycopg.Connection, schema: str) -> int:
    """Return the version of the schema there; 0: none."""
    name = sql.Identifier(schema, "meta").as_string(connection)
    row = connection.execute("SELECT to_regclass(%s) IS NOT NULL", (name,)).fetchone()
    if row is None or not row[0]:
        return 0
    row = connection.execute(sql.SQL("SELECT max(version) FROM {}").format(sql.Identifier(schema, "meta"))).fetchone()
    return int(row[0] or 0) if row else 0


def _text(name: str) -> str:
    return files("leasehold.stores.postgresql").joinpath("sql", name).read_text(encoding="utf-8")
