"""The schema: made, updated, refused; and with how few rights it can be used."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import TYPE_CHECKING

import psycopg
import pytest

from lessor.cli.main import main
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError, StoreUnavailable
from lessor.stores.postgresql import migration
from lessor.stores.postgresql.migration import VERSION
from lessor.testing.conformance.base import Thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from lessor.stores.postgresql import PostgresStore
    from tests.servers.postgres import PostgresServer

ASK = Acquire("x", "A", "h", 60 * SECOND)
serials = itertools.count()


@pytest.fixture
def empty(postgres: PostgresServer) -> str:
    """A database with nothing in it."""
    return postgres.database()


def version(url: str, schema: str = "lessor") -> object:
    with psycopg.connect(url) as connection:
        return connection.execute(f'SELECT version FROM "{schema}".meta').fetchall()


def role(url: str, *grants: str) -> str:
    """Make a role that may log in and do what the grants say; return the database's URL for it."""
    name = f"role_{next(serials)}"
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN")
        for grant in grants:
            connection.execute(f"GRANT {grant} TO {name}")
    return url.replace("postgres@", f"{name}@")


def test_the_first_use_makes_it(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    assert isinstance(open_store(empty).apply([ASK], timeout=20)[0], Granted)
    assert version(empty) == [(VERSION,)]


def test_many_first_users_at_once(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    stores = [open_store(empty) for _ in range(6)]
    threads = [Thread(lambda s=s: s.apply([ASK], timeout=60)[0]) for s in stores]  # type: ignore[misc]
    assert [type(thread.result(60)) for thread in threads] == [Granted] * 6
    assert version(empty) == [(VERSION,)]


def test_migrate_says_what_it_did(empty: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--url", empty]) == 0
    assert f"has version {VERSION} now; before there was none" in capsys.readouterr().out
    assert main(["migrate", "--url", empty]) == 0
    assert f"has version {VERSION} already: nothing to do" in capsys.readouterr().out


def test_migrate_prints_sql_that_does_the_same(
    empty: str, capsys: pytest.CaptureFixture[str], open_store: Callable[[str], PostgresStore]
) -> None:
    assert main(["migrate", "--print", "--url", f"{empty}?schema=Odd%20%22name"]) == 0
    printed = capsys.readouterr().out
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(printed.encode())
    assert version(empty, 'Odd ""name') == [(VERSION,)]
    assert isinstance(open_store(f"{empty}?schema=Odd%20%22name").apply([ASK], timeout=20)[0], Granted)
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(printed.encode())  # once more is no harm
        connection.execute(f'UPDATE "Odd ""name".meta SET version = {VERSION + 1}')
        with pytest.raises(psycopg.errors.RaiseException, match="newer"):
            connection.execute(printed.encode())


def test_migrate_where_there_is_no_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["migrate", "--url", "memory://"]) == 78
    assert "has no schema to migrate" in capsys.readouterr().err


def test_a_newer_schema_is_refused(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    open_store(empty).apply([ASK], timeout=20)
    with psycopg.connect(empty) as connection:
        connection.execute("UPDATE lessor.meta SET version = 99")
    [outcome] = open_store(empty).apply([ASK], timeout=20)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, ConfigError)
    assert f"has version 99, and this lessor knows {VERSION} and older" in str(outcome.error)
    with pytest.raises(ConfigError, match="version 99"):
        open_store(empty).migrate(timeout=20)


def test_an_older_schema_is_brought_up_to_date(
    empty: str, open_store: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(empty).apply([ASK], timeout=20)
    text = migration._text
    monkeypatch.setattr(migration, "STEPS", (*migration.STEPS, "new.sql"))
    monkeypatch.setattr(migration, "VERSION", VERSION + 1)
    monkeypatch.setattr("lessor.stores.postgresql.connection.VERSION", VERSION + 1)
    monkeypatch.setattr(
        migration, "_text", lambda n: "ALTER TABLE spaces ADD novelty text;" if n == "new.sql" else text(n)
    )
    later = open_store(empty)
    assert "it had" in later.migrate(timeout=20)
    [record] = later.read(["x"], timeout=20)
    assert record is not None
    assert version(empty) == [(VERSION + 1,)]
    assert "nothing to do" in later.migrate(timeout=20)


@pytest.fixture
def version_1(empty: str) -> str:
    """A database with the schema as the first version made it, and in it a lease that somebody waits for."""
    made = Path(__file__).with_name("version_1.sql").read_text(encoding="utf-8")
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(made.encode())
        for lease_id in ("A", "B"):
            ask = ("default", "x", lease_id, f"h-{lease_id}", 60_000_000, True, "", 0, "", 1000)
            connection.execute(f"SELECT lessor.acquire({', '.join(['%s'] * 10)})", ask)
    return empty


def test_version_1_is_brought_up_to_date_with_all_that_is_in_it(
    version_1: str, open_store: Callable[[str], PostgresStore]
) -> None:
    store = open_store(version_1)
    store.migrate(timeout=20)
    [record] = store.read(["x"], timeout=20)
    assert record is not None
    assert [contender.holder for contender in record.queue] == ["h-B"]
    assert version(version_1) == [(VERSION,)]
    first = Acquire("x", "C", "h-C", 60 * SECOND, queue=True, priority=1, soft_ns=SECOND)
    assert isinstance(store.apply([first], timeout=20)[0], Held)
    assert [contender.holder for contender in store.waiters("x", timeout=20)] == ["h-C", "h-B"]
    assert isinstance(store.apply([Renew("x", "A", record.token, 60 * SECOND)], timeout=20)[0], Renewed)
    assert isinstance(store.apply([Release("x", "A", "h-B", state="left")], timeout=20)[0], Released)
    granted = store.apply([Acquire("x", "B", "h-B", 60 * SECOND)], timeout=20)[0]
    assert isinstance(granted, Granted)
    assert granted.state == "left"


def objects(url: str) -> list[tuple[object, ...]]:
    """Return all functions, columns and their types."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT p.oid::regprocedure::text, pg_get_function_arguments(p.oid), p.proacl::text "
            "FROM pg_proc p WHERE pronamespace = 'lessor'::regnamespace UNION ALL "
            "SELECT attrelid::regclass::text, attname, format_type(atttypid, atttypmod) FROM pg_attribute a "
            "JOIN pg_class c ON c.oid = attrelid WHERE c.relnamespace = 'lessor'::regnamespace AND attnum > 0 "
            "ORDER BY 1, 2"
        ).fetchall()


def test_version_1_becomes_what_is_made_from_nothing(
    postgres: PostgresServer, version_1: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fresh = postgres.database()
    assert main(["migrate", "--url", fresh]) == 0
    assert main(["migrate", "--url", version_1]) == 0
    assert f"has version {VERSION} now; before it had 1" in capsys.readouterr().out
    assert objects(version_1) == objects(fresh)


def test_clients_alter_no_older_schema_by_themselves(
    version_1: str, open_store: Callable[[str], PostgresStore]
) -> None:
    """It would make all who hold leases wait, and a dump would make it do so again and again."""
    for url in (version_1, role(version_1, "USAGE ON SCHEMA lessor")):
        [outcome] = open_store(url).apply([ASK], timeout=20)
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError)
        assert f"has version 1, and this lessor needs {VERSION}: run `lessor migrate`" in str(outcome.error)
    assert version(version_1) == [(1,)]


def test_a_migration_during_a_dump_lets_the_leases_go_on(
    version_1: str, open_store: Callable[[str], PostgresStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migration, "ATTEMPTS", 3)
    with psycopg.connect(version_1) as dump, psycopg.connect(version_1, autocommit=True) as holder:
        dump.execute("LOCK TABLE lessor.entries IN ACCESS SHARE MODE")  # as pg_dump does, until it ends
        migrating = Thread(lambda: open_store(version_1).migrate(timeout=20))
        longest = 0.0
        while migrating.is_alive():
            began = time.monotonic()
            holder.execute("SELECT FROM lessor.entries")
            longest = max(longest, time.monotonic() - began)
            migrating.join(0.02)
        assert longest < 10  # not the half minute that it may wait for another migration
        with pytest.raises(StoreUnavailable, match="is locked by somebody's transaction, such as a dump"):
            migrating.result(60)
        again = Thread(lambda: open_store(version_1).migrate(timeout=20))
        dump.rollback()
        assert "before it had 1" in again.result(60)


def test_the_printed_sql_brings_an_older_schema_up_to_date_too(
    version_1: str, capsys: pytest.CaptureFixture[str], open_store: Callable[[str], PostgresStore]
) -> None:
    assert main(["migrate", "--print", "--url", version_1]) == 0
    with psycopg.connect(version_1, autocommit=True) as connection:
        connection.execute(capsys.readouterr().out.encode())
    assert version(version_1) == [(VERSION,)]
    assert [record.holder for record in open_store(version_1).scan("", timeout=20)] == ["h-A"]


def test_an_older_schema_and_no_right_to_change_it(version_1: str, open_store: Callable[[str], PostgresStore]) -> None:
    with pytest.raises(ConfigError, match="is missing or old, and this role may not make it"):
        open_store(role(version_1, "USAGE ON SCHEMA lessor")).migrate(timeout=20)
    assert version(version_1) == [(1,)]


OTHERS = {
    "a table": "CREATE TABLE public.orders (id integer)",
    "a table of a name that we use": "CREATE TABLE public.meta (version integer)",
    "a function": "CREATE FUNCTION public.twice(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 2 * n'",
    "a function of a name that we use": "CREATE FUNCTION public.schema_version() RETURNS text LANGUAGE sql AS 'SELECT NULL'",
    "a type": "CREATE TYPE public.mood AS ENUM ('good', 'bad')",
}


@pytest.mark.parametrize("made", OTHERS.values(), ids=OTHERS)
def test_a_schema_with_objects_of_others_is_refused(
    empty: str, made: str, open_store: Callable[[str], PostgresStore], capsys: pytest.CaptureFixture[str]
) -> None:
    with psycopg.connect(empty, autocommit=True) as connection:
        connection.execute(made)
        [outcome] = open_store(f"{empty}?schema=public").apply([ASK], timeout=20)
        assert isinstance(outcome, Unknown)
        assert isinstance(outcome.error, ConfigError)
        assert "has objects in it that are not lessor's: name one of its own with schema=" in str(outcome.error)
        assert main(["migrate", "--url", f"{empty}?schema=public"]) == 78
        assert main(["migrate", "--print", "--url", f"{empty}?schema=public"]) == 0
        with pytest.raises(psycopg.Error, match="objects in it that are not lessor's"):
            connection.execute(capsys.readouterr().out.encode())
        connection.rollback()
        assert connection.execute("SELECT to_regclass('public.entries')").fetchone() == (None,)


def test_what_others_have_put_beside_our_objects_keeps_its_rights(version_1: str) -> None:
    with psycopg.connect(version_1, autocommit=True) as connection:
        connection.execute("CREATE TABLE lessor.theirs (id integer); GRANT SELECT ON lessor.theirs TO PUBLIC")
        connection.execute("CREATE FUNCTION lessor.twice(n integer) RETURNS integer LANGUAGE sql AS 'SELECT 2 * n'")
    assert main(["migrate", "--url", version_1]) == 0
    with psycopg.connect(role(version_1, "USAGE ON SCHEMA lessor")) as connection:
        assert connection.execute("SELECT lessor.twice(2), (SELECT count(*) FROM lessor.theirs)").fetchone() == (
            4,
            0,
        )


def test_everybody_may_call_what_clients_call_and_nothing_else(version_1: str) -> None:
    assert main(["migrate", "--url", version_1]) == 0
    with psycopg.connect(role(version_1, "USAGE ON SCHEMA lessor")) as connection:
        callable_by_all = connection.execute(
            "SELECT DISTINCT proname::text FROM pg_proc WHERE pronamespace = 'lessor'::regnamespace "
            "AND has_function_privilege(oid, 'EXECUTE') ORDER BY 1"
        ).fetchall()
    assert [name for (name,) in callable_by_all] == [
        "acquire", "apply", "apply_within", "collect", "contenders", "leases_now", "read", "rehearse", "release", "scan",
        "schema_version", "watch",
    ]  # fmt: skip


def test_a_schema_of_another_name(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    one, other = open_store(empty), open_store(f"{empty}?schema=elsewhere")
    assert isinstance(one.apply([ASK], timeout=20)[0], Granted)
    assert isinstance(other.apply([ASK._replace(lease_id="B")], timeout=20)[0], Granted)
    assert other.url.endswith("?namespace=default&schema=elsewhere")


def test_a_schema_that_is_dropped_is_made_again(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    store = open_store(empty)
    [first] = store.apply([ASK], timeout=20)
    with psycopg.connect(empty) as connection:
        connection.execute("DROP SCHEMA lessor CASCADE")
    [again] = store.apply([ASK], timeout=20)
    assert isinstance(first, Granted)
    assert isinstance(again, Granted)
    assert again.token > first.token  # by the clock


def test_usage_of_the_schema_is_all_that_an_application_needs(
    empty: str, open_store: Callable[[str], PostgresStore]
) -> None:
    open_store(empty).read(["x"], timeout=20)
    mine = role(empty, "USAGE ON SCHEMA lessor")
    store = open_store(mine)
    subscription = store.subscribe("")
    assert subscription is not None
    assert subscription.address
    [granted] = store.apply([ASK], timeout=20)
    assert isinstance(granted, Granted)
    assert [type(o) for o in store.apply([Renew("x", "A", granted.token, SECOND)] * 2, timeout=20)] == [Renewed] * 2
    assert len(list(store.scan("", timeout=20))) == 1
    assert subscription.get(20)
    assert isinstance(store.apply([Release("x", "A")], timeout=20)[0], Released)
    store.collect()
    with psycopg.connect(mine) as connection:
        assert isinstance(store.apply_in(connection, [ASK])[0], Granted)
        connection.commit()
        seen = connection.execute("SELECT resource, holder, token FROM lessor.leases").fetchall()
        assert [(name, holder) for name, holder, _ in seen] == [("x", "h")]
    subscription.close()
    subscription.get(0)


@pytest.mark.parametrize(
    "forbidden",
    [
        "SELECT lease_id FROM lessor.entries",
        "SELECT * FROM lessor.waiters",
        "UPDATE lessor.spaces SET floor = 0",
        "SELECT lessor.run('default', '{}', 1)",
        "CREATE OR REPLACE FUNCTION lessor.clock_us() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'",
        "CREATE TABLE lessor.mine ()",
    ],
)
def test_and_no_more_than_that(empty: str, open_store: Callable[[str], PostgresStore], forbidden: str) -> None:
    open_store(empty).read(["x"], timeout=20)
    with (
        psycopg.connect(role(empty, "USAGE ON SCHEMA lessor")) as connection,
        pytest.raises(psycopg.errors.InsufficientPrivilege),
    ):
        connection.execute(forbidden)


def test_functions_look_nowhere_else(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    """A caller's own operators and tables must not be run with the rights of the schema's owner."""
    open_store(empty).read(["x"], timeout=20)
    mine = role(empty, "USAGE ON SCHEMA lessor")
    with psycopg.connect(mine) as connection:
        connection.execute("CREATE TEMP TABLE entries (namespace text, resource text)")
        connection.execute("CREATE FUNCTION pg_temp.clock_us() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint'")
        connection.execute("SET search_path = pg_temp, pg_catalog, lessor")
        [granted] = open_store(mine).apply_in(connection, [ASK])
        assert isinstance(granted, Granted)
        assert granted.token > 10**15


def test_no_schema_and_no_right_to_make_one(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    [outcome] = open_store(role(empty)).apply([ASK], timeout=20)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, ConfigError)
    assert "run `lessor migrate` as one that may" in str(outcome.error)


def test_a_schema_and_no_right_to_use_it(empty: str, open_store: Callable[[str], PostgresStore]) -> None:
    open_store(empty).read(["x"], timeout=20)
    [outcome] = open_store(role(empty)).apply([ASK], timeout=20)
    assert isinstance(outcome, Unknown)
    assert isinstance(outcome.error, ConfigError)
    assert 'GRANT USAGE ON SCHEMA "lessor"' in str(outcome.error)
