"""The schema: which version there is, and how it becomes the one that this package knows.

Each version has a file of changes to tables; the functions are made anew every time. All is one transaction under an
advisory lock, so two at once are no harm, and nothing is half done.

Changes to a table wait for all who use it, and whoever comes later waits behind them, renewals too. So they wait for a
moment only and then try again, and only who was asked to does them: a client makes what is missing, and alters nothing.
"""

from __future__ import annotations

import re
import time
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg import sql

from lessor.errors import ConfigError, LessorError, StoreUnavailable
from lessor.stores.postgresql.trouble import LOCKED, STORE, Refused, explain, explain_connecting
from lessor.stores.postgresql.wire import Wire

if TYPE_CHECKING:
    from lessor.stores.limit import Limit
    from lessor.stores.postgresql.address import PostgresAddress

STEPS: Final = ("0001.sql", "0002.sql", "0003.sql", "0004.sql")
"""What leads from each version to the next."""
FUNCTIONS: Final = ("queue.sql", "rules.sql", "apply.sql", "quick.sql", "read.sql", "care.sql")
PRIVILEGES: Final = "privileges.sql"
VERSION: Final = len(STEPS)
ATTEMPTS: Final = 20
"""How often the tables are tried to be changed..."""
PAUSE: Final = 1.0
"""...and for how many seconds the leases go on in between."""
BEGINNING: Final = """\
SET LOCAL search_path = {name}, pg_temp;
SET LOCAL lock_timeout = '500ms';
"""
"""Objects without a schema are made in this one, and the functions keep looking there, whoever calls them."""
FOREIGN: Final = "LS003"
READ_ONLY: Final = "25006"
PRIVILEGES_MISSING: Final = "42501"
STEP_BY_STEP: Final = """\
DO $steps$
DECLARE
    there integer := 0;
BEGIN
    IF {ours} THEN
        SELECT max(version) INTO there FROM meta;
    ELSIF to_regnamespace({literal}) IS NULL THEN
        CREATE SCHEMA {name};
    ELSIF EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace({literal}))
        OR EXISTS (SELECT FROM pg_proc WHERE pronamespace = to_regnamespace({literal}))
        OR EXISTS (SELECT FROM pg_type WHERE typnamespace = to_regnamespace({literal}))
    THEN
        RAISE EXCEPTION 'the schema has objects in it that are not lessor''s' USING ERRCODE = '{foreign}';
    END IF;
    IF there > {version} THEN
        RAISE EXCEPTION 'the schema has version %, which is newer', there;
    END IF;
{steps}END $steps$;
"""
CLOSING: Final = """\
-- Functions are open to everybody unless it is said otherwise. Others' in this schema stay as they are.
DO $closing$
DECLARE
    one regprocedure;
BEGIN
    FOR one IN
        SELECT oid FROM pg_proc WHERE pronamespace = to_regnamespace({literal}) AND prokind = 'f' AND proname IN ({functions})
    LOOP
        EXECUTE format('REVOKE ALL ON FUNCTION %s FROM PUBLIC', one);
    END LOOP;
END $closing$;
"""


class Migrated(NamedTuple):
    """What was found, and what there is now."""

    schema: str
    found: int
    now: int


def too_new(found: int, schema: str) -> ConfigError:
    """Return the error for a schema that a newer package made."""
    return ConfigError(
        f"the schema {schema!r} has version {found}, and this lessor knows {VERSION} and older: upgrade lessor here"
    )


def too_old(found: int, address: PostgresAddress) -> ConfigError:
    """Return the error for a schema that an older package made."""
    return ConfigError(
        f"the schema {address.schema!r} at {address} has version {found}, and this lessor needs {VERSION}: "
        "run `lessor migrate`, or `lessor migrate --print` for the SQL"
    )


def ours(schema: str) -> str:
    """Return the SQL that tells whether the schema has our objects, of whatever version."""
    name = _literal(schema)
    return (
        f"to_regprocedure({name} || '.schema_version()') IS NOT NULL AND to_regclass({name} || '.entries') IS NOT NULL"
    )


def script(schema: str) -> str:
    """Return the SQL that leads to our version, from nothing or any older one, without the transaction around it."""
    steps = "".join(
        f"IF there < {version} THEN EXECUTE $step$\n{_text(step)}$step$; END IF;\n"
        for version, step in enumerate(STEPS, 1)
    )
    functions = "\n".join(map(_text, FUNCTIONS))
    named = sorted(set(re.findall(r"^CREATE OR REPLACE FUNCTION (\w+)", functions, re.MULTILINE)))
    fields = {"name": sql.Identifier(schema).as_string(None), "literal": _literal(schema)}
    return "\n".join(
        [
            BEGINNING.format(**fields),
            STEP_BY_STEP.format(**fields, ours=ours(schema), foreign=FOREIGN, version=VERSION, steps=steps),
            functions,
            CLOSING.format(**fields, functions=", ".join(f"'{function}'" for function in named)),
            _text(PRIVILEGES),
            f"UPDATE meta SET version = {VERSION};\n",
        ]
    )


