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

STEPS: Final = ("0001.sql", "0002.sql")
"""What leads from each version to the next."""
FUNCTIONS: Final = ("queue.sql", "rules.sql", "apply.sql", "quick.sql", "read.sql", "care.sql", "privileges.sql")
VERSION: Final = len(STEPS)
STEP_BY_STEP: Final = """\
DO $steps$
DECLARE
    there integer := 0;
BEGIN
    IF to_regclass('meta') IS NOT NULL THEN
        SELECT max(version) INTO there FROM meta;
    ELSIF to_regnamespace(%s) IS NULL THEN
        CREATE SCHEMA %s;
    END IF;
    IF there > %d THEN
        RAISE EXCEPTION 'the schema has version %%, which is newer', there;
    END IF;
%sEND $steps$;
"""


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


def script(schema: str) -> str:
    """Return the SQL that leads to our version, from nothing or any older one, without the transaction around it."""
    name = sql.Identifier(schema).as_string(None)
    steps = "".join(
        f"IF there < {version} THEN EXECUTE $step$\n{_text(step)}$step$; END IF;\n"
        for version, step in enumerate(STEPS, 1)
    )
    # Objects without a schema are made in this one, and the functions keep looking there, whoever calls them.
    path = f"SET LOCAL search_path = {name}, pg_temp;\n"
    tables = STEP_BY_STEP % (sql.Literal(name).as_string(None), name, VERSION, steps)
    return "\n".join([path, tables, *map(_text, FUNCTIONS), f"UPDATE meta SET version = {VERSION};\n"])


def printed(schema: str) -> str:
    """Return the whole migration, for somebody who runs it by hand."""
    what = f"-- Makes version {VERSION} of leasehold's schema, or brings an older one to it.\n"
    return f"{what}BEGIN;\n{script(schema)}COMMIT;\n"


def migrate(address: PostgresAddress, timeout: float, known: int = 0) -> Migrated:
    """Bring the schema to our version, from any older one or from nothing. Raises errors of ours.

    ``known``: which version is there, if the caller knows, since a role that may change nothing may not see that here.
    """
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
            what = f"has version {known}, this leasehold needs {VERSION}" if known else "is missing or old"
            raise ConfigError(
                f"the schema {address.schema!r} at {address} {what}, and this role may not make it ({said}): "
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
        connection.execute(script(schema).encode())
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
