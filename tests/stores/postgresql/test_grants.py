"""Leases that begin when a transaction of the caller's commits."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import psycopg
import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from lessor import AsyncClient, Client, ConfigError, LeaseHeld, LeaseLost, StoreUnavailable
from lessor.fencing import fence
from tests.runtime.forked import Forked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.runtime.forked import Line
    from tests.servers.postgres import PostgresServer


NOT_YET = (LeaseLost, StoreUnavailable)
"""Before the commit: nobody has seen the grant yet, or its row is locked."""


@pytest.fixture
def url(postgres: PostgresServer) -> str:
    url = postgres.database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE jobs (name text)")
    return url


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def connection(url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(url) as connection:
        yield connection


def jobs(url: str) -> list[str]:
    with psycopg.connect(url, autocommit=True) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM jobs ORDER BY name")]


def test_it_begins_with_the_commit(client: Client, connection: psycopg.Connection, url: str) -> None:
    with Client(url, timeout=0.3) as other:
        with connection.transaction():
            grant = client.acquire_in(connection, "job", ttl=30)
            connection.execute("INSERT INTO jobs VALUES ('job')")
            assert other.get("job") is None
            other.acquire("another", wait=0)  # nobody waits for us, even where we are the first ever
        lease = grant.confirm()
        assert lease.token == grant.token
        assert grant.confirm() is lease
        lease.check()
        assert other.try_acquire("job") is None
        assert jobs(url) == ["job"]
        assert lease.release()
        assert other.acquire("job", wait=0).token > grant.token


def test_it_goes_with_a_rollback(client: Client, connection: psycopg.Connection, url: str) -> None:
    connection.execute("INSERT INTO jobs VALUES ('job')")
    grant = client.acquire_in(connection, "job", ttl=30)
    connection.rollback()
    with pytest.raises(LeaseLost, match="never committed"):
        grant.confirm()
    assert jobs(url) == []
    client.acquire("job", wait=0).check()


def test_it_is_no_lease_before_the_commit(client: Client, connection: psycopg.Connection) -> None:
    with connection.transaction():
        grant = client.acquire_in(connection, "job", ttl=30)
        with pytest.raises(NOT_YET):
            grant.confirm()
    grant.confirm().check()


def test_what_is_held_is_refused_and_the_transaction_can_go_on(
    client: Client, connection: psycopg.Connection, url: str
) -> None:
    held = client.acquire("job", ttl=30)
    with connection.transaction():
        with pytest.raises(LeaseHeld) as refused:
            client.acquire_in(connection, "job", ttl=30)
        connection.execute("INSERT INTO jobs VALUES ('another')")
    assert refused.value.token == held.token
    assert jobs(url) == ["another"]
    held.check()


def test_its_token_guards_writes_of_the_same_transaction(client: Client, connection: psycopg.Connection) -> None:
    with connection.transaction():
        grant = client.acquire_in(connection, "job", ttl=30)
        with fence(connection, grant):
            connection.execute("INSERT INTO jobs VALUES ('job')")
    lease = grant.confirm()
    with connection.transaction(), fence(connection, lease):
        connection.execute("INSERT INTO jobs VALUES ('again')")


def test_on_an_sqlalchemy_connection(client: Client, url: str) -> None:
    engine = create_engine(url.replace("postgresql://", "postgresql+psycopg://"))
    with engine.begin() as connection:
        grant = client.acquire_in(connection, "job", ttl=30)
        connection.execute(text("INSERT INTO jobs VALUES ('job')"))
    grant.confirm().check()
    engine.dispose()
    assert jobs(url) == ["job"]


def test_for_asyncio(url: str) -> None:
    async def scenario() -> None:
        async with AsyncClient(url) as client:
            async with await psycopg.AsyncConnection.connect(url) as connection:
                async with connection.transaction():
                    grant = await client.acquire_in(connection, "job", ttl=30)
                    with pytest.raises(NOT_YET):
                        await grant.confirm()
                lease = await grant.confirm()
                assert await grant.confirm() is lease
                lease.check()
                await connection.execute("SELECT 1")
                lost = await client.acquire_in(connection, "other", ttl=30)
                await connection.rollback()
                with pytest.raises(LeaseLost):
                    await lost.confirm()
            engine = create_async_engine(url.replace("postgresql://", "postgresql+psycopg://"))
            async with engine.begin() as sqlalchemy:
                grant = await client.acquire_in(sqlalchemy, "third", ttl=30)
            (await grant.confirm()).check()
            await engine.dispose()

    asyncio.run(scenario())


def test_other_stores_cannot(connection: psycopg.Connection) -> None:
    with Client("memory://") as client, pytest.raises(ConfigError, match="can't grant inside your transaction"):
        client.acquire_in(connection, "job")


def test_only_in_a_transaction(client: Client, url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection, pytest.raises(ConfigError):
        client.acquire_in(connection, "job")


def test_a_grant_is_not_confirmed_in_a_forked_child(client: Client, connection: psycopg.Connection) -> None:
    """It would be renewed by two processes, and each would believe to be the holder."""
    with connection.transaction():
        grant = client.acquire_in(connection, "job", ttl=30)

    def worker(line: Line) -> None:
        with pytest.raises(LeaseLost) as lost:
            grant.confirm()
        assert lost.value.reason == "forked"

    with Forked(worker) as child:
        child.end()
    grant.confirm().check()