def printed(schema: str) -> str:
    """Return the whole migration, for somebody who runs it by hand."""
    what = f"-- Makes version {VERSION} of lessor's schema, or brings an older one to it.\n"
    return f"{what}BEGIN;\n{script(schema)}COMMIT;\n"


def migrate(address: PostgresAddress, limit: Limit) -> Migrated:
    """Bring the schema to our version, from any older one or from nothing. Raises errors of ours."""
    last: LessorError | None = None
    for conninfo in address.attempts():
        try:
            wire = Wire(conninfo, limit)
        except psycopg.OperationalError as error:
            last = explain_connecting(str(error), address)
            continue
        except TimeoutError:
            raise _late(address, limit) from None
        try:
            return _migrate(wire, address.schema, limit)
        except TimeoutError:
            raise _late(address, limit) from None
        except Refused as refused:
            last = _explain(refused, address)
            if refused.code != READ_ONLY:
                raise last from None
        except psycopg.Error as error:
            said = " ".join(address.scrub(error).split())[:200]
            last = StoreUnavailable(STORE, f"the connection to {address} broke: {said}")
        finally:
            wire.close()
    assert last is not None
    raise last


def _late(address: PostgresAddress, limit: Limit) -> StoreUnavailable:
    return StoreUnavailable(STORE, f"the schema at {address} was not up to date within {limit.seconds:g} s: try again")


def _explain(refused: Refused, address: PostgresAddress) -> LessorError:
    if refused.code == PRIVILEGES_MISSING:
        return ConfigError(
            f"the schema {address.schema!r} at {address} is missing or old, and this role may not make it "
            f"({address.scrub(refused.text)}): run `lessor migrate` as one that may, or `lessor migrate --print` for "
            "the SQL"
        )
    if refused.code == LOCKED:
        return StoreUnavailable(
            STORE,
            f"the schema {address.schema!r} at {address} is locked by somebody's transaction, such as a dump: "
            "nothing was changed; try again when that is over",
        )
    if refused.code == FOREIGN:
        return ConfigError(
            f"the schema {address.schema!r} at {address} has objects in it that are not lessor's: name "
            "one of its own with schema=, or leave that out"
        )
    return explain(refused, address)


def _migrate(wire: Wire, schema: str, limit: Limit) -> Migrated:
    found = _version(wire, schema, limit)
    if found > VERSION:
        raise too_new(found, schema)
    if found < VERSION:
        _change(wire, schema, limit)
    return Migrated(schema, found, VERSION)


def _change(wire: Wire, schema: str, limit: Limit) -> None:
    """Carry it out as soon as nobody uses the tables, and let the leases go on until then.

    All is sent at once: the server finishes it, even for a client that has no more time to wait for that.
    """
    key = sql.Literal(f"lessor:{schema}").as_string(None)
    alone = f"SET LOCAL lock_timeout = '30s';\nSELECT pg_advisory_xact_lock(hashtextextended({key}, 0));\n"
    statements = f"BEGIN;\n{alone}{script(schema)}COMMIT;\n".encode()
    for attempt in range(1, ATTEMPTS + 1):
        try:
            wire.run(statements, limit)
        except Refused as refused:
            if refused.code != LOCKED or attempt == ATTEMPTS or limit.left() <= PAUSE:
                raise
            wire.run(b"ROLLBACK", limit)
            time.sleep(PAUSE)
        else:
            return


def _version(wire: Wire, schema: str, limit: Limit) -> int:
    """Return the version of the schema there; 0: none of ours."""
    if wire.tell(f"SELECT {ours(schema)}".encode(), limit).get_value(0, 0) != b"t":
        return 0
    meta = sql.Identifier(schema, "meta").as_string(None)
    return int(wire.tell(f"SELECT max(version) FROM {meta}".encode(), limit).get_value(0, 0) or 0)


def _literal(schema: str) -> str:
    return sql.Literal(sql.Identifier(schema).as_string(None)).as_string(None)


def _text(name: str) -> str:
    return files("lessor.stores.postgresql").joinpath("sql", name).read_text(encoding="utf-8")
