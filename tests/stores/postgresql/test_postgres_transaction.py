"""Leases inside the caller's own transaction, through every kind of connection that is taken."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.rows import dict_row
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from sqlalchemy.orm import Session, sessionmaker

from lessor import AsyncClient, Client
from lessor.core.clock import SECOND
from lessor.core.ops import Acquire, Granted, Held, Release, Released, Renew, Renewed, Unknown
from lessor.errors import ConfigError, InvalidResource
from lessor.runtime.clock import SYSTEM
from lessor.stores.base import Transactional
from lessor.testing.conformance.base import Thread, taken, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from lessor.core.ops import Op
    from lessor.stores.postgresql import PostgresStore

ASK = Acquire("x", "A", "h", 60 * SECOND)
OTHER = Acquire("x", "B", "o", 60 * SECOND)


@contextmanager
def by_psycopg(url: str) -> Iterator[Any]:
    with psycopg.connect(url, row_factory=dict_row) as connection:
        yield connection
        connection.rollback()


@contextmanager
def by_engine(url: str, driver: str) -> Iterator[Any]:
    engine = create_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
    try:
        with engine.connect() as connection:
            yield connection
    finally:
        engine.dispose()


@contextmanager
def by_session(url: str) -> Iterator[Any]:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        with Session(engine) as session:
            yield session
    finally:
        engine.dispose()


SYNC = {
    "psycopg": by_psycopg,
    "connection": lambda url: by_engine(url, "psycopg"),
    "psycopg2": lambda url: by_engine(url, "psycopg2"),
    "session": by_session,
}


@asynccontextmanager
async def by_async_psycopg(url: str) -> AsyncIterator[Any]:
    async with await psycopg.AsyncConnection.connect(url) as connection:
        yield connection
        await connection.rollback()


@asynccontextmanager
async def by_async_engine(url: str, driver: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql://", f"postgresql+{driver}://"))
    try:
        async with engine.connect() as connection:
            yield connection
    finally:
        await engine.dispose()


@asynccontextmanager
async def by_async_session(url: str) -> AsyncIterator[Any]:
    engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    try:
        async with AsyncSession(engine) as session:
            yield session
    finally:
        await engine.dispose()


ASYNC = {
    "psycopg": by_async_psycopg,
    "connection": lambda url: by_async_engine(url, "psycopg"),
    "asyncpg": lambda url: by_async_engine(url, "asyncpg"),
    "session": by_async_session,
}


@pytest.fixture(params=sorted(SYNC))
def connection(request: pytest.FixtureRequest, store: PostgresStore, shared: str) -> Iterator[Any]:
    with SYNC[request.param](shared) as connection:
        yield connection


def test_the_store_says_that_it_can(store: PostgresStore) -> None:
    assert isinstance(store, Transactional)


def test_a_commit_grants(store: PostgresStore, connection: Any) -> None:
    [granted] = store.apply_in(connection, [ASK])
    assert isinstance(granted, Granted)
    assert store.read(["x"], timeout=20) == [None]
    connection.commit()
    [record] = store.read(["x"], timeout=20)
    assert record is not None
    assert record.token == granted.token
    [renewed] = store.apply([Renew("x", "A", granted.token, 60 * SECOND)], timeout=20)
    assert isinstance(renewed, Renewed)


def test_a_rollback_leaves_nothing(store: PostgresStore, connection: Any) -> None:
    assert isinstance(store.apply_in(connection, [ASK])[0], Granted)
    connection.rollback()
    [granted] = store.apply([OTHER], timeout=20)
    assert isinstance(granted, Granted)


def test_what_is_held_is_said_and_the_transaction_goes_on(store: PostgresStore, connection: Any) -> None:
    store.apply([OTHER], timeout=20)
    outcomes = store.apply_in(connection, [ASK, ASK._replace(resource="y")])
    assert isinstance(outcomes[0], Held)
    assert isinstance(outcomes[1], Granted)
    connection.commit()
    assert [r and r.holder for r in store.read(["x", "y"], timeout=20)] == ["o", "h"]


def test_with_the_callers_own_writes(store: PostgresStore, shared: str, raw: psycopg.Connection) -> None:
    raw.execute("CREATE TABLE IF NOT EXISTS orders (name text)")
    raw.execute("TRUNCATE orders")
    with psycopg.connect(shared) as mine:
        for end, count in ((mine.rollback, 0), (mine.commit, 1)):
            mine.execute("INSERT INTO orders VALUES ('one')")
            assert isinstance(store.apply_in(mine, [ASK])[0], Granted)
            end()
            assert raw.execute("SELECT count(*) FROM orders").fetchone() == (count,)
            assert len(list(store.scan("", timeout=20))) == count


def test_nothing_else_of_the_transaction_is_changed(store: PostgresStore, shared: str) -> None:
    with psycopg.connect(shared) as mine:
        mine.execute("SET LOCAL lock_timeout = '7s'")
        mine.execute("SET LOCAL synchronous_commit = off")
        store.apply_in(mine, [ASK, Release("x", "A")])
        assert mine.execute("SHOW lock_timeout").fetchone() == ("7s",)
        assert mine.execute("SHOW synchronous_commit").fetchone() == ("on",)  # or a crash could take the grant back
        assert mine.execute("SHOW search_path").fetchone() == ('"$user", public',)
        mine.rollback()


def test_others_wait_for_that_row_only(store: PostgresStore, shared: str) -> None:
    held = taken(store, "y", 60, "A")
    with psycopg.connect(shared) as mine:
        store.apply_in(mine, [ASK])
        [renewed] = store.apply([Renew("y", "A", held.token, 60 * SECOND)], timeout=60)
        assert isinstance(renewed, Renewed)
        assert isinstance(store.apply([OTHER], timeout=0.3)[0], Unknown)
        thread = Thread(lambda: store.apply([OTHER], timeout=60)[0])
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%acquire%%'"
        until(lambda: mine.execute(waiting).fetchone() != (0,), "the wait for the row")
        mine.commit()
        assert isinstance(thread.result(), Held)


def test_a_row_locked_by_another_transaction_does_not_break_ours(store: PostgresStore, shared: str) -> None:
    with psycopg.connect(shared) as theirs, psycopg.connect(shared) as mine:
        store.apply_in(theirs, [ASK])
        mine.execute("SELECT 1")
        [outcome] = store.apply_in(mine, [OTHER], timeout=0.2)
        assert isinstance(outcome, Unknown)
        mine.execute("SELECT 1")
        theirs.rollback()
        assert isinstance(store.apply_in(mine, [OTHER])[0], Granted)
        mine.commit()


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_a_stale_snapshot_fails_instead_of_granting(store: PostgresStore, shared: str, level: str) -> None:
    """A floor that was raised since, or a row that was granted since, must not be overlooked."""
    with psycopg.connect(shared) as mine:
        for op in (OTHER, Release("x", "B")):
            mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            mine.execute("SELECT count(*) FROM lessor.leases")
            store.apply([op], timeout=20)
            store.collect()
            with pytest.raises(psycopg.errors.SerializationFailure):
                store.apply_in(mine, [ASK])
            mine.rollback()
        mine.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
        assert isinstance(store.apply_in(mine, [ASK])[0], Granted)
        mine.commit()


def test_autocommit_is_refused(store: PostgresStore, shared: str) -> None:
    with psycopg.connect(shared, autocommit=True) as mine:
        with pytest.raises(ConfigError, match="autocommit"):
            store.apply_in(mine, [ASK])
        with mine.transaction():
            assert isinstance(store.apply_in(mine, [ASK])[0], Granted)
    assert len(list(store.scan("", timeout=20))) == 1
    for driver in ("psycopg", "psycopg2"):
        with by_engine(shared, driver) as connection:
            auto = connection.execution_options(isolation_level="AUTOCOMMIT")
            with pytest.raises(ConfigError, match="autocommit"):
                store.apply_in(auto, [ASK])


def test_a_failed_transaction_is_refused(store: PostgresStore, shared: str) -> None:
    with psycopg.connect(shared) as mine:
        with pytest.raises(psycopg.errors.DivisionByZero):
            mine.execute("SELECT 1 / 0")
        with pytest.raises(ConfigError, match="has failed"):
            store.apply_in(mine, [ASK])
        mine.rollback()
        assert isinstance(store.apply_in(mine, [ASK])[0], Granted)


def test_what_is_no_connection_is_refused(store: PostgresStore, tmp_path: Any) -> None:
    with pytest.raises(ConfigError, match="str is no connection"):
        store.apply_in("postgresql://", [ASK])
    engine = create_engine(f"sqlite:///{tmp_path}/x.db")
    with engine.connect() as connection, pytest.raises(ConfigError, match="a connection to sqlite"):
        store.apply_in(connection, [ASK])
    engine.dispose()


def test_an_engine_or_a_pool_is_no_connection(store: PostgresStore, shared: str) -> None:
    url = shared.replace("postgresql:", "postgresql+psycopg:")
    engine, loops = create_engine(url), create_async_engine(url)
    for given in (engine, loops, sessionmaker(engine)):
        with pytest.raises(ConfigError, match="not the engine or pool that it comes from"):
            store.apply_in(given, [ASK])
        with pytest.raises(ConfigError, match="not the engine or pool that it comes from"):
            asyncio.run(store.apply_in_async(given, [ASK]))


def test_a_family_in_a_transaction(store: PostgresStore, shared: str) -> None:
    with psycopg.connect(shared) as mine:
        [parent] = store.apply_in(mine, [ASK])
        assert isinstance(parent, Granted)
        child = Acquire("c", "C", "h", 0, parent=("x", parent.token))
        assert isinstance(store.apply_in(mine, [child])[0], Granted)
        mine.commit()
        store.apply_in(mine, [Release("x", "A")])
        mine.rollback()
        assert len(list(store.scan("", timeout=20))) == 2
        store.apply_in(mine, [Release("x", "A")])
        mine.commit()
        assert list(store.scan("", timeout=20)) == []


@pytest.mark.parametrize("kind", sorted(ASYNC))
def test_async(store: PostgresStore, shared: str, kind: str, open_store: Callable[[], PostgresStore]) -> None:
    fresh = open_store()

    async def work() -> None:
        async with ASYNC[kind](shared) as connection:
            assert isinstance((await fresh.apply_in_async(connection, [ASK]))[0], Granted)
            await connection.rollback()
            assert store.read(["x"], timeout=20) == [None]
            assert isinstance((await fresh.apply_in_async(connection, [ASK]))[0], Granted)
            await connection.commit()
            assert store.read(["x"], timeout=20) != [None]
            with pytest.raises(ConfigError, match="asyncio"):
                store.apply_in(connection, [ASK])

    asyncio.run(work())


def test_a_sync_connection_would_block_the_loop(store: PostgresStore, connection: Any) -> None:
    with pytest.raises(ConfigError, match="would block"):
        asyncio.run(store.apply_in_async(connection, [ASK]))


def test_the_clients_word_for_it(store: PostgresStore, url: str, shared: str) -> None:
    with Client(url) as leases, psycopg.connect(shared) as mine:
        grant = leases.acquire_in(mine, "job", ttl=10)
        mine.commit()
        with grant.confirm() as lease:
            assert lease.token == grant.token
        grant = leases.acquire_in(mine, "job", ttl=10)
        mine.rollback()


def test_an_engine_in_the_place_of_a_url(store: PostgresStore, shared: str) -> None:
    plain = shared.replace("postgresql://", "postgresql+psycopg://")
    for engine in (create_engine(plain), create_async_engine(plain.replace("+psycopg", "+asyncpg"))):
        with Client(engine) as leases, leases.acquire("by-engine", ttl=10) as lease:
            assert lease.token > 0
            assert leases.url == f"{shared}?namespace=default"
    with pytest.raises(ConfigError, match="connects to sqlite"):
        Client(create_engine("sqlite://"))
    with Client(plain) as leases:
        assert leases.get("by-engine") is None


def test_text_is_not_only_ascii(store: PostgresStore, connection: Any) -> None:
    name = "é/\U0001f512 %s :x"
    connection.execute(
        text("SELECT 1") if hasattr(connection, "get_bind") or hasattr(connection, "dialect") else "SELECT 1"
    )
    store.apply_in(connection, [ASK._replace(resource=name, metadata='{"ü":"\'"}')])
    connection.commit()
    [record] = store.read([name], timeout=20)
    assert record is not None
    assert record.metadata == {"ü": "'"}
    assert SYSTEM.wall_us() > record.granted_us - 10**9


@pytest.mark.parametrize("name", ["", "/x//y/", "a\nb", 7])
def test_a_bad_name_is_refused_by_both_faces(url: str, shared: str, name: Any) -> None:
    async def ask() -> None:
        async with AsyncClient(url) as client, await psycopg.AsyncConnection.connect(shared) as connection:
            with pytest.raises(InvalidResource):
                await client.acquire_in(connection, name, ttl=5)

    asyncio.run(ask())
    with Client(url) as client, psycopg.connect(shared) as connection, pytest.raises(InvalidResource):
        client.acquire_in(connection, name, ttl=5)


def test_of_a_batch_only_what_somebody_is_about_to_make_is_locked(store: PostgresStore, shared: str) -> None:
    """Its row can't be seen yet, and nobody can wait for it with the rest in hand."""
    taken(store, "mine", 60, "mine")
    with by_psycopg(shared) as connection:
        store.apply_in(connection, [Acquire("fresh", "A", "h", 60 * SECOND)])
        ops: list[Op] = [
            Acquire("fresh", "B", "o", SECOND),
            Release("mine", "mine"),
            Acquire("other", "C", "o", SECOND),
        ]
        locked, released, granted = store.apply(ops, timeout=5)
        assert isinstance(locked, Unknown), locked
        assert "locked" in str(locked.error)
        assert isinstance(released, Released)
        assert isinstance(granted, Granted)
    assert isinstance(store.apply([Acquire("fresh", "D", "o", SECOND)], timeout=5)[0], Granted), "it was rolled back"
