"""A watcher whose connection was lost: it is told that, and what it can't be told of any more."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from lessor import AsyncClient, Client
from lessor.testing.conformance.base import PATIENCE
from tests.servers import free_port
from tests.servers.tunnel import Tunnel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import psycopg

    from lessor.core.view import Event
    from tests.servers.postgres import PostgresServer

NAME = "a-watcher"


@pytest.fixture
def way(postgres: PostgresServer) -> Iterator[Tunnel]:
    with Tunnel(postgres.port) as way:
        yield way


@pytest.fixture
def watched(url: str, postgres: PostgresServer, way: Tunnel) -> str:
    return f"{url.replace(str(postgres.port), str(way.port))}&application_name={NAME}"


@pytest.fixture
def unheard(url: str, raw: psycopg.Connection, way: Tunnel, postgres: PostgresServer) -> Iterator[Callable[[], None]]:
    """Return what is to be done once the watcher listens: leases that end while it is cut off."""
    with Client(url) as other:
        held = other.acquire("jobs/held", ttl=60)

        def unheard() -> None:
            way.lead(free_port())
            found = raw.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = %s", (NAME,)
            ).fetchall()
            assert found
            held.release()
            other.acquire("jobs/came-and-went", ttl=60).release()
            way.lead(postgres.port)

        yield unheard


def is_all_that_can_be_told(event: Event, gaps: int) -> bool:
    return (str(event.kind), event.resource) == ("expired", "jobs/held") and gaps > 0


def test_threads(watched: str, unheard: Callable[[], None]) -> None:
    with Client(watched) as client, client.watch("jobs/") as events:
        assert events.gaps == 0
        unheard()
        event = next(events)
        assert is_all_that_can_be_told(event, events.gaps)


def test_asyncio(watched: str, unheard: Callable[[], None]) -> None:
    async def main() -> None:
        async with AsyncClient(watched) as client, asyncio.timeout(PATIENCE), client.watch("jobs/") as events:
            assert events.gaps == 0
            await asyncio.to_thread(unheard)
            event = await anext(events)
            assert is_all_that_can_be_told(event, events.gaps)

    asyncio.run(main())
